"""`latchguard undo`: take a run back."""

from __future__ import annotations

import click

from latchguard.cli.output import complain, plural
from latchguard.cli.repair import backup_dir_option
from latchguard.cli.status import Status, error_status
from latchguard.repair.errors import escape
from latchguard.repair.undo import undo_run

__all__ = ["undo_command"]


@click.command("undo")
@click.argument("run")
@backup_dir_option
def undo_command(run: str, *, backup_dir: str) -> Status:
    """Restore, byte for byte, every file that still holds what RUN wrote.

    A file that changed since is left, and said so. Exit status: 0 all restored (now or before), 10 no such run, or a
    file or its copy is gone, 11 busy, 12 a file changed since and was left, 20 the file system failed.
    """
    status, restored = Status.CLEAN, 0
    for undone in undo_run(backup_dir, run):
        if undone.error is None:
            restored += 1
            click.echo(f"restored {escape(undone.path)}")
        else:
            complain(undone.error)
            status = max(status, error_status(undone.error))
    click.echo(f"{plural(restored, 'file')} restored")
    return status
