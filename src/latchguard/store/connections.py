"""Connections: engines, transactions, errors, and rows in bulk.

1. A read sees one snapshot: on an own connection `BEGIN` on SQLite, `REPEATABLE READ` elsewhere. On a caller's
   connection it sees what that one sees.
2. A write on an own connection is one transaction. On a caller's connection it is a part of the caller's, who commits.
3. SQLite takes its one write lock at the start, so that a write never fails at its end because somebody else wrote.
4. A forked child makes connections of its own: what it inherits is its parent's.
5. What a driver raises comes out as `StoreFailedError`, or `StoreBusyError` where trying again helps.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import SingletonThreadPool

from latchguard.core.errors import InvalidValueError, StoreBusyError, StoreFailedError, StoreNotFoundError, cut
from latchguard.store.column_types import is_mysql

__all__ = [
    "begin_immediate",
    "chunks",
    "connect_arguments",
    "delete_rows",
    "execute_many",
    "insert_rows",
    "is_ordered",
    "make_engine",
    "make_reader",
    "prepare_engine",
    "reading",
    "shown_url",
    "store_errors",
    "update_blocks",
    "update_rows",
    "writing",
]

BUSY_TIMEOUT_S: Final = 30
CHUNK: Final = 500  # bound values in one IN list
SNAPSHOT: Final = "REPEATABLE READ"

# Locks that were not to be had, and transactions that were chosen to break a deadlock or a conflict.
BUSY_SQLSTATES: Final = frozenset({"40001", "40P01", "55P03"})
BUSY_MYSQL_CODES: Final = frozenset({1205, 1213, 1020})
BUSY_SQLITE_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

# SQLite itself says "attempt to write a readonly database".
KILLED_WRITER: Final = "a writer was killed; whoever opens the file for writing rolls its journal back, a reader cannot"


def make_engine(url: str | URL) -> Engine:
    """Give an engine for *url*. SQLite waits for locks and trusts no schema.

    Raises:
        InvalidValueError: *url* is none, or its driver is not installed.
    """
    with _url_errors():
        return prepare_engine(create_engine(url, connect_args=connect_arguments(url)))


def make_reader(url: str) -> Engine:
    """Give an engine for *url* that cannot write where the database is a file, and makes none.

    Raises:
        InvalidValueError: *url* is none, or its driver is not installed.
        StoreNotFoundError: there is no such file.
    """
    with _url_errors():
        parsed = make_url(url)
    path = parsed.database
    if parsed.get_backend_name() != "sqlite" or path is None or path in {"", ":memory:"} or path.startswith("file:"):
        return make_engine(parsed)
    if not Path(path).exists():
        raise StoreNotFoundError(parsed.render_as_string())
    uri = f"file:{quote(str(Path(path).resolve()))}"
    return make_engine(parsed.set(database=uri).update_query_dict({"mode": "ro", "uri": "true"}))


@contextmanager
def _url_errors() -> Iterator[None]:
    try:
        yield
    except (ArgumentError, ImportError) as error:
        raise InvalidValueError("database", "a SQLAlchemy URL with an installed driver", cut(str(error))) from error


def connect_arguments(url: str | URL) -> dict[str, Any]:
    """Give what the driver of *url* is told when it connects."""
    return {"timeout": BUSY_TIMEOUT_S} if make_url(url).get_backend_name() == "sqlite" else {}


def prepare_engine(engine: Engine) -> Engine:
    """Let an own engine distrust a SQLite file's schema, and forget its connections in a forked child."""
    if not isinstance(engine.pool, SingletonThreadPool):  # a database in memory is copied with the process
        _OWN.add(engine)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _distrust_schema)
    return engine


def _forget_connections() -> None:
    """Leave the connections of the parent as they are: closing one would end the parent's."""
    for engine in _OWN:
        engine.dispose(close=False)


_OWN: Final[WeakSet[Engine]] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)


def _distrust_schema(dbapi_connection: Any, _: object) -> None:
    cursor = dbapi_connection.cursor()
    cursor.execute("PRAGMA trusted_schema=OFF")
    cursor.close()


def shown_url(engine: Engine) -> str:
    """Give the URL without its password."""
    return engine.url.render_as_string(hide_password=True)


@contextmanager
def reading(engine: Engine, connection: Connection | None) -> Iterator[Connection]:
    """Give a connection to read from, in one snapshot where it is our own."""
    with store_errors(engine):
        if connection is not None:
            _begin(connection, "BEGIN")
            yield connection
            return
        with engine.connect() as own:
            if own.dialect.name != "sqlite":
                own.execution_options(isolation_level=SNAPSHOT)
            _begin(own, "BEGIN")
            yield own


@contextmanager
def writing(engine: Engine, connection: Connection | None) -> Iterator[Connection]:
    """Give a connection to write to: our own in a transaction of its own, or the caller's as it is."""
    with store_errors(engine):
        if connection is not None:
            begin_immediate(connection)
            yield connection
            return
        with engine.begin() as own:
            begin_immediate(own)
            yield own


def begin_immediate(connection: Connection) -> None:
    """On SQLite, take the write lock now, unless a transaction is open already."""
    _begin(connection, "BEGIN IMMEDIATE")


def _begin(connection: Connection, statement: str) -> None:
    """On SQLite, whose driver begins a transaction at the first write only, begin it now."""
    if connection.dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        if driver is not None and not driver.in_transaction:
            connection.exec_driver_sql(statement)


