"""SIGKILL before, in the middle of, and after every file operation of repair and undo; and every operation failing."""

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import PlanOptions
from tests.repair.faults import Ran, Server, fault_server

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bili"
SICK = ("stale-flat-v1.json", "unprovable.json")
SOUND = "sound.json"
TIME_NS = 1_700_000_000_123_456_789
LEAST = {"before": 100, "half": 10, "after": 100}  # that a test strikes nothing must not pass for success

# After operation n the disk is as it is before operation n + 1: the long run strikes there all the same.
MODES = ["before", "half", pytest.param("after", marks=pytest.mark.long)]

Run: TypeAlias = Server


class Place:
    """A directory with two sick sessions and a sound one, and the run directory beside it."""

    def __init__(self, root: Path) -> None:
        self.files, self.state = root / "sessions", root / "state"
        self.old: dict[str, bytes] = {name: (FIXTURES / name).read_bytes() for name in SICK}
        self.new = {name: repaired(raw) for name, raw in self.old.items()}
        self.old[SOUND] = self.new[SOUND] = self.new[SICK[0]]
        self.reset()

    def reset(self) -> None:
        """Put the first bytes back, and forget every run."""
        for directory in (self.files, self.state):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        for name, raw in self.old.items():
            path = self.files / name
            path.write_bytes(raw)
            path.chmod(0o640)
            os.utime(path, ns=(TIME_NS, TIME_NS))

    def check_whole(self) -> None:
        """Each file holds its old or its new bytes, with its mode and time: never half, never missing."""
        for name in self.old:
            path = self.files / name
            assert path.read_bytes() in (self.old[name], self.new[name])
            assert path.stat().st_mode & 0o7777 == 0o640
            assert path.stat().st_mtime_ns == TIME_NS

    def check_bytes(self, expected: dict[str, bytes]) -> None:
        """The files hold these bytes."""
        assert {name: (self.files / name).read_bytes() for name in expected} == expected

    def leftovers(self) -> list[Path]:
        """What repairs left beside the files."""
        return sorted(path for path in self.files.iterdir() if ".latchguard-" in path.name)

    def listing(self) -> dict[str, tuple[bytes, int, int]]:
        """Everything there is: bytes, inode and time per file."""
        found = [path for root in (self.files, self.state) for path in root.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def repaired(raw: bytes) -> bytes:
    return apply_plan(raw, plan_bytes(raw, format=None, options=PlanOptions()))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Give a place in memory where there is such a file system: a sync that costs nothing is a sync all the same."""
    shared = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as directory:
        yield Place(Path(directory))


@pytest.fixture
def run(place: Place) -> Iterator[Run]:
    with fault_server(place.state) as run:
        yield run


def repair(run: Run, place: Place, *, mode: str = "before", strike: int = 0) -> Ran:
    return run("repair", "--apply", str(place.files), mode=mode, strike=strike)


def undo_all(run: Run, mode: str = "before", strike: int = 0) -> Ran:
    """Undo every run, the last one first; give how the last undo ended."""
    ran = run("runs")
    for line in reversed(ran.out.splitlines()):
        ran = run("undo", line.split()[0], mode=mode, strike=strike)
    return ran


def settle_and_undo(run: Run, place: Place) -> None:
    """A re-run reaches the end, a third does nothing, and an undo gives every first byte back."""
    assert repair(run, place).status == 0
    place.check_whole()
    place.check_bytes(place.new)
    assert {path.read_bytes() for path in place.leftovers()} == {place.old[name] for name in SICK}
    assert len(place.leftovers()) == len(SICK)
    before = place.listing()
    third = repair(run, place)
    assert (third.status, third.err) == (0, "")
    assert place.listing() == before
    assert undo_all(run).status == 0
    place.check_whole()
    place.check_bytes(place.old)
    assert place.leftovers() == []


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_operation_of_a_repair_leaves_whole_files(place: Place, run: Run, mode: str) -> None:
    """Killed at step n, n = 1, 2, 3, ...: old or new bytes, a re-run ends it, a third does nothing, undo undoes."""
    for strike in count(1):
        place.reset()
        ran = repair(run, place, mode=mode, strike=strike)
        place.check_whole()
        if ran.status != -9:
            assert ran.status == 0
            break
        settle_and_undo(run, place)
    assert strike > LEAST[mode]


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_operation_of_an_undo_leaves_whole_files(place: Place, run: Run, mode: str) -> None:
    """Killed at step n, n = 1, 2, 3, ...: old or new bytes, a re-run ends it, a third does nothing."""
    for strike in count(1):
        place.reset()
        assert repair(run, place).status == 0
        ran = undo_all(run, mode=mode, strike=strike)
        place.check_whole()
        if ran.status != -9:
            break
        assert undo_all(run).status == 0
        place.check_whole()
        place.check_bytes(place.old)
        assert place.leftovers() == []
        before = place.listing()
        assert undo_all(run).out == "0 files restored\n"
        assert place.listing() == before
    assert strike > LEAST[mode] // 5


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_operation_of_forgetting_a_run_can_be_done_again(place: Place, run: Run, mode: str) -> None:
    """Killed at step n, n = 1, 2, 3, ...: the files are as they were, and pruning again removes every trace."""
    for strike in count(1):
        place.reset()
        assert repair(run, place).status == 0
        ran = run("runs", "--prune", "0s", mode=mode, strike=strike)
        place.check_bytes(place.new)
        assert run("runs", "--prune", "0s").status == 0
        assert place.leftovers() == []
        assert run("runs").out == ""
        if ran.status != -9:
            break
    assert strike > LEAST[mode] // 10 - 1


@pytest.mark.parametrize(
    "fault",
    ["ENOSPC", *(pytest.param(name, marks=pytest.mark.long) for name in ("EACCES", "EROFS", "ENOSPC+", "EROFS+"))],
)
def test_an_operation_that_fails_leaves_whole_files_and_says_which(place: Place, run: Run, fault: str) -> None:
    """Operation n fails, once or from then on: status 20, a message that says which, whole files; then all is well."""
    message = os.strerror(getattr(errno, fault.rstrip("+")))
    for strike in count(1):
        place.reset()
        ran = repair(run, place, mode=fault, strike=strike)
        place.check_whole()
        if ran.status == 0:
            break
        assert ran.status == 20
        assert message in ran.err
        assert "Traceback" not in ran.err
        settle_and_undo(run, place)
    assert strike > LEAST["before"]


@pytest.mark.long
def test_an_interrupt_at_any_operation_leaves_whole_files(place: Place, run: Run) -> None:
    """Ctrl-C at step n: status 130, whole files; then all is well."""
    for strike in count(1):
        place.reset()
        ran = repair(run, place, mode="interrupt", strike=strike)
        place.check_whole()
        if ran.status == 0:
            break
        assert ran.status == 130
        settle_and_undo(run, place)
    assert strike > LEAST["before"]


@pytest.mark.long
def test_a_second_kill_while_the_first_is_settled_leaves_whole_files(place: Place, run: Run) -> None:
    """100 pairs of kills, the second during the re-run: old or new bytes, and then the end is reached."""
    chance = random.Random(20261130)  # noqa: S311  # which pairs, not a secret
    seconds = 0
    while seconds < 100:
        place.reset()
        assert repair(run, place, strike=chance.randint(1, LEAST["before"])).status == -9
        seconds += repair(run, place, strike=chance.randint(1, LEAST["before"])).status == -9
        place.check_whole()
        settle_and_undo(run, place)
