import fcntl
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from latchguard.cli import main
from latchguard.repair import osops
from tests.repair.command import HEALED, OTHER_SICK, SICK, SOUND, installed_latchguard, latchguard, snapshot

TIME_NS = 1_700_000_000_123_456_789
RUN = re.compile(r"^Run ([0-9]{8}-[0-9]{6}-[0-9a-f]{8});", re.MULTILINE)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """Give a sick session file of mode 0640 and an old time, in a directory of its own."""
    path = tmp_path / "sessions" / "sick.json"
    path.parent.mkdir()
    path.write_bytes(SICK)
    path.chmod(0o640)
    os.utime(path, ns=(TIME_NS, TIME_NS))
    return path


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.latchguard-*"))


def test_a_repair_replaces_the_file_and_keeps_its_mode_and_time(sick: Path, state: Path) -> None:
    """Status 0: repaired and checked again. The copy beside it has the old bytes, mode and time."""
    ran = installed_latchguard("repair", "--apply", sick, state=state)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sick.read_bytes() == HEALED
    (backup,) = backups(sick)
    assert backup.read_bytes() == SICK
    for path in (sick, backup):
        assert path.stat().st_mode & 0o7777 == 0o640
        assert path.stat().st_mtime_ns == TIME_NS
    assert "stale-latch (placeholder, repaired)" in ran.stdout
    assert "1 file: 1 repaired" in ran.stdout


def test_a_repaired_file_is_clean_and_a_second_repair_does_nothing(sick: Path, state: Path) -> None:
    """Scan says 0, and nothing changes on the disk but the lock's time."""
    latchguard("repair", "--apply", sick, state=state)
    before = snapshot(sick.parent), [path.name for path in sorted(state.rglob("*"))]
    again = latchguard("repair", "--apply", sick.parent, state=state)
    assert (again.returncode, again.stdout) == (0, "1 file: 1 clean\n")
    assert (snapshot(sick.parent), [path.name for path in sorted(state.rglob("*"))]) == before
    assert latchguard("scan", sick, state=state).returncode == 0


def test_undo_restores_bytes_mode_and_time(sick: Path, state: Path) -> None:
    """The run is named by the repair; undone, the copy is gone, and undoing again does nothing, status 0."""
    run = RUN.findall(latchguard("repair", "--apply", sick, state=state).stdout)[0]
    assert latchguard("runs", state=state).stdout == f"{run}  1 file: 1 repaired\n"
    undone = latchguard("undo", run, state=state)
    assert (undone.returncode, undone.stdout) == (0, f"restored {sick}\n1 file restored\n")
    assert sick.read_bytes() == SICK
    assert (sick.stat().st_mode & 0o7777, sick.stat().st_mtime_ns) == (0o640, TIME_NS)
    assert backups(sick) == []
    assert latchguard("runs", state=state).stdout == f"{run}  1 file: 1 restored\n"
    again = latchguard("undo", run, state=state)
    assert (again.returncode, again.stdout) == (0, "0 files restored\n")


def test_a_name_that_is_no_text_is_repaired_and_undone(tmp_path: Path, state: Path) -> None:
    """The journal keeps its bytes."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.json"))
    path.write_bytes(SICK)
    run = RUN.findall(latchguard("repair", "--apply", path, state=state).stdout)[0]
    assert path.read_bytes() == HEALED
    assert latchguard("undo", run, state=state).stdout == f"restored {tmp_path}/\\udcff\\n.json\n1 file restored\n"
    assert path.read_bytes() == SICK


def test_undo_leaves_a_file_that_changed_since_and_its_copy(sick: Path, state: Path) -> None:
    """Status 12, and it says which; the other file of the run is restored."""
    other = sick.parent / "other.json"
    other.write_bytes(OTHER_SICK)
    run = RUN.findall(latchguard("repair", "--apply", sick.parent, state=state).stdout)[0]
    sick.write_bytes(b"{}")
    undone = latchguard("undo", run, state=state)
    assert undone.returncode == 12
    assert undone.stderr.startswith(f"latchguard: {sick}: it changed since it was repaired; ")
    assert other.read_bytes() == OTHER_SICK
    assert sick.read_bytes() == b"{}"
    assert backups(sick)[0].read_bytes() == SICK


@pytest.mark.parametrize("gone", ["file", "copy"])
def test_undo_says_when_a_file_or_its_copy_is_gone(sick: Path, state: Path, gone: str) -> None:
    """Status 10; nothing is made up."""
    run = RUN.findall(latchguard("repair", "--apply", sick, state=state).stdout)[0]
    path = sick if gone == "file" else backups(sick)[0]
    path.unlink()
    undone = latchguard("undo", run, state=state)
    assert undone.returncode == 10
    assert f"{path}: expected" in undone.stderr


def test_undo_trusts_no_copy_that_changed(sick: Path, state: Path) -> None:
    """Status 12; the repaired file stays."""
    run = RUN.findall(latchguard("repair", "--apply", sick, state=state).stdout)[0]
    (backup,) = backups(sick)
    backup.write_bytes(SICK[:-1])
    undone = latchguard("undo", run, state=state)
    assert undone.returncode == 12
    assert undone.stderr.startswith(f"latchguard: {backup}: the copy changed since the run made it; ")
    assert sick.read_bytes() == HEALED


def test_undo_gives_the_time_back_though_the_copy_was_touched(sick: Path, state: Path) -> None:
    """The journal knows it."""
    run = RUN.findall(latchguard("repair", "--apply", sick, state=state).stdout)[0]
    backups(sick)[0].touch()
    assert latchguard("undo", run, state=state).returncode == 0
    assert sick.stat().st_mtime_ns == TIME_NS


@pytest.mark.parametrize("run", ["20261130-120000-0123abcd", "../../etc", "", "x"])
def test_undo_of_no_run_is_status_10(state: Path, run: str) -> None:
    """A name that is no run's leads nowhere."""
    ran = latchguard("undo", run, state=state)
    assert ran.returncode == 10
    assert "expected a run kept in" in ran.stderr


