"""`latchguard harden`: one request body from stdin to stdout, what was found to stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from attrs import asdict

from latchguard.cli.status import Status
from latchguard.core.errors import LatchguardError, cut
from latchguard.core.findings import Finding, Repair, Wire
from latchguard.egress.hardening import HardenedJson, harden_json

__all__ = ["harden_command"]

_SCHEMA = 1


@click.command("harden", short_help="Check and repair one request body.")
@click.option(
    "--wire",
    type=click.Choice([wire.value for wire in Wire]),
    help="The wire of the body. Default: told from its shape.",
)
@click.option("--profile", metavar="NAMES", help="What the target demands: names of `latchguard rules --profiles`.")
@click.option(
    "--allow",
    type=click.Choice([repair.value for repair in Repair if repair is not Repair.DETECT]),
    default=Repair.LOSSY.value,
    show_default=True,
    help="The dearest repair to make.",
)
@click.option("--json", "as_json", is_flag=True, help="Write what was found to stderr as one JSON document.")
def harden_command(wire: str | None, profile: str | None, allow: str, *, as_json: bool) -> Status:
    """Check and repair one request body: stdin to stdout, findings to stderr.

    Every byte outside a repaired span is copied. Exit status: 0 clean or repaired, 3 repaired but findings are
    left, 2 no usable body (nothing is written then) or options.
    """
    raw = sys.stdin.buffer.read()
    try:
        result = harden_json(raw, wire, profile=profile, allow=allow)
    except LatchguardError as error:
        raise click.UsageError(str(error)) from error
    sys.stdout.buffer.write(result.raw)
    sys.stdout.buffer.flush()
    _report(result, as_json=as_json)
    return Status.CLEAN if result.clean else Status.LEFT


def _report(result: HardenedJson, *, as_json: bool) -> None:
    if as_json:
        document = {
            "format": "latchguard-harden",
            "schema": _SCHEMA,
            "changed": result.changed,
            "clean": result.clean,
            "failed": result.failed,
            "findings": [asdict(finding) for finding in result.findings],
        }
        click.echo(json.dumps(document), err=True)  # ASCII only: safe for a terminal
        return
    for finding in result.findings:
        click.echo(_line(finding), err=True)
    for slug in result.failed:
        click.echo(f"{slug}: this rule failed and was left out", err=True)


def _line(finding: Finding) -> str:
    tool = f" of tool {cut(finding.tool_name)}" if finding.tool_name is not None else ""
    made = f"{finding.repair} repair {'made' if finding.applied else 'not made'}"
    note = f" ({ascii(finding.note)[1:-1]})" if finding.note else ""
    return f"{finding.rule} at {ascii(finding.path)[1:-1]}{tool}: {made}{note}, found {_shown(finding.before)}"


def _shown(value: Any) -> str:
    return cut(value if isinstance(value, str) else json.dumps(value))
