"""Run the command line in a child that is killed, or made to fail, at its n-th file operation.

As a program it is a server: it loads everything once and forks one child per line of stdin, so that thousands of
kills cost seconds. The operations are the calls that `latchguard.repair.osops` makes to the operating system.
"""

import contextlib
import errno
import fcntl
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

COUNTED = frozenset(
    {
        "open", "read", "write", "close", "fsync", "fstat", "lstat", "rename", "unlink", "mkdir", "rmdir", "utime",
        "fchmod", "fchown", "listxattr", "setxattr", "listdir", "flock",
    }
)  # fmt: skip

KILLS = ("before", "half", "after")


@frozen
class Ran:
    """How a child ended: its exit status, or -9 where it was killed."""

    status: int
    out: str
    err: str


class Faults:
    """Stands in for `os` and `fcntl` in osops: counts operations, and strikes at the n-th of them.

    *mode* is `before`, `after`, `half` (in the middle of the n-th write), `interrupt`, or an errno's name; with a `+`,
    from then on.
    """

    def __init__(self, mode: str, strike: int) -> None:
        self.mode, self.strike, self.count = mode.rstrip("+"), strike, 0
        self.lasting = mode.endswith("+")

    def wrap(self, module: Any) -> Any:
        """Give what stands in for *module*."""
        outer = self

        class Proxy:
            def __getattr__(self, name: str) -> Any:
                found = getattr(module, name)
                return outer.counted(name, found) if name in COUNTED else found

        return Proxy()

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Give *call*, counted, and struck when it is its turn."""

        def struck(*args: Any, **options: Any) -> Any:
            if self.mode == "half" and name != "write":
                return call(*args, **options)
            self.count += 1
            if self.count < self.strike or (self.count > self.strike and not self.lasting):
                return call(*args, **options)
            if self.mode in KILLS:
                with contextlib.suppress(OSError):
                    if self.mode == "half":
                        call(args[0], args[1][: len(args[1]) // 2])
                    if self.mode == "after":
                        call(*args, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "close":  # a close that fails has closed all the same
                call(*args, **options)
            if self.mode == "interrupt":
                raise KeyboardInterrupt
            number = getattr(errno, self.mode)
            raise OSError(number, os.strerror(number))

        return struck


class Server:
    """A process that has everything loaded, and runs the command line per request.

    Args:
        state: where runs are kept where a request does not say.
    """

    def __init__(self, state: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.repair.faults"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(state), "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def __call__(
        self,
        *argv: str | os.PathLike[str],
        mode: str = "before",
        strike: int = 0,
        fork: bool = False,
        state: Path | None = None,
    ) -> Ran:
        """Run the command line with *argv*: in a child where it is struck or *fork* asks for one."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"argv": list(map(str, argv)), "mode": mode, "strike": strike, "fork": fork or strike > 0}
        self._process.stdin.write(json.dumps({**request, "state": str(state) if state else None}) + "\n")
        self._process.stdin.flush()
        return Ran(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextlib.contextmanager
def fault_server(state: Path) -> Iterator[Server]:
    """Give a server, and end it."""
    with contextlib.closing(Server(state)) as server:
        yield server


def _serve() -> None:
    from latchguard.cli import main, repair, runs, scan, undo  # noqa: F401, PLC0415  # loaded once, for all children
    from latchguard.repair import database_runs  # noqa: F401, PLC0415  # SQLAlchemy too

    gc.freeze()  # what is shared with the children stays shared
    for line in sys.stdin:
        request = json.loads(line)
        sys.argv = ["latchguard", *request["argv"]]
        ran = _run_in_child(main.main, request) if request["fork"] else _run_here(main.main)
        print(json.dumps(ran), flush=True)  # noqa: T201  # the answer


def _run_in_child(main: Callable[[], None], request: dict[str, Any]) -> dict[str, Any]:
    from latchguard.repair import osops  # noqa: PLC0415  # loaded by the server

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            if request["state"]:
                os.environ["XDG_STATE_HOME"] = request["state"]
            if request["strike"]:
                faults = Faults(request["mode"], request["strike"])
                osops.os, osops.fcntl = faults.wrap(os), faults.wrap(fcntl)  # type: ignore[attr-defined]
            main()
        _, status = os.waitpid(child, 0)
        texts = [os.pread(file.fileno(), 2**28, 0).decode() for file in (out, err)]
    return {"status": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def _run_here(main: Callable[[], None]) -> dict[str, Any]:
    """Run what is not to be struck without a fork: that is most of what the tests run."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return {"status": int(end.code or 0), "out": out.getvalue(), "err": err.getvalue()}
    raise AssertionError("the command line always exits")


if __name__ == "__main__":
    _serve()
