"""Say where each stored latch belongs: the messages judge, refs do not.

1. A latch with an identity goes where that identity is. One without, or with one that no message has, goes where head
   and tail of its text prove it (`core.proof`); a message that shows the text already counts as proven.
2. If the holder of its ref is among the proven it stays. Else exactly one identity on one message takes it.
3. It is dropped only where a message in the file disproves it; with its holder out of the file it is left in place.
4. A message keeps one latch of each class: the last stored one; equal texts collapse without loss.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from attrs import evolve, frozen

from latchguard.core.identity import Identity
from latchguard.core.latches import LATCHABLE, mismatch
from latchguard.core.message import Message
from latchguard.core.proof import has_marker, proves, split_clip, strip_tag
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED
from latchguard.sources.bili import VIEWS, BiliLatch, BiliView

__all__ = ["Verdict", "bind_latches"]

# A head has at least 256 UTF-16 units, hence 128 characters: they find the candidates without trying every message.
_KEY_CHARACTERS: Final = 128

_ABSENT: Final = "its message is not in the file: neither proven nor disproved"
_NOWHERE: Final = "no message holds its ref, and none is proven to be its own"
_NO_MARKER: Final = "a view without a known marker: nothing proves or disproves it"
_NO_OWN_REF: Final = "its message is proven, but the ref map gives that message no ref of its own"


@frozen
class Verdict:
    """Where one latch belongs.

    Args:
        latch: the stored latch.
        holder: the message that holds its ref now; None where there is none in the file, or several.
        target: the message it belongs to; None where it is dropped or left in place.
        identity: of the target, as the latch shall carry it.
        reason: why it is dropped.
        surplus: whether an equal latch of the same message stays in its stead.
        note: why it is left in place, where nothing speaks for it.
    """

    latch: BiliLatch
    holder: Message | None = None
    target: Message | None = None
    identity: Identity | None = None
    reason: Reason | None = None
    surplus: bool = False
    note: str = ""


def bind_latches(view: BiliView, markers: Sequence[re.Pattern[str]]) -> list[Verdict]:
    """Give one verdict per latch of *view*, views before clips, each in stored order.

    Guarantees:
        Pure. Linear in messages and latches, but for texts whose first 128 characters are the same.
    """
    if not view.latches:
        return []
    binder = _Binder(view, markers)
    verdicts: list[Verdict] = []
    for latch in view.latches:
        verdict = binder.bind(latch)
        verdicts.append(verdict)
        if latch.container == VIEWS:
            binder.add_view(verdict)
    return _one_per_class(verdicts, view)


class _Binder:
    """The messages of one session, found by id, ref, identity, text and the beginnings of their texts."""

    def __init__(self, view: BiliView, markers: Sequence[re.Pattern[str]]) -> None:
        self._refs = view.refs
        self._view = view
        self._markers = markers
        self._messages = [entry.message for entry in view.messages]
        self._by_id: dict[str, list[Message]] = defaultdict(list)
        self._by_ref: dict[str, list[Message]] = defaultdict(list)
        for message in self._messages:
            self._by_id[message.id].append(message)
            if (ref := view.refs.by_id.get(message.id)) is not None:
                self._by_ref[ref].append(message)

    @cached_property
    def _unreadable_refs(self) -> set[str | None]:
        return {self._refs.by_id.get(message_id) for message_id in self._view.unreadable}

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

    def add_view(self, verdict: Verdict) -> None:
        """Let clips be proven by the text of a message's own view."""
        owner = verdict.target or (verdict.holder if verdict.note else None)
        if owner:
            for start in _starts(verdict.latch.text):
                self._by_start[start].append((owner, verdict.latch.text))

    def bind(self, latch: BiliLatch) -> Verdict:
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
        named = self._refs.by_ref.get(ref, "")
        if ref == BLOCKED:
            return found
        if named in self._by_id and self._refs.by_id.get(named, ref) == ref:
            return self._by_id[named]
        return found

    def _is_absent(self, ref: str) -> bool:
        """Say whether the ref map names a holder that is not among the messages that could be read."""
        named = self._refs.by_ref.get(ref)
        if ref == BLOCKED:
            return False
        return ref in self._unreadable_refs or (named is not None and named not in self._by_id)

    def _with_identity(self, latch: BiliLatch, holders: Sequence[Message]) -> list[Message]:
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

    def _place(self, bare: Verdict, target: Message, identity: Identity | None, holders: Sequence[Message]) -> Verdict:
        if self._refs.by_id.get(target.id) == BLOCKED:
            return evolve(bare, reason=Reason.BLOCKED_REF)
        if len(self._by_id[target.id]) > 1:
            return evolve(bare, reason=Reason.AMBIGUOUS)
        if self._refs.own_ref(target.id) is None:
            disproved = holders and target not in holders
            return evolve(bare, reason=Reason.UNASSIGNED_REF) if disproved else evolve(bare, note=_NO_OWN_REF)
        return evolve(bare, target=target, identity=identity or Identity.of(target))

    def _why_none(self, bare: Verdict, holders: Sequence[Message]) -> Reason | None:
        """Name the reason why no message is proven; None where the latch may stay all the same."""
        latch, holder = bare.latch, bare.holder
        if latch.identity and not LATCHABLE[latch.identity.kind]:
            return Reason.FORBIDDEN_KIND
        if latch.identity and holder:
            return mismatch(Identity.of(holder), latch.identity)
        if latch.container != VIEWS or has_marker(latch.text, self._markers):
            return Reason.UNPROVEN
        if latch.ref == BLOCKED:
            return Reason.BLOCKED_REF
        return None if any(LATCHABLE[message.kind] for message in holders) else Reason.FORBIDDEN_KIND


def _starts(text: str) -> list[str]:
    """Give the keys under which a text, with and without the kernel's own tag, is found."""
    keys = dict.fromkeys((text[:_KEY_CHARACTERS], strip_tag(text)[:_KEY_CHARACTERS]))
    return [key for key in keys if len(key) == _KEY_CHARACTERS]


def _one_per_class(verdicts: list[Verdict], view: BiliView) -> list[Verdict]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for position, verdict in enumerate(verdicts):
        if verdict.target:
            groups[verdict.latch.container, verdict.target.id].append(position)
    for (_, message_id), group in groups.items():
        text = verdicts[group[-1]].latch.text
        same = [position for position in group if verdicts[position].latch.text == text]
        own_ref = view.refs.own_ref(message_id)
        kept = next((position for position in same if verdicts[position].latch.ref == own_ref), same[-1])
        for position in group:
            verdict = verdicts[position]
            if position != kept and verdict.latch.text == text:
                verdicts[position] = evolve(verdict, surplus=True)
            elif position != kept:
                verdicts[position] = evolve(verdict, target=None, reason=Reason.SUPERSEDED)
    for position, verdict in enumerate(verdicts):
        if verdict.note and verdict.holder and (verdict.latch.container, verdict.holder.id) in groups:
            verdicts[position] = evolve(verdict, note="", reason=Reason.SUPERSEDED)
    return verdicts
