"""A kernel's account of itself (the event `report`), and the laws of its refs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

from latchguard.testing.laws import violation
from latchguard.testing.protocol import BLOCKED, Json, ref_number

__all__ = [
    "Account",
    "Slots",
    "check_kept_refs",
    "check_moved",
    "check_new_refs",
    "read_account",
    "stray_key",
    "stray_ref",
]

# The latches on one message, by whether it is a view: text and name of the view.
Slots: TypeAlias = dict[bool, tuple[str, str | None]]

_STRAY: Final = "\0nobody at "


@frozen
class Account:
    """What a report says.

    Args:
        refs: message id -> ref or `BLOCKED`.
        bound: message id -> the latches on it.
        quarantine: drop id -> text, name of the view, reason.
    """

    refs: Mapping[str, str]
    bound: Mapping[str, Slots]
    quarantine: Mapping[str, tuple[str, str | None, str]]


def stray_key(ref: str) -> str:
    """Give what stands for the message id of an adopted latch whose *ref* no message holds."""
    return _STRAY + ref


def stray_ref(key: str) -> str | None:
    """Give the ref that *key* stands for, None where it is the id of a message."""
    return key.removeprefix(_STRAY) if key.startswith(_STRAY) else None


def read_account(report: Mapping[str, Any], strays: Collection[str] = ()) -> Account:
    """Read a report.

    Args:
        report: the event.
        strays: refs that adopted latches may have although no message holds them.

    Raises:
        Violation: a ref is none, two messages share one, a latch has a ref that no message has, a message has two
            latches of a class, or a drop id stands for two drops.
    """
    holders = {ref: stray_key(ref) for ref in strays} | _invert(report["refs"])
    bound: defaultdict[str, Slots] = defaultdict(dict)
    for latch in report["latches"]:
        text, view, ref = latch["text"], latch.get("view"), latch["ref"]
        if ref not in holders:
            law = "protection" if ref == BLOCKED else "refs-move"
            raise violation(law, f"the latch {text!r}", "the ref of a message", ref)
        slots = bound[holders[ref]]
        if (view is not None) in slots:
            raise violation("one-latch-per-class", ref, "at most one latch of a class", repr(text))
        slots[view is not None] = (text, view)
    drops = report["quarantine"]
    quarantine = {entry["drop"]: (entry["text"], entry.get("view"), entry["reason"]) for entry in drops}
    if len(quarantine) < len(drops):
        raise violation("nothing-from-nothing", "report.quarantine", "each drop once", "a drop id twice")
    return Account(report["refs"], dict(bound), quarantine)


def _invert(refs: Mapping[str, str]) -> dict[str, str]:
    holders: dict[str, str] = {}
    for message_id, ref in refs.items():
        if ref == BLOCKED:
            continue
        if ref_number(ref) is None:
            raise violation("refs", message_id, "m and five or more digits", ref)
        if holders.setdefault(ref, message_id) != message_id:
            raise violation("refs", message_id, f"a ref of its own, not that of {holders[ref]}", ref)
    return holders


def check_kept_refs(
    old: Mapping[str, str],
    new: Mapping[str, str],
    history: Sequence[Json],
    protected: Collection[str],
    issued: Collection[str],
) -> None:
    """Hold the refs after an op that is no restamp against the laws: old ones stay, new ones are new.

    Args:
        old: message id -> ref before.
        new: message id -> ref now.
        history: the messages as they are.
        protected: the ids that are protected now.
        issued: the refs since the last restamp.
    """
    present = {message["id"] for message in history}
    _check_protected(new, present, protected)
    for message_id, ref in old.items():
        if message_id not in protected and new.get(message_id, ref) != ref:
            raise violation("refs", message_id, ref, new[message_id])
    for message_id in new.keys() - old.keys():
        if new[message_id] in issued:
            raise violation("ref-issued-once", message_id, "a new ref", new[message_id])


def check_new_refs(
    refs: Mapping[str, str], history: Sequence[Json], numbering: Mapping[str, str] | None, protected: Collection[str]
) -> None:
    """Hold the refs after a restamp against the laws: the numbering, or 1..n, and what is absent has none."""
    present = [message["id"] for message in history]
    _check_protected(refs, present, protected)
    for message_id in refs.keys() - set(present):
        if refs[message_id] != BLOCKED:
            raise violation("refs-renumbered", message_id, "no ref for what is not there", refs[message_id])
    given = {key: ref for key, ref in (numbering or {}).items() if ref != BLOCKED}
    highest = max((ref_number(ref) or 0 for ref in given.values()), default=0)
    unprotected = [message_id for message_id in present if message_id not in protected]
    for count, message_id in enumerate(unprotected, 1):
        wanted, number = given.get(message_id), ref_number(refs[message_id]) or 0
        if wanted and refs[message_id] != wanted:
            raise violation("refs-renumbered", message_id, wanted, refs[message_id])
        if numbering is None and number != count:
            raise violation("refs-renumbered", message_id, f"number {count}", refs[message_id])
        if not wanted and number <= highest:
            raise violation("refs-renumbered", message_id, f"a ref after number {highest}", refs[message_id])


def _check_protected(refs: Mapping[str, str], present: Collection[str], protected: Collection[str]) -> None:
    for message_id in present:
        if message_id not in refs:
            raise violation("refs", message_id, "a ref", "none")
        if (refs[message_id] == BLOCKED) != (message_id in protected):
            wanted = BLOCKED if message_id in protected else "a ref of its own"
            raise violation("protection", message_id, wanted, refs[message_id])


def check_moved(moved: Json | None, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Hold the event `moved` against the whole map old ref -> new ref or None."""
    wanted = {ref: None if new.get(key) == BLOCKED else new.get(key) for key, ref in old.items() if ref != BLOCKED}
    if moved is None:
        raise violation("refs-move", "events", "the event moved", "none")
    found = {ref: None if to == BLOCKED else to for ref, to in moved["refs"].items()}
    if found != wanted:
        raise violation("refs-move", "moved.refs", wanted, found)
