"""Entry point of `latchguard`: a table of commands, loaded on use, and the last catch of every error."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from latchguard.cli.status import Status, error_status
from latchguard.core.errors import LatchguardError

__all__ = ["main"]

# command -> module that holds it under `<command>_command`
COMMANDS: Final[Mapping[str, str]] = {
    "conform": "latchguard.cli.conform",
    "db": "latchguard.cli.db",
    "explain": "latchguard.cli.rules",
    "harden": "latchguard.cli.hardening",
    "repair": "latchguard.cli.repair",
    "rules": "latchguard.cli.rules",
    "runs": "latchguard.cli.runs",
    "scan": "latchguard.cli.scan",
    "undo": "latchguard.cli.undo",
    "why": "latchguard.cli.why",
}


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the output went away: end as the system would have ended it, quietly
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.raise_signal(signal.SIGPIPE)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), f"{cmd_name.replace('-', '_')}_command")
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="latchguard")
def latchguard() -> None:
    """Find and repair poisoned LLM conversations, and prove context kernels.

    Exit status: 0 clean or repaired, 1 findings, 2 usage, 3 findings left after a repair, 4 a kernel broke the
    protocol, 10 not found, 11 busy, 12 lost a race, 20 store or file system failed, 70 a bug, 130 interrupted.
    Where the reader of the output goes away, the command ends by SIGPIPE (141 in a shell).
    """


def main() -> None:
    """Run the command line and exit with a documented status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of any encoding shows what it can
    try:
        result = latchguard.main(standalone_mode=False, color=False if os.environ.get("NO_COLOR") else None)
    except click.exceptions.Abort:
        click.echo("latchguard: interrupted; nothing is half done", err=True)
        status = Status.INTERRUPTED
    except click.ClickException as error:
        error.show()
        status = Status.USAGE
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except LatchguardError as error:
        click.echo(f"latchguard: {error}", err=True)
        status = error_status(error)
    except Exception:  # noqa: BLE001  # the last catch: a bug is reported with its traceback and its own status
        traceback.print_exc()
        status = Status.BUG
    else:
        status = Status(result) if isinstance(result, int) else Status.CLEAN
    sys.exit(status)
