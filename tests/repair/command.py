"""Session files for the tests of repair: the fixtures, and the command line in processes of its own."""

import atexit
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

from latchguard.repair.planning import apply_plan, plan_bytes
from tests.repair.faults import Server

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bili"
SICK = (FIXTURES / "spread.json").read_bytes()
OTHER_SICK = (FIXTURES / "stale-flat-v1.json").read_bytes()
HEALED = apply_plan(SICK, plan_bytes(SICK))
SOUND = apply_plan(OTHER_SICK, plan_bytes(OTHER_SICK))


@cache
def _server() -> Server:
    server = Server()
    atexit.register(server.close)
    return server


def latchguard(*argv: str | os.PathLike[str], state: Path) -> CompletedProcess[str]:
    """Run the command line in a child of its own, forked from one that has everything loaded."""
    ran = _server()(*argv, state=state, fork=True)
    return CompletedProcess(argv, ran.status, ran.out, ran.err)


def installed_latchguard(
    *argv: str | os.PathLike[str], state: Path, prefix: Sequence[str] = (), hash_seed: str = "0"
) -> CompletedProcess[str]:
    """Run the installed command line as a user does."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "latchguard", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "XDG_STATE_HOME": str(state), "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Give everything in *directory*: bytes, mode, inode, time of each file, by its path."""
    found: dict[str, tuple[bytes, int, int, int]] = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        raw = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (raw, status.st_mode, status.st_ino, status.st_mtime_ns)
    return found
