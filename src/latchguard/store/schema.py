"""The schema: which revision a database has, and how it gets the newest. Alembic is loaded only to upgrade.

1. The revisions lie in `migrations/`; a wheel carries them as `latchguard/_migrations`. No ini file is read.
2. An upgrade is one transaction on SQLite and PostgreSQL. MySQL commits at each DDL statement, so there each revision
   can be run again.
3. Two upgrades never run at once: a lock in the process, since Alembic's globals are no thread's own, and one in
   the database.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, inspect, text

import latchguard
from latchguard.core.errors import SchemaOutdatedError, StateVersionError, StoreBusyError
from latchguard.store.column_types import is_mysql
from latchguard.store.connections import refuse_encoding, shown_url, writing
from latchguard.store.revising import count_open_latches
from latchguard.store.tables import PREFIX, VERSION_TABLE, metadata

__all__ = [
    "HEAD",
    "OPEN",
    "alembic_config",
    "alembic_options",
    "check_schema",
    "read_revision",
    "upgrade_database",
    "upgrade_sql",
]

REVISIONS: Final = ("0001", "0002", "0003")
HEAD: Final = REVISIONS[-1]
OPEN: Final = "0002"  # latches of old are kept and refused
USABLE: Final = frozenset({OPEN, HEAD})
LOCK_TIMEOUT_S: Final = 60
LOCK_NAME: Final = "latchguard-upgrade"
LOCK_NUMBER: Final = 0x6C61746368  # "latch", for pg_advisory_xact_lock

_ALEMBIC = threading.Lock()


def alembic_options() -> dict[str, Any]:
    """Give what `migrations/env.py` passes to `context.configure`."""
    return {
        "target_metadata": metadata,
        "version_table": VERSION_TABLE,
        "render_as_batch": True,
        "transactional_ddl": True,
        "include_name": lambda name, kind, _: kind != "table" or (name or "").startswith(PREFIX),
    }


def read_revision(connection: Connection, *, to_write: bool = False) -> str | None:
    """Give the revision of the database, None where latchguard has no tables there.

    Args:
        connection: to read from.
        to_write: whether writes follow in this transaction. Then MySQL takes no snapshot for it: the first plain read
            takes that, and it must come after the session's lock, or it shows what somebody else has changed.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    statement = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608  # a name of our own
    if to_write and is_mysql(connection.dialect):
        statement += " LOCK IN SHARE MODE"
    found: str | None = connection.execute(text(statement)).scalar_one_or_none()
    return found


def check_schema(connection: Connection, *, to_write: bool = False) -> None:
    """Refuse a database that this release cannot use; *to_write* as in `read_revision`.

    Raises:
        InvalidValueError: the connection cannot say every text.
        StateVersionError: its schema is newer.
        SchemaOutdatedError: its schema is older, or it has none.
    """
    refuse_encoding(connection)
    found = read_revision(connection, to_write=to_write)
    where = shown_url(connection.engine)
    if found is not None and found not in REVISIONS:
        raise StateVersionError(where, HEAD, found)
    if found not in USABLE:
        raise SchemaOutdatedError(where, HEAD, found or "none")


def upgrade_database(engine: Engine, connection: Connection | None = None) -> str:
    """Bring the schema up to date; give the revision reached.

    That is the newest, unless latches of old wait for the repair job: then `OPEN`, which keeps and refuses them. Run
    it again when the job is through.

    Args:
        engine: of the database.
        connection: to run in a transaction of the caller's, who commits.

    Raises:
        InvalidValueError: the connection cannot say every text, or commits by itself.
        StateVersionError: the schema is newer than this release.
        StoreBusyError: somebody else upgrades and does not end.
    """
    with _ALEMBIC, writing(engine, connection) as writer:
        return _upgrade_locked(writer)


def _upgrade_locked(connection: Connection) -> str:
    refuse_encoding(connection)
    with _lock_database(connection):
        found = read_revision(connection, to_write=True)  # on MySQL it waits for the commit of the one before
        if found is not None and found not in REVISIONS:
            raise StateVersionError(shown_url(connection.engine), HEAD, found)
        _run_alembic(connection, OPEN)
        if count_open_latches(connection):
            return OPEN
        _run_alembic(connection, HEAD)
        return HEAD


@contextmanager
def _lock_database(connection: Connection) -> Iterator[None]:
    if not is_mysql(connection.dialect):
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": LOCK_NUMBER})
        yield
        return
    held = connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": LOCK_NAME, "wait": LOCK_TIMEOUT_S})
    if held.scalar_one() != 1:
        raise StoreBusyError(shown_url(connection.engine), f"the lock {LOCK_NAME} is held by another upgrade")
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": LOCK_NAME})


def _run_alembic(connection: Connection, target: str) -> None:
    from alembic import command  # noqa: PLC0415  # 150 ms, for upgrades only

    config = alembic_config()
    config.attributes["connection"] = connection
    if read_revision(connection) not in REVISIONS[REVISIONS.index(target) :]:
        command.upgrade(config, target)


def upgrade_sql(dialect: str) -> str:
    """Give the DDL of all revisions as SQL, for those who review it or run it by hand.

    Args:
        dialect: `sqlite`, `postgresql`, `mysql` or `mariadb`.
    """
    from alembic import command  # noqa: PLC0415  # 150 ms, for upgrades only

    with _ALEMBIC:
        config = alembic_config()
        config.output_buffer = printed = io.StringIO()
        config.attributes["dialect_name"] = dialect
        command.upgrade(config, HEAD, sql=True)
        return printed.getvalue()


def alembic_config() -> Any:
    """Give what Alembic needs to run the revisions; its `attributes["connection"]` is the caller's to set."""
    from alembic.config import Config  # noqa: PLC0415  # 150 ms, for upgrades only

    config = Config()
    config.set_main_option("script_location", str(_script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _script_location() -> Path:
    """Give the folder of the revisions: in the wheel, or in the repository where the install is editable."""
    package = Path(latchguard.__file__).resolve().parent
    packed = package / "_migrations"
    return packed if packed.is_dir() else package.parents[1] / "migrations"
