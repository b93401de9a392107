"""The model may not share anything with what it judges."""

import ast
from pathlib import Path

import latchguard.testing

FOLDER = Path(str(latchguard.testing.__file__)).parent
MODEL = {"model", "fates", "settling", "accounts", "replays", "laws", "protocol"}
ALSO_FREE = MODEL | {"plain", "planted", "host", "dice", "messages"}


def imports_of(stem: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((FOLDER / f"{stem}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_model_imports_nothing_that_it_judges() -> None:
    """Of latchguard the model imports its own files, which do the same: no core, no store."""
    own = {f"latchguard.testing.{stem}" for stem in MODEL}
    for stem in MODEL:
        assert {name for name in imports_of(stem) if name.startswith("latchguard")} <= own


def test_the_planted_kernels_are_not_made_of_the_core() -> None:
    """Nor are the kernels that the laws are tried on, and the host that drives them."""
    for stem in ALSO_FREE:
        assert not {name for name in imports_of(stem) if name.startswith("latchguard.core")}


def test_public_names_exist() -> None:
    """Each name of the package resolves, and is sorted."""
    names = latchguard.testing.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in names if not hasattr(latchguard.testing, name)] == []
