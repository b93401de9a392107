"""Looking at many files costs no more memory than looking at few."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repair.command import SICK, SOUND

PEAK = """
import resource, sys
from latchguard.cli.main import main
try:
    main()
except SystemExit as end:
    print(end.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def peak_kib(*argv: str | Path) -> int:
    """Run the command line, which finds something, and give its peak memory."""
    ran = subprocess.run([sys.executable, "-c", PEAK, *argv], capture_output=True, text=True, check=True)
    status, peak = map(int, ran.stderr.split())
    assert status == 1
    return peak


@pytest.mark.long
def test_10000_files_cost_at_most_a_tenth_more_memory_than_1000(tmp_path: Path) -> None:
    """A dry run, text and JSON; one file in a hundred is sick."""
    few, many = tmp_path / "few", tmp_path / "many"
    for directory, count in ((few, 1_000), (many, 10_000)):
        directory.mkdir()
        for number in range(count):
            (directory / f"{number:05}.json").write_bytes(SICK if number % 100 == 0 else SOUND)
    for options in ((), ("--json",)):
        assert peak_kib("repair", *options, many) <= 1.1 * peak_kib("repair", *options, few)
