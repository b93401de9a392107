"""Change values inside JSON bytes and copy every other byte: the repair of bodies and files that are not ours.

1. Works on UTF-8 bytes that are valid JSON (`core.jsontext` judges that first) with a byte-order mark or not.
2. A path is a tuple of object keys and array positions; of duplicate keys the last counts, as in `JSON.parse`.
3. All walks are iterative. The first scan over a container notes where those inside of it end: no byte is scanned
   for its brackets twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from attrs import frozen

from latchguard.core.errors import InvalidValueError, MissingPathError, cut

__all__ = ["Edit", "Insert", "JsonSpans", "Path", "Remove", "Replace", "edit_json", "format_path"]

Path: TypeAlias = tuple[str | int, ...]

_WHITE: Final = re.compile(rb"[ \t\n\r]*+")
_COMMA: Final = re.compile(rb"[ \t\n\r]*+,?[ \t\n\r]*+")
_KEY: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# The next bracket outside of strings, whatever stands before it: one match per bracket, none per string.
_BRACKET: Final = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+[\[\]{}]', re.DOTALL)
_SCALAR_END: Final = re.compile(rb"[ \t\n\r,\]}]|\Z")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


@frozen
class Replace:
    """Put *value* (JSON bytes) in place of the value at *path*."""

    path: Path
    value: bytes


@frozen
class Remove:
    """Take the member or item at *path* out of its container, with one comma."""

    path: Path


@frozen
class Insert:
    """Add *value* to the container at *path*, under *key* where it is an object.

    In an array it goes before the item that is at *before*; None, or a place beyond the last, is the end. Several at
    one place keep their order.
    """

    path: Path
    value: bytes
    key: str | None = None
    before: int | None = None


Edit: TypeAlias = Replace | Remove | Insert


@frozen
class _Member:
    key: str | int
    start: int  # of the key in an object, of the value in an array
    value: int
    end: int


class JsonSpans:
    """Where the values of a JSON text stand in its bytes."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._members: dict[int, Sequence[_Member]] = {}
        self._by_key: dict[int, Mapping[str | int, _Member]] = {}
        self._ends: dict[int, int] = {}
        start = 3 if raw.startswith(b"\xef\xbb\xbf") else 0
        self._root = self._skip_white(start)

    def span(self, path: Path) -> tuple[int, int]:
        """Give start and end of the value at *path*.

        Raises:
            MissingPathError: there is no such value.
        """
        position = self._root
        for step, key in enumerate(path):
            by_key = self._by_key.get(position)
            if by_key is None:
                by_key = self._by_key[position] = {member.key: member for member in self.members(position)}
            if key not in by_key:
                raise MissingPathError(format_path(path[: step + 1]), "a value")
            position = by_key[key].value
        return position, self._skip_value(position)

    def members(self, position: int) -> Sequence[_Member]:
        """Give the members of the container that starts at *position*; none where it is a scalar."""
        known = self._members.get(position)
        if known is None:
            known = self._members[position] = tuple(self._scan(position))
        return known

    def _scan(self, position: int) -> Iterable[_Member]:
        opening = self.raw[position : position + 1]
        if opening not in (b"{", b"["):
            return
        number = 0
        position = self._skip_white(position + 1)
        while self.raw[position] not in b"]}":
            start = position
            name: str | int = number
            if opening == b"{":
                key = _KEY.match(self.raw, position)
                if key is None:
                    raise InvalidValueError(f"byte {position}", "a key", cut(self.raw[position:]))
                name = json.loads(key[1]) if b"\\" in key[1] else key[1][1:-1].decode()
                position = key.end()
            end = self._skip_value(position)
            yield _Member(name, start, position, end)
            number += 1
            comma = _COMMA.match(self.raw, end)
            position = comma.end() if comma else end

    def _skip_white(self, position: int) -> int:
        match = _WHITE.match(self.raw, position)
        return match.end() if match else position

    def _skip_value(self, position: int) -> int:
        opening = self.raw[position : position + 1]
        if opening not in (b"{", b"["):
            match = (_STRING.match if opening == b'"' else _SCALAR_END.search)(self.raw, position)
            if match is None:
                raise InvalidValueError(f"byte {position}", "a JSON value", cut(self.raw[position:]))
            return match.end() if opening == b'"' else match.start()
        return self._ends.get(position) or self._skip_container(position)

    def _skip_container(self, position: int) -> int:
        opened: list[int] = []
        for token in _BRACKET.finditer(self.raw, position):
            end = token.end()
            if self.raw[end - 1] in b"[{":
                opened.append(end - 1)
            else:
                self._ends[opened.pop()] = end
                if not opened:
                    return end
        raise InvalidValueError(f"byte {position}", "a container with an end", cut(self.raw[position:]))


