"""The report for a person: one self-contained page, without script, of at most 20 MB.

1. The 200 costliest sessions are shown: those with the dearest repairs first, then those with the most findings. The
   rest stands in the JSON report.
2. Of a session: its findings with what stood there and what stands there now, side by side; and its messages, the 20
   around each finding, with their refs, where latches sat and where they landed.
3. Everything that comes from a source is cut and escaped. What is held does not grow with the number of files.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape as escape_html
from importlib.resources import files
from itertools import islice
from typing import Any, Final

from latchguard.core.findings import Finding, Repair
from latchguard.core.jsontext import dump_json
from latchguard.repair.errors import escape
from latchguard.repair.report import FileReport, State, Tally
from latchguard.repair.timeline import Row, first_change

__all__ = ["MAX_BYTES", "HtmlReport"]

MAX_BYTES: Final = 20_000_000
_SESSIONS: Final = 200
_SESSION_BYTES: Final = 90_000  # 200 of them and the rest of the page stay below the limit
_AROUND: Final = 10  # messages before and after a finding
_HEAD: Final = 400
_TAIL: Final = 100
_MEMBERS: Final = 20  # of a record
_COST: Final = {repair: cost for cost, repair in enumerate((Repair.DETECT, *list(Repair)[:3]))}

ReadRows = Callable[[FileReport], Sequence[Row]]


class HtmlReport:
    """Writes the page through *write* at the end.

    Args:
        write: takes a piece of the page.
        command: `scan` or `repair`.
        applying: whether repairs are made.
        read_rows: gives the messages of a file's session; empty where they cannot be read any more.
    """

    def __init__(self, write: Callable[[str], object], *, command: str, applying: bool, read_rows: ReadRows) -> None:
        self._write = write
        self._command = command
        self._applying = applying
        self._read_rows = read_rows
        self._sessions: list[tuple[int, int, int, str]] = []  # cost, findings, minus its place: a heap of the dearest
        self._seen = 0

    def add(self, report: FileReport) -> None:
        """Take one file; its section is made at once where it is among the costliest so far."""
        plan = report.outcome.plan
        if plan is None or not plan.findings:
            return
        self._seen += 1
        key = max(_COST[finding.repair] for finding in plan.findings), len(plan.findings), -self._seen
        if len(self._sessions) < _SESSIONS:
            heapq.heappush(self._sessions, (*key, self._section(report)))
        elif key > self._sessions[0][:3]:
            heapq.heapreplace(self._sessions, (*key, self._section(report)))

    def end(self, tally: Tally, *, status: int, run: str | None) -> None:
        """Write the page."""
        title = f"latchguard {self._command}"
        style = files("latchguard.repair").joinpath("report.css").read_text("utf-8")
        self._write(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
            f"<style>{style}</style></head><body>\n<header><h1>{title}</h1>"
        )
        for piece in self._summary(tally, status, run):
            self._write(piece)
        self._write("</header>\n<main>\n")
        for *_, section in sorted(self._sessions, reverse=True):
            self._write(section)
        if self._seen > len(self._sessions):
            self._write(f"<p>{self._seen - len(self._sessions):,} more sessions stand in the JSON report.</p>\n")
        self._write("</main></body></html>\n")

    def _summary(self, tally: Tally, status: int, run: str | None) -> Iterator[str]:
        counts = ((state.value, tally.files[state]) for state in State if tally.files[state])
        yield "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{count:,}</dd></div>" for name, count in counts)
        yield f"<div><dt>exit status</dt><dd>{status}</dd></div></dl>"
        if run is not None:
            yield f"<p>Run <code>{run}</code>; <code>latchguard undo {run}</code> takes it back.</p>"
        elif not self._applying:
            yield "<p>Nothing was written.</p>"
        rows = "".join(
            f"<tr><td><code>{rule}</code></td><td class=number>{count:,}</td></tr>"
            for rule, count in sorted(tally.rules.items())
        )
        yield f"<table><thead><tr><th>rule<th>findings</thead><tbody>{rows}</tbody></table>" if rows else ""

    def _section(self, report: FileReport) -> str:
        outcome, plan = report.outcome, report.outcome.plan
        if plan is None:
            return ""
        rows = self._read_rows(report)
        session = f" <small>session {_text(plan.session)}</small>" if plan.session is not None else ""
        findings = (_finding(finding, applying=self._applying) for finding in report.listed)
        omitted = f"<p>{report.omitted:,} more of the same rules.</p>" if report.omitted else ""
        return (
            f"<section><h2>{_text(outcome.source)}{session} <mark>{report.state.value}</mark></h2>"
            f"{_cache_line(rows)}{_fit(findings, '<p>{}</p>')}{omitted}{_timeline(rows, report.listed)}</section>\n"
        )


def _fit(pieces: Iterable[str], rest: str) -> str:
    """Join *pieces* up to half a session's share of the page; *rest* takes the note that there are more."""
    joined: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece.encode())
        if size > _SESSION_BYTES // 2:
            return "".join((*joined, rest.format("The rest stands in the JSON report.")))
        joined.append(piece)
    return "".join(joined)


