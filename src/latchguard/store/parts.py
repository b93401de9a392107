"""Parts of a session: just the rows that one operation needs, as a state of the core.

Every operation cuts the smallest part that decides it, lets the core decide on it, and writes the difference
(`changes`). So there is one algorithm, and the cost follows the messages and latches concerned, not the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import frozen
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    func,
    literal,
    select,
    true,
    type_coerce,
)
from sqlalchemy.types import NullType, TypeEngine

from latchguard.core.errors import StoreBusyError
from latchguard.core.identity import Identity
from latchguard.core.jsontext import dump_json
from latchguard.core.latches import Latch, latch_order
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, RefMap, format_ref, ref_number
from latchguard.core.state import ConversationState
from latchguard.store.column_types import is_mysql
from latchguard.store.connections import chunks, shown_url
from latchguard.store.rows import (
    LATCH_COLUMNS,
    Header,
    MessageRow,
    StoredDrop,
    load_extra,
    to_drop,
    to_latch,
    to_message,
)
from latchguard.store.tables import bodies, latches, messages, quarantine
from latchguard.store.texts import MARK, from_stored, to_stored

__all__ = [
    "Part",
    "StoredLatch",
    "decode_key",
    "make_part",
    "moved",
    "read_all_rows",
    "read_drops",
    "read_gone",
    "read_holder",
    "read_holders",
    "read_latches",
    "read_messages",
    "read_rows",
    "read_rows_where",
    "read_superseded",
]

# As the driver gives them: of a whole history, a call per cell costs more than the reading. SQLite and MySQL give 0
# and 1 for booleans, which compare and test as such; MySQL gives bytes for ids.
_ROW: Final[tuple[Any, ...]] = tuple(
    type_coerce(messages.c[name], NullType()).label(name) for name in MessageRow._fields
)
_BODY: Final = (bodies.c.body, bodies.c.tool_name, bodies.c.tool_call_id, bodies.c.text)
_to_row: Final = partial(tuple.__new__, MessageRow)  # as `_make`, without its call of Python
FETCHED: Final = 500  # rows at a time: what SQLAlchemy makes of them is gone before the garbage collector walks it
_ANY_GONE: Final = (
    select(quarantine.c.id)
    .where(quarantine.c.session_id == bindparam("session"), quarantine.c.reason == str(Reason.GONE))
    .limit(1)
)
_LATCH: Final = (latches.c.id, *(latches.c[name] for name in LATCH_COLUMNS))


@frozen
class StoredLatch:
    """A latch in force and the key of its row."""

    id: int
    latch: Latch


@frozen
class Part:
    """A part of a session, as rows and as a state.

    Args:
        header: the session's row.
        rows: message id -> row, by position.
        latches: in the order of the state.
        drops: in the order of the quarantine.
        state: the same as a value of the core, with the identities of the rows that were asked for.
    """

    header: Header
    rows: Mapping[str, MessageRow]
    latches: tuple[StoredLatch, ...]
    drops: tuple[StoredDrop, ...]
    state: ConversationState


def make_part(
    header: Header,
    rows: Iterable[MessageRow],
    found: Iterable[StoredLatch] = (),
    drops: Sequence[StoredDrop] = (),
    identities: Mapping[str, Identity] | None = None,
) -> Part:
    """Build the state that *rows*, latches and drops are; without *identities* those of all rows."""
    by_id = {row.message_id: row for row in sorted(rows)}
    in_force = tuple(sorted(found, key=lambda stored: latch_order(stored.latch)))
    drops = sorted(drops, key=lambda stored: stored.id)
    if identities is None:
        identities = {key: row.identity for key, row in by_id.items() if row.in_refs}
    # As `in_refs` and `ref_text`, with fewer calls per row of a whole history.
    refs = {
        key: BLOCKED if row.protected or row.ref is None else format_ref(row.ref)
        for key, row in by_id.items()
        if row.present or row.protected
    }
    extra = load_extra(header.extra)
    state = ConversationState(
        refs=RefMap.of(refs, header.cursor),
        identities=identities,
        latches=tuple(stored.latch for stored in in_force),
        quarantine=tuple(stored.drop for stored in drops),
        version=header.version,
        epoch=header.epoch,
        entry_extra={key: one for key, one in extra.get("messages", {}).items() if key in refs},
        extra=extra.get("state", {}),
    )
    return Part(header, by_id, in_force, tuple(drops), state)


def _rows(
    connection: Connection, statement: Select[Any], parameters: Mapping[str, Any] | None = None
) -> list[MessageRow]:
    """Run *statement*; its message ids are decoded here, few of them being other than they are stored."""
    parts = connection.execute(statement, parameters).partitions(FETCHED)
    found = [_to_row(row) for some in parts for row in some]
    if is_mysql(connection.dialect):
        return [row._replace(message_id=decode_key(row.message_id)) for row in found]
    for place in [place for place, row in enumerate(found) if row[1].startswith(MARK)]:
        found[place] = found[place]._replace(message_id=decode_key(found[place].message_id))
    return found


def decode_key(stored: str | bytes) -> str:
    """Give a message id from what the driver gave: MySQL gives bytes."""
    return from_stored(stored if isinstance(stored, str) else stored.decode())


def read_rows(connection: Connection, session_key: int, message_ids: Collection[str]) -> list[MessageRow]:
    """Read the rows of *message_ids* that exist."""
    if (each := _EACH_ROW.get(connection.dialect.name)) is not None:
        return _rows(connection, each, _each(connection, session_key, list(map(to_stored, message_ids))))
    mine = messages.c.session_id == session_key
    found: list[MessageRow] = []
    for some in chunks(message_ids):
        found += _rows(connection, select(*_ROW).where(mine, messages.c.message_id.in_(some)))
    return found


def _select_each(column: Column[Any], kind: type[TypeEngine[Any]], wanted: Sequence[Any]) -> Mapping[str, Select[Any]]:
    """Select the row of each of many values of *column* that has one, by dialect; `_each` gives the parameters.

    Of `session_id = ? AND x IN (...)` a planner without statistics thinks that reading the whole session is cheaper.
    SQLite keeps none by itself. PostgreSQL keeps the plan that it made while the table was small: at 12,000 messages a
    look-up of a thousand took 1.2 s. Here they have no choice.
    """
    session_id = column.table.c.session_id
    mine = session_id == bindparam("session")
    listed = func.json_each(bindparam("values", type_=Text)).table_valued("value")
    # A test that SQLite does not see through: it would make an inner join of the outer one again.
    joined = listed.outerjoin(column.table, mine & (column == listed.c.value))
    on_sqlite = select(*wanted).select_from(joined).where(func.coalesce(session_id, -1) != -1)
    array = func.unnest(bindparam("values", type_=ARRAY(kind))).table_valued("value").render_derived()
    one = select(*wanted).where(mine, column == array.c.value).limit(1).lateral()
    return {"sqlite": on_sqlite, "postgresql": select(*one.c).select_from(array.join(one, true()))}


def _each(connection: Connection, session_key: int, values: Sequence[Any]) -> dict[str, Any]:
    is_list = connection.dialect.name == "postgresql"
    return {"session": session_key, "values": values if is_list else dump_json(values).decode()}


_EACH_ROW: Final = _select_each(messages.c.message_id, Text, _ROW)
_EACH_BODY: Final = _select_each(bodies.c.body, BigInteger, _BODY)


def read_all_rows(connection: Connection, session_key: int) -> list[MessageRow]:
    """Read every row of the session, in order."""
    return read_rows_where(connection, messages.c.session_id == session_key)


def read_holder(connection: Connection, session_key: int, ref: str) -> list[MessageRow]:
    """Read the row that holds *ref*, if one does."""
    return read_rows_where(connection, messages.c.session_id == session_key, messages.c.ref == ref_number(ref))


def read_rows_where(connection: Connection, *conditions: ColumnElement[bool]) -> list[MessageRow]:
    """Read the rows that meet *conditions*, in order."""
    return _rows(connection, select(*_ROW).where(*conditions).order_by(messages.c.position))


def read_holders(connection: Connection, session_key: int) -> list[MessageRow]:
    """Read the rows of all messages with a latch, in one join, which begins at the latches on every database."""
    held = (messages.c.session_id == latches.c.session_id) & (messages.c.ref == latches.c.ref)
    found = select(*_ROW).select_from(latches.outerjoin(messages, held)).where(latches.c.session_id == session_key)
    return list(dict.fromkeys(_rows(connection, found.where(func.coalesce(messages.c.position, -1) != -1))))


def read_latches(connection: Connection, session_key: int, refs: Collection[int] | None = None) -> list[StoredLatch]:
    """Read the latches on *refs*, or all."""
    mine = latches.c.session_id == session_key
    wheres = [mine] if refs is None else [mine & latches.c.ref.in_(some) for some in chunks(refs)]
    return [
        StoredLatch(row.id, to_latch(row))
        for where in wheres
        for row in connection.execute(select(*_LATCH).where(where)).all()
    ]


def read_gone(connection: Connection, session_key: int, hashes: Collection[str]) -> list[StoredDrop]:
    """Read the `gone` drops with one of *hashes*: what comes back with a message."""
    if not hashes or connection.execute(_ANY_GONE, {"session": session_key}).first() is None:
        return []  # nearly always; a thousand digests in a statement cost as much as the hashing of their messages
    mine = (quarantine.c.session_id == session_key) & (quarantine.c.reason == str(Reason.GONE))
    digests = {bytes.fromhex(found) for found in hashes}
    return [drop for some in chunks(digests) for drop in read_drops(connection, mine & quarantine.c.hash.in_(some))]


def read_superseded(connection: Connection, session_key: int, found: Iterable[StoredLatch]) -> list[StoredDrop]:
    """Read the superseded drops with the identity of a latch of *found*, without their texts.

    What they show are forms of their messages still; what they say does not matter.
    """
    hashes = {bytes.fromhex(stored.latch.identity.hash) for stored in found} - {b""}
    if not hashes:
        return []
    columns = [literal("").label(c.name) if c.name in {"text", "view"} else c for c in quarantine.c]
    mine = (quarantine.c.session_id == session_key) & (quarantine.c.reason == str(Reason.SUPERSEDED))
    return [
        to_drop(row)
        for some in chunks(hashes)
        for row in connection.execute(select(*columns).where(mine, quarantine.c.hash.in_(some)))
    ]


def moved(connection: Connection) -> StoreBusyError:
    """Make the error of a read whose statements fell on both sides of somebody's commit."""
    return StoreBusyError(
        shown_url(connection.engine), "the session was written while it was read, or lacks a row (`db check`)"
    )


def read_drops(connection: Connection, where: ColumnElement[bool]) -> list[StoredDrop]:
    """Read drops, oldest first."""
    statement = select(quarantine).where(where).order_by(quarantine.c.id)
    return [to_drop(row) for row in connection.execute(statement)]


def read_messages(connection: Connection, session_key: int, rows: Collection[MessageRow]) -> dict[str, Message]:
    """Read the texts of *rows*: message id -> message, in the order of *rows*.

    Raises:
        StoreBusyError: one is gone since *rows* were read.
    """
    numbers = [row.body for row in rows]
    if (each := _EACH_BODY.get(connection.dialect.name)) is not None:
        found = list(connection.execute(each, _each(connection, session_key, numbers)))
    else:
        mine = bodies.c.session_id == session_key
        statements = (select(*_BODY).where(mine, bodies.c.body.in_(some)) for some in chunks(numbers))
        found = [row for statement in statements for row in connection.execute(statement)]
    stored = {row[0]: row[1:] for row in found}
    if any(number not in stored for number in numbers):
        raise moved(connection)
    return {row.message_id: to_message(row.message_id, row.role, row.kind, stored[row.body]) for row in rows}
