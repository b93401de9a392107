"""`latchguard scan`: look, and write nothing."""

from __future__ import annotations

from itertools import chain

import click

from latchguard.cli.status import Status
from latchguard.cli.surveying import Survey, look, look_at_databases, report_outcomes, survey_options

__all__ = ["scan_command"]


@click.command("scan")
@survey_options
def scan_command(survey: Survey) -> Status:
    """Find what is wrong with stored sessions. Reads only.

    A SOURCE is a path, a glob, a directory, which is walked to the end, or the URL of a database. Exit status:
    0 nothing wrong, 1 findings, 10 a source is not there, 20 a source cannot be read.
    """
    outcomes = chain((outcome for _, outcome in look(survey)), look_at_databases(survey, verify=True))
    return report_outcomes(outcomes, survey, command="scan", applying=False)
