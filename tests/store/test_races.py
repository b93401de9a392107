"""Writers of one process that start together, and what somebody else commits between two statements of ours."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import event

from latchguard import Kind, Message, Role, SessionStore
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
