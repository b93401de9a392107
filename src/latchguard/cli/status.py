"""Exit statuses: what a script may rely on. Anything else is a failure that is not documented."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Status"]


class Status(IntEnum):
    """What a command reports; of several sources the highest that occurred."""

    CLEAN = 0  # nothing wrong, or all repaired and checked again
    FINDINGS = 1  # findings: a scan's, or those a dry run would repair
    USAGE = 2  # the command line is wrong
    LEFT = 3  # repaired, but findings are left
    PROTOCOL = 4  # a kernel under test broke the protocol
    NOT_FOUND = 10  # a source or session is not there
    BUSY = 11  # somebody else holds it
    LOST_RACE = 12  # it changed meanwhile; nothing was written
    FAILED = 20  # the store or the file system failed
    BUG = 70  # a bug in latchguard
    INTERRUPTED = 130  # interrupted
