"""One turn: read at its start, decided in memory, written at its end, all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import evolve
from sqlalchemy import Connection

from latchguard.core.errors import StaleStateError, UnknownMessageError
from latchguard.core.message import Message
from latchguard.core.replaying import Replay, replay
from latchguard.core.state import ConversationState
from latchguard.store.changes import write_change
from latchguard.store.headers import check_version, lock_header, lock_or_create, read_header
from latchguard.store.keeping import check_keeps_texts
from latchguard.store.operations import check_meant, cut_for_append, index_given, keep_identities, take_new
from latchguard.store.parts import Part, make_part
from latchguard.store.rows import Header

__all__ = ["Turn", "close_turn", "open_turn"]

_NEW: int = 0  # the key of a session that has no row yet


class Turn:
    """What the model sees this turn, and the latches taken on it. `SessionStore.turn` makes and writes it."""

    def __init__(
        self, part: Part, state: ConversationState, listed: Sequence[Message], given: Mapping[str, Message]
    ) -> None:
        """Take what was read, the state with what is new, and the messages as they were given and by id."""
        self._part = part
        self._state = state
        self._listed = listed
        self._given = given

    @property
    def refs(self) -> list[str]:
        """The ref of each given message, the new ones included."""
        return [self._state.refs[message.id] for message in self._listed]

    @property
    def epoch(self) -> int:
        """The epoch of the refs, for `resolve`."""
        return self._state.epoch

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self._state is not self._part.state

    @property
    def replay(self) -> Replay:
        """What the model sees, with the latches that were applied and those that were refused."""
        return replay(self._listed, self._state)

    @property
    def messages(self) -> Sequence[Message]:
        """What the model sees: the given messages with the latches applied, those of this turn too."""
        return self.replay.messages

    def latch(self, message: Message, text: str, *, view: str | None = None) -> None:
        """Show *text* in place of the message's own from now on; written when the turn ends.

        Raises:
            LatchError: the message may carry no latch.
            IdentityMismatchError: the message of this turn is another one.
            UnknownMessageError: it is not of this turn.
        """
        self._change(message, self._state.latch(self._meant(message), text, view=view))

    def unlatch(self, message: Message) -> None:
        """Clear the latch that shows on *message*; written when the turn ends.

        Raises:
            IdentityMismatchError: the message of this turn is another one.
            UnknownMessageError: it is not of this turn.
        """
        self._change(message, self._state.unlatch(self._meant(message)))

    def _meant(self, message: Message) -> Message:
        stored = self._state.identities.get(message.id)
        if stored is None:
            raise UnknownMessageError(message.id, "a message of this turn")
        check_meant(evolve(self._part, state=self._state), stored, message)
        return message

    def _change(self, message: Message, after: ConversationState) -> None:
        self._state = keep_identities(self._state, after)


def open_turn(
    connection: Connection,
    session: str,
    listed: Sequence[Message],
    protected: Collection[str],
    expect_version: int | None,
    *,
    keep_texts: bool,
) -> Turn:
    """Read what the turn needs and take in what is new, in memory.

    Raises:
        StaleStateError: the session is not at *expect_version*.
        KeepTextsMismatchError: the session was not made with *keep_texts*.
        MessageConflictError: a known id has another identity.
    """
    given = index_given(listed)
    header = read_header(connection, session)
    if header is None:
        header = Header(_NEW, session, 0, 0, 1, 1, 0, None, keep_texts)
    check_version(header, expect_version)
    check_keeps_texts(header, keep_texts)
    if header.key == _NEW:
        part = make_part(header, ())
    else:
        part = cut_for_append(connection, header, given, protected, with_latches=True)
    return Turn(part, take_new(part, given, protected), listed, given)


def close_turn(connection: Connection, turn: Turn) -> None:
    """Write what the turn changed, in one step of the version.

    Raises:
        StaleStateError: somebody else wrote the session since the turn began; nothing is written.
        KeepTextsMismatchError: somebody else made the session meanwhile, of the other sort.
    """
    part, after = turn._part, turn._state  # noqa: SLF001  # the two halves of one thing
    seen = part.header
    if seen.key == _NEW:
        header = lock_or_create(connection, seen.name, keeps_texts=seen.keeps_texts)
    else:
        header = lock_header(connection, seen.name)
    check_version(header, seen.version)
    if seen.key not in (_NEW, header.key):
        raise StaleStateError(seen.name, seen.version, header.version)  # deleted meanwhile, and made again
    check_keeps_texts(header, seen.keeps_texts)
    if after is not part.state:
        after = evolve(after, version=header.version + 1)
    write_change(connection, evolve(part, header=header), after, turn._given)  # noqa: SLF001
