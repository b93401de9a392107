"""The real core with one thing broken: what the laws have to find in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from latchguard import ConversationState, Kind, Message, Replay, Role, replay, restamp
from latchguard.core.latches import Drop, make_latch
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED
from latchguard.testing import CoreKernel
from latchguard.testing.protocol import Json


class LatchesNotMoved(CoreKernel):
    """A restamp renumbers and leaves the latches at their refs."""

    def change(
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Do *op*, latches untouched in a restamp."""
        after = super().change(state, messages, op, events)
        if op["op"] != "restamp":
            return after
        held = tuple(latch for latch in state.latches if after.refs.holder(latch.ref))
        lost = tuple(Drop(latch, Reason.GONE) for latch in state.latches if latch not in held)
        return evolve(after, latches=held, quarantine=(*state.quarantine, *lost))


class IdentityLess(LatchesNotMoved):
    """And shows them on whatever holds the ref."""

    def replay(self, state: ConversationState, messages: Sequence[Message]) -> Replay:
        """Show by ref alone."""
        texts = {latch.ref: latch.text for latch in reversed(state.latches)}
        shown = [evolve(each, text=texts.get(state.refs.get(each.id, ""), each.text)) for each in messages]
        return evolve(super().replay(state, messages), messages=shown)


class HashWithoutRole(CoreKernel):
    """Every message is a user's."""

    def read(self, entry: Json) -> Message:
        """Forget the role."""
        return evolve(super().read(entry), role=Role.USER)


class HashWithoutKind(CoreKernel):
    """Every message is text."""

    def read(self, entry: Json) -> Message:
        """Forget the kind."""
        return evolve(super().read(entry), kind=Kind.TEXT)


class BlockedAsKey(CoreKernel):
    """A latch on a protected message is made, on the ref BLOCKED."""

    def change(
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Do *op*, latch what is protected."""
        if op["op"] == "latch" and state.refs.get(op["id"]) == BLOCKED:
            message = next(message for message in messages if message.id == op["id"])
            latch = make_latch(message, BLOCKED, state.identities[message.id], op["text"], op.get("view"))
            return evolve(state, latches=(*state.latches, latch))
        return super().change(state, messages, op, events)


class ReplayDrops(CoreKernel):
    """A replay drops what it refuses."""

    def change(
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Do *op*, and tidy up after a replay."""
        if op["op"] != "resend":
            return super().change(state, messages, op, events)
        refused = replay(messages, state).refused
        drops = tuple(Drop(outcome.latch, outcome.reason or Reason.GONE) for outcome in refused)
        kept = tuple(latch for latch in state.latches if latch not in [outcome.latch for outcome in refused])
        return evolve(state, latches=kept, quarantine=(*state.quarantine, *drops)) if drops else state


class GoneStaysGone(CoreKernel):
    """A restamp forgets the quarantine."""

    def change(
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Do *op*, and throw away what a restamp drops."""
        after = super().change(state, messages, op, events)
        return evolve(after, quarantine=state.quarantine) if op["op"] == "restamp" else after


class NumberedByPosition(CoreKernel):
    """A ledger's numbering is read as an order."""

    def change(
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Do *op*, without the numbering."""
        if op["op"] != "restamp":
            return super().change(state, messages, op, events)
        result = restamp(state, messages)
        moved: Mapping[str, Any] = result.moved
        events.append({"event": "moved", "refs": dict(moved)})
        return result.state


class RefusalsForgotten(CoreKernel):
    """A replay does not say what it refused."""

    def replay(self, state: ConversationState, messages: Sequence[Message]) -> Replay:
        """Show as always."""
        return evolve(super().replay(state, messages), refused=())


class UnassignedForAbsent(CoreKernel):
    """A replay of a part says that a ref is nobody's where its message is not in the part."""

    def replay(self, state: ConversationState, messages: Sequence[Message]) -> Replay:
        """Show as always."""
        found = super().replay(state, messages)
        told = [evolve(each, reason=each.reason if each.holder else Reason.UNASSIGNED_REF) for each in found.refused]
        return evolve(found, refused=tuple(told))


ALL = (
    IdentityLess,
    LatchesNotMoved,
    HashWithoutRole,
    HashWithoutKind,
    BlockedAsKey,
    ReplayDrops,
    GoneStaysGone,
    NumberedByPosition,
    RefusalsForgotten,
    UnassignedForAbsent,
)
