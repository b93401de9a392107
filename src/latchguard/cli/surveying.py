"""What `scan` and `repair` share: their options, and the reports that outcomes are fed to."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol

import click
from attrs import frozen

from latchguard.cli.output import TextReport, complain
from latchguard.cli.progress import show_progress
from latchguard.cli.status import Status, error_status
from latchguard.core.errors import LatchguardError, SessionNotFoundError
from latchguard.core.findings import Repair
from latchguard.core.proof import MARKERS
from latchguard.repair.errors import FileSystemError, escape
from latchguard.repair.files import FileSource, find_files
from latchguard.repair.looking import Outcome, look_at_files
from latchguard.repair.plans import Limits, PlanOptions
from latchguard.repair.repairing import RepairRun
from latchguard.repair.report import FileReport, JsonReport, State, Tally
from latchguard.sources.detect import FORMATS

if TYPE_CHECKING:
    from latchguard.repair.timeline import Row

__all__ = ["Survey", "is_url", "look", "look_at_databases", "report_outcomes", "survey_options"]

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DEFAULTS: Final = Limits()
REPORT_STARTS: Final = (
    b'{"latchguard":',
    b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>latchguard',
)


class Report(Protocol):
    """Where outcomes are written as they come."""

    def add(self, report: FileReport) -> None:
        """Take one file."""

    def end(self, tally: Tally, *, status: int, run: str | None) -> None:
        """Take what is known at the end."""


@frozen
class Survey:
    """What a command line asks for.

    Args:
        sources: paths, globs, directories, URLs of databases.
        plan: what a plan may do.
        format_name: the format of all sources; None to detect it.
        session: the id of the one session that is wanted; None for all.
        jobs: how many processes look.
        as_json: whether stdout gets the JSON document instead of text.
        report: path of a report file, None for none.
    """

    sources: tuple[str, ...]
    plan: PlanOptions
    format_name: str | None
    session: str | None
    jobs: int
    as_json: bool
    report: str | None

    @property
    def urls(self) -> tuple[str, ...]:
        """The sources that are databases."""
        return tuple(source for source in self.sources if is_url(source))

    @property
    def noun(self) -> str:
        """What is counted: files, or the sessions of databases."""
        return {0: "file", len(self.sources): "session"}.get(len(self.urls), "source")


def is_url(source: str) -> bool:
    """Say whether a source is the URL of a database."""
    return _URL.match(source) is not None


def survey_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the options that `scan` and `repair` share, as one `Survey` in its first argument."""

    @wraps(command)
    def called(  # noqa: PLR0913  # one parameter per option, as click hands them over
        *,
        sources: tuple[str, ...],
        allow: str,
        profile: str | None,
        only: Sequence[str],
        skip: Sequence[str],
        marker: Sequence[re.Pattern[str]],
        format_name: str | None,
        session: str | None,
        jobs: int,
        as_json: bool,
        report: str | None,
        max_file_bytes: int,
        max_frame_bytes: int,
        max_depth: int,
        max_nodes: int,
        **rest: Any,
    ) -> Any:
        limits = Limits(max_file_bytes, max_frame_bytes, max_depth, max_nodes)
        markers = (*MARKERS, *marker)
        plan = PlanOptions(Repair(allow), frozenset(only) or None, frozenset(skip), markers, limits, profile)
        return command(Survey(sources, plan, format_name, session, jobs, as_json, report), **rest)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def _split_rules(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    slugs = [slug.strip() for item in value for slug in item.split(",") if slug.strip()]
    for slug in slugs:
        from latchguard.catalogue import find_rule  # noqa: PLC0415  # all rules of requests: only where one is named

        if find_rule(slug) is None:
            raise click.BadParameter(f"no rule is called {escape(slug)}; `latchguard rules` lists them")
    return slugs


def _check_report(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a name whose file is no report: `--report session.json` must not cost a session."""
    if value is None:
        return None
    if not value.endswith((".json", ".html")):
        raise click.BadParameter("expected a name that ends in .json or .html")
    try:
        with open(value, "rb") as file:  # noqa: PTH123  # the path is a string as click gave it
            start = file.read(max(map(len, REPORT_STARTS)))
    except OSError:
        return value  # it is not there, or writing it says why not
    if start and not start.startswith(REPORT_STARTS):
        raise click.BadParameter(f"{escape(value)} is there and is no report; it is left alone")
    return value


def _check_profile(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        from latchguard.egress.profiles import resolve_profile  # noqa: PLC0415  # only where one is named

        try:
            resolve_profile(value)
        except LatchguardError as error:
            raise click.BadParameter(str(error)) from error
    return value


def _compile(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern) for pattern in value]
    except re.error as error:
        raise click.BadParameter(f"expected a regular expression: {error}") from error


_AT_LEAST_ONE: Final = click.IntRange(min=1)
_OPTIONS: Final = (
    click.argument("sources", metavar="SOURCE...", nargs=-1, required=True),
    click.option("--only", metavar="RULE", multiple=True, callback=_split_rules, help="Look at these rules only."),
    click.option("--skip", metavar="RULE", multiple=True, callback=_split_rules, help="Pass over these rules."),
    click.option(
        "--allow",
        type=click.Choice([repair.value for repair in Repair if repair is not Repair.DETECT]),
        default=Repair.PLACEHOLDER.value,
        show_default=True,
        help="The dearest repair that is made.",
    ),
    click.option(
        "--profile", metavar="NAMES", callback=_check_profile,
        help="What the target of stored request bodies demands: names of `latchguard rules --profiles`.",
    ),
    click.option("--format", "format_name", type=click.Choice(FORMATS), help="The sources' format; else detected."),
    click.option("--session", metavar="ID", help="Look at this session only."),
    click.option(
        "--marker", metavar="REGEX", multiple=True, callback=_compile,
        help="What stands between head and tail of a clip, beside the markers that are known.",
    ),
    click.option("--jobs", metavar="N", type=_AT_LEAST_ONE, default=1, show_default=True, help="Processes that look."),
    click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout."),
    click.option(
        "--report", metavar="FILE", callback=_check_report, help="Write a report too, to FILE.json or FILE.html."
    ),
    click.option("--max-file-bytes", type=_AT_LEAST_ONE, default=_DEFAULTS.file_bytes, help="Larger files are left."),
    click.option(
        "--max-frame-bytes", type=_AT_LEAST_ONE, default=_DEFAULTS.frame_bytes,
        help="Files that decompress to more are left.",
    ),
    click.option("--max-depth", type=_AT_LEAST_ONE, default=_DEFAULTS.depth, help="Deeper nested files are left."),
    click.option("--max-nodes", type=_AT_LEAST_ONE, default=_DEFAULTS.nodes, help="Files of more values are left."),
)  # fmt: skip


def look(survey: Survey) -> Iterator[tuple[FileSource, Outcome]]:
    """Look at the files of *survey*; those that hold another session than the one that is wanted are left out."""
    gc.freeze()  # what was imported is passed over by every collection from now on
    files = find_files([source for source in survey.sources if not is_url(source)])
    looked = look_at_files(files, format_name=survey.format_name, options=survey.plan, jobs=survey.jobs)
    for source, outcome in looked:
        if survey.session is None or outcome.plan is None or outcome.plan.session == survey.session:
            yield source, outcome


def look_at_databases(survey: Survey, *, verify: bool = False) -> Iterator[Outcome]:
    """Look at the databases of *survey*, session by session.

    Args:
        survey: what was asked for.
        verify: whether those in which nothing waits for a repair are verified from outside as well.
    """
    for url in survey.urls:
        from latchguard.repair.database_runs import look_at_database  # noqa: PLC0415  # SQLAlchemy: 200 ms

        yield from look_at_database(url, session=survey.session, options=survey.plan, verify=verify)


def report_outcomes(
    outcomes: Iterable[Outcome], survey: Survey, *, command: str, applying: bool, run: RepairRun | None = None
) -> Status:
    """Feed *outcomes* to the reports as they come, and give the exit status: the highest that occurred.

    Args:
        outcomes: one per source, in order.
        survey: what was asked for.
        command: `scan` or `repair`.
        applying: whether repairs are made.
        run: what makes them.
    """
    tally = Tally(applying)
    status, sessions = Status.CLEAN, 0
    with _open_reports(survey, command=command, applying=applying, run=run) as reports:
        for outcome in show_progress(outcomes, f"{survey.noun}s"):
            sessions += outcome.plan is not None
            report = tally.take(outcome)
            status = max(status, _file_status(report, applying=applying))
            for sink in reports:
                sink.add(report)
        if survey.session is not None and not sessions:
            missing = SessionNotFoundError(survey.session)
            complain(missing)
            status = max(status, error_status(missing))
        for sink in reports:
            sink.end(tally, status=status, run=run.name if run and run.replaced else None)
    return status


def _file_status(report: FileReport, *, applying: bool) -> Status:
    wrong = Status.LEFT if applying else Status.FINDINGS
    if report.state is State.FAILED and report.outcome.error is not None:
        return error_status(report.outcome.error, wrong)
    return wrong if report.state in (State.FINDINGS, State.LEFT) else Status.CLEAN


@contextmanager
def _open_reports(survey: Survey, *, command: str, applying: bool, run: RepairRun | None) -> Iterator[list[Report]]:
    def json_report(write: Callable[[str], object]) -> JsonReport:
        return JsonReport(write, command=command, applying=applying, allow=survey.plan.allow.value)

    def read_rows(report: FileReport) -> Sequence[Row]:
        from latchguard.repair.timeline import read_old_bytes, read_timeline  # noqa: PLC0415  # for this report only

        plan = report.outcome.plan
        if plan is None:
            return ()
        raw = read_old_bytes(report.outcome.source, run.name if run else None, plan.before)
        return () if raw is None else read_timeline(raw, plan, survey.plan.limits)

    with ExitStack() as closing:
        text = TextReport(applying=applying, noun=survey.noun, root=run.root if run else None)
        reports: list[Report] = [json_report(lambda piece: click.echo(piece, nl=False)) if survey.as_json else text]
        if survey.report is not None:
            write = closing.enter_context(_report_file(survey.report))
            if survey.report.endswith(".html"):
                from latchguard.repair.htmlreport import HtmlReport  # noqa: PLC0415  # for this report only

                reports.append(HtmlReport(write, command=command, applying=applying, read_rows=read_rows))
            else:
                reports.append(json_report(write))
        yield reports


@contextmanager
def _report_file(path: str) -> Iterator[Callable[[str], object]]:
    """Write a report for its reader alone (it holds conversation text); the file appears when it is whole."""
    part = f"{path}.latchguard-report"  # a name that no scan of this directory takes for a session
    try:
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                yield file.write
            os.replace(part, path)  # noqa: PTH105  # the path is a string as click gave it
        except BaseException:
            os.unlink(part)  # noqa: PTH108  # the same
            raise
    except BrokenPipeError:
        raise  # of stdout, not of the report
    except OSError as error:
        raise FileSystemError("write the report", path, error.errno or 0, error.strerror or str(error)) from error
