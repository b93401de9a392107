"""The small scope, exhausted: what goes wrong with long histories mostly goes wrong with short ones too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Final

from latchguard.testing.checking import NonConformanceError
from latchguard.testing.laws import Violation
from latchguard.testing.protocol import Json, Kernel
from latchguard.testing.run import Run

__all__ = ["check_small_scope"]

# Three identities: two that may carry a latch and differ in their role alone, and one that may not and differs from
# the second in its kind alone.
_IDENTITIES: Final = (("user", "text"), ("assistant", "text"), ("assistant", "tool-call"))
_MOST_MESSAGES: Final = 4
_LATCHABLE: Final = (0, 1)
_CLIPS: Final = ("clip 1", "clip 2")


def check_small_scope(kernel: Kernel) -> int:
    """Try every history of at most 4 messages over 3 identities, with at most 2 latches, and every two-step restamp.

    A two-step restamp goes to every order of every part of the history, some ids kept and some given anew, and from
    there back to the whole. Histories that differ in the names of their messages alone are tried once.

    Args:
        kernel: the kernel under test.

    Returns:
        How many histories, with latches and restamps, were tried.

    Raises:
        NonConformanceError: a law is broken.
        ProtocolError: the kernel does not speak the protocol.
    """
    count = 0
    for history, latches in _starts():
        prefix = _start(kernel, history, latches)
        for first in _restamps(history):
            count += 1
            run = _start(kernel, history, latches) if "impure" in prefix.capabilities else prefix.fork()
            try:
                run.step(first, {"op": "restamp"})
                run.step(history, {"op": "restamp"})
            except Violation as error:
                raise NonConformanceError(run.steps, error) from error
    return count


def _message(message_id: str, role: str, kind: str) -> Json:
    return {"id": message_id, "role": role, "kind": kind, "text": "t", "tool_name": None, "tool_call_id": None}


def _starts() -> Iterator[tuple[list[Json], list[tuple[int, str]]]]:
    for size in range(1, _MOST_MESSAGES + 1):
        for picks in product(range(len(_IDENTITIES)), repeat=size):
            if [pick for pick in picks if pick in _LATCHABLE][:1] == [1]:
                continue  # the first two identities are alike for the laws: start with the first
            history = [_message(f"h{number}", *_IDENTITIES[pick]) for number, pick in enumerate(picks, 1)]
            able = [position for position, pick in enumerate(picks) if pick in _LATCHABLE]
            yield history, []
            for position in able:
                yield history, [(position, _CLIPS[0])]
            for one, other in product(able, repeat=2):
                if one < other:
                    yield history, [(one, _CLIPS[0]), (other, _CLIPS[0])]
                    yield history, [(one, _CLIPS[0]), (other, _CLIPS[1])]


def _start(kernel: Kernel, history: Sequence[Json], latches: Sequence[tuple[int, str]]) -> Run:
    run = Run(kernel, repeats=False)
    try:
        run.step(history, {"op": "append", "ids": [message["id"] for message in history]})
        for position, text in latches:
            run.step(history, {"op": "latch", "id": history[position]["id"], "text": text})
    except Violation as error:
        raise NonConformanceError(run.steps, error) from error
    return run


def _restamps(history: Sequence[Json]) -> Iterator[list[Json]]:
    """Give every order of every part of *history*, the first or all ids of it given anew or kept."""
    for size in range(len(history) + 1):
        for part in permutations(history, size):
            yield list(part)
            for renamed in {1, size} - {0} if size else ():
                yield [
                    {**message, "id": f"n{number}"} if number < renamed else message
                    for number, message in enumerate(part)
                ]
