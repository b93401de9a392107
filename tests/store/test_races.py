"""Writers of one process that start together, and what somebody else commits between two statements of ours."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, Thread
from typing import Any

import pytest
from sqlalchemy import create_engine, event

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import SessionExistsError, SessionNotFoundError, StaleStateError, StoreBusyError
from latchguard.store.checking import check_database
from latchguard.store.connections import reading
from tests.store.conftest import SERVERS, make_database

WRITERS = 12
A, B = (Message(name, Role.USER, Kind.TEXT, name) for name in "ab")


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own on a server: SQLite has one writer at a time."""
    yield from make_database(request.param)


@pytest.fixture
def made(url: str) -> Iterator[SessionStore]:
    """A store with its tables."""
    store = SessionStore(url)
    store.upgrade()
    yield store
    store.close()


@contextmanager
def after_statement(store: SessionStore, part: str, do: Callable[[], object]) -> Iterator[None]:
    """Do something once, when *store* has run the first statement that holds *part*."""
    waiting = [do]

    def interpose(_connection: Any, _cursor: Any, statement: str, *_: object) -> None:
        if part in statement and waiting:
            waiting.pop()()

    event.listen(store.engine, "after_cursor_execute", interpose)
    yield
    event.remove(store.engine, "after_cursor_execute", interpose)
    assert not waiting


@pytest.mark.parametrize("sessions", [1, WRITERS])
def test_new_sessions_at_once(made: SessionStore, sessions: int) -> None:
    """Sessions that are new start together, or are one: nobody is chosen to break a deadlock."""
    gate = Barrier(WRITERS)

    def write(number: int, turn: int) -> None:
        gate.wait()
        made.append(f"{turn}/{number % sessions}", [Message(str(number), Role.USER, Kind.TEXT, "x")])

    with ThreadPoolExecutor(WRITERS) as pool:
        for turn in range(5):
            for done in [pool.submit(write, number, turn) for number in range(WRITERS)]:
                done.result()
    assert len(made.sessions()) == 5 * sessions
    assert sum(len(made.messages(session)) for session in made.sessions()) == 5 * WRITERS


def test_the_first_write_of_a_process(made: SessionStore, url: str) -> None:
    """Looking at the schema takes no snapshot that the write would then find stale."""
    made.append("s", [A])
    fresh = SessionStore(url)
    with after_statement(fresh, "version_num", lambda: made.latch("s", A, "clip")):
        fresh.append("s", [B])
    fresh.close()
    assert made.state("s").version == 3


def test_the_first_write_of_a_process_is_the_hosts(made: SessionStore, url: str) -> None:
    """The same in the host's own transaction."""
    made.append("s", [A])
    fresh = SessionStore(url)
    with (
        after_statement(fresh, "version_num", lambda: made.latch("s", A, "clip")),
        fresh.engine.begin() as connection,
    ):
        fresh.append("s", [B], connection=connection)
    fresh.close()
    assert made.state("s").version == 3


def test_purge_and_release_beside_writers(made: SessionStore, url: str) -> None:
    """An operator looks for drops while somebody writes the session: both are done."""
    made.append("s", [A])
    made.latch("s", A, "one")
    made.latch("s", A, "two")
    [drop] = made.quarantine("s")
    operator = SessionStore(url)
    with after_statement(operator, "quarantine", lambda: made.append("s", [B])):
        operator.release(drop.id)
    with after_statement(operator, "quarantine", lambda: made.unlatch("s", A)):
        assert operator.purge(older_than_s=-10) == 2
    operator.close()
    assert made.replay("s").messages == [A, B]


def test_purge_passes_over_a_session_that_is_gone(made: SessionStore, url: str) -> None:
    """What was deleted meanwhile has nothing to purge."""
    for session in ("s", "t"):
        made.append(session, [A])
        made.latch(session, A, "one")
        made.unlatch(session, A)
    operator = SessionStore(url)
    with after_statement(operator, "quarantine", lambda: made.delete("s")):
        assert operator.purge(older_than_s=-10) == 1
    operator.close()


