"""A store in memory with the methods of `SessionStore`, and three that are broken on purpose."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from attrs import define, evolve, field, frozen

from latchguard import ConversationState, Identity, Message, Replay, Restamp, replay, restamp
from latchguard.core.errors import InvalidValueError, UnknownMessageError
from latchguard.core.latches import Drop
from latchguard.core.reasons import Reason
from latchguard.testing.faults import InjectedFault


@frozen
class Row:
    id: int
    drop: Drop


@define
class Session:
    state: ConversationState = field(factory=ConversationState)
    messages: dict[str, Message] = field(factory=dict)


class MemoryStore:
    """Conversations in a dict. `fail_at` makes the n-th write of a block fail."""

    def __init__(self) -> None:
        self.all: dict[str, Session] = {}
        self.left: int | None = None
        self.cache: dict[tuple[str, str], str] = {}

    @contextmanager
    def fail_at(self, number: int) -> Iterator[None]:
        """Make the *number*-th write of the block fail."""
        self.left = number
        try:
            yield
        finally:
            self.left = None

    def write(self, session: str, state: ConversationState, messages: dict[str, Message] | None = None) -> None:
        """Commit a session, or fail before it."""
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise InjectedFault
        known = self.all.setdefault(session, Session())
        known.state = state
        if messages is not None:
            known.messages = messages

    def append(self, session: str, messages: Sequence[Message], *, protected: Collection[str] = ()) -> list[str]:
        """Append what is new, and take what gets protected as it is held."""
        known = self.all.get(session, Session())
        new = {one.id: one for one in messages if one.id not in known.messages or one.id in protected}
        state = known.state.assign(new.values(), protected=protected)
        self.write(session, state, known.messages | new)
        return [state.refs[message.id] for message in messages]

    def latch(self, session: str, message: Message, text: str, *, view: str | None = None) -> None:
        """Show *text* in place of the message's own."""
        known = self.all[session]
        after = known.state.latch(message, text, view=view)
        self.write(session, evolve(after, identities=known.state.identities))

    def unlatch(self, session: str, message: Message) -> None:
        """Clear the latch that shows."""
        self.write(session, self.all[session].state.unlatch(message))

    def edit(self, session: str, message: Message) -> None:
        """Put *message* in place of the stored one."""
        known = self.all[session]
        self.write(session, known.state.assign([message]), known.messages | {message.id: message})

    def restamp(
        self, session: str, messages: Sequence[Message], *, numbering: Mapping[str, str] | None = None
    ) -> Restamp:
        """Number the refs anew and move every latch, in one write."""
        result = restamp(self.all.get(session, Session()).state, messages, numbering=numbering)
        self.write(session, result.state, {message.id: message for message in messages})
        return result

    def release(self, drop_id: int) -> None:
        """Put a drop back on the one message that has its identity."""
        for session, known in self.all.items():
            for row in self.quarantine(session):
                homes = [
                    key for key, message in known.messages.items()
                    if row.id == drop_id and Identity.of(message) == row.drop.latch.identity
                    and known.state.refs.get(key, "BLOCKED") != "BLOCKED"
                ]  # fmt: skip
                taken = [latch for latch in known.state.latches if homes and latch.ref == known.state.refs[homes[0]]]
                if len(homes) == 1 and not taken:
                    self.write(session, released(known.state, row.drop, known.state.refs[homes[0]]))
                    return
        raise UnknownMessageError("", "one message with the identity of the drop")

    def fork(self, session: str, new: str, upto: str | None = None) -> None:
        """Copy a session up to a message."""
        known = self.all[session]
        keys = list(known.messages)
        kept = keys[: keys.index(upto) + 1] if upto is not None else keys
        self.write(new, known.state, {key: known.messages[key] for key in kept})

    def replay(self, session: str, messages: Sequence[Message] | None = None) -> Replay:
        """Give what the model sees."""
        known = self.all[session]
        return replay(list(known.messages.values()) if messages is None else messages, known.state)

    def messages(self, session: str) -> list[Message]:
        """Give the stored history."""
        return list(self.all[session].messages.values())

    def state(self, session: str) -> ConversationState:
        """Give refs, latches and quarantine."""
        return self.all[session].state

    def quarantine(self, session: str) -> list[Row]:
        """Give the drops; equal ones are told apart by count."""
        numbers: dict[Drop, Iterator[int]] = {}
        return [
            Row(hash((session, drop, next(numbers.setdefault(drop, count())))) & 0xFFFFFFFF, drop)
            for drop in self.state(session).quarantine
        ]


def released(state: ConversationState, drop: Drop, ref: str) -> ConversationState:
    """Give the state with *drop* back in force."""
    quarantine = list(state.quarantine)
    quarantine.remove(drop)
    latches = sorted((*state.latches, evolve(drop.latch, ref=ref)), key=lambda latch: latch.ref)
    return evolve(state, latches=tuple(latches), quarantine=tuple(quarantine), version=state.version + 1)


class LatchesByCachedRef(MemoryStore):
    """Looks a message's ref up once, and latches whatever holds that ref by now."""

    def append(self, session: str, messages: Sequence[Message], *, protected: Collection[str] = ()) -> list[str]:
        """Append, and remember the refs for good."""
        refs = super().append(session, messages, protected=protected)
        for message, ref in zip(messages, refs, strict=True):
            self.cache.setdefault((session, message.id), ref)
        return refs

    def latch(self, session: str, message: Message, text: str, *, view: str | None = None) -> None:
        """Latch the holder of the remembered ref."""
        known = self.all[session]
        holder = known.state.refs.holder(self.cache.get((session, message.id), ""))
        super().latch(session, known.messages.get(holder or "", message), text, view=view)


class ReplayDrops(MemoryStore):
    """Tidies up while it reads: what is refused in a replay goes to quarantine."""

    def replay(self, session: str, messages: Sequence[Message] | None = None) -> Replay:
        """Replay, and drop what was refused."""
        result = super().replay(session, messages)
        state = self.state(session)
        refused = [outcome.latch for outcome in result.refused]
        drops = tuple(Drop(latch, Reason.HOLDER_ABSENT) for latch in refused)
        kept = tuple(latch for latch in state.latches if latch not in refused)
        if refused:
            self.all[session].state = evolve(state, latches=kept, quarantine=(*state.quarantine, *drops))
        return result


class TwoTransactions(MemoryStore):
    """Writes the new refs, and the latches in a second transaction."""

    def restamp(
        self, session: str, messages: Sequence[Message], *, numbering: Mapping[str, str] | None = None
    ) -> Restamp:
        """Restamp in two writes."""
        before = self.all.get(session, Session()).state
        result = restamp(before, messages, numbering=numbering)
        if any(not isinstance(ref, str) for ref in (numbering or {}).values()):
            raise InvalidValueError("numbering", "refs", "others")
        if result.state != before:
            held = {latch.ref for latch in before.latches} <= set(result.state.refs.values())
            first = evolve(result.state, latches=before.latches, quarantine=before.quarantine)
            if held:
                self.write(session, first, {message.id: message for message in messages})
        self.write(session, result.state, {message.id: message for message in messages})
        return result
