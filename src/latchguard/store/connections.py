"""Connections: engines, transactions, errors, and rows in bulk.

1. A read sees one snapshot: on an own connection `BEGIN` on SQLite, `REPEATABLE READ` elsewhere. On a caller's
   connection it sees what that one sees.
2. A write on an own connection is one transaction. On a caller's connection it is a part of the caller's, who commits.
   An own one sees what is committed (`READ COMMITTED`): the session's lock is what orders writers, and MySQL then locks
   no gaps beside the rows. One that is chosen to break a deadlock all the same runs again.
3. SQLite takes its one write lock at the start, so that a write never fails at its end because somebody else wrote.
4. A forked child makes connections of its own: what it inherits is its parent's.
5. What a driver raises comes out as `StoreFailedError`, or `StoreBusyError` where trying again helps.
6. A connection that commits by itself, that puts tables into another schema, or whose encoding cannot say every text,
   is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
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
    "refuse_encoding",
    "run_writing",
    "sees_latest",
    "shown_url",
    "store_errors",
    "update_blocks",
    "update_rows",
    "writing",
]

_T = TypeVar("_T")

BUSY_TIMEOUT_S: Final = 30
CHUNK: Final = 500  # bound values in one IN list
SNAPSHOT: Final = "REPEATABLE READ"
UNDER_LOCK: Final = "READ COMMITTED"
_LATEST: Final = "latchguard_latest"
ENCODINGS: Final = {
    "postgresql": ("SHOW client_encoding", "UTF8"),
    "mysql": ("SELECT @@character_set_client", "utf8mb4"),
}
_ARRAYS: Final = {int: "bigint[]", bool: "boolean[]", bytes: "bytea[]"}  # of PostgreSQL; of all else, text
_SAY_BINARY: Final = frozenset(("psycopg", "psycopg_async"))  # the drivers that are told
RUNS: Final = 10  # of one transaction that deadlocks; InnoDB locks the neighbours of keys that were just deleted

# Locks that were not to be had, and transactions that were chosen to break a deadlock or a conflict.
CHOSEN_SQLSTATES: Final = frozenset({"40001", "40P01"})
CHOSEN_MYSQL_CODES: Final = frozenset({1213, 1020})
BUSY_SQLSTATES: Final = CHOSEN_SQLSTATES | {"55P03"}
BUSY_MYSQL_CODES: Final = CHOSEN_MYSQL_CODES | {1205, 1412}  # 1412: a snapshot from before an upgrade
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
            refuse_unfit(connection)
            _begin(connection, "BEGIN")
            yield connection
            return
        with engine.connect() as own:
            _set_level(own, SNAPSHOT)
            _begin(own, "BEGIN")
            yield own


@contextmanager
def writing(engine: Engine, connection: Connection | None) -> Iterator[Connection]:
    """Give a connection to write to: our own in a transaction of its own, or the caller's as it is."""
    with store_errors(engine):
        if connection is not None:
            refuse_unfit(connection)
            begin_immediate(connection)
            yield connection
            return
        with engine.connect() as own:
            _set_level(own, UNDER_LOCK)
            own.execution_options(**{_LATEST: True})
            begin_immediate(own)
            with own.get_transaction() or own.begin():  # `own.commit()` would not roll back where it fails
                yield own


def run_writing(engine: Engine, connection: Connection | None, do: Callable[[Connection], _T]) -> _T:
    """Run *do* as `writing` does; again where our own transaction was chosen to break a deadlock."""
    for _ in range(RUNS - 1 if connection is None else 0):
        try:
            with writing(engine, None) as own:
                return do(own)
        except StoreBusyError as error:
            if not _is_chosen(error.__cause__):
                raise
    with writing(engine, connection) as writer:
        return do(writer)


def sees_latest(connection: Connection) -> bool:
    """Say whether *connection* is our own to write to, so that it sees what is committed and locks no gaps."""
    return _LATEST in connection.get_execution_options()


def _set_level(own: Connection, level: str) -> None:
    """Give the transaction that is to begin on *own* its isolation level; SQLite knows one."""
    refuse_unfit(own)
    if is_mysql(own.dialect):  # for this transaction alone: SQLAlchemy's way is four statements
        own.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
    elif own.dialect.name != "sqlite":
        own.execution_options(isolation_level=level)


def refuse_unfit(connection: Connection) -> None:
    """Refuse a connection on which a write would not be one transaction, or not on one set of tables.

    Raises:
        InvalidValueError: it commits by itself, or a `schema_translate_map` moves our tables.
    """
    driver: Any = connection.connection.dbapi_connection  # it knows better than SQLAlchemy
    by_itself = driver.get_autocommit() if is_mysql(connection.dialect) else getattr(driver, "autocommit", None)
    if by_itself is True:  # SQLite has more to say: `_begin`
        raise InvalidValueError("connection", "an isolation level with transactions", "AUTOCOMMIT")
    if (connection.get_execution_options().get("schema_translate_map") or {}).get(None) is not None:
        raise InvalidValueError("connection", "tables that search_path finds", "a schema_translate_map for None")


