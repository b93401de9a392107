"""The tables that a repair of a database reads and writes: ours, or a host's own under the host's names.

1. A latch without an identity and without a reason is open: it waits for the repair.
2. Ours keep what is dropped in `latchguard_quarantine`. In a host's table a dropped latch stays in its row: it gives up
   its ref, so that no reader can stamp it anywhere, and gains a reason.
3. A ref is a number in a numeric column, else the text itself; a hash is bytes in a binary column, else hex digits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from attrs import field, frozen
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, select
from sqlalchemy.sql import FromClause
from sqlalchemy.types import Integer, LargeBinary

from latchguard.core.errors import InvalidValueError, cut
from latchguard.core.identity import Identity
from latchguard.core.message import Kind, Message
from latchguard.core.refs import BLOCKED, format_ref, ref_number
from latchguard.repair.database_errors import ColumnError
from latchguard.store.tables import bodies, latches, messages, sessions
from latchguard.store.texts import from_stored

__all__ = [
    "OWN",
    "RowLatch",
    "RowRefs",
    "SessionKey",
    "SessionTables",
    "StoredSession",
    "host_tables",
    "read_open_sessions",
    "read_session",
]

# our name -> whether it must be there
_MESSAGES: Final = {
    **dict.fromkeys(("session", "id", "ref", "role", "kind", "text"), True),
    **dict.fromkeys(("tool_name", "tool_call_id", "protected"), False),
}
_LATCHES: Final = {
    **dict.fromkeys(("session", "ref", "text", "hash", "role", "kind", "reason"), True),
    **dict.fromkeys(("shown", "view"), False),
}
_SET_LATER: Final = ("ref", "hash", "role", "kind", "reason", "shown")  # what is NULL before or after a repair
_PAGE: Final = 500  # sessions looked up at a time


@frozen
class SessionKey:
    """A session as its tables know it, and as people do."""

    value: Any
    name: str


@frozen
class RowLatch:
    """An open latch.

    Args:
        key: of its row.
        ref: what it stands under; `BLOCKED` where it has none.
        stored_ref: the same as the column holds it.
        text: what it shows.
        is_view: whether it is a view; else it is a clip.
        identity: none: that is what makes it open.
    """

    key: tuple[Any, ...]
    ref: str
    stored_ref: Any
    text: str = field(repr=False)
    is_view: bool
    identity: Identity | None = None


@frozen
class RowRefs:
    """The refs of the messages; one that several hold is nobody's own."""

    by_id: Mapping[str, str]
    by_ref: Mapping[str, str]

    @classmethod
    def of(cls, by_id: Mapping[str, str]) -> RowRefs:
        """Build the inverse too."""
        held = Counter(by_id.values())
        return cls(by_id, {ref: key for key, ref in by_id.items() if held[ref] == 1 and ref_number(ref)})

    def own_ref(self, message_id: str) -> str | None:
        """Give the ref that *message_id* holds alone, None where there is none."""
        ref = self.by_id.get(message_id, BLOCKED)
        return ref if self.by_ref.get(ref) == message_id else None


@frozen
class StoredSession:
    """What a plan is made from.

    Args:
        key: of the session.
        latches: the open ones, views before clips.
        messages: of the whole session; not read where no latch is open.
        refs: of the messages.
        taken: class and ref of the latches that have an identity: their places are not to be had.
    """

    key: SessionKey
    latches: tuple[RowLatch, ...]
    messages: Sequence[Message] = field(default=(), repr=False)
    refs: RowRefs = RowRefs({}, {})
    taken: Collection[tuple[bool, str]] = frozenset()


