"""The repair job and its undoing, killed inside a statement, and killed again while SQLite rolls that back on disk."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from latchguard.repair.database_runs import database_runs, undo_database
from latchguard.repair.errors import RunNotFoundError
from latchguard.store.checking import check_database
from latchguard.store.connections import make_engine, reading
from tests.migrate.test_kill_points import check_no_half_state, repair, rows_at
from tests.migrate.test_kill_points import states as states  # noqa: PLC0414  # a fixture
from tests.store.killing import count_instructions, die_at_instruction, die_beyond, run_and_kill

PAIRS = 50  # whose second kill fell into recovery: a hundred for both directions
TRIES = 500
Work: TypeAlias = Callable[[Path], None]


def undo(path: Path, runs: list[str]) -> None:
    """Take *runs* back, as the command does, which knows them: what a killed writer left is for writers to open."""
    for run in runs:
        with contextlib.suppress(RunNotFoundError):  # it was taken back before
            assert [undone.error for undone in undo_database(f"sqlite:///{path}", run) if undone.error] == []


def run_and_die(path: Path, work: Work, at: int) -> None:
    die_at_instruction(at)
    work(path)


def recover_and_die(path: Path, work: Work, beyond: int, recovered: Path) -> None:
    """Open what a killed run left, leave a mark behind the first read, and run it again."""
    die_beyond(beyond)
    with sqlite3.connect(path) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.close()
    recovered.touch()
    work(path)


def copy(source: Path, target: Path) -> Path:
    """Copy a database, with its journal where it has one, into a folder of its own."""
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir()
    for suffix in ("", "-journal"):
        if (file := Path(f"{source}{suffix}")).exists():
            shutil.copy(file, f"{target}{suffix}")
    return target


@pytest.mark.long
@pytest.mark.parametrize("direction", ["repair", "undo"])
def test_a_second_kill_during_recovery(states: tuple[Path, Path], tmp_path: Path, direction: str) -> None:
    """Each session is as before or as after; a run ends it, another changes nothing, and the check finds nothing."""
    seed = int(os.environ.get("LATCHGUARD_SEED", "1"))
    print(f"LATCHGUARD_SEED={seed}")  # noqa: T201  # to run it again
    chance = random.Random(seed)  # noqa: S311  # to be repeated
    start, end = states if direction == "repair" else states[::-1]
    runs = [run.name for run in database_runs(f"sqlite:///{states[1]}")]
    work = repair if direction == "repair" else partial(undo, runs=runs)
    before, after = rows_at(start), rows_at(end)
    path, other = (tmp_path / folder / "own.db" for folder in ("killed", "other"))
    length = count_instructions(lambda: work(copy(start, other)))
    recovered, in_recovery = tmp_path / "recovered", 0
    for _ in range(TRIES):
        copy(start, path)
        recovered.unlink(missing_ok=True)
        first = partial(run_and_die, path, work, chance.randrange(length))
        second = partial(recover_and_die, path, work, chance.randrange(start.stat().st_size), recovered)
        assert run_and_kill(first) == -signal.SIGKILL
        assert run_and_kill(second) in (0, -signal.SIGXFSZ)
        check_no_half_state(rows_at(copy(path, other)), before, after)
        work(path)
        assert rows_at(path) == after
        whole = path.read_bytes()
        work(path)
        assert path.read_bytes() == whole
        assert rules_at(path) == rules_at(end)
        in_recovery += not recovered.exists()
        if in_recovery == PAIRS:
            break
    assert in_recovery == PAIRS


def rules_at(path: Path) -> set[str]:
    engine = make_engine(f"sqlite:///{path}")
    with reading(engine, None) as connection:
        found = {finding.rule for finding in check_database(connection)}
    engine.dispose()
    return found
