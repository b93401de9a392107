"""Eight writing processes on hot sessions of a server, some of them killed: the chain of versions stays whole."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from latchguard import ConversationState, Kind, Message, Role, SessionStore, restamp
from latchguard.core.errors import StaleStateError
from latchguard.store.checking import check_database
from latchguard.store.connections import reading
from tests.store.conftest import SERVERS, make_database

pytestmark = pytest.mark.long
HOT = ["hot 0", "hot 1", "hot 2", "hot 3"]
WRITERS, EACH = 8, 60


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own."""
    yield from make_database(request.param)


def seed() -> int:
    found = int(os.environ.get("LATCHGUARD_SEED", "1"))
    print(f"LATCHGUARD_SEED={found}")  # noqa: T201  # to run it again
    return found


def user(message_id: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, f"text of {message_id}")


def write_once(store: SessionStore, session: str, writer: int, number: int, chance: random.Random) -> Any:
    """Do one random write at the version that was read, again and again until nobody was faster; say what it was."""
    while True:
        state = store.state(session)
        name, choice = f"{writer}/{number}", chance.random()
        try:
            if choice < 0.5 or not state.refs:
                store.append(session, [user(name)], expect_version=state.version)
                return session, state.version, "append", name
            target = chance.choice(list(state.refs))
            if choice < 0.85:
                store.latch(session, user(target), f"clip {name}", expect_version=state.version)
                return session, state.version, "latch", target, f"clip {name}"
            order = list(state.refs)
            chance.shuffle(order)
            done = store.restamp(session, [user(key) for key in order], expect_version=state.version)
        except StaleStateError:
            continue
        if done.state.version > state.version:  # else the shuffle changed nothing
            return session, state.version, "restamp", order


def work(url: str, writer: int, number_of_writes: int, results: Any, start: int) -> None:
    store = SessionStore(url)
    chance = random.Random(f"{start}/{writer}")  # noqa: S311  # to be repeated
    for number in range(number_of_writes):
        results.put(write_once(store, chance.choice(HOT), writer, number, chance))
    store.close()


def prepare(url: str) -> SessionStore:
    store = SessionStore(url)
    store.upgrade()
    for session in HOT:
        store.append(session, [])
    return store


def test_the_chain_of_versions_is_the_serial_run(url: str) -> None:
    """480 writes of 8 processes on 4 sessions: each saw one version and made the next; a serial run gives the state."""
    store, start = prepare(url), seed()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    writers = [context.Process(target=work, args=(url, n, EACH, results, start)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    writes = [results.get(timeout=300) for _ in range(WRITERS * EACH)]
    for writer in writers:
        writer.join()
    for session in HOT:
        mine = sorted(write[1:] for write in writes if write[0] == session)
        assert [write[0] for write in mine] == list(range(len(mine)))
        state = ConversationState()
        for _, kind, *arguments in mine:
            if kind == "append":
                state = state.assign([user(arguments[0])])
            elif kind == "latch":
                state = state.latch(user(arguments[0]), arguments[1])
            else:
                state = restamp(state, [user(key) for key in arguments[0]]).state
        assert store.state(session) == state
    store.close()


def append_forever(url: str, writer: int, done: Any) -> None:
    store = SessionStore(url)
    for number in range(10**6):
        name = f"{writer}/{os.getpid()}/{number}"
        with store.turn(HOT[number % 4], [user(name)]) as turn:
            turn.latch(user(name), "clip")
        done[writer] += 1


def keep_appending(url: str, writer: int, done: Any) -> None:
    while True:
        try:
            append_forever(url, writer, done)
        except StaleStateError:
            continue


def test_killed_writers_leave_no_lock_and_no_half_turn(url: str) -> None:
    """150 kills of writers in mid-flight: every message has its clip, every version is one turn, and others go on."""
    store, chance = prepare(url), random.Random(seed())  # noqa: S311  # to be repeated
    context = multiprocessing.get_context("fork")
    store.close()
    done = context.RawArray("i", 4)  # no lock that a killed one would hold
    writers = [start_writer(context, url, number, done) for number in range(4)]
    seen = 0
    for kill in range(150):
        while sum(done) == seen:  # on a busy machine a writer may need longer to start than it lives
            time.sleep(0.001)
        seen = sum(done)
        time.sleep(chance.uniform(0, 0.08))
        victim = kill % len(writers)
        os.kill(writers[victim].pid or 0, signal.SIGKILL)
        writers[victim].join()
        writers[victim] = start_writer(context, url, victim, done)
    for writer in writers:
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
    store = SessionStore(url)
    with store.engine.connect() as connection:
        while connection.execute(text(BACKENDS[store.engine.dialect.name])).scalar_one() > 1:
            time.sleep(0.01)
    turns = 0
    for session in HOT:
        state = store.state(session)
        turns += state.version
        assert state.version == len(state.refs) == len(state.latches)
        assert sorted(state.refs.values()) == [latch.ref for latch in state.latches]
        assert store.append(session, [user("after")]) == [f"m{len(state.refs) + 1:05d}"]
    assert turns >= 150
    with reading(store.engine, None) as connection:
        assert list(check_database(connection)) == []
    store.close()


BACKENDS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database()",
}


def start_writer(context: Any, url: str, number: int, done: Any) -> Any:
    writer = context.Process(target=keep_appending, args=(url, number, done))
    writer.start()
    return writer
