"""Is the kernel a function? The same step twice in one process, and in a new one with another hash seed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from latchguard.testing.laws import violation
from latchguard.testing.protocol import Kernel, RestartableKernel
from latchguard.testing.run import to_bytes

__all__ = ["Ask", "check_purity", "main"]

# What a kernel was asked: state, history, op, as bytes of JSON.
Ask = tuple[bytes, bytes, bytes]
_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from latchguard.testing.purity import main; main()"
)


def check_purity(kernel: Kernel, asks: Sequence[Ask]) -> bool:
    """Make *kernel* do each step again, here and in a new process, and compare the bytes of the replies.

    Returns:
        Whether a new process could be had: a kernel has to pickle, or to restart, for it.

    Raises:
        Violation: two replies differ; its `step` is the position of the step in *asks*.
    """
    first = [_answer(kernel, ask) for ask in asks]
    _compare(first, [_answer(kernel, ask) for ask in asks], "in the same process")
    if isinstance(kernel, RestartableKernel):
        kernel.restart()
        _compare(first, [_answer(kernel, ask) for ask in asks], "in a new process")
        return True
    try:
        work = pickle.dumps((kernel, list(asks)))
    except Exception:  # noqa: BLE001  # pickle raises whatever the object's own hooks raise
        return False
    return _compare_child(first, work)


def _compare_child(first: Sequence[bytes], work: bytes) -> bool:
    seed = "0" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    child = subprocess.run(  # noqa: S603  # our own interpreter on our own module
        [sys.executable, "-c", _CHILD, json.dumps(sys.path)],
        input=work,
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=False,
    )
    if child.returncode != 0:
        return False
    _compare(first, child.stdout.split(b"\n")[: len(first)], "in a new process")
    return True


def main() -> None:
    """Answer the steps that come pickled on stdin, a line of JSON each: the body of the new process."""
    kernel, asks = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # written by check_purity, for us alone
    sys.stdout.buffer.write(b"\n".join(_answer(kernel, ask) for ask in asks))


def _answer(kernel: Kernel, ask: Ask) -> bytes:
    state, history, op = (json.loads(raw) for raw in ask)
    return to_bytes(kernel.step(state, history, op))


def _compare(first: Sequence[bytes], second: Sequence[bytes], where: str) -> None:
    for position, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            start = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
            shown = slice(max(0, start - 40), start + 80)
            error = violation("pure", f"a step done again {where}", one[shown].decode(), other[shown].decode())
            error.position = position  # the run that is shown ends here
            raise error