@frozen(eq=False)
class SessionTables:
    """Columns of messages and latches by our names; *own* says that they are ours."""

    messages: Mapping[str, ColumnElement[Any]]
    latches: Mapping[str, ColumnElement[Any]]
    table: Table
    own: bool = False

    @property
    def target(self) -> str:
        """The name under which progress and journal know the table of latches."""
        return self.table.fullname

    @property
    def key(self) -> Sequence[Column[Any]]:
        """The columns that name a row of the table of latches."""
        return tuple(self.table.primary_key.columns)

    def is_key(self, values: Sequence[Any]) -> ColumnElement[bool]:
        """Give the condition that names one row."""
        return and_(*(column == value for column, value in zip(self.key, values, strict=True)))

    @property
    def is_open(self) -> ColumnElement[bool]:
        """Give the condition that a latch waits for the repair."""
        without = self.latches["hash"].is_(None)
        return without if self.own else without & self.latches["reason"].is_(None)

    def to_column(self, name: str, value: Any) -> Any:
        """Give a ref, a digest, or what is stored as it is, as the column *name* takes it."""
        kind = self.latches[name].type
        if name == "ref" and isinstance(value, str) and isinstance(kind, Integer):
            return ref_number(value)
        if name in ("hash", "shown") and value is not None and isinstance(kind, LargeBinary):
            return bytes.fromhex(value)
        return value


_history = (
    select(
        messages.c.session_id.label("session"),
        messages.c.message_id.label("id"),
        *(messages.c[name] for name in ("ref", "role", "kind", "protected")),
        *(bodies.c[name] for name in ("text", "tool_name", "tool_call_id")),
    )
    .join_from(messages, bodies, (bodies.c.session_id == messages.c.session_id) & (bodies.c.body == messages.c.body))
    .where(messages.c.present)
    .subquery()
)
OWN: Final = SessionTables(
    messages=dict(_history.c),
    latches={"session": latches.c.session_id, **{name: latches.c[name] for name in latches.c.keys()}},  # noqa: SIM118  # a column collection iterates over columns
    table=latches,
    own=True,
)


def host_tables(history: FromClause | None, table: Table, columns: Mapping[str, str]) -> SessionTables:
    """Find the columns of a host's tables.

    Args:
        history: the messages: a table, or a query of several; None where they are not asked for.
        table: the latches.
        columns: our names -> the host's, as `name` for both tables or as `messages.name`, `latches.name`; a name that
            is left out is the host's too.

    Raises:
        InvalidValueError: *columns* has a name that is not ours.
        ColumnError: a column is missing or cannot serve.
    """
    known = {
        *_MESSAGES,
        *_LATCHES,
        *(f"messages.{name}" for name in _MESSAGES),
        *(f"latches.{name}" for name in _LATCHES),
    }
    for name in columns:
        if name not in known:
            raise InvalidValueError("columns", f"names out of {', '.join(sorted(known))}", cut(name))
    found = SessionTables(
        messages={} if history is None else _find_columns("messages", history, _MESSAGES, columns),
        latches=_find_columns("latches", table, _LATCHES, columns),
        table=table,
    )
    _check_keys(found)
    for name in _SET_LATER:
        column = found.latches.get(name)
        if isinstance(column, Column) and (column.primary_key or not column.nullable):
            why = "the primary key" if column.primary_key else "NOT NULL"
            raise ColumnError(table.name, f"latches.{name}", column.name, "a column that may be NULL", why)
    return found


def _find_columns(
    side: str, source: FromClause, names: Mapping[str, bool], columns: Mapping[str, str]
) -> dict[str, ColumnElement[Any]]:
    found: dict[str, ColumnElement[Any]] = {}
    for name, needed in names.items():
        exact = f"{side}.{name}"
        theirs = columns.get(exact, columns.get(name, name))
        if theirs in source.c:
            found[name] = source.c[theirs]
        elif needed or exact in columns:
            there = ", ".join(source.c.keys())
            raise ColumnError(getattr(source, "name", side), exact, theirs, "a column of this name", cut(there))
    return found


