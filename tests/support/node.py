"""Node as the second judge: what JavaScript says about JSON and identities."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def run_node(script: Path | str, stdin: str = "") -> str:
    """Run a script file, or source text, with Node and give its output.

    Without Node the test is skipped on a developer's machine; under `CI=true` it fails.
    """
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have Node: it judges the identity vectors and the JSON check")
        pytest.skip("Node is not installed: JavaScript's judgement is not compared")
    argv = [node, str(script)] if isinstance(script, Path) else [node, "-e", script]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
