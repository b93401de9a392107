"""Write the difference between a part as it was and the state that the core made of it.

1. Rows whose ref alone changes are updated in an order in which no two rows ever share a ref: the database checks
   uniqueness at every row. What stands in the way for good is set aside first.
2. Rows that change otherwise are deleted and inserted; where the order of the history changes, all are.
3. Only then come latches, quarantine, and the session's row with its new version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import inf
from operator import itemgetter
from typing import Final, TypeAlias

from attrs import define, evolve, field
from sqlalchemy import Connection, bindparam, delete, update

from latchguard.core.errors import NumberingError, UnknownMessageError
from latchguard.core.identity import Identity
from latchguard.core.message import Message
from latchguard.core.refs import BLOCKED
from latchguard.core.state import ConversationState
from latchguard.store.connections import chunks, delete_rows, insert_rows, is_ordered, update_blocks, update_rows
from latchguard.store.parts import Part
from latchguard.store.rows import LATCH_COLUMNS, Header, MessageRow, body_values, drop_values, latch_values
from latchguard.store.tables import bodies, latches, messages, quarantine, sessions
from latchguard.store.texts import to_stored

__all__ = ["MAX_NUMBER", "Move", "insert_messages", "join_moves", "key_encoder", "order_moves", "write_change"]

MAX_NUMBER: Final = 2**63 - 1

BODY_COLUMNS: Final = ("session_id", "body", "tool_name", "tool_call_id", "text")
DROP_COLUMNS: Final = (*LATCH_COLUMNS, "reason", "drop_extra", "session_id", "dropped_at_s")


_SET_HEADER: Final = (
    update(sessions)
    .where(sessions.c.id == bindparam("key"))
    .values({name: bindparam(name) for name in ("version", "epoch", "ref_cursor", "next_number")})
)
_SET_ASIDE: Final = (
    update(messages)
    .where(
        messages.c.session_id == bindparam("session"),
        messages.c.ref.in_(bindparam("refs", expanding=True, literal_execute=True)),
    )
    .values(ref=None)
)

# A row whose ref changes: its position, the number before, 0 for no ref, and after. A whole history of them is
# made at once: the garbage collector walks instances of a class, not plain tuples.
Move: TypeAlias = tuple[int, int, int]


@define
class _Rows:
    """What happens to the rows of messages."""

    next_number: int
    moves: list[Move] = field(factory=list)
    deleted: list[int] = field(factory=list)
    inserted: list[MessageRow] = field(factory=list)
    new_bodies: set[int] = field(factory=set)
    reordered: bool = False

    def number(self) -> int:
        """Give the next number, for a position or a body."""
        self.next_number += 1
        return self.next_number - 1


def write_change(
    connection: Connection,
    part: Part,
    after: ConversationState,
    given: Mapping[str, Message],
    present: Collection[str] | None = None,
) -> None:
    """Write what differs between *part* and *after*.

    Args:
        connection: in a transaction that holds the session's lock.
        part: what was read under this lock, or at this version.
        after: what the core made of `part.state`.
        given: the messages that may be new or changed, by id.
        present: the ids of the whole history after a restamp; None where messages only come.
    """
    rows = _plan_rows(part, after, given, present)
    _write_rows(connection, part, rows)
    _write_bodies(connection, part, after, given, rows)
    _write_latches(connection, part, after)
    _write_quarantine(connection, part, after)
    _write_header(connection, part.header, after, rows.next_number)


def _plan_rows(
    part: Part, after: ConversationState, given: Mapping[str, Message], present: Collection[str] | None
) -> _Rows:
    reordered = present is not None and _is_reordered(part, after, present)
    plan = _Rows(part.header.next_number, reordered=reordered)
    rows, identities = part.rows, after.identities
    named = given if present is None else present
    refs = after.refs.items() if present is not None else _as_appended(part, after, given)
    # Mostly told in one go: look-ups for each message of a history cost as much as all else here.
    all_here = present is not None and list(after.refs) == list(present)
    all_known = present is not None and list(after.refs) == list(rows)
    olds = rows.values() if all_known else [rows.get(key) for key, _ in refs]
    for (message_id, ref), old in zip(refs, olds, strict=True):
        identity = identities.get(message_id)
        number = None if ref == BLOCKED else int(ref[1:])
        if number is not None and number > MAX_NUMBER:
            raise NumberingError(message_id, ref, f"a number up to {MAX_NUMBER}")
        here = all_here or message_id in named or (present is None and old is not None and old.present)
        if old is None:
            plan.inserted.append(_new_row(plan.number(), message_id, identity, number, here=here))
            plan.new_bodies.add(plan.inserted[-1].body)
        elif identity is not None and not old.is_a(identity):
            row = _new_row(old.position, message_id, identity, number, here=here)
            _put(plan, old, row._replace(body=old.body))
        elif reordered or old.present != here or old.protected != (number is None) or not (here or old.protected):
            _put(plan, old, old._replace(ref=number, present=here, protected=number is None))
        elif number is not None and (before := old.ref) != number:
            plan.moves.append((old.position, before or 0, number))
    for row in () if all_known else rows.values():
        if row.message_id not in after.refs and (row.in_refs or reordered):
            _put(plan, row, row._replace(ref=None, present=False, protected=False))
    return plan


def _as_appended(part: Part, after: ConversationState, given: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Give the refs of *after*, what comes last: a protected message that was away has an old place in them."""
    rows = part.rows
    if not any(key in rows and rows[key].protected and not rows[key].present for key in given):
        return after.refs.items()
    coming = {key: after.refs[key] for key in given if key not in rows or not rows[key].present}
    return [*(pair for pair in after.refs.items() if pair[0] not in coming), *coming.items()]


