"""The databases to measure on: SQLite in a folder of its own, and each server that answers, in a database of its own.

SQLite does not flush and PostgreSQL does not wait for its log, so that the disk is not what is measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import OperationalError

from latchguard import SessionStore

__all__ = ["Database", "each_database", "open_store"]

SERVERS = (
    os.environ.get("LATCHGUARD_TEST_POSTGRESQL", "postgresql+psycopg://postgres@127.0.0.1/test"),
    os.environ.get("LATCHGUARD_TEST_MARIADB", "mysql+pymysql://root@127.0.0.1/test"),
)


@frozen
class Database:
    """Where to make stores.

    Args:
        name: `sqlite`, `postgresql` or `mysql`.
        place: a folder, or the URL of a server.
    """

    name: str
    place: str

    @contextmanager
    def store(self) -> Iterator[SessionStore]:
        """Give an empty store in a database of its own, gone afterwards."""
        if self.name == "sqlite":
            path = Path(self.place) / f"{os.urandom(4).hex()}.db"
            store = open_store(path)
            yield store
            store.close()
            path.unlink()
            return
        admin = create_engine(self.place, isolation_level="AUTOCOMMIT")
        name = f"latchguard_benchmark_{os.urandom(4).hex()}"
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
            if self.name == "postgresql":
                connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
        store = SessionStore(admin.url.set(database=name).render_as_string(hide_password=False))
        try:
            store.upgrade()
            yield store
        finally:
            store.close()
            with admin.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name}"))
            admin.dispose()


def open_store(path: Path) -> SessionStore:
    """Open a SQLite file that does not flush."""
    store = SessionStore(f"sqlite:///{path}")
    event.listen(store.engine, "connect", lambda found, _: found.execute("PRAGMA synchronous=OFF"))
    store.upgrade()
    return store


def each_database() -> Iterator[Database]:
    """Give SQLite, and the servers that answer."""
    with tempfile.TemporaryDirectory() as folder:
        yield Database("sqlite", folder)
    for url in SERVERS:
        engine = create_engine(url)
        try:
            engine.connect().close()
        except OperationalError:
            print(f"{engine.url.render_as_string()} does not answer", flush=True)
        else:
            yield Database(engine.dialect.name, url)
        engine.dispose()
