from pathlib import Path

import pytest

from tests.repair.command import SICK, latchguard


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def repaired(tmp_path: Path, state: Path) -> Path:
    """Give a session file that was repaired by one run."""
    path = tmp_path / "sick.json"
    path.write_bytes(SICK)
    assert latchguard("repair", "--apply", path, state=state).returncode == 0
    return path


def kept(state: Path) -> list[str]:
    return [line.split()[0] for line in latchguard("runs", state=state).stdout.splitlines()]


def test_no_runs_is_an_empty_list(state: Path) -> None:
    """And makes no directory."""
    ran = latchguard("runs", state=state)
    assert (ran.returncode, ran.stdout, state.exists()) == (0, "", False)


def test_forgetting_a_run_removes_its_copies_and_its_journal(repaired: Path, state: Path) -> None:
    """What held conversation text is gone; the repaired file stays."""
    healed = repaired.read_bytes()
    (run,) = kept(state)
    ran = latchguard("runs", "--forget", run, state=state)
    assert (ran.returncode, ran.stdout) == (0, f"removed run {run}, and its copies of 1 file\n")
    assert sorted(path.name for path in repaired.parent.iterdir()) == ["sick.json", "state"]
    assert repaired.read_bytes() == healed
    assert kept(state) == []
    assert latchguard("undo", run, state=state).returncode == 10


def test_pruning_removes_the_runs_that_are_older(repaired: Path, state: Path) -> None:
    """Younger ones stay; a run's age is that of its name."""
    (run,) = kept(state)
    root = state / "latchguard" / "runs"
    old = "20200101-000000-00000000"
    (root / run).rename(root / old)
    copy = next(repaired.parent.glob("*.latchguard-*"))
    copy.rename(repaired.parent / f"sick.json.latchguard-{old}")
    assert latchguard("repair", "--apply", "--allow", "lossy", repaired, state=state).returncode == 0
    repaired.write_bytes(SICK)
    assert latchguard("repair", "--apply", repaired, state=state).returncode == 0
    young = [name for name in kept(state) if name != old]
    assert latchguard("runs", "--prune", "30d", state=state).stdout.startswith(f"removed run {old}")
    assert kept(state) == young
    assert len(list(repaired.parent.glob("*.latchguard-*"))) == 1


def test_forgetting_never_removes_what_is_no_copy_of_the_run(repaired: Path, state: Path, tmp_path: Path) -> None:
    """A directory or a link under the copy's name stays."""
    copy = next(repaired.parent.glob("*.latchguard-*"))
    copy.unlink()
    copy.symlink_to(repaired)
    (run,) = kept(state)
    assert latchguard("runs", "--forget", run, state=state).returncode == 0
    assert copy.is_symlink()
    assert repaired.exists()


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1y", "1.5d"])
def test_an_age_is_a_number_and_a_unit(state: Path, age: str) -> None:
    """Anything else is a usage error."""
    ran = latchguard("runs", "--prune", age, state=state)
    assert ran.returncode == 2
    assert "expected a number and s, m, h, d or w" in ran.stderr


def test_an_unknown_run_is_status_10(state: Path) -> None:
    """Nothing is forgotten by mistake."""
    assert latchguard("runs", "--forget", "../x", state=state).returncode == 10


def test_a_damaged_journal_is_named_and_the_others_are_listed(repaired: Path, state: Path) -> None:
    """Status 20 with file and line; a repair goes on, and says so."""
    root = state / "latchguard" / "runs"
    damaged = root / "20200101-000000-00000000"
    damaged.mkdir()
    (damaged / "journal.jsonl").write_text('\n{"event": "run", "version": 99}')
    ran = latchguard("runs", state=state)
    assert ran.returncode == 20
    assert f"{damaged}/journal.jsonl: line 2: expected a record of a version 1 journal" in ran.stderr
    assert len(ran.stdout.splitlines()) == 1
    again = latchguard("repair", "--apply", repaired, state=state)
    assert again.returncode == 0
    assert "line 2: expected" in again.stderr
