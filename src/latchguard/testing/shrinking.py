"""Shrink a run of turns that breaks a law: delete turns, then lower bytes, as long as a law as grave is broken.

Hypothesis finds the run; this shrinks it, since a turn is its bytes: a few hundred re-runs, no stall, and the same
result for the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from latchguard.testing.laws import LAWS, Violation

__all__ = ["Broken", "shrink_run"]

_MOST_TRIES = 1_000
_GRAVITY = {name: rank for rank, name in enumerate(LAWS)}


@frozen
class Broken:
    """A run that breaks a law: its turns, in the bytes that were used of them, and the violation."""

    turns: tuple[bytes, ...]
    violation: Violation


def shrink_run(broken: Broken, run: Callable[[Sequence[bytes]], Broken | None]) -> Broken:
    """Give the smallest run that is found to break a law as grave as *broken* does.

    Args:
        broken: the run as it was found.
        run: makes the turns and gives what broke, with the turns as they were used, or None.
    """
    search = _Search(broken, run)
    before = None
    while before != search.best.turns and search.tries < _MOST_TRIES:
        before = search.best.turns
        search.delete_turns()
        search.shorten_turns()
        search.lower_bytes()
    return search.best


@define
class _Search:
    best: Broken
    run: Callable[[Sequence[bytes]], Broken | None]
    tries: int = 0
    seen: set[tuple[bytes, ...]] = field(factory=set)

    def accept(self, *parts: Sequence[bytes]) -> bool:
        """Try the turns of *parts*; keep them where they are smaller and break a law as grave."""
        turns = tuple(turn for part in parts for turn in part)
        if turns in self.seen or self.tries >= _MOST_TRIES:
            return False
        self.seen.add(turns)
        self.tries += 1
        found = self.run(turns)
        if found is None or _key(found) >= _key(self.best):
            return False
        self.best = found
        return True

    def delete_turns(self) -> None:
        size = max(1, len(self.best.turns) // 2)
        while size:
            start = len(self.best.turns) - size
            while start >= 0:
                turns = self.best.turns
                self.accept(turns[:start], turns[start + size :])
                start = min(start, len(self.best.turns)) - size
            size //= 2

    def shorten_turns(self) -> None:
        for index in range(len(self.best.turns)):
            for length in range(len(self.best.turns[index]) if index < len(self.best.turns) else 0):
                turns = self.best.turns
                if index < len(turns) and self.accept(turns[:index], (turns[index][:length],), turns[index + 1 :]):
                    break

    def lower_bytes(self) -> None:
        for index in range(len(self.best.turns)):
            position = 0
            while index < len(self.best.turns) and position < len(self.best.turns[index]):
                turns, turn = self.best.turns, self.best.turns[index]
                value = turn[position]
                lower = [bytes((other,)) for other in dict.fromkeys((0, value // 2, value - 1)) if 0 <= other < value]
                for changed in (b"", *lower):
                    new = turn[:position] + changed + turn[position + 1 :]
                    if self.accept(turns[:index], (new,), turns[index + 1 :]):
                        break
                else:
                    position += 1


def _key(broken: Broken) -> tuple[int, int, int, Sequence[bytes]]:
    turns = broken.turns
    return _GRAVITY[broken.violation.law.name], len(turns), sum(map(len, turns)), turns
