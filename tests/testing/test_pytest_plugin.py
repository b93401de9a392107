import subprocess
import sys
from pathlib import Path

KERNEL = Path(__file__).parent.parent / "kernels" / "kernel.js"
TEST = """
from latchguard.testing import check_kernel

def test_kernel(latchguard_kernel):
    check_kernel(latchguard_kernel, runs=3, steps=10, seed=0)
"""


def pytest_in(folder: Path, *args: str) -> str:
    (folder / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_the_option_gives_the_kernel_to_the_fixture(tmp_path: Path) -> None:
    """A test that asks for the kernel gets the one that the option names."""
    assert "1 passed" in pytest_in(tmp_path, "--latchguard-kernel", f"stdio:node {KERNEL}")


def test_without_the_option_the_test_is_skipped(tmp_path: Path) -> None:
    """Nobody who installs the package has failing tests by it."""
    assert "1 skipped" in pytest_in(tmp_path)


def test_the_plugin_imports_nothing_but_pytest_until_used() -> None:
    """The plugin is loaded in every pytest run of whoever has latchguard installed."""
    code = (
        "import sys, pytest, latchguard.testing.pytest_plugin\n"
        "print(sorted({'hypothesis', 'jsonschema', 'attrs', 'cattrs', 'sqlalchemy'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