def _is_reordered(part: Part, after: ConversationState, present: Container[str]) -> bool:
    """Say whether a message stands after one that it stood before, or a new one or one that is back before others."""
    if list(after.refs) == [key for key, row in part.rows.items() if row.present]:  # the usual case, quickly told
        return False
    last: float = 0
    for message_id in after.refs:
        row = part.rows.get(message_id)
        if row is None or (message_id in present and not row.present):
            last = inf
        elif row.position < last:
            return True
        else:
            last = row.position
    return False


def _new_row(
    position: int, message_id: str, identity: Identity | None, number: int | None, *, here: bool
) -> MessageRow:
    if identity is None:  # the core keeps the identity of every message that it takes in
        raise UnknownMessageError(message_id, "a message that was given or is stored")
    digest = bytes.fromhex(identity.hash)
    role, kind = identity.role._value_, identity.kind._value_  # `value` is a property, ten times slower
    return MessageRow(position, message_id, number, here, number is None, digest, role, kind, position)


def _put(plan: _Rows, old: MessageRow, row: MessageRow) -> None:
    """Insert *row* in place of *old*; at the end where it is back, or where all are written anew."""
    if plan.reordered or (row.present and not old.present):
        row = row._replace(position=plan.number())
    if not plan.reordered:
        plan.deleted.append(old.position)
    plan.inserted.append(row)


def order_moves(moves: Iterable[Move]) -> tuple[list[int], list[Move], list[Move]]:
    """Order *moves* so that no two rows ever share a ref.

    Returns:
        The old refs that must be set aside first, then the moves down and after them those up, each in order.
    """
    moves = sorted(moves, key=itemgetter(1))
    down = [move for move in moves if move[2] < move[1]]
    up = [move for move in reversed(moves) if move[2] > move[1]]
    # Who moves down leaves before the next comes down, and so it is with those up.
    in_the_way = {new for _, _, new in down} & {old for _, old, _ in up} if down and up else set()
    return sorted(in_the_way), down, up


def join_moves(moves: Sequence[Move], step: int) -> Iterator[tuple[int, int, int]]:
    """Join ordered *moves* whose positions and new refs go on by *step*: by 1 where they go down, by -1 up.

    A database takes the rows of one statement in any order: what is joined takes no ref that one of its rows has.

    Returns:
        The difference of the new refs to their positions, the first and the last position.
    """
    starts: list[int] = []
    last_position = last_new = taken = 0
    for place, (position, old, new) in enumerate(moves):
        if position != last_position + step or new != last_new + step or new == taken or not starts:
            starts.append(place)
            taken = old
        last_position, last_new = position, new
    for start, end in pairwise([*starts, len(moves)]):
        positions = moves[start][0], moves[end - 1][0]
        yield moves[start][2] - positions[0], min(positions), max(positions)


def _write_rows(connection: Connection, part: Part, plan: _Rows) -> None:
    key = part.header.key
    if plan.reordered:
        connection.execute(delete(messages).where(messages.c.session_id == key))
    delete_rows(connection, messages, ("session_id", "position"), [(key, position) for position in plan.deleted])
    _write_moves(connection, key, plan.moves)
    _insert_message_rows(connection, key, plan.inserted)


