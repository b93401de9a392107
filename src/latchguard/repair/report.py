"""What is told about a scan or a repair: a tally that never grows, and one JSON document, written as it comes.

1. At most 1,000 findings of a rule are listed, all are counted.
2. A clean file is counted, never listed. In a directory, a file that is no session is counted as skipped.
3. `docs/repair.md` describes the document; `VERSION` grows when a reader of it could be wrong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from attrs import define, field, frozen

from latchguard.core.findings import Finding
from latchguard.core.jsontext import dump_json
from latchguard.repair.journal import finding_document
from latchguard.repair.looking import Outcome

__all__ = ["MAX_LISTED", "READERS", "VERSION", "FileReport", "JsonReport", "State", "Tally"]

VERSION: Final = 1
_UNPRINTABLE: Final = re.compile(r"[^ -~]")  # the candidates; letters of any script stay as they are
MAX_LISTED: Final = 1000

# Which readers of a format do not check a latch's identity, and so are not safe from a stale one.
READERS: Final[Mapping[str, str]] = {
    "bili": "every build of the proxy whose latches are only {ref, text}: it passes over `identity` and stamps by ref",
}


class State(StrEnum):
    """What became of a file."""

    CLEAN = "clean"
    FINDINGS = "findings"
    REPAIRED = "repaired"
    LEFT = "left"
    FAILED = "failed"
    SKIPPED = "skipped"


# What a file in a directory may be without anybody having claimed that it is a session: another JSON document; and,
# where its name does not say JSON, nothing of the kind.
_NO_SESSION: Final = frozenset({"format-undecided"})
_NO_JSON: Final = frozenset({"no-json", "empty"})
_JSON_NAMES: Final = (".json", ".jsonl")


@frozen
class FileReport:
    """One file, its state, the findings that are listed and the number of those that are not."""

    outcome: Outcome
    state: State
    listed: tuple[Finding, ...] = ()
    omitted: int = 0


@define
class Tally:
    """Counts over all files; *applying* says whether repairs are made."""

    applying: bool
    files: Counter[State] = field(factory=Counter)
    rules: Counter[str] = field(factory=Counter)
    formats: set[str] = field(factory=set)  # of the files with findings
    repairable: int = 0  # files with steps

    def take(self, outcome: Outcome) -> FileReport:
        """Count one outcome, and choose which of its findings are listed."""
        state = self._state(outcome)
        self.files[state] += 1
        plan = outcome.plan
        if plan is None:
            return FileReport(outcome, state)
        if plan.findings:
            self.formats.add(plan.format)
        self.repairable += bool(plan.steps)
        listed: list[Finding] = []
        for finding in plan.findings:
            self.rules[finding.rule] += 1
            if self.rules[finding.rule] <= MAX_LISTED:
                listed.append(finding)
        return FileReport(outcome, state, tuple(listed), len(plan.findings) - len(listed))

    def _state(self, outcome: Outcome) -> State:
        if outcome.error is not None:
            return State.SKIPPED if _is_no_session(outcome) else State.FAILED
        findings = outcome.left if outcome.repaired or outcome.plan is None else outcome.plan.findings
        if findings:
            return State.LEFT if self.applying else State.FINDINGS
        return State.REPAIRED if outcome.repaired else State.CLEAN

    def document(self) -> dict[str, Any]:
        """Give the counts as JSON values."""
        return {
            "files": {state.value: self.files[state] for state in State},
            "rules": {
                rule: {"count": count, "listed": min(count, MAX_LISTED)} for rule, count in sorted(self.rules.items())
            },
        }


def _is_no_session(outcome: Outcome) -> bool:
    code = outcome.error.code if outcome.error else ""
    if outcome.named:
        return False
    return code in _NO_SESSION or (code in _NO_JSON and not outcome.source.endswith(_JSON_NAMES))


class JsonReport:
    """Writes the document piece by piece through *write*, so that its size costs no memory."""

    def __init__(self, write: Callable[[str], object], *, command: str, applying: bool, allow: str) -> None:
        self._write = write
        self._separator = ""
        head = {
            "latchguard": {"document": command, "version": VERSION},
            "applied": applying,
            "allow": allow,
        }
        write(_json_text(head)[:-1] + ',"files":[')

    def add(self, report: FileReport) -> None:
        """Write one file; nothing where it is clean or skipped."""
        if report.state not in (State.CLEAN, State.SKIPPED):
            self._write(self._separator + "\n" + _json_text(_file_document(report)))
            self._separator = ","

    def end(self, tally: Tally, *, status: int, run: str | None) -> None:
        """Write what is known at the end."""
        tail = {"run": run, "status": status, "count": tally.document()}
        self._write("\n]," + _json_text(tail)[1:] + "\n")


def _json_text(value: Any) -> str:
    """Give *value* as JSON that a terminal can be shown: what is not printable is escaped."""
    text = dump_json(value).decode()
    return text if text.isprintable() else _UNPRINTABLE.sub(_escape_json, text)


def _escape_json(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def _file_document(report: FileReport) -> dict[str, Any]:
    outcome, plan = report.outcome, report.outcome.plan
    document: dict[str, Any] = {"source": outcome.source, "state": report.state.value}
    if plan is not None:
        document |= {
            "format": plan.format,
            "session": plan.session,
            "before": plan.before,
            "steps": len(plan.steps),
            "findings": [finding_document(finding) for finding in report.listed],
            "omitted": report.omitted,
        }
    if outcome.error is not None:
        document["error"] = {"code": outcome.error.code, "text": str(outcome.error)}
    return document
