"""The state of one conversation: refs, latches, quarantine. A value; every change gives a new one."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from attrs import evolve, field, frozen

from latchguard.core.binding import Twins, revive
from latchguard.core.errors import InvalidValueError, LatchError, UnknownMessageError, check_type, cut
from latchguard.core.history import index_messages, to_messages
from latchguard.core.identity import Identity
from latchguard.core.latches import (
    LATCHABLE,
    Drop,
    Latch,
    latch_order,
    make_latch,
    refusal,
)
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, RefMap

__all__ = ["ConversationState", "check_id", "without"]


@frozen
class ConversationState:
    """Refs, latches and quarantine of one conversation. `ConversationState()` is empty.

    Args:
        refs: message id -> ref, in the order of the history, with its inverse `refs.holder(ref)`.
        identities: message id -> identity, of every message in *refs* that was seen.
        latches: the latches in force, by ref number, the clip of a message before its view.
        quarantine: the latches out of service, each with its reason, oldest first.
        version: counts the changes; a call that changes nothing gives the same object.
        epoch: counts the restamps that changed something.
        entry_extra: message id -> fields of a newer release in the message's entry, carried through.
        extra: fields of a newer release, carried through.

    Raises:
        InvalidValueError: a field has the wrong type.
    """

    refs: RefMap = field(factory=RefMap)
    identities: Mapping[str, Identity] = field(factory=dict, repr=False, hash=False)
    latches: tuple[Latch, ...] = ()
    quarantine: tuple[Drop, ...] = ()
    version: int = 0
    epoch: int = 0
    entry_extra: Mapping[str, Mapping[str, Any]] = field(factory=dict, kw_only=True, repr=False, hash=False)
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, repr=False, hash=False)

    def __attrs_post_init__(self) -> None:
        for name, wanted, expected in _FIELDS:
            check_type(getattr(self, name), wanted, name, expected)

    def assign(self, messages: Iterable[Message], *, protected: Collection[str] = ()) -> ConversationState:
        """Give a ref to each message that has none, and take note of what each message is.

        Args:
            messages: new messages in order; known ones may be among them and keep their refs.
            protected: message ids that get `BLOCKED` from now on. The latches of a message that becomes protected
                go to quarantine, `blocked-ref`.

        Returns:
            The state after; the same object where nothing changed. Latches that were `gone` are back where a new
            message has their identity.

        Raises:
            DuplicateMessageError: two messages share an id.
            InvalidValueError: an id holds a surrogate, or an argument has the wrong type.
            UnknownMessageError: a protected id is neither known nor among *messages*.

        Guarantees:
            Pure; a ref is never issued twice (I4).
        """
        given = to_messages(messages)
        index_messages(given)
        new = {message.id: None for message in given if message.id not in self.refs}
        blocked = self._newly_blocked(protected, new)
        seen = {message.id: Identity.of(message) for message in given}
        changed = {key: value for key, value in seen.items() if self.identities.get(key) != value}
        if not (new or blocked or changed):
            return self
        for message_id in new:
            check_id(message_id)
        refs = self.refs.with_new(new, blocked) if new or blocked else self.refs
        dropped, latches = _split_blocked(self, blocked)
        fresh = {key: seen[key] for key in new if refs[key] != BLOCKED}
        gone = [drop for drop in self.quarantine if drop.reason is Reason.GONE]
        revived = revive(gone, (), Twins({}, fresh, self.refs, ())) if gone else ()
        return evolve(
            self,
            refs=refs,
            identities={**self.identities, **changed},
            latches=_ordered((*latches, *(evolve(drop.latch, ref=refs[key]) for drop, key in revived))),
            quarantine=without(self.quarantine, [drop for drop, _ in revived]) + dropped,
            version=self.version + 1,
        )

    def latch(self, message: Message, text: str, *, view: str | None = None) -> ConversationState:
        """Show *text* in place of the message's own from now on.

        Args:
            message: the message, as it is in the history, or as an earlier latch shows it: then the identity of
                its original form is kept, so that no clip is made of a clip.
            text: what the model reads.
            view: None for an emergency truncation, else the name of the view.

        Returns:
            The state after; the same object where this very latch is there already. What it replaces goes to
            quarantine, `superseded`, and what was made for the message before it changed, with the mismatch.

        Raises:
            LatchError: the message has no ref (`unassigned-ref`), is protected (`blocked-ref`), or is of a kind
                that takes no latch (`forbidden-kind`).
            InvalidValueError: an argument has the wrong type.
        """
        check_type(message, Message, "message", "a Message")
        check_type(text, str, "text", "a string")
        check_type(view, str | None, "view", "a string or None")
        ref = self._latchable_ref(message)
        refusals = self._refusals(ref, message)
        own = [latch for latch, reason in refusals if reason is None]
        identity = own[0].identity if own else Identity.of(message)
        latch = make_latch(message, ref, identity, text, view)
        if latch in own:
            return self
        # One that waits for what the message was goes too: it could take what the new one shows for its own message.
        drops = [
            Drop(old, reason or Reason.SUPERSEDED) for old, reason in refusals if reason or type(old) is type(latch)
        ]
        replaced = [drop.latch for drop in drops]
        state = self._replace_latches(replaced, (latch,), drops)
        if self.identities.get(message.id) == Identity.of(message):
            return state
        return evolve(state, identities={**self.identities, message.id: Identity.of(message)})

    def unlatch(self, message: Message) -> ConversationState:
        """Clear the latch that shows on *message*: it goes to quarantine, `cleared`.

        Where a clip hides a view, the view shows from now on. Where the message changed since it was latched, the
        latch that waits on it is cleared.

        Returns:
            The state after; the same object where the message has no latch.

        Raises:
            InvalidValueError: *message* is no `Message`.
        """
        check_type(message, Message, "message", "a Message")
        ref = self.refs.get(message.id, BLOCKED)
        refusals = self._refusals(ref, message) if ref != BLOCKED else ()
        if not refusals:
            return self
        # What may touch the message goes before what waits on it; the clip stands before the view.
        latch, _ = min(refusals, key=lambda pair: pair[1] is not None)
        return self._replace_latches([latch], (), [Drop(latch, Reason.CLEARED)])

    def superseded(self) -> Iterator[Latch]:
        """Give the superseded latches in quarantine: what they show are forms of their messages still."""
        return (drop.latch for drop in self.quarantine if drop.reason is Reason.SUPERSEDED)

    def _newly_blocked(self, protected: Collection[str], new: Container[str]) -> frozenset[str]:
        if isinstance(protected, str) or not isinstance(protected, Iterable):
            raise InvalidValueError("protected", "a collection of message ids", cut(protected))
        ids = list(protected)
        for message_id in ids:
            check_type(message_id, str, "protected", "message ids")
            if message_id not in new and message_id not in self.refs:
                raise UnknownMessageError(message_id, "a protected message that is known or among the new ones")
        return frozenset(message_id for message_id in ids if self.refs.get(message_id) != BLOCKED)

    def _latchable_ref(self, message: Message) -> str:
        ref = self.refs.get(message.id)
        if not LATCHABLE[message.kind]:
            raise LatchError(message.id, ref, Reason.FORBIDDEN_KIND)
        if ref is None:
            raise LatchError(message.id, ref, Reason.UNASSIGNED_REF)
        if ref == BLOCKED:
            raise LatchError(message.id, ref, Reason.BLOCKED_REF)
        return ref

    def _refusals(self, ref: str, message: Message) -> list[tuple[Latch, Reason | None]]:
        siblings, found = [latch for latch in self.latches if latch.ref == ref], Identity.of(message)
        return [(latch, refusal(latch, chain(siblings, self.superseded()), found)) for latch in siblings]

    def _replace_latches(
        self, removed: Collection[Latch], added: tuple[Latch, ...], drops: list[Drop]
    ) -> ConversationState:
        kept = tuple(latch for latch in self.latches if latch not in removed)
        return evolve(
            self,
            latches=_ordered(kept + added),
            quarantine=(*self.quarantine, *drops),
            version=self.version + 1,
        )


_FIELDS: Final = (
    ("refs", RefMap, "a RefMap"),
    ("identities", Mapping, "a mapping"),
    ("latches", tuple, "a tuple of latches"),
    ("quarantine", tuple, "a tuple of drops"),
    ("version", int, "an integer"),
    ("epoch", int, "an integer"),
)


def check_id(message_id: str, path: str = "message.id") -> None:
    """Refuse an id that is no valid Unicode: it is a key in files and databases, which could not hold it."""
    try:
        message_id.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(path, "an id without surrogates", cut(message_id)) from error


def _split_blocked(state: ConversationState, blocked: frozenset[str]) -> tuple[tuple[Drop, ...], tuple[Latch, ...]]:
    hit = [latch for latch in state.latches if blocked and state.refs.holder(latch.ref) in blocked]
    kept = tuple(latch for latch in state.latches if latch not in hit) if hit else state.latches
    return tuple(Drop(latch, Reason.BLOCKED_REF) for latch in hit), kept


def _ordered(latches: Iterable[Latch]) -> tuple[Latch, ...]:
    return tuple(sorted(latches, key=latch_order))


def without(quarantine: tuple[Drop, ...], undone: Iterable[Drop]) -> tuple[Drop, ...]:
    """Take each of *undone* out of the quarantine once; equal drops are told apart by count."""
    rest = list(quarantine)
    for drop in undone:
        rest.remove(drop)
    return tuple(rest)
