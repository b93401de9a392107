"""Why a source cannot be read at all: one leaf for each thing that a caller may want to tell apart."""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from latchguard.core.errors import LatchguardError

__all__ = [
    "BadFrameError",
    "EmptySourceError",
    "EncryptedSourceError",
    "FormatUndecidedError",
    "HalfWrittenError",
    "NoJsonError",
    "NoSessionError",
    "SourceError",
    "TooDeepError",
    "TooLargeError",
    "UnplannableFormatError",
]


@define(repr=False, str=False, eq=False)
class SourceError(LatchguardError):
    """A source that is left as it is.

    Args:
        where: the place in the source (`byte 17`, `$.payload`).
        expected: what should stand there.
        found: what stands there, cut and escaped.
    """

    code: ClassVar[str] = "unreadable-source"
    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"


class EmptySourceError(SourceError):
    """There are no bytes, or white space only."""

    code: ClassVar[str] = "empty"


class NoJsonError(SourceError):
    """The bytes are no JSON text, and no beginning of one."""

    code: ClassVar[str] = "no-json"


class HalfWrittenError(SourceError):
    """The bytes begin as they should and stop in the middle."""

    code: ClassVar[str] = "half-written"


class NoSessionError(SourceError):
    """Valid JSON that holds no session of the format."""

    code: ClassVar[str] = "no-session"


class EncryptedSourceError(SourceError):
    """The session is encrypted; without its key it is left alone."""

    code: ClassVar[str] = "encrypted"


class BadFrameError(SourceError):
    """The frame around the session is damaged, or of a version or mode that this release does not know."""

    code: ClassVar[str] = "bad-frame"


class TooLargeError(SourceError):
    """The source costs more than a limit allows."""

    code: ClassVar[str] = "too-large"


class TooDeepError(SourceError):
    """The JSON is nested deeper than a limit allows."""

    code: ClassVar[str] = "too-deep"


class FormatUndecidedError(SourceError):
    """The format was not named and cannot be told from the bytes."""

    code: ClassVar[str] = "format-undecided"


class UnplannableFormatError(SourceError):
    """The format is known, but repairs of it are planned elsewhere or not at all."""

    code: ClassVar[str] = "format-unsupported"

    def __str__(self) -> str:
        return f"{self.where}: found {self.found}, which is known, but not repaired here; reported and left alone"