@contextmanager
def store_errors(engine: Engine) -> Iterator[None]:
    """Turn a driver's error into ours."""
    try:
        yield
    except DBAPIError as error:
        failure = StoreBusyError if is_busy(error) else StoreFailedError
        raise failure(shown_url(engine), _failure_text(error)) from error


def _failure_text(error: DBAPIError) -> str:
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return KILLED_WRITER
    return str(error.orig)


def is_busy(error: DBAPIError) -> bool:
    """Say whether trying again may help."""
    found: Any = error.orig
    if getattr(found, "sqlstate", None) in BUSY_SQLSTATES:
        return True
    if isinstance(found, sqlite3.Error):
        return getattr(found, "sqlite_errorcode", 0) & 0xFF in BUSY_SQLITE_CODES
    return bool(getattr(found, "args", ())) and found.args[0] in BUSY_MYSQL_CODES


def chunks(values: Collection[Any]) -> Iterator[list[Any]]:
    """Cut *values* into lists that fit an IN list."""
    found = list(values)
    for start in range(0, len(found), CHUNK):
        yield found[start : start + CHUNK]


def insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert *rows*, each in the order of *columns*, as the driver takes them (half the time of dicts)."""
    names = ", ".join(_quoted(connection, table.c[name].name) for name in columns)
    marks = ", ".join(_marks(connection, len(columns)))
    execute_many(connection, f"INSERT INTO {_quoted(connection, table.name)} ({names}) VALUES ({marks})", rows)  # noqa: S608  # names of our own tables


def update_rows(
    connection: Connection, table: Table, set_column: str, key_columns: Sequence[str], rows: Collection[tuple[int, ...]]
) -> None:
    """Set one column of integers in many rows; each row is the new value, then the key, of integers too.

    In their order, but for MySQL: `is_ordered`.
    """
    name, column = _quoted(connection, table.name), _quoted(connection, set_column)
    keys = [_quoted(connection, key) for key in key_columns]
    if is_ordered(connection):
        marks = _marks(connection, 1 + len(keys))
        where = " AND ".join(f"{key} = {mark}" for key, mark in zip(keys, marks[1:], strict=True))
        execute_many(connection, f"UPDATE {name} SET {column} = {marks[0]} WHERE {where}", rows)  # noqa: S608  # names of our own tables
        return
    for given, on in _joins(name, keys, (column, *keys), rows):
        connection.exec_driver_sql(f"UPDATE {name} JOIN {given} ON {on} SET {name}.{column} = given.{column}")  # noqa: S608


def update_blocks(
    connection: Connection, table: Table, columns: tuple[str, str], rows: Collection[tuple[int, int, int, int]]
) -> None:
    """Set the first of *columns* to the second and a number more, in many ranges of the second.

    Each row is that number, a session's key, and the first and the last value of the second column.
    """
    name, column, by = (_quoted(connection, found) for found in (table.name, *columns))
    more, key, first, last = _marks(connection, 4)
    ranges = f"session_id = {key} AND {by} BETWEEN {first} AND {last}"
    execute_many(connection, f"UPDATE {name} SET {column} = {by} + {more} WHERE {ranges}", rows)  # noqa: S608  # names of our own tables


def delete_rows(
    connection: Connection, table: Table, key_columns: Sequence[str], rows: Collection[tuple[int, ...]]
) -> None:
    """Delete many rows, each by its key of integers."""
    name, keys = _quoted(connection, table.name), [_quoted(connection, key) for key in key_columns]
    if is_ordered(connection):
        where = " AND ".join(f"{key} = {mark}" for key, mark in zip(keys, _marks(connection, len(keys)), strict=True))
        execute_many(connection, f"DELETE FROM {name} WHERE {where}", rows)  # noqa: S608  # names of our own
        return
    for given, on in _joins(name, keys, keys, rows):
        connection.exec_driver_sql(f"DELETE {name} FROM {name} JOIN {given} ON {on}")


def is_ordered(connection: Connection) -> bool:
    """Say whether many rows are updated one by one, in order.

    SQLite has no way to wait for, PostgreSQL's driver waits once for all; MySQL's waits for each row, so there a
    statement takes many.
    """
    return not is_mysql(connection.dialect)


def _joins(
    table: str, keys: Sequence[str], columns: Sequence[str], rows: Collection[tuple[int, ...]]
) -> Iterator[tuple[str, str]]:
    """Give, for MySQL, *rows* as derived tables called `given`, and how each is joined to *table*."""
    on = " AND ".join(f"{table}.{key} = given.{key}" for key in keys)
    for some in chunks(rows):
        first = ", ".join(f"{value:d} AS {column}" for value, column in zip(some[0], columns, strict=True))
        rest = (", ".join(f"{value:d}" for value in row) for row in some[1:])
        yield f"({' UNION ALL '.join(f'SELECT {values}' for values in (first, *rest))}) AS given", on


def execute_many(connection: Connection, statement: str, rows: Collection[tuple[Any, ...]]) -> None:
    """Run one statement for each of *rows*."""
    if rows:
        connection.exec_driver_sql(statement, list(rows))


def _quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)


def _marks(connection: Connection, count: int) -> list[str]:
    style = connection.dialect.paramstyle
    if style.startswith("numeric"):
        sign = "$" if style == "numeric_dollar" else ":"
        return [f"{sign}{number}" for number in range(1, count + 1)]
    return ["?" if style == "qmark" else "%s"] * count
