import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent.parent / "kernels"
JS = f"stdio:node {KERNELS / 'kernel.js'}"


def conform(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the real command."""
    command = [sys.executable, "-c", "from latchguard.cli.main import main; main()", "conform", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_kernel_that_conforms_gives_status_0() -> None:
    """The summary says what was made and what was not checked."""
    done = conform(JS, "--runs", "3", "--steps", "10", "--seed", "5")
    assert done.returncode == 0
    assert done.stdout.startswith("conforms: ")
    assert "seed 5" in done.stdout
    assert "not checked: fork" in done.stdout


def test_a_violation_gives_status_1_and_a_trace_that_replays(tmp_path: Path) -> None:
    """The trace of a failure fails again on the broken kernel, and passes on the right one."""
    done = conform(f"{JS} --identity-less", "--seed", "1", "--trace-dir", str(tmp_path))
    assert done.returncode == 1
    assert "breaks not-into-arguments (I2)" in done.stdout
    (trace,) = tmp_path.glob("*.jsonl")
    again = conform(f"{JS} --identity-less", "--replay", str(trace))
    assert again.returncode == 1
    assert "breaks not-into-arguments (I2)" in again.stdout
    right = conform(JS, "--replay", str(trace))
    assert (right.returncode, right.stdout) == (0, f"{trace.name}: keeps every law\n")


def test_a_broken_protocol_gives_status_4() -> None:
    """Garbage on stdout is no verdict about the laws."""
    done = conform("stdio:echo hello")
    assert done.returncode == 4
    assert "garbage" in done.stderr


def test_a_python_kernel_is_named_by_its_factory() -> None:
    """`python:` names a module and what gives the kernel."""
    done = conform("python:latchguard.testing:CoreKernel", "--runs", "2", "--steps", "10", "--seed", "1")
    assert done.returncode == 0


@pytest.mark.parametrize(
    "spec", ["kernel.js", "stdio:", "python:nowhere:x", "python:latchguard.testing:Nothing", "ftp:x"]
)
def test_what_names_no_kernel_is_a_usage_error(spec: str) -> None:
    """Status 2, and nothing is run."""
    assert conform(spec).returncode == 2


def test_what_is_no_trace_is_a_usage_error(tmp_path: Path) -> None:
    """The message says which line."""
    path = tmp_path / "x.jsonl"
    path.write_text("not json\n")
    done = conform("python:latchguard.testing:CoreKernel", "--replay", str(path))
    assert done.returncode == 2
    assert "line 1" in done.stderr
