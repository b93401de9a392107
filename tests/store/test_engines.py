"""Engines as hosts have them: what fits is used, what would lose a transaction or a text is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, text

from latchguard import AsyncSessionStore, Kind, Message, Role, SessionStore
from latchguard.core.errors import InvalidValueError, StaleStateError, StoreBusyError, StoreFailedError
from tests.store.conftest import SERVERS, make_database
from tests.store.test_races import after_statement

A, B = (Message(name, Role.USER, Kind.TEXT, name) for name in "ab")


@pytest.fixture(params=SERVERS)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own on a server."""
    yield from make_database(request.param)


def test_a_connection_that_commits_by_itself_is_refused(store: SessionStore) -> None:
    """No write could be all or nothing there, neither on the host's connection nor on one of its engine."""
    engine = create_engine(store.engine.url, isolation_level="AUTOCOMMIT")
    host = SessionStore(engine)
    with pytest.raises(InvalidValueError):
        host.append("s", [A])
    with pytest.raises(InvalidValueError):
        host.upgrade()
    with engine.connect() as connection:
        with pytest.raises(InvalidValueError):
            store.append("s", [A], connection=connection)
        with pytest.raises(InvalidValueError):
            store.sessions(connection=connection)
    engine.dispose()
    assert store.sessions() == []


def test_a_driver_that_commits_by_itself_is_refused(server_url: str) -> None:
    """SQLAlchemy does not know of it."""
    host = SessionStore(create_engine(server_url, connect_args={"autocommit": True}))
    with pytest.raises(InvalidValueError):
        host.upgrade()
    host.close()


def test_sqlite_as_the_manual_of_sqlalchemy_has_it(sqlite_store: SessionStore) -> None:
    """A host whose listener begins the transactions of SQLite itself."""
    engine = create_engine(sqlite_store.engine.url)

    @event.listens_for(engine, "connect")
    def leave_transactions_alone(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    host = SessionStore(engine)
    host.append("s", [A])
    with engine.connect() as connection:
        host.append("s", [B], connection=connection)
    assert host.messages("s") == [A]
    with engine.connect() as connection:
        host.append("s", [B], connection=connection)
        connection.commit()
    assert list(host.stream("s")) == [A, B]
    host.close()


def test_another_level_of_the_host_is_not_ours(server_url: str) -> None:
    """On an engine of serializable transactions a write builds on what others commit meanwhile all the same."""
    other, host = SessionStore(server_url), SessionStore(create_engine(server_url, isolation_level="SERIALIZABLE"))
    other.upgrade()
    other.append("s", [A])
    # The first write of a store reads the schema before it has the session's lock.
    with after_statement(host, "version_num", lambda: other.append("s", [B])):
        assert host.append("s", [Message("c", Role.USER, Kind.TEXT, "c")]) == ["m00003"]
    with host.engine.connect() as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"
    host.close()
    other.close()


def test_a_schema_translate_map_is_refused(store: SessionStore) -> None:
    """Some statements would follow it, and some not."""
    host = SessionStore(store.engine.execution_options(schema_translate_map={None: "tenant"}))
    with pytest.raises(InvalidValueError):
        host.append("s", [A])
    with pytest.raises(InvalidValueError):
        host.upgrade()
    other = SessionStore(store.engine.execution_options(schema_translate_map={"of the host": "tenant"}))
    assert other.append("s", [A]) == ["m00001"]


ENCODINGS = {
    "postgresql": ({"client_encoding": "latin1"}, ""),
    "mysql": ({"charset": "utf8mb3"}, "SET SESSION sql_mode = ''"),  # it cuts a text at its first emoji, unasked
}


def test_an_encoding_that_cannot_say_every_text_is_refused(server_url: str) -> None:
    """Nothing is written through it, and no half of a text."""
    store = SessionStore(server_url)
    store.upgrade()
    arguments, statement = ENCODINGS[store.engine.dialect.name]
    narrow = SessionStore(create_engine(server_url, connect_args=arguments))
    if statement:
        event.listen(narrow.engine, "connect", lambda connection, _: connection.cursor().execute(statement))
    with pytest.raises(InvalidValueError):
        narrow.append("s", [Message("a", Role.USER, Kind.TEXT, "before \U0001f600 after")])
    with pytest.raises(InvalidValueError):
        narrow.upgrade()
    assert store.sessions() == []
    narrow.close()
    store.close()


def test_a_pool_without_a_free_connection_is_busy(store: SessionStore) -> None:
    """Whoever holds the last one gives it back: trying again helps."""
    small = SessionStore(create_engine(store.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.01))
    with small.engine.connect(), pytest.raises(StoreBusyError):
        small.append("s", [A])
    assert small.append("s", [A]) == ["m00001"]
    small.close()


KILL = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid()",
    "mysql": "KILL {}",
}


def test_a_host_goes_on_with_a_connection_that_was_killed(server_url: str) -> None:
    """Every call says so, until the host rolls back; then the connection is a new one."""
    store, other = SessionStore(server_url), SessionStore(server_url)
    store.upgrade()
    mysql = store.engine.dialect.name == "mysql"
    with store.engine.connect() as connection:
        store.append("s", [A], connection=connection)
        number = connection.execute(text("SELECT connection_id()")).scalar_one() if mysql else 0
        with other.engine.connect() as killer:
            killer.exec_driver_sql(KILL[store.engine.dialect.name].format(number))
        for _ in range(2):
            with pytest.raises(StoreFailedError):
                store.append("s", [B], connection=connection)
        connection.rollback()
        assert store.append("s", [B], connection=connection) == ["m00001"]
    other.close()
    store.close()


def test_a_refused_version_makes_no_session(store: SessionStore) -> None:
    """Nothing is written, in the transaction of a host that goes on either."""
    with store.engine.begin() as connection, pytest.raises(StaleStateError):
        store.append("s", [A], expect_version=3, connection=connection)
    assert store.sessions() == []


def test_many_tasks_on_a_database_in_memory() -> None:
    """They take turns on its one connection."""

    async def whole() -> None:
        store = AsyncSessionStore("sqlite+aiosqlite://")
        await store.upgrade()
        await asyncio.gather(
            *(store.append(f"s{number % 4}", [Message(str(number), Role.USER, Kind.TEXT, "x")]) for number in range(40))
        )
        for session in await store.sessions():
            assert (await store.state(session)).version == len(await store.messages(session)) == 10
        await store.close()

    asyncio.run(whole())
