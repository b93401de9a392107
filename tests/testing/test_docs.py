"""What docs/harness.md says is run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from latchguard.testing import CAPABILITIES, LAWS, StdioKernel
from latchguard.testing.protocol import OPS, REASONS, Json

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "harness.md").read_text(encoding="utf-8")
KERNEL = ROOT / "tests" / "kernels" / "kernel.js"


def blocks(language: str) -> list[str]:
    """Give the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def conform(folder: Path, code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `latchguard conform` on *code* as the tutorial does."""
    (folder / "mykernel.py").write_text(code)
    command = "from latchguard.cli.main import main; main()"
    argv = [sys.executable, "-c", command, "conform", "python:mykernel:Kernel", "--seed", "1", *args]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_the_tutorials_kernel_is_found_as_the_tutorial_tells(tmp_path: Path) -> None:
    """The counterexample on the page is what the command prints."""
    buggy, told = blocks("python")[0], blocks("console")[0]
    done = conform(tmp_path, buggy)
    assert buggy.count("\n") <= 40
    assert done.returncode == 1
    assert done.stdout == told.partition("\n")[2]


def test_the_tutorials_fix_conforms(tmp_path: Path) -> None:
    """With the fix of the page the suite passes."""
    done = conform(tmp_path, blocks("python")[1], "--runs", "15", "--steps", "25")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("conforms: ")


def test_the_transcript_is_what_is_said() -> None:
    """Each request of the page gets the reply of the page."""
    lines = blocks("transcript")[0].splitlines()
    asked = [line[2:] for line in lines if line.startswith("> ")]
    told = [json.loads(line[2:]) for line in lines if line.startswith("< ")]
    done = subprocess.run(
        ["node", KERNEL], input="".join(line + "\n" for line in asked), capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == told
    assert {next(key for key in json.loads(line) if key != "id") for line in asked} == {"hello", "step", "bye"}


MESSAGE: Json = {"id": "h1", "role": "user", "kind": "text", "text": "x", "tool_name": None, "tool_call_id": None}


@pytest.mark.parametrize(("language", "command"), [("js", ["node", "-"]), ("python shim", [sys.executable])])
def test_the_shims_speak_the_protocol(language: str, command: list[str], tmp_path: Path) -> None:
    """A shim with nothing in it answers hello, step and bye."""
    path = tmp_path / ("shim.js" if language == "js" else "shim.py")
    path.write_text(blocks(language)[0])
    with StdioKernel([command[0], str(path)]) as kernel:
        reply = kernel.step(None, [MESSAGE], {"op": "append", "ids": ["h1"]})
    assert reply["view"] == [{"id": "h1", "text": "x"}]


def test_the_page_lists_what_there_is() -> None:
    """Laws, capabilities, ops and reasons of the page are those of the code, in their order."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (I\d+|-) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [(law.name, law.invariant, law.sentence) for law in LAWS.values()]
    for name, sentence in CAPABILITIES.items():
        assert f"| `{name}` | {sentence} |" in PAGE
    for name in OPS:
        assert f"| `{name}` |" in PAGE
    for reason in REASONS:
        assert f"`{reason}`" in PAGE
