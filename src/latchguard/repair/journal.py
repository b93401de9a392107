"""The journal of a run: what is about to be done to which file, on the disk before it is done.

1. `<root>/<run>/journal.jsonl` holds small records, `plans.jsonl` the plans (they hold conversation text).
2. A record begins with its line end, so that one torn by a kill or a full disk is closed by the next. A reader passes
   over torn records: before `begin` is on the disk nothing happens to its file, and every later record can be found
   out again from the files' digests.
3. An entry's fate: none yet (interrupted), `done` (replaced), `left` (not replaced, nothing left beside it),
   `undone` (its first bytes are back).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from attrs import asdict, evolve, frozen

from latchguard.core.findings import Finding
from latchguard.core.jsonspans import Insert, Replace, format_path
from latchguard.core.jsontext import dump_json, load_json
from latchguard.repair import osops
from latchguard.repair.errors import RunDamagedError, RunNotFoundError, SourceNotFoundError
from latchguard.repair.files import RUN_NAME
from latchguard.repair.plans import Plan, Step

__all__ = [
    "Entry",
    "Journal",
    "RunRecord",
    "backup_path",
    "finding_document",
    "load_run",
    "open_journal",
    "plan_document",
    "replacement_path",
    "start_journal",
]

VERSION: Final = 1
_JOURNAL: Final = "journal.jsonl"
_PLANS: Final = "plans.jsonl"
FILES: Final = (_PLANS, _JOURNAL)


@frozen
class Entry:
    """One file of a run.

    Args:
        number: its place in the run, counted from 1.
        path: the file, absolute.
        before: digest of the bytes that were read.
        after: digest of the bytes that take their place.
        accessed_ns: the file's access time when it was read.
        modified_ns: its modification time.
        fate: `done`, `left`, `undone`; None while nothing is settled.
    """

    number: int
    path: str
    before: str
    after: str
    accessed_ns: int
    modified_ns: int
    fate: str | None = None


@frozen
class RunRecord:
    """What the journal of one run says; *entries* in the order in which they were begun.

    What a run did in *databases*, their URLs without a password, stands in their own journals.
    """

    name: str
    entries: tuple[Entry, ...]
    databases: tuple[str, ...] = ()

    def count(self, fate: str | None) -> int:
        """Count the files of this fate."""
        return sum(entry.fate == fate for entry in self.entries)


@frozen
class Journal:
    """The open journal of one run, for appending."""

    name: str
    records: osops.Handle
    plans: osops.Handle

    def begin(self, entry: Entry, plan: Plan) -> None:
        """Put the plan, then the intention to replace a file, on the disk."""
        _append(self.plans, {"number": entry.number, "path": entry.path, "plan": plan_document(plan)})
        _append(self.records, {"event": "begin", **asdict(entry, filter=lambda field, _: field.name != "fate")})

    def note_database(self, url: str) -> None:
        """Put on the disk that the sessions of a database are about to be changed."""
        _append(self.records, {"event": "database", "url": url})

    def settle(self, entry: Entry, fate: str) -> Entry:
        """Put the fate of an entry on the disk, and give the entry with it."""
        _append(self.records, {"event": fate, "number": entry.number})
        return evolve(entry, fate=fate)


def backup_path(path: str, run: str) -> str:
    """Give the name of the copy that *run* keeps of the file at *path*."""
    return f"{path}.latchguard-{run}"


def replacement_path(path: str, run: str) -> str:
    """Give the name that the new bytes have until they take the place of the file at *path*."""
    return f"{backup_path(path, run)}.new"


@contextmanager
def start_journal(root: str, name: str) -> Iterator[Journal]:
    """Make the directory and the files of a new run."""
    directory = os.path.join(root, name)
    osops.make_directory(directory)
    with open_journal(root, name) as journal:
        _append(journal.records, {"event": "run", "version": VERSION, "run": name})
        osops.sync_directory(directory)
        osops.sync_directory(root)
        yield journal


@contextmanager
def open_journal(root: str, name: str) -> Iterator[Journal]:
    """Open the files of a run for appending."""
    plans, records = (os.path.join(root, name, file) for file in FILES)
    with osops.append(plans) as plans_handle, osops.append(records) as records_handle:
        yield Journal(name, records_handle, plans_handle)


def _append(handle: osops.Handle, record: Mapping[str, Any]) -> None:
    osops.write(handle, b"\n" + dump_json(record))
    osops.sync(handle)


def load_run(root: str, name: str) -> RunRecord:
    """Read the journal of the run *name*; one that was killed at its very start has no entries.

    Raises:
        RunNotFoundError: no such run.
        RunDamagedError: the journal is not one of ours, or of a newer version.
    """
    if not RUN_NAME.fullmatch(name) or osops.path_kind(os.path.join(root, name)) != "a directory":
        raise RunNotFoundError(name, root)
    journal = os.path.join(root, name, _JOURNAL)
    entries: dict[int, Entry] = {}
    databases: list[str] = []
    for line, record in _records(journal):
        try:
            match record:
                case {"event": "run", "version": int(version)} if version == VERSION:
                    pass
                case {
                    "event": "begin",
                    "number": int(number),
                    "path": str(path),
                    "before": str(before),
                    "after": str(after),
                    "accessed_ns": int(accessed_ns),
                    "modified_ns": int(modified_ns),
                }:
                    entries[number] = Entry(number, path, before, after, accessed_ns, modified_ns)
                case {"event": "database", "url": str(url)}:
                    databases.append(url)
                case {"event": "done" | "left" | "undone" as fate, "number": int(number)}:
                    entries[number] = evolve(entries[number], fate=fate)
                case _:
                    raise RunDamagedError(journal, line, f"a record of a version {VERSION} journal")
        except KeyError as error:
            raise RunDamagedError(journal, line, "a record that fits those before it") from error
    return RunRecord(name, tuple(entries.values()), tuple(databases))


def _records(path: str) -> Iterator[tuple[int, Any]]:
    """Give the whole records of the journal at *path* with their line numbers."""
    try:
        with osops.opened(path) as handle:
            raw = osops.read(handle, osops.status(handle).st_size)
    except SourceNotFoundError:
        return
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            record = load_json(line.decode())  # a path that is no UTF-8 has lone surrogates
        except ValueError:
            continue
        yield number, record


def plan_document(plan: Plan) -> dict[str, Any]:
    """Give *plan* as JSON values: the audit log of what was done."""
    return {
        "format": plan.format,
        "session": plan.session,
        "before": plan.before,
        "steps": [_step_document(step) for step in plan.steps],
        "findings": [finding_document(finding) for finding in plan.findings],
    }


def _step_document(step: Step) -> dict[str, Any]:
    edit = step.edit
    return {
        "op": type(edit).__name__.lower(),
        "path": format_path(edit.path),
        **({"key": edit.key} if isinstance(edit, Insert) and edit.key is not None else {}),
        **({"value": edit.value.decode()} if isinstance(edit, Insert | Replace) else {}),
        "before": step.before,
        "rule": step.finding.rule,
        "finding": step.finding.path,
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """Give *finding* as JSON values; what it does not have is left out."""
    return {
        key: value
        for key, value in asdict(finding, recurse=False).items()
        if key in ("rule", "path", "repair", "applied") or value not in (None, "")
    }
