"""What a kernel tells of its replay (the event `replayed`), held against what it shows and what it may refuse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from latchguard.testing.fates import Held
from latchguard.testing.laws import violation
from latchguard.testing.protocol import REASONS, Json

__all__ = ["APPLIED", "HIDDEN", "Expected", "check_replayed"]

# What may become of a latch in a replay, beside the reasons for which it may be refused.
APPLIED: Final = "applied"
HIDDEN: Final = "hidden by a clip"


@frozen
class Expected:
    """What a replay has to tell of one latch.

    Args:
        latch: the latch.
        holder: the id of the message that holds its ref, None where that is not in the history given.
        outcomes: `APPLIED`, `HIDDEN` or reasons: one, but where the contract is silent.
    """

    latch: Held
    holder: str | None
    outcomes: Collection[str]


def check_replayed(
    event: Mapping[str, Any] | None, expected: Mapping[tuple[str, bool], Expected], view: Sequence[Json]
) -> None:
    """Hold the event `replayed` against what is in force.

    Args:
        event: the event, None where there is none.
        expected: what has to be told of each latch in force, by its ref and whether it is a view.
        view: what the model would be sent.

    Raises:
        Violation: a latch is told of twice, wrongly or not at all, or what is told as applied does not show.
    """
    if event is None:
        raise violation("capabilities", "replay-report", "the event replayed", "none")
    told: dict[tuple[str, bool], tuple[str, str | None]] = {}
    shows: dict[str, str] = {}
    for entry in (*event["applied"], *event["refused"]):
        key, outcome = (entry["ref"], entry.get("view") is not None), entry.get("reason", APPLIED)
        wanted = expected.get(key)
        if wanted is None or (entry["text"], entry.get("view")) != (wanted.latch.text, wanted.latch.view):
            raise violation("replay-told", entry["ref"], "a latch that is in force", repr(entry["text"]))
        if key in told:
            raise violation("replay-told", entry["ref"], "each latch once", f"{told[key][0]} and {outcome}")
        told[key] = outcome, entry.get("holder")
        if outcome == APPLIED:
            shows[entry["holder"]] = entry["text"]
    for key, wanted in expected.items():
        _check_outcome(key[0], wanted, *told.get(key, (HIDDEN, wanted.holder)))
    for entry in view:
        if entry["id"] in shows and shows[entry["id"]] != entry["text"]:
            raise violation("replay-told", entry["id"], repr(entry["text"]), f"{shows[entry['id']]!r} as applied")


def _check_outcome(ref: str, wanted: Expected, outcome: str, holder: str | None) -> None:
    where = f"the latch {wanted.latch.text!r} at {ref}"
    if outcome not in wanted.outcomes:
        law = "right-reason" if REASONS.issuperset({outcome, *wanted.outcomes}) else "replay-told"
        raise violation(law, where, " or ".join(sorted(wanted.outcomes)), outcome)
    if holder != wanted.holder:
        raise violation("replay-told", where, f"held by {wanted.holder}", f"held by {holder}")
