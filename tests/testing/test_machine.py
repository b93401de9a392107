import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from latchguard.testing import CoreKernel, RestampReplayMachine, planted
from latchguard.testing.laws import Violation

EXPLICIT = settings(
    max_examples=20,
    stateful_step_count=15,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


class CoreMachine(RestampReplayMachine):
    """The machine on the real core."""

    def __init__(self) -> None:
        super().__init__(CoreKernel())


def test_the_machine_runs_on_the_core() -> None:
    """Hypothesis drives the same host and the same laws."""
    run_state_machine_as_test(CoreMachine, settings=EXPLICIT)


@pytest.mark.long
def test_the_machine_runs_on_the_core_for_long() -> None:
    """300 runs of 40 steps under Hypothesis keep every law."""
    long = settings(EXPLICIT, max_examples=300, stateful_step_count=40)
    run_state_machine_as_test(CoreMachine, settings=long)


def test_a_subclass_adds_a_rule_of_its_own() -> None:
    """A rule of a user's own goes through the laws: a clip that is lost on reload is found."""

    class Machine(RestampReplayMachine):
        def __init__(self) -> None:
            super().__init__(planted.ALL["clip-lost-on-reload"]())

        @rule()
        def reload(self) -> None:
            if self.host.history:
                self.run.step(self.host.history, {"op": "reload"})

    with pytest.raises(Violation) as caught:
        run_state_machine_as_test(Machine, settings=settings(EXPLICIT, max_examples=60))
    assert caught.value.law.name in ("survives-reload", "nothing-vanishes")
