"""What the door raises can be shown anywhere."""

import pytest

from latchguard import Finding
from latchguard.core.errors import LatchguardError
from latchguard.core.findings import Repair
from latchguard.integrations.errors import SignedBodyError, UncleanRequestError

FINDINGS = tuple(
    Finding("args-invalid-json", f"$.messages[{number}]", Repair.PLACEHOLDER, applied=False, before="x\x1b" * 999)
    for number in range(9)
)


@pytest.mark.parametrize(
    "error",
    [
        SignedBodyError("/model/m/invoke\n" + "x" * 999, "authorization", FINDINGS),
        UncleanRequestError("/v1/messages\n" + "x" * 999, FINDINGS),
    ],
)
def test_text_is_short_and_safe(error: LatchguardError) -> None:
    """A hostile URL and a long list of findings stay one printable line that says how many there are."""
    text = str(error)
    assert "args-invalid-json at $.messages[0]" in text
    assert "and 4 more" in text
    assert text.isprintable()
    assert len(text) < 600
