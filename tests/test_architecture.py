"""The shape of the package: arrows point down, names are free, files and functions stay readable."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import latchguard

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "latchguard"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each area and the areas it may import. What is not listed here may not exist.
MAY_IMPORT = {
    "core": set[str](),
    "wire": {"core", "tools"},
    "egress": {"core", "tools", "wire"},
    "store": {"core"},
    "sources": {"core", "wire", "store"},
    "tools": {"core"},
    "repair": {"core", "wire", "egress", "store", "sources"},
    "migrate": {"core", "wire", "egress", "store", "sources", "repair"},
    "catalogue": {"core", "wire", "egress", "sources", "repair"},
    "integrations": {"core", "wire", "egress", "store"},
    "testing": {"core", "wire", "egress", "store"},
    "cli": {"core", "wire", "egress", "store", "sources", "repair", "migrate", "catalogue", "integrations", "testing"},
    "__main__": {"cli"},
    "__init__": {"core", "wire", "egress", "store"},
}


def area(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(path: Path) -> None:
    """A module imports its own area and the areas below it, nothing else of latchguard."""
    found = {name.split(".")[1] for name in imported(path) if name.startswith("latchguard.")}
    assert found - MAY_IMPORT[area(path)] - {area(path)} == set()


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=lambda path: path.name)
def test_core_knows_no_io(path: Path) -> None:
    """The core imports no clock, logger, database, environment or file."""
    banned = {
        "os",
        "io",
        "time",
        "datetime",
        "logging",
        "pathlib",
        "random",
        "sqlalchemy",
        "click",
        "subprocess",
        "sys",
    }
    assert {name.split(".")[0] for name in imported(path)} & banned == set()


def test_no_module_bears_a_public_name() -> None:
    """Importing a module never rebinds a public function."""
    stems = {part for path in MODULES for part in (path.stem, path.parent.name)}
    assert stems & set(latchguard.__all__) == set()


def test_public_names_are_sorted_and_exist() -> None:
    """`__all__` is sorted and each name resolves."""
    names = latchguard.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in names if not hasattr(latchguard, name)] == []
    assert set(names) == set(latchguard._HOME_OF)
    assert (PACKAGE / "__init__.py").read_text().count("\n") <= 80


def test_import_is_light() -> None:
    """`import latchguard` loads no SQLAlchemy, Alembic, click or Hypothesis."""
    heavy = {"sqlalchemy", "alembic", "click", "hypothesis", "httpx"}
    code = f"import sys, latchguard; print(sorted({heavy} & {{name.split('.')[0] for name in sys.modules}}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path: Path) -> None:
    """At most 400 lines in a file of the core and 600 elsewhere, at most 60 in a function without its docstring."""
    text = path.read_text()
    assert text.count("\n") <= (400 if area(path) == "core" else 600)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert (node.end_lineno or 0) - first.lineno < 60, f"{node.name} is too long"
