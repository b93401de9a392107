"""The installed wheel brings its migrations along."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import latchguard, pathlib
assert "site-packages" in latchguard.__file__, latchguard.__file__
assert (pathlib.Path(latchguard.__file__).parent / "_migrations" / "env.py").exists()
store = latchguard.SessionStore("sqlite:///%s")
print(store.upgrade())
print(store.append("s", [latchguard.Message("a", "user", "text", "hello")]))
"""


@pytest.mark.long
def test_the_wheel_upgrades_a_database(tmp_path: Path) -> None:
    """Built, installed into a new environment, used from a folder whose name holds a per cent sign."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    [wheel] = tmp_path.glob("*.whl")
    home = tmp_path / "50%s"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    script = SCRIPT % (tmp_path / "own.db")
    done = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True, cwd=home)
    assert done.stdout == "0003\n['m00001']\n"
    ddl = subprocess.run([python, "-m", "latchguard", "db", "sql", "postgresql"], check=True, capture_output=True)
    assert ddl.stdout.count(b"CREATE TABLE") == 8
