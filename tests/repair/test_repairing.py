import json
from pathlib import Path
from typing import Any

import pytest

from latchguard.repair import osops
from latchguard.repair.errors import FileSystemError, OverwrittenError, RunNotFoundError, UnsettledPlanError
from latchguard.repair.files import FileSource
from latchguard.repair.journal import Entry, RunRecord, load_run, start_journal
from latchguard.repair.looking import Outcome
from latchguard.repair.plans import Plan, PlanOptions, digest
from latchguard.repair.repairing import repair_file, repair_run
from latchguard.repair.runs import locked_runs, recover_runs, settle
from latchguard.repair.undo import undo_run
from tests.repair.command import HEALED, OTHER_SICK, SICK, installed_latchguard

RUN = "20261130-120000-0123abcd"


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "sick.json"
    path.parent.mkdir()
    path.write_bytes(SICK)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def repair(path: Path, root: Path) -> Outcome:
    with repair_run(str(root)) as run:
        return repair_file(run, FileSource(str(path), named=True), format_name=None, options=PlanOptions())


def test_everything_is_on_the_disk_before_the_rename(sick: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intention, copy, new bytes and their names, in this order; then the rename, its directory, the word done."""
    log: list[tuple[str, str]] = []

    def record(name: str) -> None:
        call = getattr(osops, name)

        def recorded(target: Any, *args: Any) -> Any:
            path = Path(getattr(target, "path", target))
            log.append((name, path.suffix if path.suffix == ".new" else path.name.partition("-2")[0]))
            return call(target, *args)

        monkeypatch.setattr(osops, name, recorded)

    for name in ("write", "sync", "sync_directory", "rename"):
        record(name)
    assert repair(sick, root).repaired
    start = log.index(("write", "plans.jsonl"))
    assert log[start:] == [
        ("write", "plans.jsonl"),
        ("sync", "plans.jsonl"),
        ("write", "journal.jsonl"),
        ("sync", "journal.jsonl"),
        ("write", "sick.json.latchguard"),
        ("sync", "sick.json.latchguard"),
        ("write", ".new"),
        ("sync", ".new"),
        ("sync_directory", "sessions"),
        ("rename", ".new"),
        ("sync_directory", "sessions"),
        ("write", "journal.jsonl"),
        ("sync", "journal.jsonl"),
    ]


def test_a_repair_that_would_still_ask_for_steps_is_not_written(
    sick: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad plan never reaches the disk."""
    monkeypatch.setattr("latchguard.repair.repairing.apply_plan", lambda *_: OTHER_SICK)
    outcome = repair(sick, root)
    assert isinstance(outcome.error, UnsettledPlanError)
    assert sick.read_bytes() == SICK
    assert [path.name for path in sick.parent.iterdir()] == ["sick.json"]


def test_a_file_that_is_overwritten_at_once_is_no_success(
    sick: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair looks once more; the copy stays."""
    rename = osops.rename

    def rename_and_overwrite(old: str, new: str) -> None:
        rename(old, new)
        Path(new).write_bytes(SICK)

    monkeypatch.setattr(osops, "rename", rename_and_overwrite)
    outcome = repair(sick, root)
    assert isinstance(outcome.error, OverwrittenError)
    assert not outcome.repaired
    assert len(list(sick.parent.glob("*.latchguard-*"))) == 1


@pytest.mark.parametrize(
    ("holds", "copy", "replacement", "fate", "left"),
    [
        (b"new", b"old", None, "done", {"file", "copy"}),
        (b"old", b"old", b"new", "left", {"file"}),
        (b"old", b"ol", None, "left", {"file"}),
        (b"old", None, None, "left", {"file"}),
        (b"other", b"old", b"new", "left", {"file"}),
        (b"other", b"old", None, "done", {"file", "copy"}),
        (b"other", b"ol", None, "left", {"file"}),
        (None, b"old", b"ne", "left", set()),
        (None, b"old", None, "done", {"copy"}),
        (None, None, None, "left", set()),
    ],
)
def test_an_interrupted_entry_is_settled_by_what_is_there(
    tmp_path: Path,
    root: Path,
    holds: bytes | None,
    copy: bytes | None,
    replacement: bytes | None,
    fate: str,
    left: set[str],
) -> None:
    """Each row of the table in `runs.py`, and what is left on the disk."""
    file = tmp_path / "file"
    paths = {"file": file, "copy": Path(f"{file}.latchguard-{RUN}"), "new": Path(f"{file}.latchguard-{RUN}.new")}
    for path, raw in zip(paths.values(), (holds, copy, replacement), strict=True):
        if raw is not None:
            path.write_bytes(raw)
    with start_journal(str(root), RUN) as journal:
        assert settle(journal, Entry(1, str(file), digest(b"old"), digest(b"new"), 0, 0)).fate == fate
    assert {name for name, path in paths.items() if path.exists()} == left


def test_one_file_that_cannot_be_settled_does_not_keep_the_others_from_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is given, the run is kept, and the next time it is settled too."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"new")
    second.write_bytes(b"old")
    with start_journal(str(root), RUN) as journal:
        for number, path in enumerate((first, second), 1):
            entry = Entry(number, str(path), digest(b"old"), digest(b"new"), 0, 0)
            journal.begin(entry, Plan("bili", None, entry.before, (), ()))
    opened = osops.opened
    monkeypatch.setattr(osops, "opened", lambda path: fail(path) if path == str(first) else opened(path))
    with locked_runs(str(root)):
        (failed,) = recover_runs(str(root))
        assert isinstance(failed, FileSystemError)
        assert [entry.fate for entry in load_run(str(root), RUN).entries] == [None, "left"]
        monkeypatch.undo()
        (settled,) = recover_runs(str(root))
    assert isinstance(settled, RunRecord)
    assert [entry.fate for entry in settled.entries] == ["done", "left"]


def fail(path: str) -> Any:
    raise FileSystemError("open", path, 13, "Permission denied")


def test_a_run_that_replaced_nothing_cannot_be_undone(root: Path) -> None:
    """It is forgotten when it is settled; undoing it restores nothing, undoing it again finds no run."""
    with start_journal(str(root), RUN):
        pass
    assert list(undo_run(str(root), RUN)) == []
    with pytest.raises(RunNotFoundError):
        list(undo_run(str(root), RUN))


def test_a_torn_record_is_passed_over_and_closed_by_the_next(sick: Path, root: Path) -> None:
    """Half a line of a killed run is no damage."""
    assert repair(sick, root).repaired
    (run,) = (path for path in root.iterdir() if path.is_dir())
    with (run / "journal.jsonl").open("ab") as journal:
        journal.write(b'\n{"event":"undo')
    assert [undone.error for undone in undo_run(str(root), run.name)] == [None]
    assert [entry.fate for entry in load_run(str(root), run.name).entries] == ["undone"]
    assert sick.read_bytes() == SICK


def test_bytes_and_plans_are_the_same_under_two_hash_seeds(tmp_path: Path) -> None:
    """I8: the repaired file and the audit log."""
    made = []
    for seed in ("1", "2"):
        path = tmp_path / seed / "sick.json"
        path.parent.mkdir()
        path.write_bytes(SICK)
        ran = installed_latchguard("repair", "--apply", path, state=tmp_path / seed / "state", hash_seed=seed)
        assert ran.returncode == 0
        (plans,) = (tmp_path / seed).rglob("plans.jsonl")
        made.append((path.read_bytes(), json.dumps(json.loads(plans.read_bytes())["plan"])))
    assert made[0] == made[1]
    assert made[0][0] == HEALED
