"""SIGKILL before and after every SQL statement and commit of a repair and of its undoing, on SQLite."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from latchguard.repair.database_runs import database_runs, repair_database, undo_database
from latchguard.repair.plans import PlanOptions
from latchguard.repair.repairing import repair_run
from latchguard.store.connections import make_engine
from tests.migrate.own import make_old_store, stored_rows
from tests.migrate.talks import many_sessions

Rows = dict[str, list[tuple[Any, ...]]]
SESSION_COLUMN = {"latchguard_latches": 1, "latchguard_quarantine": 1}


def repair(path: Path) -> None:
    with repair_run(str(path.parent / "runs")) as run:
        found = list(repair_database(f"sqlite:///{path}", run, session=None, options=PlanOptions()))
    assert [outcome.error for outcome in found if outcome.error] == []


def undo(path: Path) -> None:
    url = f"sqlite:///{path}"
    for run in {run.name for run in database_runs(url)}:
        assert [undone.error for undone in undo_database(url, run) if undone.error] == []


def killed_at(step: int, work: Callable[[Path], None], path: Path) -> bool:
    """Do *work* in a child that kills itself at its SQL event number *step*; say whether it got that far."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(*_: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(Engine, name, count)
        try:
            work(path)
        except BaseException:  # noqa: BLE001  # the parent looks at the status
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def rows_at(path: Path) -> Rows:
    engine = make_engine(f"sqlite:///{path}")
    try:
        return stored_rows(engine)
    finally:
        engine.dispose()


def of_session(rows: Rows, key: int) -> Rows:
    return {name: [row for row in rows[name] if row[place] == key] for name, place in SESSION_COLUMN.items()}


def check_no_half_state(found: Rows, before: Rows, after: Rows) -> None:
    for key in {row[0] for row in before["latchguard_sessions"]}:
        assert of_session(found, key) in (of_session(before, key), of_session(after, key))


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A database of old, and the same repaired."""
    root = tmp_path_factory.mktemp("states")
    old, repaired = root / "old.db", root / "repaired.db"
    engine = make_engine(f"sqlite:///{old}")
    make_old_store(engine, many_sessions(3))
    engine.dispose()
    shutil.copy(old, repaired)
    repair(repaired)
    return old, repaired


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("direction", ["repair", "undo"])
def test_no_kill_leaves_a_half_state(states: tuple[Path, Path], tmp_path: Path, direction: str, stride: int) -> None:
    """Each session is as before or as after; a re-run reaches the end state; a third run does nothing."""
    start, end = states if direction == "repair" else states[::-1]
    work = repair if direction == "repair" else undo
    before, after = rows_at(start), rows_at(end)
    path, step, seen = tmp_path / "own.db", 1, set()
    while True:
        shutil.copy(start, path)
        if not killed_at(step, work, path):
            break
        found = rows_at(path)
        check_no_half_state(found, before, after)
        seen.add(str(found))
        work(path)
        assert rows_at(path) == after
        bytes_after = path.read_bytes()
        work(path)
        assert path.read_bytes() == bytes_after
        step += stride
    assert rows_at(path) == after
    assert len(seen) == 4
    assert step > 60
