"""The databases: every test of this folder that asks for a `store` runs on SQLite, PostgreSQL and MariaDB.

Each test process makes databases of its own and drops them at the end. A server that does not answer is skipped,
with a line that says so; under CI=true that is a failure. `.ci/services` starts them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import OperationalError

from latchguard import SessionStore
from latchguard.store.tables import metadata

SERVERS = {
    "postgresql": os.environ.get("LATCHGUARD_TEST_POSTGRESQL", "postgresql+psycopg://postgres@127.0.0.1/test"),
    "mariadb": os.environ.get("LATCHGUARD_TEST_MARIADB", "mysql+pymysql://root@127.0.0.1/test"),
}
NAME = f"latchguard_test_{os.getpid()}"


@pytest.fixture(scope="session", params=["sqlite", *SERVERS])
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty database of this test process."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
        return
    yield from make_database(request.param)


def make_database(server: str) -> Iterator[str]:
    """Make a database on *server*, give its URL, drop it at the end."""
    admin = create_engine(SERVERS[server], isolation_level="AUTOCOMMIT")
    name = f"{NAME}_{os.urandom(4).hex()}"
    try:
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
    except OperationalError as error:
        why = f"{server} does not answer at {admin.url.render_as_string()}: its tests are skipped"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{why}, but CI requires them: {error}")
        pytest.skip(why)
    if server == "postgresql":  # durability is the server's business, not what these tests are about
        with admin.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    try:
        yield admin.url.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            force = " WITH (FORCE)" if server == "postgresql" else ""
            connection.execute(text(f"DROP DATABASE {name}{force}"))
        admin.dispose()


@pytest.fixture(scope="session")
def shared_store(database_url: str) -> Iterator[SessionStore]:
    """A store that all tests of one database share: each uses session names of its own."""
    store = SessionStore(database_url)
    if store.engine.dialect.name == "sqlite":
        event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    store.upgrade()
    yield store
    store.close()


@pytest.fixture
def store(shared_store: SessionStore) -> SessionStore:
    """An empty store."""
    clear(shared_store)
    return shared_store


def clear(store: SessionStore) -> None:
    """Take everything out of a store."""
    with store.engine.begin() as connection:
        for table in metadata.tables.values():
            connection.execute(table.delete())


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SessionStore]:
    """An empty store in a SQLite file of its own."""
    store = SessionStore(f"sqlite:///{tmp_path}/own.db")
    store.upgrade()
    yield store
    store.close()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drop is made at the same time, so that two runs leave equal files."""
    monkeypatch.setattr("latchguard.store.changes.time.time", lambda: 1_700_000_000)
