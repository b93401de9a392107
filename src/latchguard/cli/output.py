"""What a person reads: per file a line, per finding what was where and what stands there now; all of it escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import click
import orjson

from latchguard.cli.progress import clear_progress
from latchguard.core.errors import LatchguardError
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsontext import dump_json
from latchguard.repair.errors import escape
from latchguard.repair.report import READERS, FileReport, State, Tally
from latchguard.repair.runs import default_root

__all__ = ["TextReport", "complain", "plural"]

_HEAD: Final = 48
_TAIL: Final = 24
_LINE: Final = 240
_MEMBERS: Final = 12  # of a record
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)  # reads well without quotes

_DONE: Final = {True: "repaired", False: "would be repaired"}


def complain(error: LatchguardError, source: str | None = None) -> None:
    """Write one line on stderr: what was expected, what was found, where; *source* where the error does not know it."""
    clear_progress()
    text, where = str(error), f"{escape(source)}: " if source is not None else ""
    click.echo(f"latchguard: {'' if text.startswith(where) else where}{text}", err=True)


def plural(count: int, noun: str) -> str:
    """Give a count with its noun: `1 file`, `1,204 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class TextReport:
    """Writes to stdout, file by file."""

    def __init__(self, *, applying: bool, noun: str, root: str | None = None) -> None:
        self._applying = applying
        self._noun = noun
        # `undo` has to be told of a directory of runs that is not the default.
        self._where = "" if root in (None, default_root()) else f" --backup-dir {escape(shlex.quote(str(root)))}"

    def add(self, report: FileReport) -> None:
        """Write one file; nothing where it is clean or skipped. Why one failed goes to stderr."""
        if report.outcome.error is not None and report.state is State.FAILED:
            complain(report.outcome.error, report.outcome.source)
        plan = report.outcome.plan
        if plan is None or not plan.findings:
            return
        clear_progress()
        session = f", session {_show(plan.session)}" if plan.session is not None else ""
        click.echo(
            f"{click.style(escape(report.outcome.source), bold=True)}: {plan.format}{session}: "
            f"{plural(len(plan.findings), 'finding')}"
        )
        for finding in report.listed:
            click.echo("\n".join(_finding_lines(finding, applying=self._applying)))
        if report.omitted:
            click.echo(f"  and {report.omitted:,} more of the same rules")

    def end(self, tally: Tally, *, status: int, run: str | None) -> None:
        """Write the counts, and what to do next."""
        clear_progress()
        total = sum(tally.files.values())
        parts = ", ".join(f"{tally.files[state]:,} {_STATES[state]}" for state in State if tally.files[state])
        click.echo(f"{plural(total, self._noun)}: {parts}" if total else f"no {self._noun}s")
        for rule, count in sorted(tally.rules.items()):
            click.echo(f"  {count:>6,}  {rule}")
        for line in self._advice(tally, run):
            click.echo(line)

    def _advice(self, tally: Tally, run: str | None) -> Iterable[str]:
        if run is not None:
            yield f"Run {run}; `latchguard undo{self._where} {run}` takes it back."
        elif tally.repairable and not self._applying:
            yield f"Nothing was written; `latchguard repair --apply` repairs {plural(tally.repairable, self._noun)}."
        if not tally.repairable:
            return
        for file_format in sorted(tally.formats & READERS.keys()):
            if not self._applying:
                yield "Stop the process that writes these files first: at its next save it would overwrite the repair."
            yield f"Readers that do not check the identity of a latch: {READERS[file_format]}."


_STATES: Final = {
    State.CLEAN: "clean",
    State.FINDINGS: "with findings",
    State.REPAIRED: "repaired",
    State.LEFT: "with findings left",
    State.FAILED: "not readable or not repaired",
    State.SKIPPED: "skipped (no session)",
}


def _finding_lines(finding: Finding, *, applying: bool) -> Iterable[str]:
    if finding.applied:
        fate = f"{finding.repair.value}, {_DONE[applying]}"
    elif finding.repair is Repair.DETECT:
        fate = "left as it is"
    else:
        fate = f"left: its repair is {finding.repair.value}"
    tool = f" of tool {_show(finding.tool_name)}" if finding.tool_name else ""
    yield f"  {click.style(finding.rule, fg='yellow')} ({fate})"
    yield f"    at      {_cut(finding.path)}{tool}"
    if finding.note:
        yield f"    because {_cut(finding.note)}"
    if finding.before is not None:
        yield f"    before  {click.style(_show(finding.before), fg='red')}"
    if finding.after is not None:
        yield f"    after   {click.style(_show(finding.after), fg='green')}"


def _show(value: Any, levels: int = 2) -> str:
    """Give *value* on one line: a record field by field, else as JSON; long texts with their middle cut out."""
    if isinstance(value, dict) and value and levels:
        members = [f"{_show(str(key))} {_show(member, levels - 1)}" for key, member in islice(value.items(), _MEMBERS)]
        more = len(value) - len(members)
        return ", ".join([*members, f"and {more:,} more"] if more else members)
    text = value if isinstance(value, str) else dump_json(value).decode()
    if len(text) > _HEAD + _TAIL:
        cut = len(text) - _HEAD - _TAIL
        return f"{_quote(text[:_HEAD])} [{cut:,} characters] {_quote(text[-_TAIL:])}"
    if isinstance(value, str):
        return escape(text) if _WORD.fullmatch(text) else _quote(text)
    return escape(text)


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LINE else f"{text[:_LINE]}...")


def _quote(text: str) -> str:
    try:
        return escape(orjson.dumps(text).decode())
    except TypeError:  # a lone half of a surrogate pair
        return escape(dump_json(text).decode())
