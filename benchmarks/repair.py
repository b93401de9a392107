"""The dry run of a repair over many session files: time against parsing them, peak memory against fewer files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.table import Row, best_ms, print_table

SAMPLE = Path(__file__).resolve().parent.parent / "examples" / "poisoned.json"
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
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder, "few"), Path(folder, "many")
        for place, count in ((few, FEWER), (many, FILES)):
            place.mkdir()
            _write_sessions(place, count)
        paths = sorted(many.iterdir())
        parsed = best_ms(lambda: [orjson.loads(path.read_bytes()) for path in paths], 3)
        took, peak = _dry_run(many)
        _, fewer_peak = _dry_run(few)
    yield Row("repair, dry run, one process", f"{FILES} files", took, "read + orjson.loads of all", parsed, 4)
    yield Row("... peak memory in MB", f"{FILES} files", peak, f"that of {FEWER} files", fewer_peak, 1.1)


def _write_sessions(place: Path, count: int) -> None:
    """Write healthy sessions, as nearly all are, and one poisoned in a hundred."""
    poisoned = SAMPLE.read_bytes()
    session = orjson.loads(poisoned)
    session["payload"]["state"]["emergencyTruncateLatch"] = []
    healthy = orjson.dumps(session)
    for number in range(count):
        (place / f"session-{number:05d}.json").write_bytes(healthy if number % 100 else poisoned)


def _dry_run(place: Path) -> tuple[float, float]:
    """Give the best time in milliseconds, and the peak memory in MB, of a dry run over *place*."""
    peaks: list[int] = []

    def run() -> None:
        command = (sys.executable, "-c", CHILD, "repair", "--json", str(place))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)  # noqa: S603  # our own
        peaks.append(int(done.stderr.split()[-1]))

    return best_ms(run, 2), max(peaks) / 1024


if __name__ == "__main__":
    sys.exit(not print_table(rows()))
