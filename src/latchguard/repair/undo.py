"""Undo a run: each file that still holds what the run wrote gets its copy back, by one rename.

The copy has the bytes, owner, mode, attributes and times of the file it was made from. A file that changed since is
left, and its copy too. Undoing can be killed and done again: a file whose copy is gone and which holds its old bytes
has been restored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from attrs import frozen

from latchguard.core.errors import LatchguardError
from latchguard.repair import osops
from latchguard.repair.errors import LostRaceError, RunNotFoundError, SourceNotFoundError
from latchguard.repair.files import file_digest, open_file, same_file
from latchguard.repair.journal import Entry, backup_path, open_journal
from latchguard.repair.runs import is_kept, locked_runs, recover_run, run_names

__all__ = ["Undone", "undo_run"]


@frozen
class Undone:
    """What became of one file of a run that is undone; *error* says why it was left, None where it is restored."""

    path: str
    error: LatchguardError | None = None


def undo_run(root: str, name: str) -> Iterator[Undone]:
    """Restore the files of a run, the last one first; those restored before are passed over.

    Raises:
        RunNotFoundError: no such run, or it was interrupted before it replaced anything.
        SourceBusyError: another process holds the directory of runs.
        FileSystemError: the journal cannot be written.
    """
    if name not in run_names(root):
        raise RunNotFoundError(name, root)
    with locked_runs(root):
        run = recover_run(root, name)
        if not is_kept(run):
            return
        with open_journal(root, name) as journal:
            for entry in reversed(run.entries):
                if entry.fate != "done":
                    continue
                try:
                    _restore(entry, backup_path(entry.path, name))
                    journal.settle(entry, "undone")
                except LatchguardError as error:
                    yield Undone(entry.path, error)
                else:
                    yield Undone(entry.path)


def _restore(entry: Entry, backup: str) -> None:
    directory = os.path.dirname(entry.path)
    if osops.path_kind(backup) is None and file_digest(entry.path) == entry.before:
        osops.sync_directory(directory)  # restored by an undo that was interrupted
        return
    with open_file(entry.path) as held:
        osops.lock(held)
        status = osops.status(held)
        if file_digest(entry.path) != entry.after:
            raise LostRaceError(entry.path, "it changed since it was repaired")
        _make_ready(entry, backup)
        with open_file(entry.path) as now:
            if not same_file(status, osops.status(now)):
                raise LostRaceError(entry.path, "it changed while it was restored")
        osops.rename(backup, entry.path)
    osops.sync_directory(directory)


def _make_ready(entry: Entry, backup: str) -> None:
    """See that the copy is whole, and give it the times of the file that it was made from."""
    if osops.path_kind(backup) is None:
        raise SourceNotFoundError(backup, "the copy that the run made")
    if file_digest(backup) != entry.before:
        raise LostRaceError(backup, "the copy changed since the run made it")
    with osops.opened(backup) as handle:
        osops.change_times(handle, entry.accessed_ns, entry.modified_ns)
        osops.sync(handle)
