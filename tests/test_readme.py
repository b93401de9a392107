"""The README is true: its Python runs, and its commands print what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
SET_UP = ("make demo", "make test")  # what CI runs by itself, or is this very suite


def blocks(language: str) -> Iterator[str]:
    for fence in FENCE.finditer(README.read_text()):
        if fence["language"] == language:
            yield fence["body"]


def commands() -> Iterator[tuple[str, str]]:
    """Give each command of the console blocks with the output that the README shows for it."""
    for block in blocks("console"):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = entry.partition("\n")
            yield command.partition("  # ")[0].strip(), output


def matches(expected: str, found: str) -> bool:
    """Compare line by line, where `...` stands for any text, lines included."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block runs, in order, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    found = list(blocks("python"))
    for block in found:
        exec(compile(block, str(README), "exec"), namespace)  # noqa: S102  # that is the point
    assert len(found) > 1


def test_the_commands_of_the_readme_print_what_it_says(tmp_path: Path) -> None:
    """Every command of the README, run in order in one folder beside the samples, prints what stands below it."""
    for folder in ("examples", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment.pop("XDG_STATE_HOME", None)
    run = [(command, output) for command, output in commands() if command not in SET_UP]
    for command, expected in run:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        found = done.stdout + done.stderr
        assert matches(expected, found), f"$ {command}\nexpected:\n{expected}\nfound:\n{found}"
    assert len(run) > 1


def test_the_links_of_the_readme_lead_somewhere() -> None:
    """Every relative link names a file."""
    links = re.findall(r"\]\(([^):]+)\)", README.read_text())
    assert [link for link in links if not (ROOT / link).is_file()] == []