def _cache_line(rows: Sequence[Row]) -> str:
    place = first_change(rows)
    if not rows:
        return ""
    if place is None:
        return f"<p>All {len(rows):,} messages are shown as before: the provider's cache is kept.</p>"
    row = rows[place]
    return (
        f"<p><strong>The provider's cache is lost from message {place + 1:,} of {len(rows):,} on</strong> "
        f"({_text(row.ref or 'no ref')}, {_text(row.message_id)}): it is the first that is shown with another text.</p>"
    )


def _finding(finding: Finding, *, applying: bool) -> str:
    done = "repaired" if applying else "would be repaired"
    fate = done if finding.applied else "left as it is"
    tool = f", tool <code>{_text(finding.tool_name)}</code>" if finding.tool_name else ""
    note = f"<p>{_text(finding.note)}</p>" if finding.note else ""
    return (
        f"<article><h3><code>{_text(finding.rule)}</code> <small>{finding.repair.value}, {fate}</small></h3>"
        f"<p><code>{_text(finding.path)}</code>{tool}</p>{note}"
        f"<div class=sides><div><h4>before</h4>{_value(finding.before)}</div>"
        f"<div><h4>after</h4>{_value(finding.after)}</div></div></article>"
    )


def _value(value: Any) -> str:
    if value is None:
        return "<p class=none>nothing</p>"
    if isinstance(value, dict):
        members = islice(value.items(), _MEMBERS)
        rows = "".join(f"<tr><th>{_text(str(key))}<td>{_pre(member)}" for key, member in members)
        more = f"<p>{len(value) - _MEMBERS:,} more</p>" if len(value) > _MEMBERS else ""
        return f"<table class=record>{rows}</table>{more}"
    return _pre(value)


def _pre(value: Any) -> str:
    return f"<pre>{_text(value if isinstance(value, str) else dump_json(value).decode(), lines=True)}</pre>"


def _timeline(rows: Sequence[Row], findings: Iterable[Finding]) -> str:
    if not rows:
        return ""
    return (
        "<details open><summary>messages</summary><table class=timeline><thead><tr><th>#<th>ref<th>message"
        "<th>latch sat<th>latch landed<th>shown before<th>shown after</thead><tbody>"
        f"{_fit(_timeline_rows(rows, findings), '<tr class=gap><td colspan=7>{}')}</tbody></table></details>"
    )


def _timeline_rows(rows: Sequence[Row], findings: Iterable[Finding]) -> Iterator[str]:
    gap_start = 0
    for place in sorted(_places_to_show(rows, findings)):
        yield _gap(place - gap_start)
        yield _row(place, rows[place])
        gap_start = place + 1
    yield _gap(len(rows) - gap_start)


def _places_to_show(rows: Sequence[Row], findings: Iterable[Finding]) -> set[int]:
    places = {row.message_id: place for place, row in enumerate(rows)}
    centres = {place for place, row in enumerate(rows) if row.sat or row.landed or row.is_changed}
    for finding in findings:
        for value in (finding.before, finding.after):
            message = value.get("message") if isinstance(value, dict) else None
            if isinstance(message, str) and message in places:
                centres.add(places[message])
    return {
        place for centre in centres for place in range(max(0, centre - _AROUND), min(len(rows), centre + _AROUND + 1))
    }


def _gap(count: int) -> str:
    return f"<tr class=gap><td colspan=7>{count:,} messages without findings" if count else ""


def _row(place: int, row: Row) -> str:
    sat, landed = ("<br>".join(_text(latch) for latch in latches) for latches in (row.sat, row.landed))
    changed = " class=changed" if row.is_changed else ""
    after = _pre(row.after) if row.is_changed else "<span class=none>the same</span>"
    return (
        f"<tr{changed}><td class=number>{place + 1:,}<td>{_text(row.ref or '')}"
        f"<td>{_text(row.role)} {_text(row.kind)}<br><small>{_text(row.message_id)}</small>"
        f"<td>{sat}<td>{landed}<td>{_pre(row.before)}<td>{after}"
    )


def _text(text: str, *, lines: bool = False) -> str:
    """Give *text* for the page: its middle cut out, what is not printable escaped, line ends kept where asked."""
    if len(text) > _HEAD + _TAIL:
        cut = len(text) - _HEAD - _TAIL
        return f"{_text(text[:_HEAD], lines=lines)}<b> … {cut:,} characters … </b>{_text(text[-_TAIL:], lines=lines)}"
    pieces = text.split("\n") if lines else [text]
    return "\n".join(escape_html(escape(piece)) for piece in pieces)
