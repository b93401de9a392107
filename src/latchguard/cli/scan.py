"""`latchguard scan`: look, and write nothing."""

from __future__ import annotations

import click

from latchguard.cli.status import Status
from latchguard.cli.surveying import Survey, look, report_outcomes, survey_options

__all__ = ["scan_command"]


@click.command("scan")
@survey_options
def scan_command(survey: Survey) -> Status:
    """Find what is wrong with stored sessions. Reads only.

    A SOURCE is a path, a glob, or a directory, which is walked to the end. Exit status: 0 nothing wrong, 1 findings,
    10 a source is not there, 20 a source cannot be read.
    """
    return report_outcomes((outcome for _, outcome in look(survey)), survey, command="scan", applying=False)