def refuse_encoding(connection: Connection) -> None:
    """Refuse a connection that cannot say every text.

    Raises:
        InvalidValueError: its encoding is not UTF-8. A MySQL that is not strict would store the half of a text.
    """
    for name, (statement, wanted) in ENCODINGS.items():
        if name == connection.dialect.name or (name == "mysql" and is_mysql(connection.dialect)):
            found = connection.exec_driver_sql(statement).scalar_one()
            if found != wanted:
                raise InvalidValueError("connection", f"the encoding {wanted}", cut(found))


def begin_immediate(connection: Connection) -> None:
    """On SQLite, take the write lock now, unless a transaction is open already."""
    _begin(connection, "BEGIN IMMEDIATE")


def _begin(connection: Connection, statement: str) -> None:
    """On SQLite, whose driver begins a transaction at the first write only, begin it now.

    Raises:
        InvalidValueError: the driver commits by itself.
    """
    if connection.dialect.name != "sqlite":
        return
    if not connection.in_transaction():
        connection.begin()  # a host may have a listener that tells SQLite, as SQLAlchemy's manual has it
    driver = connection.connection.driver_connection
    if driver is None or driver.in_transaction:
        return
    if driver.isolation_level is None:
        raise InvalidValueError("connection", "an isolation level with transactions", "AUTOCOMMIT")
    connection.exec_driver_sql(statement)


@contextmanager
def store_errors(engine: Engine) -> Iterator[None]:
    """Turn a driver's error into ours."""
    try:
        yield
    except SQLAlchemyError as error:
        failure = StoreBusyError if is_busy(error) else StoreFailedError
        raise failure(shown_url(engine), _failure_text(error)) from error


def _failure_text(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return str(error)
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return KILLED_WRITER
    return str(error.orig)


def is_busy(error: SQLAlchemyError) -> bool:
    """Say whether trying again may help."""
    if isinstance(error, PoolTimeoutError):
        return True
    found = getattr(error, "orig", None)
    if isinstance(found, sqlite3.Error):
        return getattr(found, "sqlite_errorcode", 0) & 0xFF in BUSY_SQLITE_CODES
    return _is_one_of(found, BUSY_SQLSTATES, BUSY_MYSQL_CODES)


def _is_chosen(error: BaseException | None) -> bool:
    """Say whether the transaction was rolled back to break a deadlock or a conflict."""
    return _is_one_of(getattr(error, "orig", None), CHOSEN_SQLSTATES, CHOSEN_MYSQL_CODES)


def _is_one_of(found: Any, sqlstates: frozenset[str], mysql_codes: frozenset[int]) -> bool:
    """Say whether the driver's error *found* is a server's of these."""
    if getattr(found, "sqlstate", None) in sqlstates:
        return True
    return bool(getattr(found, "args", ())) and found.args[0] in mysql_codes


def chunks(values: Collection[Any]) -> Iterator[list[Any]]:
    """Cut *values* into lists that fit an IN list."""
    found = list(values)
    for start in range(0, len(found), CHUNK):
        yield found[start : start + CHUNK]


def insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert *rows*, each in the order of *columns*, as the driver takes them (half the time of dicts)."""
    names = ", ".join(_quoted(connection, table.c[name].name) for name in columns)
    into = f"INSERT INTO {_quoted(connection, table.name)} ({names})"
    if connection.dialect.name != "postgresql":
        execute_many(connection, f"{into} VALUES ({', '.join(_marks(connection, len(columns)))})", rows)
        return
    # Many rows a statement, column by column: less than half the time.
    kinds = [_ARRAYS.get(table.c[name].type.python_type, "text[]") for name in columns]
    arrays = ", ".join(
        f"{mark}::{kind}" for mark, kind in zip(_binary_marks(connection, len(columns)), kinds, strict=True)
    )
    for some in chunks(rows):
        values = tuple(map(list, zip(*some, strict=True)))
        connection.exec_driver_sql(f"{into} SELECT * FROM unnest({arrays})", values)  # noqa: S608  # as above


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


def _binary_marks(connection: Connection, count: int) -> list[str]:
    """Give marks for values that psycopg sends in binary, half the time of text."""
    return ["%b"] * count if connection.dialect.driver in _SAY_BINARY else _marks(connection, count)


def _marks(connection: Connection, count: int) -> list[str]:
    style = connection.dialect.paramstyle
    if style.startswith("numeric"):
        sign = "$" if style == "numeric_dollar" else ":"
        return [f"{sign}{number}" for number in range(1, count + 1)]
    return ["?" if style == "qmark" else "%s"] * count
