"""Restamp: renumber the refs of the whole history and rebind or drop every latch, in one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from attrs import evolve, frozen

from latchguard.core.binding import Bindings, Twins, bind_latches, forms_of
from latchguard.core.errors import NumberingError, check_type
from latchguard.core.history import positions_of
from latchguard.core.identity import Identity
from latchguard.core.latches import Drop, Latch, latch_order
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, RefMap, format_ref, ref_number
from latchguard.core.state import ConversationState, check_id, without

__all__ = ["Rebound", "Restamp", "number_refs", "restamp", "restamp_identities"]


@frozen
class Rebound:
    """A latch that has another ref now, or is back from quarantine."""

    old: Latch
    new: Latch


@frozen
class Restamp:
    """The result of a restamp.

    Args:
        state: the state after; the very state that was given where nothing changes.
        rebound: the latches whose ref changed, and those that were `gone` and are back.
        dropped: the latches that this restamp put into quarantine, with their reasons.
        moved: the whole map old ref -> new ref, None where the message is gone. Whoever keeps anything by ref
            applies it at once (I12).
    """

    state: ConversationState
    rebound: tuple[Rebound, ...]
    dropped: tuple[Drop, ...]
    moved: Mapping[str, str | None]


def restamp(
    state: ConversationState, messages: Sequence[Message], *, numbering: Mapping[str, str] | None = None
) -> Restamp:
    """Number the refs anew in the order of *messages*, and rebind or drop every latch in the same step.

    Args:
        state: refs and latches as they are now.
        messages: the whole history, oldest first. Unknown messages are added; known ones that are absent lose
            their ref. Protected messages stay protected.
        numbering: message id -> ref from a host's ledger: one to one, gaps allowed, `BLOCKED` protects. A message
            that it does not name gets a ref after the highest one. Without it the refs are 1..n over the
            unprotected messages.

    Returns:
        The new state, what was rebound, what was dropped and why, and the map of all old refs.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: an id holds a surrogate, or an argument has the wrong type.
        NumberingError: two ids of *numbering* share a ref, or a value is no ref.

    Guarantees:
        Pure and idempotent. Every latch of *state* is bound or in quarantine afterwards (I3); a message that is
        there before and after shows the same text, or its latch was dropped here, with a reason (I6).
    """
    positions_of(messages)
    return restamp_identities(state, {message.id: Identity.of(message) for message in messages}, numbering)


def restamp_identities(
    state: ConversationState, present: Mapping[str, Identity | None], numbering: Mapping[str, str] | None = None
) -> Restamp:
    """Do what `restamp` does, for whoever has the identities but not the messages (a database).

    Args:
        state: refs and latches as they are now. Of its identities only those matter that changed, that a latch,
            or a drop that is `gone` or `cleared`, names or shows, or whose message carries a latch; the others may be
            left out.
        present: message id -> identity of the whole history, in its new order; None where it may be left out.
        numbering: as in `restamp`.
    """
    check_type(state, ConversationState, "state", "a ConversationState")
    refs = number_refs(state.refs, present, numbering)
    identities = {key: found for key, found in present.items() if found is not None}
    if absent := state.identities.keys() - present.keys():
        identities |= {key: state.identities[key] for key in refs if key in absent}
    latched = {latch.ref for latch in state.latches} - {BLOCKED}
    hosts = {ref: key for key, ref in state.refs.items() if ref in latched}  # without the inverse of the whole map
    hosted = [(hosts.get(latch.ref), latch) for latch in state.latches]
    gone = [drop for drop in state.quarantine if drop.reason is Reason.GONE]
    twins = _twins(state, present, refs, hosted, gone)
    result = _apply(state, refs, identities, bind_latches(hosted, gone, twins, tuple(state.superseded())))
    return evolve(result, moved=_Moved(state.refs, refs))


class _Moved(Mapping[str, str | None]):
    """Old ref -> new ref, each looked up when it is asked for: a history is long, and few ask for all of it."""

    def __init__(self, before: RefMap, after: RefMap) -> None:
        self._before, self._after = before, after

    def __getitem__(self, ref: str) -> str | None:
        if (key := self._before.holder(ref)) is None:
            raise KeyError(ref)
        new = self._after.get(key)
        return None if new == BLOCKED else new

    def __iter__(self) -> Iterator[str]:
        return (ref for _, ref in self._before.items() if ref != BLOCKED)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def number_refs(refs: RefMap, message_ids: Iterable[str], numbering: Mapping[str, str] | None) -> RefMap:
    """Give the ref map after a restamp. Protected messages stay protected, absent ones too.

    Raises:
        NumberingError: two ids of *numbering* share a ref, or a value is no ref.
    """
    blocked = {key: ref for key, ref in refs.items() if ref == BLOCKED}
    by_id = dict.fromkeys(message_ids, "")
    if list(by_id) != list(refs):  # else, as mostly, a look-up less for each message of a history
        for key in by_id:
            if key not in refs:
                check_id(key)
    cursor, size = 1, len(by_id)
    if numbering is not None:
        cursor = _highest_number(numbering) + 1
        by_id.update(numbering)
    by_id |= blocked
    for key in list(islice(by_id, size, None)):  # what is not in the history stands behind it
        del by_id[key]
    for key, ref in by_id.items():
        if not ref:
            by_id[key] = format_ref(cursor)
            cursor += 1
    by_id |= blocked
    return refs if by_id == refs and list(by_id) == list(refs) else RefMap.of(by_id, cursor)


def _highest_number(numbering: Mapping[str, str]) -> int:
    """Check that *numbering* is one to one; give the number of its highest ref, 0 where it has none."""
    check_type(numbering, Mapping, "numbering", "a mapping from message id to ref")
    numbers: list[int] = []
    for message_id, ref in numbering.items():
        if type(message_id) is not str:  # a call per message of a history costs as much as all else here
            check_type(message_id, str, "numbering", "message ids as keys")
        number = ref_number(ref) if isinstance(ref, str) else None
        if number is not None:
            numbers.append(number)
        elif ref != BLOCKED:
            raise NumberingError(message_id, ref, "a ref (m00001, ...) or BLOCKED")
    if len(set(numbers)) < len(numbers):
        owners: dict[str, str] = {}
        pairs = ((key, ref) for key, ref in numbering.items() if ref != BLOCKED)
        message_id, ref = next((key, ref) for key, ref in pairs if owners.setdefault(ref, key) != key)
        raise NumberingError(message_id, ref, f"a ref of its own, not that of message {owners[ref]!a}")
    return max(numbers, default=0)


def _twins(
    state: ConversationState,
    present: Mapping[str, Identity | None],
    refs: RefMap,
    hosted: Sequence[tuple[str | None, Latch]],
    gone: Sequence[Drop],
) -> Twins:
    """Cut the messages down to those that matter to a latch: a history is long, latches are few."""
    latches = [latch for _, latch in hosted] + [drop.latch for drop in gone]
    if not latches:
        return Twins({}, {}, state.refs, ())
    cleared = [drop.latch for drop in state.quarantine if drop.reason is Reason.CLEARED]
    hashes = {form for latch in (*latches, *cleared) for form in (latch.identity.hash, latch.shown)}
    hosts = {host for host, _ in hosted}
    known = {key: found for key, found in state.identities.items() if found.hash in hashes or key in hosts}
    old = {key: known[key] for key in state.refs if key in known}
    new = {key: found for key, found in present.items() if found and (found.hash in hashes or key in hosts)}
    return Twins(old, new, state.refs, frozenset(key for key in new if refs[key] == BLOCKED), forms_of(cleared))


def _apply(state: ConversationState, refs: RefMap, identities: Mapping[str, Identity], bindings: Bindings) -> Restamp:
    homes = [(latch, evolve(latch, ref=refs[key])) for latch, key in bindings.homes]
    revived = [(drop.latch, evolve(drop.latch, ref=refs[key])) for drop, key in bindings.revived]
    quarantine = without(state.quarantine, [drop for drop, _ in bindings.revived])
    after = evolve(
        state,
        refs=refs,
        identities=identities,
        entry_extra={key: extra for key, extra in state.entry_extra.items() if key in refs},
        latches=tuple(sorted((new for _, new in homes + revived), key=latch_order)),
        quarantine=(*quarantine, *bindings.dropped),
    )
    if refs is state.refs and after == state:
        return Restamp(state, (), (), {})
    after = evolve(after, version=state.version + 1, epoch=state.epoch + 1)
    rebound = [Rebound(old, new) for old, new in homes if old.ref != new.ref]
    rebound += (Rebound(old, new) for old, new in revived)
    return Restamp(after, tuple(rebound), tuple(bindings.dropped), {})
