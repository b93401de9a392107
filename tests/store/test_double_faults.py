"""A second kill during recovery: a writer is killed inside a statement, whoever comes next inside SQLite's recovery.

What is killed second dies at a write of SQLite's own, in the roll-back of the journal or in the checkpoint of the log,
often with half of a page written; or, where recovery has no such write, in its own work.
"""

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import StoreFailedError
from latchguard.store.checking import check_database
from latchguard.store.connections import KILLED_WRITER, make_reader, reading
from latchguard.store.schema import check_schema
from tests.store.killing import count_instructions, die_at_instruction, die_beyond, dump, open_store, run_and_kill
from tests.store.old import make_old_database

PAIRS = 25  # whose second kill fell into recovery: a hundred for each sort of journal
TRIES = 400
MESSAGES = [Message(f"id{number}", Role.USER, Kind.TEXT, f"text {number} " * 40) for number in range(300)]
NEW = [Message(f"new{number}", Role.USER, Kind.TEXT, "x" * 900) for number in range(60)]


def turn(store: SessionStore) -> None:
    with store.turn("s", [*MESSAGES, *NEW]) as taken:
        for message in NEW:
            taken.latch(message, message.text[:100])


# Work that can be repeated: the second time it changes nothing.
WORK: dict[str, Callable[[SessionStore], object]] = {
    "append": lambda store: store.append("s", NEW, protected=["new7"]),
    "restamp": lambda store: store.restamp("s", [*MESSAGES[100:], *MESSAGES[:50]]),
    "turn": turn,
    "upgrade": lambda store: store.upgrade(),
}


def make_start(path: Path, name: str, journal: str) -> None:
    """Make a database, in a child that does not close it: a log stays as long as it is."""

    def make() -> None:
        store = open_store(path)
        with store.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA journal_mode={journal}")
        if name == "upgrade":
            make_old_database(store.engine)
            return
        store.upgrade()
        store.append("s", MESSAGES)
        for message in MESSAGES[::10]:
            store.latch("s", message, f"clip of {message.id}")

    assert run_and_kill(make) == 0


def copy(source: Path, target: Path) -> Path:
    """Copy a database with its journal or log, and nobody's memory of it."""
    shutil.rmtree(target.parent, ignore_errors=True)
    shutil.copytree(source.parent, target.parent, ignore=shutil.ignore_patterns("*-shm"))
    return target


def run(path: Path, name: str) -> None:
    store = open_store(path)
    WORK[name](store)
    store.close()


def run_and_die(path: Path, name: str, at: int) -> None:
    die_at_instruction(at)
    run(path, name)


def recover_and_die(path: Path, name: str, beyond: int, recovered: Path) -> None:
    """Open what a killed writer left, leave a mark behind the first read, and do its work again."""
    die_beyond(beyond)
    with sqlite3.connect(path) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.close()
    recovered.touch()
    run(path, name)


@pytest.mark.long
@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("name", WORK)
def test_a_second_kill_during_recovery(tmp_path: Path, name: str, journal: str) -> None:
    """It is as before or as after; a run ends it, another changes nothing, and the check finds nothing."""
    seed = int(os.environ.get("LATCHGUARD_SEED", "1"))
    print(f"LATCHGUARD_SEED={seed}")  # noqa: T201  # to run it again
    chance = random.Random(seed)  # noqa: S311  # to be repeated
    start, path, other = (tmp_path / folder / "own.db" for folder in ("start", "killed", "other"))
    start.parent.mkdir()
    make_start(start, name, journal)
    before = dump(copy(start, other))
    length = count_instructions(lambda: run(copy(start, other), name))
    after, size_bytes = dump(other), sum(file.stat().st_size for file in start.parent.iterdir())
    recovered, in_recovery = tmp_path / "recovered", 0
    for _ in range(TRIES):
        copy(start, path)
        recovered.unlink(missing_ok=True)
        first = partial(run_and_die, path, name, chance.randrange(length))
        second = partial(recover_and_die, path, name, chance.randrange(size_bytes), recovered)
        assert run_and_kill(first) == -signal.SIGKILL
        assert run_and_kill(second) in (0, -signal.SIGXFSZ)
        assert dump(copy(path, other)) in (before, after)
        for _ in range(2):
            run(path, name)
            assert dump(path) == after
        check(path, name)
        in_recovery += not recovered.exists()
        if in_recovery == PAIRS:
            break
    assert in_recovery == PAIRS


def check(path: Path, name: str) -> None:
    store = open_store(path)
    with reading(store.engine, None) as connection:
        rules = {finding.rule for finding in check_database(connection)}
    store.close()
    assert rules == ({"latch-without-identity"} if name == "upgrade" else set())


def test_a_reader_says_that_a_killed_writer_must_be_rolled_back(tmp_path: Path) -> None:
    """What only reads cannot, and changes nothing; the next writer does, and then it reads."""
    path = tmp_path / "own.db"
    make_start(path, "restamp", "delete")
    length = count_instructions(lambda: run(copy(path, tmp_path / "other" / "own.db"), "restamp"))
    assert run_and_kill(partial(run_and_die, path, "restamp", length * 9 // 10)) == -signal.SIGKILL
    left = {file.name: file.read_bytes() for file in tmp_path.glob("own*")}
    assert set(left) == {"own.db", "own.db-journal"}
    reader = make_reader(f"sqlite:///{path}")
    with pytest.raises(StoreFailedError) as caught, reading(reader, None) as connection:
        check_schema(connection)
    assert caught.value.found == KILLED_WRITER
    assert {file.name: file.read_bytes() for file in tmp_path.glob("own*")} == left
    run(path, "restamp")
    with reading(reader, None) as connection:
        assert list(check_database(connection)) == []
    reader.dispose()
