"""The whole suite as a function: the corpus, purity, the machine; a failure is shrunk, told and written down."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from random import Random

from attrs import field, frozen
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import seed as with_seed
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import run_state_machine_as_test

from latchguard.testing.dice import TURN_BYTES, Dice
from latchguard.testing.errors import ProtocolError
from latchguard.testing.host import Host
from latchguard.testing.laws import Violation
from latchguard.testing.machine import RestampReplayMachine
from latchguard.testing.protocol import CAPABILITIES, Kernel
from latchguard.testing.purity import check_purity
from latchguard.testing.run import Run, Step, check_capabilities
from latchguard.testing.shrinking import Broken, shrink_run
from latchguard.testing.traces import dump_trace, load_trace, replay_trace, tell

__all__ = ["Conformance", "NonConformanceError", "check_kernel", "check_trace", "corpus_paths"]

_PURITY_RUNS = 12


@frozen
class Conformance:
    """What was checked, of a kernel that conforms.

    Args:
        runs: how many runs the machine made.
        steps: how many steps the kernel was asked for in them.
        seed: what to give to have the same runs again.
        seconds: how long it all took.
        events: in how many runs each of `machine.EVENTS` occurred.
        unchecked: what could not be checked, in words: capabilities that are not declared, a new process that could
            not be had.
    """

    runs: int
    steps: int
    seed: int
    seconds: float
    events: Counter[str] = field(factory=Counter)
    unchecked: Sequence[str] = ()


class NonConformanceError(AssertionError):
    """A kernel broke a law.

    Args:
        steps: the shortest run that was found to break it; the last step breaks it.
        violation: the law, and what was expected and found.
        seed: what to give to find it again; None for a trace.
        trace_path: where the trace was written, if it was.
    """

    def __init__(
        self, steps: Sequence[Step], violation: Violation, seed: int | None = None, trace_path: Path | None = None
    ) -> None:
        super().__init__(violation.law.name)
        self.steps, self.violation, self.seed, self.trace_path = steps, violation, seed, trace_path

    def __str__(self) -> str:
        text = tell(self.steps, self.violation)
        text += f"\nseed {self.seed}" if self.seed is not None else ""
        return text + (f"\ntrace {self.trace_path}" if self.trace_path else "")


class _Stop(BaseException):
    """Carries what must not be shrunk, past Hypothesis."""


def check_kernel(
    kernel: Kernel,
    runs: int = 300,
    steps: int = 40,
    seed: int | None = None,
    trace_dir: str | Path | None = None,
) -> Conformance:
    """Hold *kernel* against every law: the corpus of old failures, purity, then random runs.

    Args:
        kernel: the kernel under test.
        runs: how many random runs.
        steps: how many turns a run has; a turn is one step, a few where a crash is tried.
        seed: what to start from; a new one if None. It is in the result and in the error.
        trace_dir: where a trace of the failure is written; made if it is not there.

    Returns:
        What was checked.

    Raises:
        NonConformanceError: a law is broken. Its text is the shortest run that was found, told step by step.
        ProtocolError: the kernel does not speak the protocol.

    Guarantees:
        The same seed makes the same runs. Nothing is stored but the trace.
    """
    started = time.monotonic()
    seed = secrets.randbits(32) if seed is None else seed
    unchecked = [f"{name}: {CAPABILITIES[name]}" for name in CAPABILITIES if name not in check_capabilities(kernel)]
    unchecked = [text for text in unchecked if not text.startswith("impure")]
    try:
        for path in corpus_paths():
            _run_trace(kernel, path)
        if not _check_purity(kernel, steps, seed):
            unchecked.append("pure: in a new process")
        machine = _run_machine(kernel, runs, steps, seed)
    except NonConformanceError as error:
        error.seed = seed
        error.trace_path = _write_trace(error, trace_dir)
        raise
    finally:
        if close := getattr(kernel, "close", None):
            close()
    count, asked, events = machine
    return Conformance(count, asked, seed, time.monotonic() - started, events, tuple(unchecked))


def corpus_paths() -> list[Path]:
    """Give the traces of the corpus, in order of their names."""
    folder = resources.files("latchguard.testing") / "corpus"
    return sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".jsonl"))


def check_trace(kernel: Kernel, path: Path) -> bool:
    """Run a trace on *kernel*, each step held against every law.

    Returns:
        False where the trace needs a capability that the kernel does not declare, and was not run.

    Raises:
        NonConformanceError: a law is broken.
        ProtocolError: the kernel does not speak the protocol.
        TraceError: the file is no trace.
    """
    run = _run_trace(kernel, path)
    if run is not None and "impure" not in run.capabilities:
        try:
            check_purity(kernel, run.asks)
        except Violation as error:
            raise NonConformanceError(run.steps[: error.position + 1], error) from error
    return run is not None


def _run_trace(kernel: Kernel, path: Path) -> Run | None:
    header, steps = load_trace(path)
    run = Run(kernel)
    if not run.capabilities.issuperset(header.get("needs", ())):
        return None
    try:
        replay_trace(run, steps)
    except Violation as error:
        raise NonConformanceError(run.steps, error) from error
    return run


def _check_purity(kernel: Kernel, steps: int, seed: int) -> bool:
    """Make some runs, and every step of them again. Gives whether a new process could be had."""
    if "impure" in kernel.capabilities:
        return True
    rng = Random(seed)  # noqa: S311  # a seed is wanted here
    made: list[Run] = []
    for _ in range(_PURITY_RUNS):
        turns = [rng.randbytes(TURN_BYTES) for _ in range(steps)]
        run, error = _play(kernel, turns)
        if error is not None:
            raise _shrunk(kernel, turns, error)
        made.append(run)
    made.sort(key=lambda run: len(run.steps))
    asks = [ask for run in made for ask in run.asks]
    try:
        return check_purity(kernel, asks)
    except Violation as error:
        position = error.position
        for run in made:
            if position < len(run.asks):
                raise NonConformanceError(run.steps[: position + 1], error) from error
            position -= len(run.asks)
        raise


def _run_machine(kernel: Kernel, runs: int, steps: int, seed: int) -> tuple[int, int, Counter[str]]:
    turns: list[bytes] = []
    events: Counter[str] = Counter()
    made = asked = 0

    class Machine(RestampReplayMachine):
        def __init__(self) -> None:
            super().__init__(kernel)
            turns.clear()

        def play(self, turn: bytes) -> None:
            turns.append(turn)
            try:
                super().play(turn)
            except ProtocolError as error:
                raise _Stop from error

        def teardown(self) -> None:
            nonlocal made, asked
            super().teardown()
            made, asked = made + 1, asked + len(self.run.steps)
            events.update(self.host.events)

    settings = hypothesis_settings(
        max_examples=runs,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    try:
        run_state_machine_as_test(with_seed(seed)(Machine), settings=settings)
    except Violation as error:
        raise _shrunk(kernel, list(turns), error) from error
    except _Stop as stop:
        raise stop.__cause__ or stop from None
    return made, asked, events


def _shrunk(kernel: Kernel, turns: Sequence[bytes], error: Violation) -> NonConformanceError:
    """Give the error for the smallest run that breaks a law as *turns* do."""
    last: list[Run] = []

    def play(turns: Sequence[bytes]) -> Broken | None:
        used: list[bytes] = []
        run, found = _play(kernel, turns, used)
        last[:] = [run]
        return None if found is None else Broken(tuple(used), found)

    first = play(turns)
    if first is None:  # only an impure kernel gets here
        return NonConformanceError(last[0].steps, error)
    smallest = shrink_run(first, play)
    final = play(smallest.turns)
    return NonConformanceError(last[0].steps, (final or smallest).violation)


def _play(kernel: Kernel, turns: Iterable[bytes], used: list[bytes] | None = None) -> tuple[Run, Violation | None]:
    """Make *turns* until a law breaks; add to *used* what was used of each."""
    run = Run(kernel)
    host = Host(run)
    for turn in turns:
        dice = Dice(turn)
        try:
            host.turn(dice)
        except Violation as error:
            return run, error
        finally:
            if used is not None:
                used.append(dice.used)
    return run, None


def _write_trace(error: NonConformanceError, trace_dir: str | Path | None) -> Path | None:
    if trace_dir is None:
        return None
    folder = Path(trace_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{error.violation.law.name}-{error.seed}.jsonl"
    path.write_text(dump_trace(error.steps, error.violation, note=f"seed {error.seed}"), encoding="ascii")
    return path
