"""`latchguard runs`: list the runs that are kept, and remove old ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import click

from latchguard.cli.output import complain, plural
from latchguard.cli.repair import backup_dir_option
from latchguard.cli.status import Status, error_status
from latchguard.core.errors import LatchguardError
from latchguard.repair.errors import escape
from latchguard.repair.journal import load_run
from latchguard.repair.runs import forget_run, list_runs, locked_runs, run_age_s, run_names

__all__ = ["runs_command"]

_AGE: Final = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _age_s(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"expected a number and s, m, h, d or w (30d), found {value!r}")
    return int(match[1]) * _UNIT_S[match[2]]


@click.command("runs", short_help="List, prune and forget runs.")
@click.option(
    "--prune", "prune_s", metavar="AGE", callback=_age_s, help="Remove the runs that are older (30d, 12h, 2w)."
)
@click.option("--forget", metavar="RUN", multiple=True, help="Remove this run.")
@click.argument("urls", metavar="[URL...]", nargs=-1)
@backup_dir_option
def runs_command(*, prune_s: int | None, forget: tuple[str, ...], urls: tuple[str, ...], backup_dir: str) -> Status:
    """List the runs that can be undone; with --prune or --forget, remove runs and the copies that they keep.

    Runs and copies hold conversation text. A run that was removed cannot be undone. The journal of a database is found
    by the URL that the run noted, which has no password; where it needs one, say URL. With URL, the runs that a
    database knows are listed, wherever they were made.
    """
    if prune_s is None and not forget:
        return _list_of_databases(urls) if urls else _list(backup_dir)
    status = Status.CLEAN
    with locked_runs(backup_dir):
        old = [name for name in run_names(backup_dir) if prune_s is not None and run_age_s(name) > prune_s]
        for name in dict.fromkeys((*forget, *old)):
            try:
                copies = _forget(backup_dir, name, urls)
                click.echo(f"removed run {name}, and its copies of {plural(copies, 'file')}")
            except LatchguardError as error:
                complain(error)
                status = max(status, error_status(error))
    return status


def _forget(root: str, name: str, urls: Sequence[str]) -> int:
    """Forget a run in its databases, then here; give the number of copies removed."""
    known = name in run_names(root)
    for url in urls or (load_run(root, name).databases if known else ()):
        from latchguard.repair.database_runs import forget_in_database  # noqa: PLC0415  # SQLAlchemy: 200 ms

        forget_in_database(url, name)
    return forget_run(root, name) if known or not urls else 0


def _list_of_databases(urls: Iterable[str]) -> Status:
    from latchguard.repair.database_runs import database_runs  # noqa: PLC0415  # SQLAlchemy: 200 ms

    for url in urls:
        for run in database_runs(url):
            click.echo(f"{run.name}  {plural(run.sessions, 'session')} in {escape(run.target)}: repaired")
    return Status.CLEAN


def _list(root: str) -> Status:
    status = Status.CLEAN
    for run in list_runs(root):
        if isinstance(run, LatchguardError):
            complain(run)
            status = max(status, error_status(run))
            continue
        fates = {"repaired": run.count("done"), "restored": run.count("undone"), "interrupted": run.count(None)}
        told = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)
        if run.entries or not run.databases:
            click.echo(f"{run.name}  {plural(len(run.entries), 'file')}: {told or 'interrupted'}")
        for url in run.databases:
            click.echo(f"{run.name}  {_told_by(url, run.name)}")
    return status


def _told_by(url: str, name: str) -> str:
    """Say what a database knows of a run that was noted here."""
    from latchguard.repair.database_runs import database_runs  # noqa: PLC0415  # SQLAlchemy: 200 ms

    try:
        count = sum(run.sessions for run in database_runs(url) if run.name == name)
    except LatchguardError as error:
        return f"sessions of {escape(url)}: not to be asked ({escape(error.code)})"
    return f"{plural(count, 'session')} of {escape(url)}: {'repaired' if count else 'restored, or none was repaired'}"
