"""The row of a session: what every write locks, and what says which version a reader saw."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import mysql, postgresql

from latchguard.core.errors import SessionExistsError, SessionNotFoundError, StaleStateError
from latchguard.store.column_types import is_mysql
from latchguard.store.connections import sees_latest
from latchguard.store.rows import Header
from latchguard.store.tables import sessions

__all__ = ["check_version", "create_header", "create_locked", "lock_header", "lock_or_create", "read_header"]

_COLUMNS: Final = tuple(
    sessions.c[name]
    for name in ("id", "name", "version", "epoch", "ref_cursor", "next_number", "purged", "extra", "keeps_texts")
)
_IS_IT: Final = sessions.c.name == bindparam("session")
# Built once: building a statement costs more than running it.
_READ: Final = select(*_COLUMNS).where(_IS_IT)
_LOCK: Final = _READ.with_for_update()
_TOUCH: Final = update(sessions).where(_IS_IT).values(version=sessions.c.version)


def read_header(connection: Connection, session: str) -> Header | None:
    """Read the row of *session*, or None."""
    row = connection.execute(_READ, {"session": session}).one_or_none()
    return None if row is None else Header(*row)


def lock_header(connection: Connection, session: str) -> Header:
    """Lock the row of *session* until the transaction ends, and read it.

    Raises:
        SessionNotFoundError: there is none.
        StaleStateError: the caller's transaction has a snapshot from before somebody else's write (MySQL, where a
            plain read in such a transaction would show what is no longer true).
    """
    name = {"session": session}
    if connection.dialect.name == "sqlite":
        # A statement that writes takes the lock that a SELECT cannot take, inside a caller's transaction too.
        connection.execute(_TOUCH, name)
        row = connection.execute(_READ, name).one_or_none()
    else:
        row = connection.execute(_LOCK, name).one_or_none()
    if row is None:
        raise SessionNotFoundError(session)
    header = Header(*row)
    if is_mysql(connection.dialect) and not sees_latest(connection):
        seen = connection.execute(_READ, name).one_or_none()
        if seen is None or Header(*seen) != header:
            raise StaleStateError(session, -1 if seen is None else seen.version, header.version)
    return header


def create_header(connection: Connection, session: str, *, keeps_texts: bool) -> bool:
    """Make the row of *session* where there is none; say whether it was made."""
    values = _first_values(session, keeps_texts=keeps_texts)
    if connection.dialect.name == "postgresql":
        made = postgresql.insert(sessions).values(values).on_conflict_do_nothing().returning(sessions.c.id)
        return connection.execute(made).first() is not None
    statement = insert(sessions).values(values).inline().prefix_with("OR IGNORE", dialect="sqlite")
    for dialect in ("mysql", "mariadb"):
        statement = statement.prefix_with("IGNORE", dialect=dialect)
    return connection.execute(statement).rowcount == 1


def _first_values(session: str, *, keeps_texts: bool) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(("version", "epoch", "purged"), 0)
    return values | {"name": session, "ref_cursor": 1, "next_number": 1, "keeps_texts": keeps_texts}


def lock_or_create(connection: Connection, session: str, *, keeps_texts: bool) -> Header:
    """Lock the row of *session*, made where there is none."""
    # In a caller's transaction on MySQL, looking for a row that is not there may lock its place, for many at once: then
    # none of them could make it.
    if not is_mysql(connection.dialect) or sees_latest(connection):
        with suppress(SessionNotFoundError):
            return lock_header(connection, session)
    _make_locked(connection, session, keeps_texts=keeps_texts)
    return lock_header(connection, session)


def _make_locked(connection: Connection, session: str, *, keeps_texts: bool) -> None:
    """Make the row of *session*, or lock the one that somebody else has made, so that nobody deletes it."""
    values = _first_values(session, keeps_texts=keeps_texts)
    if is_mysql(connection.dialect):
        connection.execute(mysql.insert(sessions).values(values).on_duplicate_key_update(name=session))
    elif connection.dialect.name == "postgresql":
        made = postgresql.insert(sessions).values(values)
        connection.execute(made.on_conflict_do_update(index_elements=["name"], set_={"name": session}))
    else:
        create_header(connection, session, keeps_texts=keeps_texts)


def create_locked(connection: Connection, session: str, *, keeps_texts: bool) -> Header:
    """Make the row of a new session, and lock it.

    Raises:
        SessionExistsError: it is there already.
    """
    if not create_header(connection, session, keeps_texts=keeps_texts):
        raise SessionExistsError(session)
    return lock_header(connection, session)


def check_version(header: Header, expect_version: int | None) -> None:
    """Refuse where somebody else wrote meanwhile.

    Raises:
        StaleStateError: the session is not at *expect_version*.
    """
    if expect_version is not None and header.version != expect_version:
        raise StaleStateError(header.name, expect_version, header.version)