def _check_keys(tables: SessionTables) -> None:
    """Refuse a table whose rows could not be named in a journal."""
    if not tables.key:
        raise ColumnError(tables.table.name, "latches", "*", "a primary key", "none")
    for column in tables.key:
        try:
            served = column.type.python_type in (int, str, UUID)
        except NotImplementedError:
            served = False
        if not served:
            expected = "a key of numbers, texts or UUIDs"
            raise ColumnError(tables.table.name, "latches", column.name, expected, str(column.type))


def read_open_sessions(connection: Connection, tables: SessionTables, after: SessionKey | None) -> list[SessionKey]:
    """Read the sessions that have an open latch, in order: at most a page, those behind *after*."""
    session = tables.latches["session"]
    statement = select(session).where(tables.is_open).distinct().order_by(session).limit(_PAGE)
    if tables.own:
        statement = statement.add_columns(sessions.c.name).join(sessions, sessions.c.id == session)
    if after is not None:
        statement = statement.where(session > after.value)
    return [SessionKey(row[0], row[1] if tables.own else str(row[0])) for row in connection.execute(statement)]


def read_session(
    connection: Connection, tables: SessionTables, session: SessionKey, *, lock: bool = False
) -> StoredSession:
    """Read one session: its latches, and its messages where one of them is open.

    Args:
        connection: to read from.
        tables: what to read.
        session: its key.
        lock: whether to hold the latches until the transaction ends, where the database can.
    """
    names = [name for name in ("ref", "text", "hash", "reason", "view", "is_view") if name in tables.latches]
    statement = select(*tables.key, *(tables.latches[name].label(f"the_{name}") for name in names))
    statement = statement.where(tables.latches["session"] == session.value).order_by(*tables.key)
    if lock:
        statement = statement.with_for_update()
    found: list[RowLatch] = []
    taken: set[tuple[bool, str]] = set()
    for row in connection.execute(statement):
        rest = dict(zip(names, row[len(tables.key) :], strict=True))
        is_view = bool(rest["is_view"]) if tables.own else rest.get("view") is not None
        if rest["hash"] is not None:
            taken.add((is_view, _ref_text(rest["ref"])))
        elif rest.get("reason") is None:
            text = _text(tables, rest["text"])
            key = tuple(row[: len(tables.key)])
            found.append(RowLatch(key, _ref_text(rest["ref"]), rest["ref"], text, is_view))
    if not found:
        return StoredSession(session, ())
    found.sort(key=lambda latch: not latch.is_view)
    history, refs = _read_history(connection, tables, session)
    return StoredSession(session, tuple(found), history, refs, taken)


def _read_history(connection: Connection, tables: SessionTables, session: SessionKey) -> tuple[list[Message], RowRefs]:
    columns = [column.label(f"the_{name}") for name, column in tables.messages.items()]
    statement = select(*columns).where(tables.messages["session"] == session.value)
    history: list[Message] = []
    by_id: dict[str, str] = {}
    for row in connection.execute(statement):
        found = dict(zip(tables.messages, row, strict=True))
        message = _to_message(tables, found)
        history.append(message)
        if found.get("protected"):
            by_id[message.id] = BLOCKED
        elif found["ref"] is not None:
            by_id[message.id] = _ref_text(found["ref"])
    return history, RowRefs.of(by_id)


def _to_message(tables: SessionTables, found: Mapping[str, Any]) -> Message:
    name, call = (
        None if value is None else _text(tables, value) for value in (found.get("tool_name"), found.get("tool_call_id"))
    )
    key = found["id"]
    message_id = key if isinstance(key, str) else str(key)
    text = "" if found["text"] is None else _text(tables, found["text"])
    message = Message(message_id, found["role"], found["kind"], text, name, call)
    if name is not None and not tables.own and message.kind is not Kind.TOOL_CALL:
        return Message(message_id, message.role, message.kind, text, None, call)  # identity: of calls alone
    return message


def _ref_text(stored: Any) -> str:
    if stored is None:
        return BLOCKED
    return format_ref(stored) if isinstance(stored, int) else str(stored)


def _text(tables: SessionTables, stored: Any) -> Any:
    return from_stored(stored) if tables.own else stored
