"""A kernel in another process, spoken to in JSON lines: hello, step, bye.

Each request bears an id, and so does its reply. What goes wrong is told apart (`ProtocolError.problem`): no answer in
time, a dead process, a line that is no JSON, JSON of another shape, the reply to another request. An answer that says
that the step failed is in the protocol: it breaks the law `answers`, as an exception of a kernel in process does.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any, Final, NoReturn, Self

from jsonschema import Draft202012Validator

from latchguard.testing.errors import ProtocolError
from latchguard.testing.protocol import Json, check_reply
from latchguard.testing.run import to_bytes

__all__ = ["PROTOCOL", "StdioKernel", "load_schema"]

PROTOCOL: Final = 1
_TAIL_LINES: Final = 20
_SHOWN: Final = 200


@cache
def load_schema() -> Json:
    """Give the JSON Schema of the protocol."""
    path = resources.files("latchguard.testing") / "protocol.schema.json"
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    return schema


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = load_schema()
    return Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})


class StdioKernel:
    """A kernel that answers JSON lines on its standard output.

    Args:
        argv: the command.
        timeout_s: how long to wait for each answer.

    Raises:
        ProtocolError: it cannot be started, or does not say hello.

    Guarantees:
        Each start has another `PYTHONHASHSEED`. The process is ended by `close`, by the end of a `with`, by a
        `restart` and by any ProtocolError; after the last two a new one is started when it is needed.
    """

    def __init__(self, argv: Sequence[str], timeout_s: float = 5) -> None:
        self.argv, self.timeout_s = list(argv), timeout_s
        self._starts = 0
        self._requests = 0
        self._process: _Process | None = None
        self.capabilities: Sequence[str] = self._start()

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        """Ask for one step.

        Raises:
            RuntimeError: the kernel says that the step failed, as a kernel in process would raise.
            ProtocolError: there is no proper answer.
        """
        if self._process is None:
            self._start()
        reply = self._ask("step", {"state": state, "history": history, "op": op})
        if "error" in reply:
            raise RuntimeError(str(reply["error"]))
        self._check_shape(reply, "step_reply")
        return {name: reply[name] for name in ("state", "view", "events")}

    def restart(self) -> None:
        """End the process; the next step has a new one."""
        self.close()

    def close(self) -> None:
        """Say bye, and end the process."""
        process, self._process = self._process, None
        if process is not None:
            self._requests += 1
            process.end(to_bytes({"id": self._requests, "bye": True}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> list[str]:
        self._starts += 1
        try:
            self._process = _Process(self.argv, self._starts)
        except OSError as error:
            raise ProtocolError("not-started", "a command that can be run", f"{self.argv}: {error}") from error
        reply = self._ask("hello", {"protocol": PROTOCOL})
        self._check_shape(reply, "hello_reply")
        names: list[str] = reply["hello"]["capabilities"]
        return names

    def _ask(self, name: str, body: Any) -> Json:
        process = self._process
        assert process is not None  # noqa: S101  # both callers have just started it
        self._requests += 1
        expected = f"an answer to {name} {self._requests}"
        line = process.exchange(to_bytes({"id": self._requests, name: body}), self.timeout_s)
        if line is None:
            self._fail("timeout", f"{expected} within {self.timeout_s:g} s", "nothing")
        if line == b"":
            self._fail("crashed", expected, f"the end of its output, exit status {process.wait()}")
        try:
            reply = json.loads(line)
        except ValueError:
            self._fail("garbage", expected, ascii(line[:_SHOWN]))
        if not isinstance(reply, dict):
            self._fail("bad-reply", "a JSON object", ascii(line[:_SHOWN]))
        if reply.get("id") != self._requests:
            self._fail("wrong-id", f"id {self._requests}", f"id {reply.get('id')!r}")
        answered: Json = reply
        return answered

    def _check_shape(self, reply: Json, name: str) -> None:
        if name == "step_reply" and check_reply(reply) is None and set(reply) == {"id", "state", "view", "events"}:
            return  # the quick check says the same; the schema is asked where something is odd
        errors = sorted(_validator(name).iter_errors(reply), key=lambda error: len(error.absolute_path))
        for error in errors:
            self._fail("bad-reply", f"a {name} as protocol.schema.json has it", f"{error.json_path}: {error.message}")

    def _fail(self, problem: str, expected: str, found: str) -> NoReturn:
        process, self._process = self._process, None
        tail = process.kill() if process is not None else ""
        raise ProtocolError(problem, expected, found[: 2 * _SHOWN], tail)


class _Process:
    """The process, and two threads that read what it writes: a pipe that nobody reads would stop it."""

    def __init__(self, argv: Sequence[str], start: int) -> None:
        self._popen = subprocess.Popen(  # noqa: S603  # the caller's own command
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(start)},
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._read_stdout, self._read_stderr)
        ]
        for thread in self._threads:
            thread.start()

    def exchange(self, request: bytes, timeout_s: float) -> bytes | None:
        """Send a line and give the next line that comes; `b""` at the end of the output, None after *timeout_s*."""
        with suppress(OSError):  # it is dead or deaf; its output says which
            self._stdin.write(request + b"\n")
            self._stdin.flush()
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def wait(self) -> int:
        try:
            return self._popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def end(self, request: bytes) -> None:
        """Send a last line and let it go; what does not go is killed."""
        self.exchange(request, 1)
        self._close_stdin()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=1)
        self.kill()

    def kill(self) -> str:
        """Kill it and give the end of its stderr."""
        self._popen.kill()
        self._popen.wait()
        self._close_stdin()
        for thread in self._threads:
            thread.join(timeout=1)
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        return b"".join(self._tail).decode(errors="backslashreplace").strip()

    @property
    def _stdin(self) -> Any:
        return self._popen.stdin

    def _close_stdin(self) -> None:
        with suppress(OSError):
            self._stdin.close()

    def _read_stdout(self) -> None:
        for line in self._popen.stdout or ():
            self._lines.put(line)
        self._lines.put(b"")

    def _read_stderr(self) -> None:
        self._tail.extend(self._popen.stderr or ())
