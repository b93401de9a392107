"""docs/repair.md is true: its tables are those of the code, its documents fit their schema."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from latchguard.cli.repair import repair_command
from latchguard.cli.runs import runs_command
from latchguard.cli.scan import scan_command
from latchguard.cli.status import Status, error_status
from latchguard.cli.undo import undo_command
from latchguard.core.errors import LatchguardError, SessionNotFoundError
from latchguard.repair import errors as file_errors
from latchguard.sources import errors as source_errors
from tests.repair.command import SICK, latchguard

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "repair.md").read_text()
SCHEMA: dict[str, Any] = json.loads((DOCS / "repair-document.schema.json").read_text())


def table(heading: str) -> list[list[str]]:
    """Give the cells of the table that begins with *heading*."""
    lines = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_every_status_stands_in_the_table() -> None:
    """Number and name of each, in order."""
    written = [(int(number), name) for number, name, _ in table("status")]
    assert written == [(status.value, status.name.lower().replace("_", "-")) for status in Status]


@pytest.mark.parametrize("command", [scan_command, repair_command, undo_command, runs_command])
def test_every_option_stands_in_the_table(command: click.Command) -> None:
    """What --help lists, the page lists too, with the command that takes it."""
    for option in command.params:
        if isinstance(option, click.Option):
            rows = [row for row in table("option") if option.opts[0] in re.findall(r"--[a-z-]+", row[0])]
            assert [command.name in row[1].split(", ") for row in rows] == [True]


def test_every_error_code_stands_in_the_table_with_its_status() -> None:
    """The codes of files, of sources, of a session asked for; one without a status counts as a finding."""
    classes: list[type[LatchguardError]] = [
        member
        for module in (file_errors, source_errors)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, LatchguardError) and not member.__subclasses__()
    ]
    classes.append(SessionNotFoundError)
    expected = {member.code: Status.FINDINGS for member in classes}
    for member in classes:
        expected[member.code] = error_status(member.__new__(member), Status.FINDINGS)
    assert {code: int(status) for code, status, _ in table("code")} == expected


def test_the_example_of_the_page_fits_the_schema() -> None:
    """As its reader would write it."""
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    jsonschema.validate(json.loads(example.replace("<sha-256>", "0" * 64)), SCHEMA)


@pytest.mark.parametrize(
    "argv", [("scan",), ("repair",), ("repair", "--apply"), ("repair", "--apply", "--allow", "lossless")]
)
def test_documents_fit_the_schema(tmp_path: Path, argv: tuple[str, ...]) -> None:
    """With findings, repairs, what is left, and what could not be read."""
    (tmp_path / "sick.json").write_bytes(SICK)
    (tmp_path / "half.json").write_bytes(SICK[:1000])
    document = json.loads(latchguard(*argv, "--json", tmp_path, tmp_path / "gone", state=tmp_path / "state").stdout)
    jsonschema.validate(document, SCHEMA)
    assert len(document["files"]) == 3
