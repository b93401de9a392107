"""Say where each stored latch belongs: the messages judge, refs do not. Files and databases share it.

1. A latch with an identity goes where that identity is. One without, or with one that no message has, goes where head
   and tail of its text prove it (`core.proof`); a message that shows the text already counts as proven.
2. If the holder of its ref is among the proven it stays. Else exactly one identity on one message takes it.
3. It is dropped only where a present message disproves it; with its holder absent it is left in place.
4. A message keeps one latch of each class: the last stored one; equal texts collapse without loss.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import evolve, frozen

from latchguard.core.identity import Identity
from latchguard.core.latches import LATCHABLE, mismatch
from latchguard.core.message import Message
from latchguard.core.proof import TAG_STARTS, has_marker, proves, split_clip, strip_tag
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED

__all__ = ["StoredLatch", "StoredRefs", "Verdict", "find_stuck", "judge_latches", "nearness"]

# A head has at least 256 UTF-16 units, hence 128 characters: they find the candidates without trying every message.
_KEY_CHARACTERS: Final = 128

_ABSENT: Final = "its message is not in the file: neither proven nor disproved"
_NOWHERE: Final = "no message holds its ref, and none is proven to be its own"
_NO_MARKER: Final = "a view without a known marker: nothing proves or disproves it"
_NO_OWN_REF: Final = "its message is proven, but the ref map gives that message no ref of its own"


class StoredLatch(Protocol):
    """What is judged: a latch at rest, of any source."""

    @property
    def ref(self) -> str:
        """The ref it stands under, or `BLOCKED`."""

    @property
    def text(self) -> str:
        """What it shows."""

    @property
    def is_view(self) -> bool:
        """Whether it is a view; else it is a clip."""

    @property
    def identity(self) -> Identity | None:
        """What it says it was made for, where it says so in the right form."""


class StoredRefs(Protocol):
    """The ref map at rest, which need not be one to one."""

    @property
    def by_id(self) -> Mapping[str, str]:
        """Message id -> ref, or `BLOCKED`."""

    @property
    def by_ref(self) -> Mapping[str, str]:
        """Ref -> message id."""

    def own_ref(self, message_id: str) -> str | None:
        """Give the ref that *message_id* holds alone, None where there is none."""


L = TypeVar("L", bound=StoredLatch)


@frozen
class Verdict(Generic[L]):
    """Where one latch belongs.

    Args:
        latch: the stored latch.
        holder: the message that holds its ref now; None where there is none, or several.
        target: the message it belongs to; None where it is dropped or left in place.
        identity: of the target, as the latch shall carry it.
        reason: why it is dropped.
        surplus: whether an equal latch of the same message stays in its stead.
        note: why it is left in place, where nothing speaks for it.
    """

    latch: L
    holder: Message | None = None
    target: Message | None = None
    identity: Identity | None = None
    reason: Reason | None = None
    surplus: bool = False
    note: str = ""


def judge_latches(
    latches: Sequence[L],
    messages: Iterable[Message],
    refs: StoredRefs,
    markers: Sequence[re.Pattern[str]],
    *,
    unreadable: Collection[str] = (),
) -> list[Verdict[L]]:
    """Give one verdict per latch.

    Args:
        latches: of one session, views before clips (a clip may be proven by a view), each in stored order.
        messages: of the session.
        refs: its ref map.
        markers: what stands between head and tail of a clip.
        unreadable: ids of messages that are there and could not be read.

    Guarantees:
        Pure. Linear in messages and latches, but for texts whose first 128 characters are the same.
    """
    binder = _Binder(list(messages), refs, markers, unreadable)
    verdicts: list[Verdict[L]] = []
    for latch in latches:
        verdict = binder.bind(latch)
        verdicts.append(verdict)
        if latch.is_view:
            binder.add_view(verdict)
    return _one_per_class(verdicts, refs)


def nearness(latches: Iterable[StoredLatch]) -> Callable[[str], bool]:
    """Give a test that every text passes which shows one of *latches*, or which one of them may be a clip of."""
    # A clip begins with its head: both begin alike, the kernel's own tag set aside on either side.
    starts = {start[:_KEY_CHARACTERS] for latch in latches for start in (latch.text, strip_tag(latch.text))}

    def is_near(text: str) -> bool:
        return text[:_KEY_CHARACTERS] in starts or (
            text[:1] in TAG_STARTS and strip_tag(text)[:_KEY_CHARACTERS] in starts
        )

    return is_near


def find_stuck(
    verdicts: Sequence[Verdict[Any]], refs: StoredRefs, stays: Collection[tuple[bool, str]], *, leaves: bool
) -> set[int]:
    """Find the latches that cannot move since another of their class stays where they belong.

    Args:
        verdicts: of one session.
        refs: its ref map.
        stays: class (whether a view) and ref of what stays, whatever the verdicts.
        leaves: whether dropped latches leave their place.

    Returns:
        Positions in *verdicts*.
    """
    held = set(stays)
    moves: dict[int, str] = {}
    for position, verdict in enumerate(verdicts):
        ref = refs.own_ref(verdict.target.id) if verdict.target else None
        if ref is not None and ref != verdict.latch.ref and not verdict.surplus:
            moves[position] = ref
        elif not verdict.surplus and not (verdict.reason and leaves):
            held.add((verdict.latch.is_view, verdict.latch.ref))
    stuck: set[int] = set()
    while found := {
        position for position in moves.keys() - stuck if (verdicts[position].latch.is_view, moves[position]) in held
    }:
        stuck |= found
        held |= {(verdicts[position].latch.is_view, verdicts[position].latch.ref) for position in found}
    return stuck


class _Binder:
    """The messages of one session, found by id, ref, identity, text and the beginnings of their texts."""

    def __init__(
        self,
        messages: Sequence[Message],
        refs: StoredRefs,
        markers: Sequence[re.Pattern[str]],
        unreadable: Collection[str],
    ) -> None:
        self._refs = refs
        self._unreadable = unreadable
        self._markers = markers
        self._messages = messages
        self._by_id: dict[str, list[Message]] = defaultdict(list)
        self._by_ref: dict[str, list[Message]] = defaultdict(list)
        for message in self._messages:
            self._by_id[message.id].append(message)
            if (ref := refs.by_id.get(message.id)) is not None:
                self._by_ref[ref].append(message)

    @cached_property
    def _unreadable_refs(self) -> set[str | None]:
        return {self._refs.by_id.get(message_id) for message_id in self._unreadable}

    @cached_property
    def _by_identity(self) -> dict[Identity, list[Message]]:
        found: dict[Identity, list[Message]] = defaultdict(list)
        for message in self._messages:
            found[Identity.of(message)].append(message)
        return found

    @cached_property
    def _by_text(self) -> dict[str, list[Message]]:
        found: dict[str, list[Message]] = defaultdict(list)
        for message in self._messages:
            found[message.text].append(message)
        return found

    @cached_property
    def _by_start(self) -> dict[str, list[tuple[Message, str]]]:
        found: dict[str, list[tuple[Message, str]]] = defaultdict(list)
        for message in self._messages:
            for start in _starts(message.text):
                found[start].append((message, message.text))
        return found

    def add_view(self, verdict: Verdict[Any]) -> None:
        """Let clips be proven by the text of a message's own view."""
        owner = verdict.target or (verdict.holder if verdict.note else None)
        if owner:
            for start in _starts(verdict.latch.text):
                self._by_start[start].append((owner, verdict.latch.text))

    def bind(self, latch: L) -> Verdict[L]:
        holders = self._holders(latch.ref)
        bare = Verdict(latch, holders[0] if len(holders) == 1 else None)
        if not holders and self._is_absent(latch.ref):
            return evolve(bare, note="" if latch.identity else _ABSENT)
        proven = self._with_identity(latch, holders)
        identity = latch.identity if proven else None
        proven = proven or self._prove(latch.text)
        target = self._choose([message for message in proven if LATCHABLE[message.kind]], holders, latch.ref)
        if isinstance(target, Message):
            return self._place(bare, target, identity, holders)
        if not holders:
            return evolve(bare, note=_NOWHERE)
        reason = target or (Reason.FORBIDDEN_KIND if proven else self._why_none(bare, holders))
        return evolve(bare, reason=reason) if reason else evolve(bare, note=_NO_MARKER)

    def _holders(self, ref: str) -> list[Message]:
        """Give the messages that hold *ref*; where two say so, the inverse map decides, if it can."""
        found = self._by_ref.get(ref, [])
        named = self._refs.by_ref.get(ref)
        if ref == BLOCKED:
            return found
        if named is not None and named in self._by_id and self._refs.by_id.get(named, ref) == ref:
            return self._by_id[named]
        return found

    def _is_absent(self, ref: str) -> bool:
        """Say whether the ref map names a holder that is not among the messages that could be read."""
        named = self._refs.by_ref.get(ref)
        if ref == BLOCKED:
            return False
        return ref in self._unreadable_refs or (named is not None and named not in self._by_id)

    def _with_identity(self, latch: StoredLatch, holders: Sequence[Message]) -> list[Message]:
        """Give the messages that the identity of *latch* names, or that show its text already."""
        wanted = latch.identity
        if wanted is None or not LATCHABLE[wanted.kind]:
            return []
        for holder in holders:
            if Identity.of(holder) == wanted:
                return [holder]
        shown = self._by_text.get(latch.text, [])
        return self._by_identity.get(wanted) or [
            message for message in shown if (message.role, message.kind) == (wanted.role, wanted.kind)
        ]

    def _prove(self, text: str) -> list[Message]:
        proven = list(self._by_text.get(text, ()))
        for split in split_clip(text, self._markers):
            for start in _starts(split.head):
                proven += [message for message, own in self._by_start.get(start, ()) if proves((split,), own)]
        return proven

    def _choose(self, proven: Sequence[Message], holders: Sequence[Message], ref: str) -> Message | Reason | None:
        own = [message for message in proven if message in holders and ref != BLOCKED]
        found = list(dict.fromkeys(own or proven))
        if len(found) > 1:
            return Reason.AMBIGUOUS
        return found[0] if found else None

    def _place(
        self, bare: Verdict[L], target: Message, identity: Identity | None, holders: Sequence[Message]
    ) -> Verdict[L]:
        if self._refs.by_id.get(target.id) == BLOCKED:
            return evolve(bare, reason=Reason.BLOCKED_REF)
        if len(self._by_id[target.id]) > 1:
            return evolve(bare, reason=Reason.AMBIGUOUS)
        if self._refs.own_ref(target.id) is None:
            disproved = holders and target not in holders
            return evolve(bare, reason=Reason.UNASSIGNED_REF) if disproved else evolve(bare, note=_NO_OWN_REF)
        return evolve(bare, target=target, identity=identity or Identity.of(target))

    def _why_none(self, bare: Verdict[Any], holders: Sequence[Message]) -> Reason | None:
        """Name the reason why no message is proven; None where the latch may stay all the same."""
        latch, holder = bare.latch, bare.holder
        if latch.identity and not LATCHABLE[latch.identity.kind]:
            return Reason.FORBIDDEN_KIND
        if latch.identity and holder:
            return mismatch(Identity.of(holder), latch.identity)
        if not latch.is_view or has_marker(latch.text, self._markers):
            return Reason.UNPROVEN
        if latch.ref == BLOCKED:
            return Reason.BLOCKED_REF
        return None if any(LATCHABLE[message.kind] for message in holders) else Reason.FORBIDDEN_KIND


