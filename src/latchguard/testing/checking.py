"""The whole suite as a function: the corpus, purity, random runs; a failure is shrunk, told and written down."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from random import Random

from attrs import field, frozen

from latchguard.testing.dice import TURN_BYTES, Dice
from latchguard.testing.host import Host
from latchguard.testing.laws import Violation, gravity
from latchguard.testing.protocol import CAPABILITIES, Kernel
from latchguard.testing.purity import check_purity
from latchguard.testing.run import Run, Step, check_capabilities
from latchguard.testing.shrinking import Broken, shrink_run, shrink_steps
from latchguard.testing.traces import dump_trace, load_trace, replay_trace, tell

__all__ = ["Conformance", "NonConformanceError", "check_kernel", "check_trace", "corpus_paths"]

_PURITY_RUNS = 12
_MORE_RUNS = 24


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
        asked, events = 0, Counter[str]()
        for run, seen in _make_runs(kernel, runs, steps, seed + 1):  # others than those of the purity check
            asked += len(run.steps)
            events.update(seen)
    except NonConformanceError as error:
        error.seed = seed
        error.trace_path = _write_trace(error, trace_dir)
        raise
    finally:
        if close := getattr(kernel, "close", None):
            close()
    return Conformance(runs, asked, seed, time.monotonic() - started, events, tuple(unchecked))


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
    made = [run for run, _ in _make_runs(kernel, _PURITY_RUNS, steps, seed)]
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


def _make_runs(kernel: Kernel, runs: int, steps: int, seed: int) -> Iterator[tuple[Run, set[str]]]:
    """Make random runs; give each, and which of `machine.EVENTS` occurred in it.

    The turns come from a generator of their own, since what Hypothesis draws for a seed hangs on the constants of all
    the modules that happen to be loaded.
    """
    rng = Random(seed)  # noqa: S311  # a seed is wanted here
    for _ in range(runs):
        turns = _draw_turns(rng, steps)
        host, error = _play(kernel, turns)
        if error is not None:
            raise _shrunk(kernel, *_gravest(kernel, rng, turns, error, steps))
        yield host.run, host.events


def _draw_turns(rng: Random, steps: int) -> list[bytes]:
    return [rng.randbytes(TURN_BYTES) for _ in range(steps)]


def _gravest(
    kernel: Kernel, rng: Random, turns: Sequence[bytes], error: Violation, steps: int
) -> tuple[Sequence[bytes], Violation]:
    """Give the run that breaks the gravest law, of this one and some more: one bug often breaks several."""
    for _ in range(_MORE_RUNS):
        others = _draw_turns(rng, steps)
        _, found = _play(kernel, others)
        if found is not None and gravity(found) < gravity(error):
            turns, error = others, found
    return turns, error


def _shrunk(kernel: Kernel, turns: Sequence[bytes], error: Violation) -> NonConformanceError:
    """Give the error for the smallest run that breaks a law as *turns* do."""
    made: list[Run] = []

    def play(turns: Sequence[bytes]) -> Broken | None:
        used: list[bytes] = []
        host, found = _play(kernel, turns, used)
        made[:] = [host.run]
        return None if found is None else Broken(tuple(used), found)

    def follow(steps: Sequence[Step]) -> tuple[Sequence[Step], Violation] | None:
        run = Run(kernel)
        try:
            replay_trace(run, steps)
        except Violation as found:
            return run.steps, found
        return None

    first = play(turns)
    if first is None:  # only an impure kernel gets here
        return NonConformanceError(made[0].steps, error)
    smallest = shrink_run(first, play)
    final = play(smallest.turns) or smallest
    return NonConformanceError(*shrink_steps(made[0].steps, final.violation, follow))


def _play(kernel: Kernel, turns: Iterable[bytes], used: list[bytes] | None = None) -> tuple[Host, Violation | None]:
    """Make *turns* until a law breaks; add to *used* what was used of each."""
    host = Host(Run(kernel))
    for turn in turns:
        dice = Dice(turn)
        try:
            host.turn(dice)
        except Violation as error:
            return host, error
        finally:
            if used is not None:
                used.append(dice.used)
    return host, None


def _write_trace(error: NonConformanceError, trace_dir: str | Path | None) -> Path | None:
    if trace_dir is None:
        return None
    folder = Path(trace_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{error.violation.law.name}-{error.seed}.jsonl"
    path.write_text(dump_trace(error.steps, error.violation, note=f"seed {error.seed}"), encoding="ascii")
    return path
