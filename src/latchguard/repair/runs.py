"""The runs that are kept: where they live, who may change them, and how an interrupted one is settled.

Settling asks the files alone, by digest, so it can itself be killed and done again:

| the file holds | the replacement is there | then |
|---|---|---|
| the new bytes | - | done |
| the old bytes | - | left: the copy and the replacement go |
| anything else, or nothing | yes | left: it was never renamed; the copy goes, then the replacement |
| anything else, or nothing | no | done if the copy is whole (the file changed after the repair), else left |
"""

from __future__ import annotations

import calendar
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attrs import evolve

from latchguard.core.errors import LatchguardError
from latchguard.repair import osops
from latchguard.repair.errors import RunNotFoundError
from latchguard.repair.files import RUN_NAME, file_digest
from latchguard.repair.journal import (
    FILES,
    Entry,
    Journal,
    RunRecord,
    backup_path,
    load_run,
    open_journal,
    replacement_path,
)

__all__ = [
    "default_root",
    "forget_run",
    "is_kept",
    "list_runs",
    "locked_runs",
    "new_run_name",
    "recover_run",
    "recover_runs",
    "remove_journal",
    "run_age_s",
    "run_names",
    "settle",
]


def default_root() -> str:
    """Give the directory of runs: `latchguard/runs` in `$XDG_STATE_HOME`, or in `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the base directory specification: a relative path is to be ignored
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "latchguard", "runs")


@contextmanager
def locked_runs(root: str) -> Iterator[None]:
    """Hold the directory of runs for one process.

    Raises:
        SourceBusyError: another process holds it.
        FileSystemError: it cannot be made or locked.
    """
    osops.make_directory(root)
    with osops.append(os.path.join(root, "lock")) as handle:
        osops.lock(handle)
        yield


def new_run_name() -> str:
    """Name a run after the present second (UTC) and four random bytes."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def run_age_s(name: str) -> float:
    """Give the age of a run in seconds, from its name."""
    return time.time() - calendar.timegm(time.strptime(name[:15], "%Y%m%d-%H%M%S"))


def run_names(root: str) -> list[str]:
    """Give the names of the runs kept in *root*, oldest first."""
    if osops.path_kind(root) is None:
        return []
    return [name for name in osops.directory_entries(root)[0] if RUN_NAME.fullmatch(name)]


def list_runs(root: str) -> Iterator[RunRecord | LatchguardError]:
    """Give the runs kept in *root*, oldest first, and an error for each that cannot be read."""
    for name in run_names(root):
        try:
            yield load_run(root, name)
        except LatchguardError as error:
            yield error


def recover_runs(root: str) -> Iterator[RunRecord | LatchguardError]:
    """Settle every interrupted run of *root*; give those that were, and an error for each that could not be.

    The caller holds `locked_runs(root)`.
    """
    for name in run_names(root):
        try:
            run = load_run(root, name)
            if run.count(None) or not is_kept(run):
                yield recover_run(root, name)
        except LatchguardError as error:
            yield error


def recover_run(root: str, name: str) -> RunRecord:
    """Settle what is open in one run, and forget it where it replaced nothing.

    The caller holds `locked_runs(root)`.

    Raises:
        FileSystemError: a file could not be settled; the others are.
    """
    run = load_run(root, name)
    if run.count(None):
        with open_journal(root, name) as journal:
            run = evolve(run, entries=tuple(_settle_all(journal, run.entries)))
    if not is_kept(run):
        remove_journal(root, name)
    return run


def _settle_all(journal: Journal, entries: Iterable[Entry]) -> list[Entry]:
    settled: list[Entry] = []
    failed: LatchguardError | None = None
    for entry in entries:
        try:
            settled.append(entry if entry.fate else settle(journal, entry))
        except LatchguardError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return settled


def is_kept(run: RunRecord) -> bool:
    """Say whether a run replaced anything, so that it can be undone, or was; a database knows that for itself."""
    return bool(run.databases) or any(entry.fate in ("done", "undone") for entry in run.entries)


def settle(journal: Journal, entry: Entry) -> Entry:
    """Bring an entry whose replacement was interrupted, or failed, to its end. The table above."""
    backup, replacement = backup_path(entry.path, journal.name), replacement_path(entry.path, journal.name)
    found = file_digest(entry.path)
    renamed = found == entry.after
    if found not in (entry.before, entry.after) and osops.path_kind(replacement) is None:
        renamed = file_digest(backup) == entry.before
    if not renamed:
        osops.unlink(backup)
    osops.unlink(replacement)
    if osops.path_kind(os.path.dirname(entry.path)) is not None:
        osops.sync_directory(os.path.dirname(entry.path))
    return journal.settle(entry, "done" if renamed else "left")


def forget_run(root: str, name: str) -> int:
    """Remove a run and the copies it keeps; give the number of copies removed.

    An interrupted run is settled first. The caller holds `locked_runs(root)`.

    Raises:
        RunNotFoundError: no such run.
        FileSystemError: a copy cannot be removed; the run stays.
    """
    if name not in run_names(root):
        raise RunNotFoundError(name, root)
    run = recover_run(root, name)
    if not is_kept(run):
        return 0
    removed = 0
    for entry in run.entries:
        backup = backup_path(entry.path, name)
        if osops.path_kind(backup) == "a regular file":
            osops.unlink(backup)
            removed += 1
    remove_journal(root, name)
    return removed


def remove_journal(root: str, name: str) -> None:
    """Remove a run's files, the records last: until they are gone the run can be settled."""
    for file in FILES:
        osops.unlink(os.path.join(root, name, file))
    osops.remove_directory(os.path.join(root, name))
    osops.sync_directory(root)
