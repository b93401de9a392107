"""Choices out of a string of bytes: one byte a choice, a zero byte the simplest one.

A whole turn of the machine is one draw of Hypothesis. Its shrinker deletes turns as units and lowers bytes one by one,
and a run of 40 turns costs 40 draws, not 400.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["TURN_BYTES", "Dice"]

TURN_BYTES: Final = 24
_T = TypeVar("_T")


class Dice:
    """Choices from *raw*; when it is used up, every choice is the simplest."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._used = bytearray()

    def below(self, count: int) -> int:
        """Choose one of 0 .. *count* - 1."""
        position = len(self._used)
        if position >= len(self._raw) or count < 2:  # noqa: PLR2004  # one option needs no byte
            return 0
        value = self._raw[position] % count
        self._used.append(value)
        return value

    def from_end(self, count: int) -> int:
        """Choose one of 0 .. *count* - 1, the last the simplest: what stands before may go while shrinking."""
        return count - 1 - self.below(count)

    @property
    def used(self) -> bytes:
        """The bytes that were used, each as low as makes the same choice; zeros at the end are left out."""
        return bytes(self._used).rstrip(b"\0")

    def pick(self, options: Sequence[_T]) -> _T:
        """Choose one of *options*, the first the simplest."""
        return options[self.below(len(options))]

    def once_in(self, count: int) -> bool:
        """Say yes once in *count* times; no is simpler."""
        return self.below(count) == count - 1
