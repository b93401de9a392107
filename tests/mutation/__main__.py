"""Runs the tests of a core module against each of its mutants and says which survive.

    python -m tests.mutation [MODULE...]                all modules of the core, or those named
    python -m tests.mutation --harness [MODULE...]      with `latchguard.testing` as the only test

Prints a score per module and the survivors; the status is 1 where a score is below its target. The process loads what
the tests need, then forks a child per mutant that imports the changed module in place of the real one.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, TypeAlias

import attrs
import cattrs
import hypothesis
import orjson
import pytest

from tests.mutation.harness import FEW_RUNS, REACHED, conforms, is_beyond
from tests.mutation.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CORE: Final = ROOT / "src" / "latchguard" / "core"
WORKERS: Final = 2
LEAST_TIMEOUT_S: Final = 10

# The tests of a module are its own file, and those of what it is reached through; the quickest to fail come first.
ALSO: Final[dict[str, Sequence[str]]] = {
    "binding": ("restamping", "no_identity", "state"),
    "identity": ("state", "codec"),
    "latches": ("state", "replaying", "no_identity", "codec"),
    "refs": ("state", "restamping"),
    "replaying": ("no_identity",),
    "restamping": ("binding", "no_identity", "codec"),
    "state": ("replaying", "restamping"),
}
HIGH_TARGET: Final = {"identity", "refs", "latches", "restamping", "replaying", "jsontext", "proof"}
ALL: Final = sorted({path.stem for path in CORE.glob("*.py")} - {"__init__"})


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives *code* for the module *name*."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the one module."""
        return importlib.util.spec_from_loader(name, self, origin=str(self.path)) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant's code."""
        exec(self.code, module.__dict__)  # noqa: S102  # this is what the loader is for


# From the name of a module to 0 where its tests pass in this process.
Judge: TypeAlias = Callable[[str], int]


def run_tests(module: str) -> int:
    """Run the tests of *module*; give pytest's status."""
    hypothesis.settings.register_profile("mutation", database=None, derandomize=True, deadline=None, max_examples=60)
    hypothesis.settings.load_profile("mutation")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-m", "not long", "-k", "not node and not javascript and not every_process"]
    options += ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = 0
    for name in (module, *ALSO.get(module, ())):
        status = status or int(pytest.main([*options, str(ROOT / "tests" / "core" / f"test_{name}.py")]))
    return status


def run_harness(_: str) -> int:
    """Hold the core against the harness."""
    return 0 if conforms() else 1


def run_harness_briefly(_: str) -> int:
    """Hold the core against the harness in a few runs."""
    return 0 if conforms(FEW_RUNS) else 1


def start(module: str, mutant: Mutant | None, timeout_s: int, judge: Judge) -> int:
    """Fork a child that runs the tests quietly on the mutant; give its process id."""
    child = os.fork()
    if child == 0:
        signal.alarm(timeout_s)  # its default action ends the process, whatever that is doing
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        status = 3
        try:
            if mutant is not None:
                sys.meta_path.insert(0, Replaced(f"latchguard.core.{module}", CORE / f"{module}.py", mutant.code))
            status = judge(module)
        finally:
            os._exit(status)
    return child


def survivors_of(module: str, mutants: Sequence[Mutant], timeout_s: int, judge: Judge) -> Iterator[Mutant]:
    """Give the mutants whose tests pass."""
    waiting, running = list(reversed(mutants)), dict[int, Mutant]()
    while waiting or running:
        while waiting and len(running) < WORKERS:
            mutant = waiting.pop()
            running[start(module, mutant, timeout_s, judge)] = mutant
        child, status = os.wait()
        mutant = running.pop(child)
        if status == 0:
            yield mutant


def check(module: str, judge: Judge = run_tests) -> bool:
    """Print the score and survivors of *module*; say whether the target is reached."""
    began = time.monotonic()
    _, status = os.waitpid(start(module, None, 600, judge), 0)
    if status != 0:
        print(f"{module}: its tests fail without a mutant")  # noqa: T201  # a command's output
        return False
    timeout_s = LEAST_TIMEOUT_S + int(4 * (time.monotonic() - began))  # a mutant that runs longer is found
    path = CORE / f"{module}.py"
    mutants = list(mutants_of(path.read_text(), str(path)))
    if judge is run_harness:
        hidden = [mutant for mutant in mutants if is_beyond(module, mutant)]
        hidden = list(survivors_of(module, hidden, timeout_s, run_harness_briefly))
        print(f"{module}: {len(hidden)} of {len(mutants)} mutants are beyond what a kernel can show")  # noqa: T201
        mutants = [mutant for mutant in mutants if mutant not in hidden]
    survivors = sorted(survivors_of(module, mutants, timeout_s, judge), key=lambda mutant: mutant.line)
    score = 1 - len(survivors) / len(mutants)
    target = 0.95 if module in HIGH_TARGET else 0.90
    took = time.monotonic() - began
    print(f"{module:12} {score:7.1%} of {len(mutants):4} mutants (target {target:.0%}, {took:.0f} s)")  # noqa: T201
    for mutant in survivors:
        print(f"    {mutant.line:4} {mutant.function}: {mutant.change}"[:200])  # noqa: T201
    sys.stdout.flush()
    return score >= target


def main() -> int:
    """Check the modules named on the command line, or all."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    options = {name for name in sys.argv[1:] if name.startswith("-")}
    assert options <= {"--harness"}, f"unknown: {options}"
    judge, everything = (run_harness, REACHED) if options else (run_tests, ALL)
    names = [name for name in sys.argv[1:] if name not in options] or everything
    assert not any(name.startswith("latchguard") for name in sys.modules), "the core must be loaded by the children"
    assert all((attrs, cattrs, orjson))  # loaded once, before the forks
    reached = [check(name, judge) for name in names]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