def test_sessions_that_come_and_go(made: SessionStore) -> None:
    """Sessions beside each other are deleted, forked and made again, all at once: no writer is turned away."""
    expected = (SessionNotFoundError, SessionExistsError)

    def write(number: int) -> None:
        for turn in range(25):
            mine, other = f"s{(number + turn) % 4}", f"s{(number + 2 * turn) % 4}"
            made.append(mine, [Message(f"{number}/{turn}", Role.USER, Kind.TEXT, "x")])
            with suppress(*expected):
                made.fork(mine, other)
            with suppress(*expected):
                made.delete(other)

    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write, number) for number in range(WRITERS)]:
            done.result()
    with reading(made.engine, None) as connection:
        assert list(check_database(connection)) == []


@contextmanager
def deadlocks(store: SessionStore, times: int) -> Iterator[list[int]]:
    """Fail the next writes of a session's row as the driver does when it is chosen to break a deadlock."""
    left = list(range(times))
    driver: Any = store.engine.dialect.dbapi

    def fail(_cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE latchguard_sessions") and left:
            left.pop()
            if store.engine.dialect.name == "mysql":
                raise driver.OperationalError(1213, "Deadlock found")
            raise driver.errors.DeadlockDetected

    event.listen(store.engine, "do_execute", fail)
    yield left
    event.remove(store.engine, "do_execute", fail)


def test_a_deadlock_is_run_again(made: SessionStore) -> None:
    """A write on our own connection that was chosen to break a deadlock is run again; a host's is the host's."""
    made.append("s", [A])
    with deadlocks(made, 4) as left:
        with made.engine.connect() as connection, pytest.raises(StoreBusyError):
            made.append("s", [B], connection=connection)
        assert len(left) == 3
        assert made.append("s", [B]) == ["m00002"]
    assert made.state("s").version == 2


def test_a_deadlock_that_does_not_end(made: SessionStore) -> None:
    """After ten times it is told."""
    with deadlocks(made, 1000) as left, pytest.raises(StoreBusyError):
        made.append("s", [A])
    assert (len(left), made.sessions()) == (990, [])


def test_append_beside_a_delete(made: SessionStore, url: str) -> None:
    """A session that somebody else makes and deletes, while append looks for it, is there for append."""
    writer = SessionStore(url)
    deleting = Thread(target=made.delete, args=("s",))

    def delete_meanwhile() -> None:
        deleting.start()
        deleting.join(0.5)  # it waits, or is through

    with (
        after_statement(writer, "FOR UPDATE", lambda: made.append("s", [A])),
        after_statement(writer, "INTO latchguard_sessions", delete_meanwhile),
    ):
        assert writer.append("s", [B]) == ["m00002"]
    deleting.join()
    assert made.sessions() == []
    writer.close()


def test_a_turn_on_a_session_that_was_made_anew(store: SessionStore) -> None:
    """Deleted and made again with as many writes, it is another one: the turn is stale."""
    store.append("s", [A])
    turn = store.turn("s", [A, B])
    turn.__enter__()
    store.delete("s")
    store.append("s", [B])
    with pytest.raises(StaleStateError):
        turn.__exit__(None, None, None)
    assert store.messages("s") == [B]


def upgrade_and_use(url: str, level: str, gate: Any, results: Any) -> None:
    store = SessionStore(create_engine(url, isolation_level=level))
    gate.wait()
    try:
        store.upgrade()
        results.put(store.append(f"s{os.getpid()}", [A]))
    except Exception as error:  # noqa: BLE001  # told to the test
        results.put(repr(error))
    store.close()


def test_upgrades_at_once(url: str) -> None:
    """Processes upgrade an empty database together, at any level of isolation, and use it."""
    context = multiprocessing.get_context("spawn")
    levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
    gate, results = context.Barrier(len(levels)), context.Queue()
    processes = [context.Process(target=upgrade_and_use, args=(url, level, gate, results)) for level in levels]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == [["m00001"]] * len(levels)
    for process in processes:
        process.join()


@pytest.mark.parametrize("operation", ["export", "state", "resolve"])
def test_a_torn_read_of_the_hosts(made: SessionStore, url: str, operation: str) -> None:
    """What a host's transaction saw before and after a write of somebody else is not given."""
    made.append("s", [A, B])
    reader = SessionStore(create_engine(url, isolation_level="READ COMMITTED"))
    arguments = ("s", "m00001") if operation == "resolve" else ("s",)
    with (
        reader.engine.connect() as connection,
        after_statement(reader, "FROM latchguard_messages", lambda: made.delete("s")),
        pytest.raises(StoreBusyError),
    ):
        getattr(reader, operation)(*arguments, connection=connection)
    reader.close()
