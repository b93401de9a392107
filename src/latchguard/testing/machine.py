"""The Hypothesis machine: restamp-then-replay at its centre, shrunk to the shortest run that breaks a law."""

from __future__ import annotations

from hypothesis import event
from hypothesis.stateful import RuleBasedStateMachine, rule

from latchguard.testing.dice import Dice
from latchguard.testing.host import Host
from latchguard.testing.protocol import Kernel
from latchguard.testing.run import Run
from latchguard.testing.strategies import turns

__all__ = ["EVENTS", "RestampReplayMachine"]

EVENTS = ("latch, restamp that moves its ref, replay", "holds twins", "the old ref on a tool call")


class RestampReplayMachine(RuleBasedStateMachine):
    """A host and a kernel, one turn at a time. To subclass: add rules that call `self.run.step(history, op)`.

    One rule does everything, by weights: Hypothesis disables rules at random for a whole run, and a run without
    restamps is of no use here. A turn is one string of bytes (`Dice`), so that shrinking deletes whole turns.

    Args:
        kernel: the kernel under test.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.run = Run(kernel)
        self.host = Host(self.run)

    @rule(turn=turns())
    def turn(self, turn: bytes) -> None:
        """Do one thing that a host does; every reply is held against the laws."""
        self.play(turn)

    def play(self, turn: bytes) -> None:
        """Do what the bytes of *turn* say."""
        self.host.turn(Dice(turn))

    def teardown(self) -> None:
        """Count what the run came across."""
        for name in EVENTS:
            if name in self.host.events:
                event(name)