def test_runs_and_copies_are_for_their_owner_alone(sick: Path, state: Path) -> None:
    """0700 and 0600 whatever the umask: they hold conversation text. A copy is never wider than its file."""
    sick.chmod(0o400)
    old = os.umask(0)
    try:
        assert latchguard("repair", "--apply", sick, state=state).returncode == 0
    finally:
        os.umask(old)
    assert backups(sick)[0].stat().st_mode & 0o7777 == 0o400
    root = state / "latchguard" / "runs"
    assert {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*")) if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}


def test_the_journal_holds_the_plan_and_both_digests(sick: Path, state: Path) -> None:
    """The audit log is the plan itself."""
    latchguard("repair", "--apply", sick, state=state)
    (run,) = (state / "latchguard" / "runs").glob("*-*")
    begun, done = [json.loads(line) for line in (run / "journal.jsonl").read_text().split("\n")[2:]]
    assert (begun["event"], begun["path"], done) == ("begin", str(sick), {"event": "done", "number": 1})
    plan = json.loads((run / "plans.jsonl").read_text())["plan"]
    assert plan["before"] == begun["before"]
    assert {step["rule"] for step in plan["steps"]} == {"stale-latch", "args-invalid-json"}
    assert all(finding["applied"] for finding in plan["findings"])


def test_backup_dir_keeps_the_runs_elsewhere(sick: Path, state: Path, tmp_path: Path) -> None:
    """Repair, runs and undo find them there, and the state directory is not touched."""
    kept = tmp_path / "kept"
    run = RUN.findall(latchguard("repair", "--apply", "--backup-dir", kept, sick, state=state).stdout)[0]
    assert (kept / run / "journal.jsonl").exists()
    assert not state.exists()
    assert latchguard("undo", run, state=state).returncode == 10
    assert latchguard("undo", "--backup-dir", kept, run, state=state).returncode == 0
    assert sick.read_bytes() == SICK


def test_findings_above_allow_are_left_and_status_3(sick: Path, state: Path) -> None:
    """The lossless repairs are made, the dearer ones named; a second repair changes nothing and says 3 again."""
    ran = latchguard("repair", "--apply", "--allow", "lossless", sick, state=state)
    assert ran.returncode == 3
    assert "stale-latch (left: its repair is placeholder)" in ran.stdout
    assert "1 file: 1 with findings left" in ran.stdout
    before = snapshot(sick.parent)
    assert latchguard("repair", "--apply", "--allow", "lossless", sick, state=state).returncode == 3
    assert snapshot(sick.parent) == before


def test_session_chooses_one_session(sick: Path, state: Path) -> None:
    """The others are not looked at twice, nor changed."""
    other = sick.parent / "other.json"
    other.write_bytes(OTHER_SICK)
    ran = latchguard("repair", "--apply", "--session", "ses_spread", sick.parent, state=state)
    assert ran.returncode == 0
    assert (sick.read_bytes(), other.read_bytes()) == (HEALED, OTHER_SICK)


def test_two_repairs_do_not_fight(sick: Path, state: Path) -> None:
    """The directory of runs is held by one process: status 11, nothing changed."""
    root = state / "latchguard" / "runs"
    root.mkdir(parents=True)
    with (root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = latchguard("repair", "--apply", sick, state=state)
        forgetting = latchguard("runs", "--prune", "1d", state=state)
    assert (ran.returncode, forgetting.returncode) == (11, 11)
    assert "locked by another process" in ran.stderr
    assert sick.read_bytes() == SICK


def test_undo_waits_for_nobody(sick: Path, state: Path) -> None:
    """Neither for the runs nor for the file: status 11, nothing changed."""
    run = RUN.findall(latchguard("repair", "--apply", sick, state=state).stdout)[0]
    for held in (state / "latchguard" / "runs" / "lock", sick):
        with held.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert latchguard("undo", run, state=state).returncode == 11
    assert sick.read_bytes() == HEALED


def test_a_file_that_somebody_locked_is_left(sick: Path, state: Path) -> None:
    """Status 11 for that file, the rest is repaired."""
    other = sick.parent / "other.json"
    other.write_bytes(OTHER_SICK)
    with sick.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = latchguard("repair", "--apply", sick.parent, state=state)
    assert ran.returncode == 11
    assert f"{sick}: locked by another process" in ran.stderr
    assert (sick.read_bytes(), other.read_bytes()) == (SICK, SOUND)


@pytest.mark.parametrize(
    ("change", "says", "left"),
    [
        (lambda path: path.write_bytes(SICK + b" "), "it changed since it was read", SICK + b" "),
        (lambda path: path.write_bytes(SICK.replace(b"window", b"WINDOW", 1)), "it changed", None),
        (lambda path: path.with_name("new").replace(path), "it changed since it was read", SICK),
        (lambda path: path.unlink(), "it was removed since it was read", None),
    ],
)
def test_a_file_that_changed_since_it_was_read_is_left(
    sick: Path,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: object,
    says: str,
    left: bytes | None,
) -> None:
    """Longer, other bytes of equal size and time, another inode, gone: status 12, nothing written or left over."""
    sick.with_name("new").write_bytes(SICK)
    sync_directory = osops.sync_directory

    def change_first(path: str) -> None:
        if path == str(sick.parent) and sick.exists() and not changed:
            changed.append(change(sick))  # type: ignore[operator]
            if sick.exists():
                os.utime(sick, ns=(TIME_NS, TIME_NS))
        sync_directory(path)

    changed: list[object] = []
    monkeypatch.setattr(osops, "sync_directory", change_first)
    monkeypatch.setattr("sys.argv", ["latchguard", "repair", "--apply", str(sick), "--backup-dir", str(state)])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 12
    assert f"latchguard: {sick}: {says}" in capsys.readouterr().err
    assert backups(sick) == []
    assert [path.name for path in state.iterdir()] == ["lock"]
    if left is not None:
        assert sick.read_bytes() == left


def test_a_link_is_never_replaced(sick: Path, state: Path) -> None:
    """Neither the link nor what it leads to; nor a file with a second name."""
    link = sick.parent / "link.json"
    link.symlink_to(sick)
    hard = sick.parent / "hard.json"
    os.link(sick, hard)
    ran = latchguard("repair", "--apply", sick.parent, state=state)
    assert ran.returncode == 3
    assert link.is_symlink()
    assert (sick.read_bytes(), hard.read_bytes(), sick.stat().st_nlink) == (SICK, SICK, 2)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/usr/bin/setpriv").exists(), reason="root may write everywhere")
def test_what_may_not_be_written_or_read_is_status_20() -> None:
    """A directory: the original stays, and the message says which file could not be made. A file: the same, to read."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        sick, state = directory / "sessions" / "sick.json", directory / "state"
        for made in (sick.parent, state):
            made.mkdir()
            made.chmod(0o777)
        sick.write_bytes(SICK)
        sick.parent.chmod(0o555)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        ran = installed_latchguard("repair", "--apply", sick, state=state, prefix=nobody)
        assert ran.returncode == 20
        assert re.search(rf"{sick}\.latchguard-\S+: cannot create: Permission denied", ran.stderr)
        assert sick.read_bytes() == SICK
        sick.chmod(0)
        ran = installed_latchguard("scan", sick, state=state, prefix=nobody)
        assert (ran.returncode, ran.stderr) == (20, f"latchguard: {sick}: cannot open: Permission denied\n")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 256 KiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", directory], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_a_full_disk_leaves_the_original(small_disk: Path, state: Path) -> None:
    """Room for nothing, for a part of the copy, of the new bytes: 20 and the old bytes. For both: 0 and the new."""
    path = small_disk / "sick.json"
    path.write_bytes(SICK)
    filler = small_disk / "filler"
    statuses = []
    for room in (0, 5 * 4096, 15 * 4096, 30 * 4096):
        fill(filler, room)
        ran = latchguard("repair", "--apply", path, state=state)
        statuses.append(ran.returncode)
        if ran.returncode:
            assert re.search(r"sick\.json\.latchguard-\S+: cannot (write|create): No space left on device", ran.stderr)
            assert path.read_bytes() == SICK
            assert sorted(entry.name for entry in small_disk.iterdir()) == ["filler", "sick.json"]
    assert statuses == [20, 20, 20, 0]
    assert path.read_bytes() == HEALED


def fill(path: Path, room: int) -> None:
    """Take all the space but *room*."""
    path.unlink(missing_ok=True)
    status = os.statvfs(path.parent)
    path.write_bytes(bytes(status.f_bavail * status.f_frsize - room))


def test_the_advice_to_undo_names_a_directory_of_runs_that_is_not_the_default(tmp_path: Path, state: Path) -> None:
    """The command that a repair prints takes it back as it stands, byte for byte."""
    session = tmp_path / "session.json"
    session.write_bytes(SICK)
    ran = latchguard("repair", "--apply", "--backup-dir", str(tmp_path / "my runs"), session, state=state)
    assert session.read_bytes() == HEALED
    undo = shlex.split(ran.stdout.partition("`latchguard ")[2].partition("`")[0])
    latchguard(*undo, state=state)
    assert session.read_bytes() == SICK
