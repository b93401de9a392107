"""Databases of many sessions, healthy and poisoned: killed in the middle, resumed, undone."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from latchguard import SessionStore
from latchguard.repair.database_runs import database_runs, undo_database
from latchguard.store.schema import HEAD, OPEN
from latchguard.store.tables import latches, quarantine, repair_progress
from tests.migrate.own import make_old_store, stored_rows
from tests.migrate.talks import many_sessions

POLL_S = 0.05


def start_repair(url: str, state: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "latchguard", "repair", "--apply", url],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def sessions_done(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(repair_progress)).scalar_one()


def kill_when_done(engine: Engine, child: subprocess.Popen[bytes], count: int) -> None:
    """Kill *child* once *count* sessions are done; it must not have got through."""
    while sessions_done(engine) < count:
        assert child.poll() is None
        time.sleep(POLL_S)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def check_repaired(engine: Engine, count: int) -> None:
    """In each cycle of four sessions: two bound, two rebound, one bound and one dropped, none."""
    with engine.connect() as connection:
        where = connection.execute(select(latches.c.session_id, latches.c.ref, latches.c.is_view, latches.c.kind)).all()
        drops = connection.execute(select(quarantine.c.session_id, quarantine.c.ref, quarantine.c.reason)).all()
    found = Counter((row.session_id % 4, row.ref, bool(row.is_view), row.kind) for row in where)
    each = count // 4
    assert found == {
        (1, 1, False, "text"): each,
        (1, 3, True, "tool-result"): each,
        (2, 3, False, "tool-result"): each,
        (2, 1, True, "text"): each,
        (3, 3, False, "tool-result"): each,
    }
    assert Counter((row.session_id % 4, row.ref, row.reason) for row in drops) == {(3, 1, "unproven"): each}


def run_campaign(engine: Engine, state: Path, count: int, kills: tuple[int, ...]) -> None:
    make_old_store(engine, many_sessions(count))
    before = stored_rows(engine)
    url = engine.url.render_as_string(hide_password=False)
    for done in kills:
        kill_when_done(engine, start_repair(url, state), done)
        assert SessionStore(engine).upgrade() == OPEN
    assert start_repair(url, state).wait() == 0
    check_repaired(engine, count)
    runs = [run.name for run in database_runs(url)]
    assert len(runs) == len(kills) + 1
    undone = [one for run in reversed(runs) for one in undo_database(url, run)]
    assert Counter(one.error is None for one in undone) == {True: count * 3 // 4}
    assert stored_rows(engine) == before
    assert start_repair(url, state).wait() == 0
    check_repaired(engine, count)
    assert SessionStore(engine).upgrade() == HEAD


def test_three_hundred_sessions(sqlite_engine: Engine, tmp_path: Path) -> None:
    """Killed once and resumed; undone row for row; repaired again, up to the last revision."""
    run_campaign(sqlite_engine, tmp_path, 300, (40,))


def test_two_jobs_at_once(engine: Engine, tmp_path: Path) -> None:
    """Started on two machines, they repair each session once, and neither fails."""
    make_old_store(engine, many_sessions(40))
    url = engine.url.render_as_string(hide_password=False)
    jobs = [start_repair(url, tmp_path / name) for name in ("one", "two")]
    assert [job.wait() for job in jobs] == [0, 0]
    check_repaired(engine, 40)
    assert sum(run.sessions for run in database_runs(url)) == 30


@pytest.mark.huge
def test_ten_thousand_sessions(engine: Engine, tmp_path: Path) -> None:
    """The same on every database, killed three times."""
    run_campaign(engine, tmp_path, 10_000, (500, 2_500, 6_000))