def _starts(text: str) -> list[str]:
    """Give the keys under which a text, with and without the kernel's own tag, is found."""
    keys = dict.fromkeys((text[:_KEY_CHARACTERS], strip_tag(text)[:_KEY_CHARACTERS]))
    return [key for key in keys if len(key) == _KEY_CHARACTERS]


def _one_per_class(verdicts: list[Verdict[L]], refs: StoredRefs) -> list[Verdict[L]]:
    groups: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for position, verdict in enumerate(verdicts):
        if verdict.target:
            groups[verdict.latch.is_view, verdict.target.id].append(position)
    for (_, message_id), group in groups.items():
        text = verdicts[group[-1]].latch.text
        same = [position for position in group if verdicts[position].latch.text == text]
        own_ref = refs.own_ref(message_id)
        kept = next((position for position in same if verdicts[position].latch.ref == own_ref), same[-1])
        for position in group:
            verdict = verdicts[position]
            if position != kept and verdict.latch.text == text:
                verdicts[position] = evolve(verdict, surplus=True)
            elif position != kept:
                verdicts[position] = evolve(verdict, target=None, reason=Reason.SUPERSEDED)
    for position, verdict in enumerate(verdicts):
        if verdict.note and verdict.holder and (verdict.latch.is_view, verdict.holder.id) in groups:
            verdicts[position] = evolve(verdict, note="", reason=Reason.SUPERSEDED)
    return verdicts
