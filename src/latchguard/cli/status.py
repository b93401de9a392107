"""Exit statuses: what a script may rely on. Anything else is a failure that is not documented."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from latchguard.core.errors import LatchguardError

__all__ = ["ERROR_STATUS", "Status", "error_status"]


class Status(IntEnum):
    """What a command reports; of several sources the highest that occurred."""

    CLEAN = 0  # nothing wrong, or all repaired and checked again
    FINDINGS = 1  # findings: a scan's, or those a dry run would repair
    USAGE = 2  # the command line is wrong
    LEFT = 3  # repaired, but findings are left
    PROTOCOL = 4  # a kernel under test broke the protocol
    NOT_FOUND = 10  # a source, session or run is not there
    BUSY = 11  # somebody else holds it
    LOST_RACE = 12  # it changed meanwhile; nothing was written
    FAILED = 20  # the store or the file system failed
    BUG = 70  # a bug in latchguard
    INTERRUPTED = 130  # interrupted


# error code -> status; what is not here says that a source cannot be vouched for, which is a finding.
ERROR_STATUS: Final[Mapping[str, Status]] = {
    "source-not-found": Status.NOT_FOUND,
    "session-not-found": Status.NOT_FOUND,
    "run-not-found": Status.NOT_FOUND,
    "unknown-message": Status.NOT_FOUND,
    "busy": Status.BUSY,
    "store-busy": Status.BUSY,
    "lost-race": Status.LOST_RACE,
    "overwritten": Status.LOST_RACE,
    "stale-state": Status.LOST_RACE,
    "file-system-failed": Status.FAILED,
    "run-damaged": Status.FAILED,
    "store-failed": Status.FAILED,
    "old-schema": Status.FAILED,
    "newer-schema": Status.FAILED,
    "worker-lost": Status.FAILED,
    "unsettled-plan": Status.BUG,
    "bug": Status.BUG,
}


def error_status(error: LatchguardError, default: Status = Status.FAILED) -> Status:
    """Give the exit status of *error*; *default* where its code has none of its own."""
    return ERROR_STATUS.get(error.code, default)
