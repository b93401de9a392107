"""What can go wrong between harness and kernel, apart from a broken law."""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from latchguard.core.errors import LatchguardError

__all__ = ["ProtocolError", "TraceError"]


@define(repr=False, str=False, eq=False)
class ProtocolError(LatchguardError):
    """The kernel does not speak the protocol: nothing can be said about its laws.

    Args:
        problem: `timeout`, `crashed`, `garbage` (no JSON on stdout), `bad-reply` (JSON of another shape), `wrong-id`,
            `not-started`.
        expected: what the harness waited for.
        found: what came.
        stderr: the tail of what the kernel wrote to stderr.
        asked: the op that it was asked for, if it was one.
    """

    code: ClassVar[str] = "kernel-protocol"
    problem: str
    expected: str
    found: str
    stderr: str = ""
    asked: str = ""

    def __str__(self) -> str:
        text = f"{self.problem}: expected {self.expected}, found {self.found}"
        text += f"; it was asked for {self.asked}" if self.asked else ""
        return text + (f"; the end of its stderr:\n{self.stderr}" if self.stderr else "")


@define(repr=False, str=False, eq=False)
class TraceError(LatchguardError):
    """A file that is no trace."""

    code: ClassVar[str] = "not-a-trace"
    path: str
    line: int
    expected: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: expected {self.expected}"
