"""Findings and rules: what was found where, and what its repair costs."""

from __future__ import annotations

from enum import StrEnum
from inspect import cleandoc
from typing import Any, Final

from attrs import field, frozen

__all__ = ["Finding", "Repair", "Rule", "Wire", "permits"]


class Wire(StrEnum):
    """A provider's request format."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


class Repair(StrEnum):
    """What a repair costs: nothing, a placeholder in place of what was unusable, content; or there is none."""

    LOSSLESS = "lossless"
    PLACEHOLDER = "placeholder"
    LOSSY = "lossy"
    DETECT = "detect"


_COST: Final = {repair: cost for cost, repair in enumerate(Repair)}


def permits(allow: Repair, repair: Repair) -> bool:
    """Say whether *allow* permits a repair of this cost. `detect` is never repaired, and permits nothing."""
    return Repair.DETECT not in (allow, repair) and _COST[repair] <= _COST[allow]


@frozen
class Finding:
    """One place where a rule fired.

    Args:
        rule: the rule's slug.
        path: where, as a JSON path from the body or file (`$.messages[3].tool_calls[0]`).
        repair: what its repair costs.
        applied: whether the repair was made; a repair above `allow` is not.
        before: what stood there.
        after: what stands, or would stand, there now; None where nothing does.
        note: a sentence for a person, where rule and path do not say enough.
        tool_name: the tool that the call names, where there is one.
    """

    rule: str
    path: str
    repair: Repair
    applied: bool
    before: Any = None
    after: Any = None
    note: str = ""
    tool_name: str | None = None


@frozen
class Rule:
    """One class of violation.

    Args:
        slug: its stable name.
        area: the part of the catalogue it stands in.
        repair: the dearest repair it may make.
        doc: when it fires, where that is documented or was seen and when, what its repair costs.
        wires: the wires it looks at; none for rules of storage and state.
        demand: fires only where a profile makes this demand; None for always.
        errors: phrases of provider errors behind which it stands; `...` for any text.
    """

    slug: str
    area: str
    repair: Repair
    doc: str = field(converter=cleandoc)
    wires: tuple[Wire, ...] = ()
    demand: str | None = None
    errors: tuple[str, ...] = ()
