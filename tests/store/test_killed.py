"""SIGKILL at every statement of every write: the session is as before or as after, never between."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from latchguard import Kind, Message, Role, SessionStore
from tests.store.conftest import make_database
from tests.store.killing import dump, dying_store, open_store, run_and_kill
from tests.store.old import make_old_database


def user(message_id: str, content: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, content)


MESSAGES = [user(f"id{number}", f"text {number}") for number in range(6)]


def turn(store: SessionStore) -> None:
    with store.turn("s", [*MESSAGES[1:], user("next", "next")]) as taken:
        taken.latch(MESSAGES[2], "clip of a turn")


# Work that can be repeated: the second time it changes nothing.
AGAIN: dict[str, Callable[[SessionStore], object]] = {
    "append": lambda store: store.append("s", [user("new", "new"), MESSAGES[0]], protected=["id4"]),
    "append to a new session": lambda store: store.append("t", MESSAGES),
    "latch": lambda store: store.latch("s", MESSAGES[2], "another clip"),
    "unlatch": lambda store: store.unlatch("s", MESSAGES[5]),
    "edit": lambda store: store.edit("s", user("id2", "edited")),
    "restamp": lambda store: store.restamp("s", [MESSAGES[0], *MESSAGES[2:4]]),
    "restamp in another order": lambda store: store.restamp("s", MESSAGES[::-1]),
    "restamp by a ledger": lambda store: store.restamp("s", numbering={"id1": "m00003", "id3": "m00002"}),
    "turn": turn,
}
# Work that the second time says that it is done.
ONCE: dict[str, Callable[[SessionStore], object]] = {
    "release": lambda store: store.release(1),
    "fork": lambda store: store.fork("s", "fork", "id3"),
    "delete": lambda store: store.delete("s"),
    "load": lambda store: store.load(store.export("s"), session="copy"),
    "purge": lambda store: store.purge(older_than_s=-10),
}

# Its failures at every statement are in `test_schema`; this takes a minute.
UPGRADE: dict[str, Callable[[SessionStore], object]] = {"upgrade": lambda store: store.upgrade()}


def make_session(path: Path) -> None:
    store = open_store(path)
    store.upgrade()
    store.append("s", MESSAGES)
    for number in (0, 2, 3, 5):
        store.latch("s", MESSAGES[number], f"clip {number}")
    store.latch("s", MESSAGES[3], "view", view="v")
    store.latch("s", MESSAGES[3], "another view", view="w")
    store.restamp("s", MESSAGES[1:])
    store.close()


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("name", [*AGAIN, *ONCE, pytest.param("upgrade", marks=pytest.mark.long)])
def test_a_kill_leaves_before_or_after(tmp_path: Path, name: str) -> None:
    """Killed before and after every statement and before the commit; run again it reaches the end, then rests."""
    work = (AGAIN | ONCE | UPGRADE)[name]
    start, done, path = tmp_path / "start.db", tmp_path / "done.db", tmp_path / "killed" / "own.db"
    if name == "upgrade":
        old = open_store(start)
        make_old_database(old.engine)
        old.close()
    else:
        make_session(start)
    shutil.copy(start, done)
    run_twice(done, work, repeat=name not in ONCE)
    before, after, step = dump(start), dump(done), 0
    assert before != after
    while True:
        step += 1
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        shutil.copy(start, path)
        status = run_and_kill(lambda: work(dying_store(path, step)))  # noqa: B023  # it runs at once
        left = dump(path)
        assert left in (before, after)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        if left == before or name not in ONCE:
            run_twice(path, work, repeat=name not in ONCE)
            assert dump(path) == after
    assert left == after
    assert step > 5


def run_twice(path: Path, work: Callable[[SessionStore], object], *, repeat: bool) -> None:
    store = open_store(path)
    work(store)
    once = dump(path)
    if repeat:
        work(store)
        assert dump(path) == once
    store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/own.db"
    else:
        yield from make_database("postgresql")


@pytest.mark.long
def test_kills_at_random_times(url: str) -> None:
    """300 restamps of 300 messages, killed somewhere: both outcomes often, a half state never."""
    seed = int(os.environ.get("LATCHGUARD_SEED", "1"))
    print(f"LATCHGUARD_SEED={seed}")  # noqa: T201  # to run it again
    chance = random.Random(seed)  # noqa: S311  # to be repeated
    messages = [user(f"id{number}", f"text {number}") for number in range(300)]
    store = SessionStore(url)
    store.upgrade()
    store.append("s", messages)
    for message in messages[::10]:
        store.latch("s", message, "clip")
    seen = {"before": 0, "after": 0}
    window_s = 0.1  # follows the outcomes, so that half of the kills come too late on any machine
    for run in range(300):
        before = store.state("s")
        messages = messages[1:] + messages[:1]
        store.close()
        kill_later(url, messages, chance.uniform(0, window_s))
        wait_for_backends(store)
        after = store.state("s")
        shown = [message.text for message in store.replay("s").messages].count("clip")
        assert shown == 30, f"run {run}"
        if after == before:
            seen["before"] += 1
            window_s *= 1.05
            messages = messages[-1:] + messages[:-1]
        else:
            seen["after"] += 1
            window_s *= 0.95
            assert (after.version, after.epoch) == (before.version + 1, before.epoch + 1)
            assert list(after.refs) == [message.id for message in messages]
    store.close()
    assert min(seen.values()) >= 50, seen


def kill_later(url: str, messages: list[Message], after_s: float) -> None:
    """Restamp in a child and kill it after some time, where it has not ended by then."""
    child = os.fork()
    if child == 0:
        SessionStore(url).restamp("s", messages)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def wait_for_backends(store: SessionStore) -> None:
    """Let the server notice that the client is dead."""
    if store.engine.dialect.name != "postgresql":
        return
    query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    with store.engine.connect() as connection:
        while connection.execute(query).scalar_one() > 1:
            time.sleep(0.002)