def _write_moves(connection: Connection, key: int, moves: Collection[Move]) -> None:
    in_the_way, down, up = order_moves(moves)
    if not is_ordered(connection):
        in_the_way = list({old for _, old, _ in moves} & {new for _, _, new in moves})
    for some in chunks(in_the_way):
        connection.execute(_SET_ASIDE, {"session": key, "refs": some})
    if connection.dialect.name == "sqlite":  # half the time; PostgreSQL may read a whole table for a range of it
        blocks = chain(join_moves(down, 1), join_moves(up, -1))
        rows = [(more, key, first, last) for more, first, last in blocks]
        update_blocks(connection, messages, ("ref", "position"), rows)
    else:
        values = [(new, key, position) for position, _, new in chain(down, up)]
        update_rows(connection, messages, "ref", ("session_id", "position"), values)


def _insert_message_rows(connection: Connection, session_key: int, rows: Iterable[MessageRow]) -> None:
    to_key = key_encoder(connection)
    values = [(session_key, row[0], to_key(row[1]), *row[2:]) for row in rows]
    insert_rows(connection, messages, ("session_id", *MessageRow._fields), values)


def insert_messages(
    connection: Connection, header: Header, rows: Sequence[MessageRow], found: Sequence[Message]
) -> None:
    """Insert *rows* as they are, and the texts of their messages where they are kept."""
    _insert_message_rows(connection, header.key, rows)
    if not header.keeps_texts:
        return
    values = [(header.key, row.body, *body_values(message)) for row, message in zip(rows, found, strict=True)]
    insert_rows(connection, bodies, BODY_COLUMNS, values)


def key_encoder(connection: Connection) -> Callable[[str], object]:
    """Give the function that turns a message id into what the driver takes."""
    processor = messages.c.message_id.type.bind_processor(connection.dialect)
    return processor or to_stored


def _write_bodies(
    connection: Connection, part: Part, after: ConversationState, given: Mapping[str, Message], plan: _Rows
) -> None:
    if not part.header.keeps_texts:
        return
    key = part.header.key
    new = plan.new_bodies
    rows = [(key, row.body, *body_values(given[row.message_id])) for row in plan.inserted if row.body in new]
    changed = [
        (row.body, message)
        for message_id, message in given.items()
        if (row := part.rows.get(message_id)) is not None
        and (identity := after.identities.get(message_id)) is not None
        and identity.hash != row.hash.hex()
    ]
    delete_rows(connection, bodies, ("session_id", "body"), [(key, body) for body, _ in changed])
    rows += [(key, body, *body_values(message)) for body, message in changed]
    insert_rows(connection, bodies, BODY_COLUMNS, rows)


def _write_latches(connection: Connection, part: Part, after: ConversationState) -> None:
    kept = set(after.latches)
    removed = [stored.id for stored in part.latches if stored.latch not in kept]
    for some in chunks(removed):
        connection.execute(delete(latches).where(latches.c.id.in_(some)))
    known = {stored.latch for stored in part.latches}
    added = [(*latch_values(latch), part.header.key) for latch in after.latches if latch not in known]
    insert_rows(connection, latches, (*LATCH_COLUMNS, "session_id"), added)


def _write_quarantine(connection: Connection, part: Part, after: ConversationState) -> None:
    """*after* is what is left of the drops of *part*, in order, and then the new ones."""
    rest = list(after.quarantine)
    removed: list[int] = []
    for stored in part.drops:
        if rest and rest[0] == stored.drop:
            rest.pop(0)
        else:
            removed.append(stored.id)
    for some in chunks(removed):
        connection.execute(delete(quarantine).where(quarantine.c.id.in_(some)))
    now_s = int(time.time())
    insert_rows(connection, quarantine, DROP_COLUMNS, [(*drop_values(drop), part.header.key, now_s) for drop in rest])


def _write_header(connection: Connection, header: Header, after: ConversationState, next_number: int) -> None:
    wanted = evolve(header, version=after.version, epoch=after.epoch, cursor=after.refs.cursor, next_number=next_number)
    if wanted != header:
        values = {"version": wanted.version, "epoch": wanted.epoch, "ref_cursor": wanted.cursor}
        connection.execute(_SET_HEADER, {**values, "next_number": wanted.next_number, "key": header.key})
