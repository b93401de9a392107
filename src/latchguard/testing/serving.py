"""Serve a Python kernel over stdio: `python -m latchguard.testing.serving python:package.module:factory`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from latchguard.testing.protocol import Json, Kernel
from latchguard.testing.run import to_bytes
from latchguard.testing.specs import make_kernel

__all__ = ["answer_requests"]


def answer_requests(kernel: Kernel, requests: Iterable[bytes]) -> Iterable[bytes]:
    """Give the reply to each of *requests*, lines of the protocol both; a step that raises is an `error`."""
    for line in requests:
        request = json.loads(line)
        yield to_bytes({"id": request["id"], **_answer(kernel, request)}) + b"\n"


def _answer(kernel: Kernel, request: Json) -> Json:
    if "step" not in request:
        return {"bye": True} if "bye" in request else {"hello": {"protocol": 1, "capabilities": [*kernel.capabilities]}}
    try:
        return dict(kernel.step(**request["step"]))
    except Exception as error:  # noqa: BLE001  # whatever a kernel raises is its answer
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    for reply in answer_requests(make_kernel(sys.argv[1]), sys.stdin.buffer):
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
