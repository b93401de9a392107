"""The harness as the only judge of a mutant: the corpus of old failures, then random runs of the real core.

Nothing is shrunk, told or run in a new process, which would load the core without the mutant.
"""

from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

__all__ = ["REACHED", "conforms"]

# What the harness reaches: the core that a `CoreKernel` is made of. The rest is no part of a kernel's contract.
REACHED: Final = ("binding", "identity", "latches", "message", "refs", "replaying", "restamping", "state")
RUNS: Final = 300
STEPS: Final = 40


def conforms() -> bool:
    """Say whether the core, as this process loads it, keeps every law."""
    try:
        for check in _checks():
            check()
    except Exception:  # noqa: BLE001  # a mutant may fail in any way; each is found
        return False
    return True


def _checks() -> tuple[Callable[[], None], ...]:
    from latchguard.testing import CoreKernel, RestampReplayMachine  # noqa: PLC0415  # the mutant stands in first
    from latchguard.testing.checking import corpus_paths  # noqa: PLC0415
    from latchguard.testing.run import Run  # noqa: PLC0415
    from latchguard.testing.traces import load_trace, replay_trace  # noqa: PLC0415

    def replay_corpus() -> None:
        for path in corpus_paths():
            header, steps = load_trace(path)
            run = Run(CoreKernel())
            if run.capabilities.issuperset(header.get("needs", ())):
                replay_trace(run, steps)

    class Machine(RestampReplayMachine):
        def __init__(self) -> None:
            super().__init__(CoreKernel())

    def run_machine() -> None:
        options = settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(seed(0)(Machine), settings=options)

    return replay_corpus, run_machine
