"""Verify a database from outside: what is stored, held against what may be stored.

1. It only reads: a read-only connection suffices. The memory does not grow with the histories.
2. What a statement can see is a row of `CHECKS`: slug, meaning, statement. `docs/store.md` lists them.
3. Every text is hashed again, inside the database, and held against the identity of its message (`text-changed`).
4. Each latch is held against its message as a replay does (`stale-latch`, `latch-without-identity`).
5. Where the host owns the history there is no text to hash: latches are held against the stored identities, and
   `count_texts_not_kept` says of how many messages.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, Select, and_, case, exists, false, func, literal, not_, null, or_, select, true

from latchguard.core.errors import cut
from latchguard.core.findings import Finding, Repair
from latchguard.core.latches import LATCHABLE
from latchguard.core.message import Kind, Role
from latchguard.core.reasons import Reason
from latchguard.store.lives import judge_latches
from latchguard.store.rows import Header
from latchguard.store.schema import check_schema
from latchguard.store.scrubbing import changed_texts, may_differ
from latchguard.store.tables import bodies, latches, messages, quarantine, sessions

__all__ = ["CHECKS", "Check", "check_database", "check_latches", "count_texts_not_kept"]


@frozen
class Check:
    """One thing that must hold.

    Args:
        slug: of the finding where it does not.
        note: what is wrong then, in a sentence.
        broken: gives (session key, what the row is, its name) of each row that breaks it.
    """

    slug: str
    note: str
    broken: Select[Any]


def _rows(table: Any, what: str, name: str, *conditions: Any) -> Select[Any]:
    return select(table.c.session_id, literal(what), table.c[name]).where(*conditions)


def _without_session(table: Any, what: str, name: str) -> Check:
    lost = not_(exists().where(sessions.c.id == table.c.session_id))
    return Check("dangling-row", f"the {what} belongs to no session", _rows(table, what, name, lost))


_IS_BODY = and_(bodies.c.session_id == messages.c.session_id, bodies.c.body == messages.c.body)
_IS_HOLDER = and_(messages.c.session_id == latches.c.session_id, messages.c.ref == latches.c.ref)
_HAS_BODY = exists(bodies).where(_IS_BODY)
_KEEPS_TEXTS = exists().where(sessions.c.id == messages.c.session_id, sessions.c.keeps_texts)
_IS_HOSTS = exists().where(sessions.c.id == bodies.c.session_id, not_(sessions.c.keeps_texts))
_HAS_MESSAGE = exists(messages).where(_IS_BODY)
_IS_HELD = exists(messages).where(_IS_HOLDER)
_IS_BEHIND = exists().where(
    sessions.c.id == messages.c.session_id,
    or_(
        sessions.c.next_number <= messages.c.position,
        sessions.c.next_number <= messages.c.body,
        sessions.c.ref_cursor <= messages.c.ref,
    ),
)
_HAS_REF = messages.c.ref.is_not(null())

CHECKS: Final = (
    _without_session(messages, "message", "message_id"),
    _without_session(bodies, "text", "body"),
    _without_session(latches, "latch", "id"),
    _without_session(quarantine, "drop", "id"),
    Check(
        "dangling-row",
        "the message has no text",
        _rows(messages, "message", "message_id", _KEEPS_TEXTS, not_(_HAS_BODY)),
    ),
    Check("dangling-row", "the text is of a session that keeps none", _rows(bodies, "text", "body", _IS_HOSTS)),
    Check("dangling-row", "the text belongs to no message", _rows(bodies, "text", "body", not_(_HAS_MESSAGE))),
    Check(
        "ref-map-broken",
        "a message has a ref where it is present and not protected, and only there",
        _rows(
            messages,
            "message",
            "message_id",
            or_(
                and_(messages.c.present, not_(messages.c.protected), not_(_HAS_REF)),
                and_(_HAS_REF, or_(messages.c.protected, not_(messages.c.present), messages.c.ref < 1)),
            ),
        ),
    ),
    Check(
        "counter-behind",
        "a ref, position or text number of the message would be issued again",
        _rows(messages, "message", "message_id", _IS_BEHIND),
    ),
    Check("stale-latch", "no message holds the ref of the latch", _rows(latches, "latch", "id", not_(_IS_HELD))),
    Check(
        "unknown-value",
        "role or kind is none of those that this release knows",
        _rows(
            messages,
            "message",
            "message_id",
            or_(messages.c.role.not_in(list(map(str, Role))), messages.c.kind.not_in(list(map(str, Kind)))),
        ),
    ),
    Check(
        "unknown-value",
        "the reason is not in the closed list",
        _rows(quarantine, "drop", "id", quarantine.c.reason.not_in(list(map(str, Reason)))),
    ),
)

TEXT_CHANGED: Final = "text-changed"
_NOTES: Final = {TEXT_CHANGED: "the text does not hash to the identity that is stored with the message"}


def check_database(connection: Connection) -> Iterator[Finding]:
    """Give what is wrong with the stored sessions; nothing where all is well.

    Args:
        connection: to the database; nothing is written. For one view of a database in use, in a transaction that is
            `REPEATABLE READ` at least.

    Raises:
        SchemaOutdatedError, StateVersionError: the schema is not one that this release reads.
    """
    check_schema(connection)
    unreadable: set[int] = set()
    for check in CHECKS:
        for key, what, name in connection.execute(check.broken):
            unreadable.add(key)
            yield _finding(connection, key, check.slug, check.note, f"{what} {name!a}")
    for key, message_id in changed_texts(connection):
        yield _finding(connection, key, TEXT_CHANGED, _NOTES[TEXT_CHANGED], f"message {message_id!a}")
    yield from check_latches(connection, unreadable)


def check_latches(connection: Connection, unreadable: Container[int] = ()) -> Iterator[Finding]:
    """Give the latches that a replay refuses, but for those of *unreadable* sessions.

    The database picks the sessions in which a latch does not plainly fit, few or none; the core judges their latches.
    """
    plain = and_(
        latches.c.hash == messages.c.hash,
        latches.c.role == messages.c.role,
        latches.c.kind == messages.c.kind,
        latches.c.kind.in_([str(kind) for kind, latchable in LATCHABLE.items() if latchable]),
    )
    doubtful = case(
        (and_(plain, not_(sessions.c.keeps_texts)), false()),
        (and_(plain, bodies.c.body.is_not(null())), may_differ(connection)),
        else_=true(),
    )
    found = sessions.join(latches, sessions.c.id == latches.c.session_id)
    found = found.outerjoin(messages, _IS_HOLDER).outerjoin(bodies, _IS_BODY)
    statement = select(sessions.c.id, sessions.c.name, sessions.c.keeps_texts).select_from(found).where(doubtful)
    for key, name, keeps_texts in connection.execute(statement.distinct().order_by(sessions.c.id)).all():
        if key not in unreadable:
            yield from _refused(connection, Header(key, name, 0, 0, 1, 1, 0, None, keeps_texts))


def _refused(connection: Connection, header: Header) -> Iterator[Finding]:
    for judged in judge_latches(connection, header):
        if judged.reason is not None:
            missing = judged.reason is Reason.NO_IDENTITY
            slug = "latch-without-identity" if missing else "stale-latch"
            note = f"the latch on ref {judged.latch.ref} is refused: {judged.reason}"
            holder = "no message" if judged.holder is None else f"message {judged.holder!a}"
            yield _finding(connection, header.key, slug, note, holder)


def count_texts_not_kept(connection: Connection) -> int:
    """Count the messages whose texts the hosts have: `text-changed` can say nothing of them."""
    hosts = not_(sessions.c.keeps_texts)
    joined = select(func.count()).select_from(messages).join(sessions, sessions.c.id == messages.c.session_id)
    return connection.execute(joined.where(hosts)).scalar_one()


def _finding(connection: Connection, key: int, slug: str, note: str, place: str) -> Finding:
    name = connection.execute(select(sessions.c.name).where(sessions.c.id == key)).scalar_one_or_none()
    session = f"session {cut(name)}" if name is not None else f"session number {key}"
    return Finding(rule=slug, path=f"{session}, {place}", repair=Repair.DETECT, applied=False, note=note)
