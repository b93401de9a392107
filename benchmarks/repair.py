"""The dry run of a repair over many session files: time against parsing them, peak memory against fewer files.

Times are the processor's: a run of seconds in a process of its own meets more of a machine's noise than a parse does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from benchmarks.table import Row, print_table
from latchguard.repair.planning import apply_plan, plan_bytes

ROOT = Path(__file__).resolve().parent.parent
FILES = 10_000
FEWER = 1_000

# The command line, with its high-water mark in KB as the last word on stderr. What the kernel reports of a child counts
# the parent's memory before the exec.
CHILD = """
import atexit, re, sys
from latchguard.cli.main import main
status = lambda: open("/proc/self/status").read()
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", status())[1], file=sys.stderr))
main()
"""


def rows() -> Iterator[Row]:
    """Measure.

    A fleet whose every file waits for a repair has no budget of its own: there the plans are made, not only looked for.
    """
    poisoned = (ROOT / "examples" / "poisoned.json").read_bytes()
    unstamped = (ROOT / "tests" / "fixtures" / "bili" / "healthy.json").read_bytes()
    stamped = apply_plan(unstamped, plan_bytes(unstamped))
    bare = _without_latches(poisoned)
    yield from _measure("1 % poisoned", lambda number: bare if number % 100 else poisoned, budget=4)
    yield from _measure("3 latches with identity", lambda _: stamped, budget=4)
    yield from _measure("3 latches without", lambda _: unstamped, budget=None)


def _measure(fleet: str, session: Callable[[int], bytes], budget: float | None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder, "few"), Path(folder, "many")
        for place, count in ((few, FEWER), (many, FILES)):
            place.mkdir()
            for number in range(count):
                (place / f"session-{number:05d}.json").write_bytes(session(number))
        paths = sorted(many.iterdir())
        parsed = _cpu_ms(lambda: _parse(paths))
        took, peak = _dry_run(many)
        _, fewer_peak = _dry_run(few)
    yield Row(f"repair, dry run: {fleet}", f"{FILES} files", took, "read + orjson.loads of each", parsed, budget)
    yield Row("... peak memory in MB", f"{FILES} files", peak, f"that of {FEWER} files", fewer_peak, 1.1)


def _without_latches(raw: bytes) -> bytes:
    session = orjson.loads(raw)
    session["payload"]["state"]["emergencyTruncateLatch"] = []
    return orjson.dumps(session)


def _parse(paths: list[Path]) -> None:
    for path in paths:
        orjson.loads(path.read_bytes())


def _dry_run(place: Path) -> tuple[float, float]:
    """Give the processor's time in milliseconds, and the peak memory in MB, of a dry run over *place*."""
    peaks: list[int] = []

    def run() -> None:
        command = (sys.executable, "-c", CHILD, "repair", "--json", str(place))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)  # noqa: S603  # our own
        peaks.append(int(done.stderr.split()[-1]))

    return _cpu_ms(run), max(peaks) / 1024


def _cpu_ms(work: Callable[[], None]) -> float:
    """Give the least time in milliseconds that the processor worked, here and in children, in three runs."""
    times: list[float] = []
    for _ in range(3):
        start = sum(os.times()[:4])
        work()
        times.append((sum(os.times()[:4]) - start) * 1000)
    return min(times)


if __name__ == "__main__":
    sys.exit(not print_table(rows()))
