"""What can go wrong with a source as a file: one leaf for each thing that a caller can handle differently.

Built positionally: these errors cross process borders, and an exception pickles its positional arguments only.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from latchguard.core.errors import LatchguardError

__all__ = [
    "BugError",
    "FileSystemError",
    "LostRaceError",
    "OverwrittenError",
    "RunDamagedError",
    "RunNotFoundError",
    "SourceBusyError",
    "SourceNotFoundError",
    "SourceRefusedError",
    "SourceTooLargeError",
    "UnsettledPlanError",
    "WorkerLostError",
    "escape",
]


def escape(text: str) -> str:
    """Give *text* with every character escaped that is not printable: controls, bidi marks, line ends, lone halves."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


@define(repr=False, str=False, eq=False)
class SourceNotFoundError(LatchguardError):
    """There is no such file, directory or match."""

    code: ClassVar[str] = "source-not-found"
    source: str
    expected: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: expected {self.expected}, found nothing there"


@define(repr=False, str=False, eq=False)
class SourceRefusedError(LatchguardError):
    """It is there, but it is nothing that may be read or replaced: a link, a device, a backup, ..."""

    code: ClassVar[str] = "source-refused"
    source: str
    found: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: expected a regular file with one name, found {self.found}; left alone"


@define(repr=False, str=False, eq=False)
class SourceTooLargeError(LatchguardError):
    """The file is larger than the limit; *limit* and *found* in bytes."""

    code: ClassVar[str] = "too-large"
    source: str
    limit: int
    found: int

    def __str__(self) -> str:
        return f"{escape(self.source)}: expected at most {self.limit:,} bytes, found {self.found:,}; left alone"


@define(repr=False, str=False, eq=False)
class SourceBusyError(LatchguardError):
    """Another process holds the lock of a file, or of the directory of runs."""

    code: ClassVar[str] = "busy"
    source: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: locked by another process; try again when it is done"


@define(repr=False, str=False, eq=False)
class LostRaceError(LatchguardError):
    """The file is no longer what was read; nothing was written."""

    code: ClassVar[str] = "lost-race"
    source: str
    found: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: {self.found}; nothing was written, stop its writer and try again"


@define(repr=False, str=False, eq=False)
class OverwrittenError(LatchguardError):
    """The file was repaired, and another process wrote it again at once."""

    code: ClassVar[str] = "overwritten"
    source: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: repaired, and overwritten by another process; stop its writer and try again"


@define(repr=False, str=False, eq=False)
class BugError(LatchguardError):
    """Looking at one source raised what it never should; the others are looked at all the same."""

    code: ClassVar[str] = "bug"
    source: str
    trace: str

    def __str__(self) -> str:
        return f"{escape(self.source)}: a bug in latchguard, please report it; the file was left alone\n{self.trace}"


@define(repr=False, str=False, eq=False)
class FileSystemError(LatchguardError):
    """A file operation failed; *operation* is its name, *path* what it was done to."""

    code: ClassVar[str] = "file-system-failed"
    operation: str
    path: str
    errno: int
    reason: str

    def __str__(self) -> str:
        return f"{escape(self.path)}: cannot {self.operation}: {self.reason}"


@define(repr=False, str=False, eq=False)
class RunNotFoundError(LatchguardError):
    """No run of this name is kept in the directory of runs."""

    code: ClassVar[str] = "run-not-found"
    run: str
    root: str

    def __str__(self) -> str:
        return f"expected a run kept in {escape(self.root)}, found none named {escape(self.run)}"


@define(repr=False, str=False, eq=False)
class RunDamagedError(LatchguardError):
    """The journal of a run is not one that this release wrote."""

    code: ClassVar[str] = "run-damaged"
    path: str
    line: int
    expected: str

    def __str__(self) -> str:
        return f"{escape(self.path)}: line {self.line}: expected {self.expected}"


@define(repr=False, str=False, eq=False)
class UnsettledPlanError(LatchguardError):
    """A planned repair, checked before it was written, still asks for steps: a bug in latchguard."""

    code: ClassVar[str] = "unsettled-plan"
    source: str
    steps: int

    def __str__(self) -> str:
        return (
            f"{escape(self.source)}: the repaired bytes still ask for {self.steps} steps; "
            "nothing was written, please report this"
        )


@define(repr=False, str=False, eq=False)
class WorkerLostError(LatchguardError):
    """One of the *jobs* processes that look at files was killed, most likely for want of memory."""

    code: ClassVar[str] = "worker-lost"
    jobs: int

    def __str__(self) -> str:
        return f"one of {self.jobs} processes was killed, out of memory perhaps; try fewer --jobs"
