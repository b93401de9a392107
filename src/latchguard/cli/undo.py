"""`latchguard undo`: take a run back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from latchguard.cli.output import complain, plural
from latchguard.cli.repair import backup_dir_option
from latchguard.cli.status import Status, error_status
from latchguard.core.errors import LatchguardError
from latchguard.repair.errors import RunNotFoundError, escape
from latchguard.repair.journal import load_run
from latchguard.repair.runs import run_names
from latchguard.repair.undo import Undone, undo_run

__all__ = ["undo_command"]


@click.command("undo", short_help="Take a run back, byte for byte.")
@click.argument("run")
@click.argument("urls", metavar="[URL...]", nargs=-1)
@backup_dir_option
def undo_command(run: str, *, urls: tuple[str, ...], backup_dir: str) -> Status:
    """Restore, byte for byte, every file that still holds what RUN wrote, and row for row the sessions of databases.

    A file or session that changed since is left, and said so. A database is found by the URL that the run noted, which
    has no password; where it needs one, or the run was made on another machine, say URL. Exit status: 0 all restored
    (now or before), 10 no such run, or a file or its copy is gone, 11 busy, 12 a file or session changed since and was
    left, 20 the file system or a database failed.
    """
    status = Status.CLEAN
    counts: Counter[str] = Counter()
    for noun, undone in _undo(backup_dir, run, urls):
        if undone.error is None:
            counts[noun] += 1
            click.echo(f"restored {escape(undone.path)}")
        else:
            complain(undone.error)
            status = max(status, error_status(undone.error))
    told = [plural(count, noun) for noun, count in counts.items()]
    click.echo(f"{' and '.join(told) or plural(0, 'session' if urls else 'file')} restored")
    return status


def _undo(root: str, name: str, urls: Sequence[str]) -> Iterator[tuple[str, Undone]]:
    """Undo what the run did to files, then what it did in databases."""
    known = name in run_names(root)
    if known or not urls:
        yield from (("file", undone) for undone in undo_run(root, name))
        urls = urls or load_run(root, name).databases
    for url in urls:
        from latchguard.repair.database_runs import undo_database  # noqa: PLC0415  # SQLAlchemy: 200 ms

        try:
            yield from (("session", undone) for undone in undo_database(url, name))
        except RunNotFoundError:
            if not known:
                raise
        except LatchguardError as error:
            yield "session", Undone(url, error)
