"""Transactions, snapshots, locks, read-only connections, full disks."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import StaleStateError, StoreBusyError, StoreFailedError
from latchguard.store.connections import make_reader
from tests.store.conftest import SERVERS, make_database
from tests.store.killing import dump


def user(message_id: str, content: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, content)


ONE, TWO, THREE = user("a", "one"), user("b", "two"), user("c", "three")


def read_all(store: SessionStore) -> list[Any]:
    return [
        store.state("s"),
        list(store.messages("s")),
        store.replay("s").applied,
        store.resolve("s", "m00001"),
        list(store.stream("s")),
        store.quarantine("s"),
        store.sessions(),
        store.export("s"),
    ]


def fill(store: SessionStore) -> None:
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    store.latch("s", ONE, "clip 2")


def test_reads_need_no_more_than_a_read_only_connection(sqlite_store: SessionStore) -> None:
    """Every read works on a file opened read-only; a write fails as a value and the file stays."""
    fill(sqlite_store)
    expected = read_all(sqlite_store)
    reader = SessionStore(make_reader(str(sqlite_store.engine.url)))
    assert read_all(reader) == expected
    with pytest.raises(StoreFailedError):
        reader.append("s", [THREE])
    reader.close()
    assert read_all(sqlite_store) == expected


@pytest.mark.parametrize("server", SERVERS)
def test_reads_in_a_read_only_transaction(server: str) -> None:
    """A server that refuses every write serves every read."""
    urls = make_database(server)
    store = SessionStore(next(urls))
    store.upgrade()
    fill(store)
    expected = read_all(store)
    reader = SessionStore(create_engine(store.engine.url))
    statement = "SET default_transaction_read_only = on" if server == "postgresql" else "SET SESSION tx_read_only = 1"

    @event.listens_for(reader.engine, "connect")
    def forbid_writes(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        connection.commit()

    assert read_all(reader) == expected
    with pytest.raises(StoreFailedError):
        reader.append("s", [THREE])
    reader.close()
    store.close()
    list(urls)


def test_a_read_sees_one_snapshot(store: SessionStore) -> None:
    """What somebody else commits in the middle of a read is not in it."""
    if store.engine.dialect.name == "sqlite":
        pytest.skip("a writer waits for a reader of SQLite")
    many = [user(str(number), "x") for number in range(1500)]
    store.append("s", many)
    stream = store.stream("s")
    first = next(stream)
    store.restamp("s", many[:10])
    assert [first, *stream] == many


STALE = {"postgresql": StoreBusyError, "mysql": StaleStateError}


def test_a_stale_snapshot_of_the_host_is_refused(store: SessionStore) -> None:
    """A host's transaction that read before somebody else wrote writes nothing on what it saw."""
    if store.engine.dialect.name == "sqlite":
        pytest.skip("a writer waits for a reader of SQLite")
    store.append("s", [ONE])
    with store.engine.connect() as connection:
        connection.execution_options(isolation_level="REPEATABLE READ")
        store.state("s", connection=connection)
        store.append("s", [TWO])
        with pytest.raises(STALE[store.engine.dialect.name]):
            store.append("s", [THREE], connection=connection)
    assert store.messages("s") == [ONE, TWO]


def test_a_reader_of_sqlite_in_wal(sqlite_store: SessionStore) -> None:
    """It sees one snapshot while somebody else writes; on what it saw it writes nothing."""
    with sqlite_store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    many = [user(str(number), "x") for number in range(1500)]
    sqlite_store.append("s", many)
    stream = sqlite_store.stream("s")
    first = next(stream)
    sqlite_store.restamp("s", many[:10])
    assert [first, *stream] == many
    with sqlite_store.engine.connect() as connection:
        before = sqlite_store.state("s", connection=connection)
        sqlite_store.append("s", [user("new", "x")])
        assert sqlite_store.state("s", connection=connection) == before
        with pytest.raises(StoreBusyError):
            sqlite_store.append("s", [user("lost", "x")], connection=connection)
    assert list(sqlite_store.state("s").refs) == [*before.refs, "new"]


def test_read_committed_goes_on_with_what_is_there(store: SessionStore) -> None:
    """A host's transaction at this level sees what others commit, and its writes build on that."""
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no such level")
    store.append("s", [ONE])
    with store.engine.connect() as connection:
        connection.execution_options(isolation_level="READ COMMITTED")
        assert store.state("s", connection=connection).version == 1
        store.append("s", [TWO])
        assert store.state("s", connection=connection).version == 2
        assert store.append("s", [THREE], connection=connection) == ["m00003"]
        connection.commit()
    assert store.messages("s") == [ONE, TWO, THREE]


def test_writers_wait_for_each_other(store: SessionStore) -> None:
    """Eight threads append to one session: no ref is given twice, no message is lost, no version is skipped."""
    store.append("s", [])

    def work(name: int) -> None:
        for number in range(5):
            store.append("s", [user(f"{name}/{number}", "x")])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = store.state("s")
    assert sorted(state.refs.values()) == [f"m{number:05d}" for number in range(1, 41)]
    assert (state.version, len(store.messages("s"))) == (40, 40)


def test_a_held_lock_is_busy(sqlite_store: SessionStore) -> None:
    """Whoever does not get the lock in time may try again; nothing is written."""
    sqlite_store.append("s", [ONE])
    engine = create_engine(sqlite_store.engine.url, connect_args={"timeout": 0.05})
    other = SessionStore(engine)
    with sqlite_store.engine.connect() as connection:
        sqlite_store.append("s", [TWO], connection=connection)
        with pytest.raises(StoreBusyError) as caught:
            other.append("s", [THREE])
        connection.commit()
    assert (caught.value.code, sqlite_store.messages("s")) == ("store-busy", [ONE, TWO])
    other.close()


WRITES = {
    "append": lambda store: store.append("s", [user(f"new {number}", "x" * 3000) for number in range(30)]),
    "latch": lambda store: store.latch("s", ONE, "y" * 90_000),
    "restamp": lambda store: store.restamp("s", [*(user(f"n{n}", "z" * 3000) for n in range(30)), TWO, ONE]),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_leaves_the_session_as_it_was(sqlite_store: SessionStore, name: str) -> None:
    """Page by page more room, until the write goes through: before that the file holds what it held."""
    fill(sqlite_store)
    path = Path(str(sqlite_store.engine.url.database))
    sqlite_store.close()
    before, room, failed = dump(path), 0, 0
    with sqlite3.connect(path) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()
    while True:
        limited = SessionStore(create_engine(sqlite_store.engine.url))
        limit = pages + room
        event.listen(limited.engine, "connect", lambda c, _, limit=limit: c.execute(f"PRAGMA max_page_count={limit}"))
        try:
            WRITES[name](limited)
        except StoreFailedError as error:
            assert "full" in error.found  # noqa: PT017  # one of many tries
            assert dump(path) == before
            failed += 1
        else:
            break
        finally:
            limited.close()
        room += 1
    assert failed > 3
    assert dump(path) != before
