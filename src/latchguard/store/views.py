"""The reads. Texts are decoded when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

from sqlalchemy import Connection, Select, Text, select, type_coerce

from latchguard.core.errors import SessionNotFoundError, StaleRefError
from latchguard.core.message import Message
from latchguard.core.refs import ref_number
from latchguard.core.replaying import Replay, replay
from latchguard.core.state import ConversationState
from latchguard.store.changes import MAX_NUMBER, key_encoder
from latchguard.store.headers import read_header
from latchguard.store.parts import (
    Part,
    decode_key,
    make_part,
    moved,
    read_all_rows,
    read_drops,
    read_holder,
    read_holders,
    read_latches,
    read_messages,
    read_superseded,
)
from latchguard.store.rows import Header, MessageRow, StoredDrop, to_message
from latchguard.store.tables import bodies, messages, quarantine, sessions

__all__ = [
    "StoredMessages",
    "check_unmoved",
    "cut_for_replay",
    "find_header",
    "list_drops",
    "list_sessions",
    "read_history",
    "read_replay",
    "read_state",
    "replay_holders",
    "resolve_ref",
    "resolve_row",
    "stream_replay",
]

STREAM_CHUNK: Final = 1000


class StoredMessages(Sequence[Message]):
    """The messages of a session, oldest first, each built when it is looked at. Compares like a list."""

    __slots__ = ("_rows", "_shown")

    def __init__(self, rows: Sequence[Any], shown: Mapping[Any, Message]) -> None:
        """Take rows of (message id as stored, role, kind, tool_name, tool_call_id, text), and what is shown else."""
        self._rows = rows
        self._shown = shown

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Message]:
        return map(self._build, self._rows)

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> StoredMessages: ...
    def __getitem__(self, position: int | slice) -> Message | StoredMessages:
        if isinstance(position, slice):
            return StoredMessages(self._rows[position], self._shown)
        return self._build(self._rows[position])

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of messages."""
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == found for mine, found in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"StoredMessages({len(self)} messages)"

    def _build(self, row: Any) -> Message:
        key, role, kind, *body = row
        return self._shown.get(key) or to_message(decode_key(key), role, kind, tuple(body))


def find_header(connection: Connection, session: str) -> Header:
    """Read the row of *session*.

    Raises:
        SessionNotFoundError: there is none.
    """
    header = read_header(connection, session)
    if header is None:
        raise SessionNotFoundError(session)
    return header


def check_unmoved(connection: Connection, header: Header) -> None:
    """Refuse what was read on both sides of somebody's commit, as in a caller's `READ COMMITTED` transaction.

    Raises:
        StoreBusyError: the session is not as it was when *header* was read.
    """
    if read_header(connection, header.name) != header:
        raise moved(connection)


def _select_history(session_key: int, *more: Any) -> Select[Any]:
    return (
        select(
            type_coerce(messages.c.message_id, Text),
            messages.c.role,
            messages.c.kind,
            bodies.c.tool_name,
            bodies.c.tool_call_id,
            bodies.c.text,
            *more,
        )
        .join_from(
            messages, bodies, (bodies.c.session_id == messages.c.session_id) & (bodies.c.body == messages.c.body)
        )
        .where(messages.c.session_id == session_key, messages.c.present)
        .order_by(messages.c.position)
    )


def read_history(connection: Connection, header: Header) -> StoredMessages:
    """Give the stored history in its original form."""
    return StoredMessages(connection.execute(_select_history(header.key)).all(), {})


def read_replay(connection: Connection, header: Header, given: Sequence[Message] | None) -> Replay:
    """Apply the latches to *given*, or to the stored history, whose latched messages alone are read and verified."""
    if given is not None:
        return replay(given, cut_for_replay(connection, header).state)
    outcome, shown = replay_holders(connection, header)
    history = StoredMessages(connection.execute(_select_history(header.key)).all(), shown)
    return Replay(history, outcome.applied, outcome.refused)


def cut_for_replay(connection: Connection, header: Header) -> Part:
    """Read the latches in force and the messages that hold their refs."""
    found = read_latches(connection, header.key)
    drops = read_superseded(connection, header.key, found)
    return make_part(header, read_holders(connection, header.key), found, drops, identities={})


def replay_holders(connection: Connection, header: Header) -> tuple[Replay, dict[Any, Message]]:
    """Replay on the messages that carry a latch; give what each that changes shows, by its id as stored."""
    part = cut_for_replay(connection, header)
    own = list(read_messages(connection, header.key, list(part.rows.values())).values())
    outcome = replay(own, part.state)
    to_key = key_encoder(connection)
    pairs = zip(own, outcome.messages, strict=True)
    return outcome, {to_key(seen.id): seen for stored, seen in pairs if seen is not stored}


def stream_replay(connection: Connection, header: Header) -> Iterator[Message]:
    """Give what the model sees, message by message; the memory does not grow with the history."""
    _, shown = replay_holders(connection, header)
    last = 0
    while rows := connection.execute(
        _select_history(header.key, messages.c.position).where(messages.c.position > last).limit(STREAM_CHUNK)
    ).all():
        last = rows[-1].position
        yield from StoredMessages([row[:-1] for row in rows], shown)


def read_state(connection: Connection, header: Header) -> ConversationState:
    """Give the whole state as a value of the core."""
    rows = read_all_rows(connection, header.key)
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    return make_part(header, rows, read_latches(connection, header.key), drops).state


def resolve_ref(connection: Connection, header: Header, ref: str, epoch: int | None) -> Message:
    """Give the message that holds *ref*; raises as `resolve_row`."""
    row = resolve_row(connection, header, ref, epoch)
    return read_messages(connection, header.key, [row])[row.message_id]


def resolve_row(connection: Connection, header: Header, ref: str, epoch: int | None) -> MessageRow:
    """Give the row of the message that holds *ref*.

    Raises:
        StaleRefError: the ref is of another epoch, or no message holds it.
    """
    number = ref_number(ref) if isinstance(ref, str) else None
    if number is not None and number <= MAX_NUMBER and epoch in (None, header.epoch):
        for row in read_holder(connection, header.key, ref):
            return row
    raise StaleRefError(header.name, ref, epoch, header.epoch)


def list_sessions(connection: Connection, after: str | None, limit: int | None) -> list[str]:
    """Give session names in the order of their code points, those behind *after*, at most *limit*."""
    statement = select(sessions.c.name).order_by(sessions.c.name).limit(limit)
    if after is not None:
        statement = statement.where(sessions.c.name > after)
    return list(connection.execute(statement).scalars())


def list_drops(connection: Connection, header: Header) -> list[StoredDrop]:
    """Give the quarantine, oldest first."""
    return read_drops(connection, quarantine.c.session_id == header.key)
