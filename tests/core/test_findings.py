import pytest

from latchguard import Finding
from latchguard.core.findings import Repair, Wire, permits


@pytest.mark.parametrize(
    ("allow", "permitted"),
    [
        (Repair.LOSSLESS, {Repair.LOSSLESS}),
        (Repair.PLACEHOLDER, {Repair.LOSSLESS, Repair.PLACEHOLDER}),
        (Repair.LOSSY, {Repair.LOSSLESS, Repair.PLACEHOLDER, Repair.LOSSY}),
        (Repair.DETECT, set()),
    ],
)
def test_permits(allow: Repair, permitted: set[Repair]) -> None:
    """Everything up to its own cost; what can only be detected is never repaired."""
    assert {repair for repair in Repair if permits(allow, repair)} == permitted


def test_spellings() -> None:
    """Wires and costs stand in options, reports and documents under these names, costs from cheap to dear."""
    assert list(Wire) == ["openai-chat", "openai-responses", "anthropic", "gemini"]
    assert list(Repair) == ["lossless", "placeholder", "lossy", "detect"]


def test_finding_says_where_and_what_at_least() -> None:
    """Rule, place, cost and whether it was repaired; the rest may be missing."""
    finding = Finding("args-invalid-json", "$.messages[0]", Repair.PLACEHOLDER, applied=False)
    assert (finding.before, finding.after, finding.note, finding.tool_name) == (None, None, "", None)
