"""Refs and the ref map.

1. A ref is `m` and decimal digits padded to five, growing beyond 99999; there is one spelling per number.
2. `BLOCKED` is the sentinel of protected messages: many share it, it is never a key.
3. Message ids and refs are one to one, but for `BLOCKED`.
4. A new ref comes from the stored cursor, never from the highest ref + 1: a ref is not issued twice.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Final

from attrs import field, frozen

__all__ = ["BLOCKED", "RefMap", "format_ref", "ref_number"]

BLOCKED: Final = "BLOCKED"
FIVE_DIGITS: Final = 10_000
MAX_DIGITS: Final = 4300  # where int() refuses to convert
_REF = re.compile(r"m(?:[0-9]{5}|[1-9][0-9]{5,})", re.ASCII)


def format_ref(number: int) -> str:
    """Give the ref of a *number* from 1 on: `m00001`, ..., `m99999`, `m100000`."""
    # Once per message of a history: `zfill` takes half the time of a format with a width, and twice that of none.
    return f"m{number}" if number >= FIVE_DIGITS else "m" + str(number).zfill(5)


def ref_number(ref: str) -> int | None:
    """Give the number of a *ref*, or None where the text is no ref (`BLOCKED`, another spelling, `m00000`)."""
    return int(ref[1:]) or None if len(ref) < MAX_DIGITS and _REF.fullmatch(ref) else None


@frozen(eq=False)
class RefMap(Mapping[str, str]):
    """An immutable map message id -> ref, with its inverse and the cursor of the next ref.

    As a mapping it reads id -> ref, in the order in which the messages stand in the history.
    """

    _by_id: dict[str, str] = field(factory=dict)
    cursor: int = 1
    _by_ref: dict[str, str] | None = field(default=None, repr=False)  # made when it is asked for; a restamp never does

    @classmethod
    def of(cls, by_id: Mapping[str, str], cursor: int) -> RefMap:
        """Build a map from id -> ref pairs that are one to one, and the number of the next ref."""
        return cls(dict(by_id), cursor)

    def __getitem__(self, message_id: str) -> str:
        return self._by_id[message_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    # The views that `Mapping` derives go through `__getitem__` for every key: 10 times the time of a dict's own.
    def __contains__(self, message_id: object) -> bool:
        return message_id in self._by_id

    def items(self) -> ItemsView[str, str]:
        """Give the pairs of message id and ref."""
        return self._by_id.items()

    def __eq__(self, other: object) -> bool:
        """Compare with a ref map in entries, their order and cursor; with any other mapping in entries."""
        if isinstance(other, RefMap):
            same = self.cursor == other.cursor and self._by_id == other._by_id
            return same and list(self._by_id) == list(other._by_id)
        return self._by_id == other

    def __hash__(self) -> int:
        return hash((self.cursor, frozenset(self._by_id.items())))

    def holder(self, ref: str) -> str | None:
        """Give the id of the message that holds *ref* now, or None."""
        return self._inverse().get(ref)

    def _inverse(self) -> dict[str, str]:
        if self._by_ref is None:
            inverse = {ref: key for key, ref in self._by_id.items() if ref != BLOCKED}
            object.__setattr__(self, "_by_ref", inverse)
            return inverse
        return self._by_ref

    def with_new(self, message_ids: Iterable[str], blocked: frozenset[str]) -> RefMap:
        """Issue a ref to each of *message_ids*, and `BLOCKED` to each id in *blocked*, known or new."""
        by_id, by_ref, cursor = self._by_id.copy(), self._inverse().copy(), self.cursor
        for message_id in message_ids:
            if message_id in blocked:
                by_id[message_id] = BLOCKED
            else:
                ref = format_ref(cursor)
                by_id[message_id], by_ref[ref] = ref, message_id
                cursor += 1
        for message_id in blocked & self.keys():
            by_ref.pop(by_id[message_id], None)
            by_id[message_id] = BLOCKED
        return RefMap(by_id, cursor, by_ref)
