"""Repair one file so that a kill at any point leaves it wholly as it was or wholly repaired.

1. Open it, lock it, read it, plan, make the new bytes, plan those again: they must ask for no step.
2. Journal the intention. Copy the old bytes beside the file, write the new ones beside it, sync both.
3. Look whether the file is still what was read: device, inode, size, time, digest. Else it is left.
4. Rename the new bytes over it, sync the directory, journal that it is done, read it once more.

What the check cannot promise: a process that writes between 3 and 4 without taking the file's lock loses that write.
It is in no copy. So its writer must be stopped first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from attrs import define, field

from latchguard.core.errors import LatchguardError
from latchguard.repair import osops
from latchguard.repair.errors import LostRaceError, OverwrittenError, SourceNotFoundError, UnsettledPlanError
from latchguard.repair.files import FileBytes, FileSource, file_digest, open_file, read_file, same_file
from latchguard.repair.journal import Entry, Journal, RunRecord, backup_path, replacement_path, start_journal
from latchguard.repair.looking import Outcome, outcome_of
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import Plan, PlanOptions, digest
from latchguard.repair.runs import locked_runs, new_run_name, recover_runs, remove_journal, settle

__all__ = ["RepairRun", "repair_file", "repair_run"]


@define
class RepairRun:
    """A run that repairs files and databases; it has a journal from the first one on that it changes.

    Args:
        root: the directory of runs.
        recovered: the interrupted runs that were settled first, and an error for each that could not be.
        name: of this run.
        replaced: how many files hold repaired bytes now, and sessions of databases repaired rows.
    """

    root: str
    recovered: tuple[RunRecord | LatchguardError, ...]
    name: str = field(factory=new_run_name)
    replaced: int = 0
    _begun: int = field(default=0, init=False)
    _left: int = field(default=0, init=False)
    _journal: Journal | None = field(default=None, init=False)
    _closing: ExitStack = field(factory=ExitStack, init=False)

    def replace(self, handle: osops.Handle, found: FileBytes, new: bytes, plan: Plan) -> None:
        """Put *new* in place of the open file, whose bytes are *found*; steps 2 to 4 above."""
        journal = self._open_journal()
        times = found.status.st_atime_ns, found.status.st_mtime_ns
        entry = Entry(self._begun + 1, handle.path, plan.before, digest(new), *times)
        journal.begin(entry, plan)
        self._begun += 1
        replacement = replacement_path(handle.path, self.name)
        try:
            _write_beside(backup_path(handle.path, self.name), found.raw, handle, found.status)
            _write_beside(replacement, new, handle, found.status)
            osops.sync_directory(os.path.dirname(handle.path))
            _check_unchanged(handle.path, found, entry.before)
            osops.rename(replacement, handle.path)
        except BaseException:
            with suppress(LatchguardError):  # what cannot be settled now is settled by the next run
                self._left += settle(journal, entry).fate == "left"
            raise
        self.replaced += 1
        osops.sync_directory(os.path.dirname(handle.path))
        journal.settle(entry, "done")
        if file_digest(handle.path) != entry.after:
            raise OverwrittenError(handle.path)

    def note_database(self, url: str) -> None:
        """Put on the disk that the sessions of a database are about to be changed."""
        self._open_journal().note_database(url)

    def _open_journal(self) -> Journal:
        if self._journal is None:
            self._journal = self._closing.enter_context(start_journal(self.root, self.name))
        return self._journal

    def close(self) -> None:
        """Close the journal; a run that changed nothing leaves none."""
        self._closing.close()
        if self._journal and self._begun == self._left and not self.replaced:
            remove_journal(self.root, self.name)


@contextmanager
def repair_run(root: str) -> Iterator[RepairRun]:
    """Hold the directory of runs, settle interrupted runs, and give the run that repairs files.

    Raises:
        SourceBusyError: another process holds the directory of runs.
        FileSystemError: the directory or the journal cannot be written.
    """
    with locked_runs(root):
        run = RepairRun(root, tuple(recover_runs(root)))
        try:
            yield run
        finally:
            run.close()


def repair_file(run: RepairRun, source: FileSource, *, format_name: str | None, options: PlanOptions) -> Outcome:
    """Repair one file. What goes wrong is the outcome's error; the file then holds its old bytes, or all new ones."""
    return outcome_of(source, lambda: _repair(run, source, format_name, options))


def _repair(run: RepairRun, source: FileSource, format_name: str | None, options: PlanOptions) -> Outcome:
    with open_file(os.path.abspath(source.path)) as handle:
        osops.lock(handle)
        found = read_file(handle, options.limits.file_bytes)
        plan = plan_bytes(found.raw, format=format_name, options=options)
        if not plan.steps:
            return Outcome(source.path, source.named, plan)
        new = apply_plan(found.raw, plan)
        again = plan_bytes(new, format=plan.format, options=options)  # what is left may not show its format any more
        if again.steps or new == found.raw:
            raise UnsettledPlanError(source.path, len(again.steps))
        run.replace(handle, found, new, plan)
    return Outcome(source.path, source.named, plan, repaired=True, left=again.findings)


def _write_beside(path: str, raw: bytes, original: osops.Handle, status: os.stat_result) -> None:
    """Write a file that is never open to more people than *original*, with its owner, mode and times."""
    with osops.created(path, status.st_mode & 0o600) as handle:
        osops.write(handle, raw)
        osops.copy_attributes(original, handle)
        osops.change_times(handle, status.st_atime_ns, status.st_mtime_ns)
        osops.sync(handle)


def _check_unchanged(path: str, found: FileBytes, before: str) -> None:
    try:
        with open_file(path) as handle:
            now = osops.status(handle)
    except SourceNotFoundError as error:
        raise LostRaceError(path, "it was removed since it was read") from error
    if not same_file(found.status, now) or file_digest(path) != before:
        raise LostRaceError(path, "it changed since it was read")
