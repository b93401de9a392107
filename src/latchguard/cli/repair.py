"""`latchguard repair`: say what would be repaired, or repair it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import click

from latchguard.cli.output import complain, plural
from latchguard.cli.status import Status
from latchguard.cli.surveying import Survey, look, look_at_databases, report_outcomes, survey_options
from latchguard.core.errors import LatchguardError
from latchguard.repair.looking import Outcome
from latchguard.repair.repairing import RepairRun, repair_file, repair_run
from latchguard.repair.runs import default_root

__all__ = ["backup_dir_option", "repair_command"]

backup_dir_option = click.option(
    "--backup-dir",
    metavar="DIR",
    default=default_root,
    help="Where runs are kept (journals and plans; the copies lie beside their files). "
    "Default: latchguard/runs in $XDG_STATE_HOME or ~/.local/state.",
)


@click.command("repair")
@survey_options
@click.option("--apply", "applying", is_flag=True, help="Repair. Without it nothing is written.")
@backup_dir_option
def repair_command(survey: Survey, *, applying: bool, backup_dir: str) -> Status:
    """Repair stored sessions. A dry run, unless --apply is given.

    A SOURCE is a path, a glob, a directory, which is walked to the end, or the URL of a SessionStore's database.

    Stop the process that writes the files first: at its next save it would overwrite the repair. Before a file is
    replaced, its bytes are copied beside it (.latchguard-RUN); `latchguard undo RUN` takes a run back.

    Exit status: 0 nothing wrong, or all repaired and checked again, 1 findings (dry run), 3 repaired but findings are
    left, 10 a source is not there, 11 busy, 12 a file changed meanwhile and was left, 20 the file system failed.
    """
    if not applying:
        outcomes = chain((outcome for _, outcome in look(survey)), look_at_databases(survey))
        return report_outcomes(outcomes, survey, command="repair", applying=False)
    with repair_run(backup_dir) as run:
        _tell_recovered(run)
        return report_outcomes(_repair(run, survey), survey, command="repair", applying=True, run=run)


def _repair(run: RepairRun, survey: Survey) -> Iterator[Outcome]:
    for source, outcome in look(survey):
        if outcome.plan is not None and outcome.plan.steps:
            yield repair_file(run, source, format_name=survey.format_name, options=survey.plan)
        else:
            yield outcome
    for url in survey.urls:
        from latchguard.repair.database_runs import repair_database  # noqa: PLC0415  # SQLAlchemy: 200 ms

        yield from repair_database(url, run, session=survey.session, options=survey.plan)


def _tell_recovered(run: RepairRun) -> None:
    for recovered in run.recovered:
        if isinstance(recovered, LatchguardError):
            complain(recovered)
        else:
            done = plural(recovered.count("done"), "file")
            click.echo(f"latchguard: run {recovered.name} was interrupted; settled, with {done} repaired", err=True)