def edit_json(raw: bytes, edits: Iterable[Edit]) -> bytes:
    """Make *edits* in *raw* and copy every other byte.

    Args:
        raw: UTF-8 bytes, valid JSON.
        edits: changes at paths of *raw*. One inside a value that another replaces or removes is dropped with it;
            of two that replace the same value the first counts.

    Raises:
        MissingPathError: a path leads nowhere in *raw*.
        InvalidValueError: something is inserted into what cannot hold it, or the whole document removed.

    Guarantees:
        Pure. The result is valid JSON where the given values are; no edits give *raw* itself.
    """
    spans = JsonSpans(raw)
    pieces: list[tuple[int, int, bytes]] = []
    removed: dict[Path, set[str | int]] = {}
    inserts: dict[Path, list[Insert]] = {}
    for edit in edits:
        if isinstance(edit, Replace):
            pieces.append((*spans.span(edit.path), edit.value))
        elif isinstance(edit, Insert):
            inserts.setdefault(edit.path, []).append(edit)
        elif edit.path:
            spans.span(edit.path)
            removed.setdefault(edit.path[:-1], set()).add(edit.path[-1])
        else:
            raise InvalidValueError("$", "a member or item to remove", "the whole document")
    for path in removed.keys() | inserts.keys():
        pieces += _gaps(spans, path, removed.get(path, set()), inserts.get(path, ()))
    return _splice(raw, pieces)


def _gaps(
    spans: JsonSpans, path: Path, removed: set[str | int], inserts: Iterable[Insert]
) -> Iterator[tuple[int, int, bytes]]:
    """What changes between the members that stay: a gap loses the removed ones and gains the inserted ones."""
    start, end = spans.span(path)
    members = spans.members(start)
    added: dict[int, list[bytes]] = {}
    for insert in inserts:
        place = len(members) if insert.before is None else min(insert.before, len(members))
        added.setdefault(place, []).append(_inserted(spans.raw[start:end], insert))
    if not members:
        yield end - 1, end - 1, b",".join(added.get(0, ()))
        return
    stay = [number for number, member in enumerate(members) if member.key not in removed]
    for left, right in pairwise((-1, *stay, len(members))):
        texts = [text for place in range(left + 1, right + 1) for text in added.get(place, ())]
        if not texts and right - left == 1:
            continue
        first, last = left < 0, right == len(members)
        gap_start = members[0].start if first else members[left].end
        gap_end = members[-1].end if last else members[right].start
        if first:
            yield gap_start, gap_end, b",".join(texts) + (b"," if texts and not last else b"")
        else:
            comma = b"" if last else spans.raw[members[right - 1].end : gap_end]
            yield gap_start, gap_end, b"".join(b"," + text for text in texts) + comma


def _inserted(container: bytes, insert: Insert) -> bytes:
    expected, opening = ("an array", b"[") if insert.key is None else ("an object", b"{")
    if not container.startswith(opening):
        raise InvalidValueError(format_path(insert.path), expected, cut(container))
    return insert.value if insert.key is None else json.dumps(insert.key).encode() + b":" + insert.value


def _splice(raw: bytes, pieces: list[tuple[int, int, bytes]]) -> bytes:
    if not pieces:
        return raw
    out: list[bytes] = []
    position = 0
    # What goes in before a value comes before what replaces it; an outer change before those inside of it.
    for start, end, value in sorted(pieces, key=lambda piece: (piece[0], piece[1] > piece[0], -piece[1])):
        if start < position:
            continue  # inside a value that is replaced or removed as a whole
        out += (raw[position:start], value)
        position = end
    out.append(raw[position:])
    return b"".join(out)


def format_path(path: Path) -> str:
    """Write *path* as a JSON path: `$.messages[3].tool_calls[0]`; keys that are no plain names in quotes."""
    parts = ["$"]
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        else:
            parts.append(f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]")
    return "".join(parts)
