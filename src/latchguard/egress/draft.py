"""A body under repair: copied where it changes, never mutated.

1. Edits name places in the body as it is before their batch; a batch applies whole or not at all.
2. What no edit touches stays the same object, so that the bytes of it can be copied (I10).
3. Each copy remembers what it is a copy of: findings name places in the body that was given, whatever moved since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from attrs import Factory, define, frozen

from latchguard.core.jsonspans import Path

__all__ = ["AsBlocks", "BodyEdit", "Draft", "Drop", "Put", "Rename", "Set"]


@frozen
class Set:
    """Put *value* at *path*; a new key goes to the end of its object."""

    path: Path
    value: Any


@frozen
class Drop:
    """Take the member or item at *path* out of its container, and *owner* too where nothing is left in there."""

    path: Path
    owner: Path | None = None


@frozen
class Put:
    """Insert *value* into the list at *path*, before the item that is at *position* now."""

    path: Path
    position: int
    value: Any


@frozen
class AsBlocks:
    """Where a text stands at *path*, put a list of one text block in its place; the batch sees the list."""

    path: Path


@frozen
class Rename:
    """Give the member at *path* another key, at its place; the last counts where both keys are there."""

    path: Path
    key: str


BodyEdit: TypeAlias = Set | Drop | Put | AsBlocks | Rename


class Draft:
    """The body that was given (`original`), and as it is now (`body`)."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.body = original
        # id of a copy -> the copy (kept alive, so that its id stays its own) and what it is a copy of
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._places: dict[int, dict[int, int]] = {}  # id of a list of the original -> id of an item -> its place

    def apply(self, edits: Iterable[BodyEdit]) -> None:
        """Make one batch of edits. Raises `KeyError`, `IndexError` or `TypeError` where a path leads nowhere."""
        batch = _Batch(self)
        layouts: dict[Path, _Layout] = {}
        for edit in edits:
            if isinstance(edit, Set):
                batch.own(edit.path[:-1])[edit.path[-1]] = edit.value
            elif isinstance(edit, AsBlocks):
                batch.as_blocks(edit.path)
            elif isinstance(edit, Rename):
                layouts.setdefault(edit.path[:-1], _Layout()).renamed[edit.path[-1]] = edit.key
            elif isinstance(edit, Drop):
                layouts.setdefault(edit.path[:-1], _Layout()).drop(edit)
            else:
                layouts.setdefault(edit.path, _Layout()).added.setdefault(edit.position, []).append(edit.value)
        counter = count()  # paths themselves have no order
        waiting = [(-len(path), next(counter), path) for path in layouts]
        heapify(waiting)
        while waiting:
            path = heappop(waiting)[2]  # inner places first: the paths of the outer ones still hold
            layout = layouts.pop(path)
            container = batch.own(path)
            _lay_out(container, layout)
            if not container and layout.owner is not None:
                outer = layout.owner[:-1]
                if outer not in layouts:
                    layouts[outer] = _Layout()
                    heappush(waiting, (-len(outer), next(counter), outer))
                layouts[outer].dropped.add(layout.owner[-1])
        self.body = batch.root
        self._copies |= batch.copies

    def source(self, value: Any) -> Any:
        """Give the container that *value* is a copy of, *value* itself where it is none."""
        known = self._copies.get(id(value))
        return value if known is None else known[1]

    def original_path(self, path: Path) -> Path:
        """Translate a path of `body` into one of `original`; what is new there keeps its place of now."""
        if self.body is self.original:
            return path
        node, translated = self.body, list(path)
        for step, key in enumerate(path):
            try:
                child = node[key]
            except (LookupError, TypeError):
                break
            before = self.source(node)
            if before is not node and isinstance(key, int) and isinstance(child, dict | list | tuple):
                translated[step] = self._place(before, self.source(child), key)
            node = child
        return tuple(translated)

    def _place(self, items: Any, wanted: Any, default: int) -> int:
        places = self._places.get(id(items))
        if places is None:
            places = self._places[id(items)] = {id(item): place for place, item in enumerate(items)}
        return places.get(id(wanted), default)


@define
class _Layout:
    dropped: set[str | int] = Factory(set)
    added: dict[int, list[Any]] = Factory(dict)
    renamed: dict[str | int, str] = Factory(dict)
    owner: Path | None = None

    def drop(self, edit: Drop) -> None:
        self.dropped.add(edit.path[-1])
        self.owner = edit.owner or self.owner


class _Batch:
    """The copies that one batch makes; the draft takes them over when all went well."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.copies: dict[int, tuple[Any, Any]] = {}
        self.root = self._copy(draft.body)

    def own(self, path: Path) -> Any:
        node = self.root
        for key in path:
            child = node[key]
            if id(child) not in self.copies:
                child = node[key] = self._copy(child)
            node = child
        return node

    def as_blocks(self, path: Path) -> None:
        parent = self.own(path[:-1])
        if isinstance(text := parent[path[-1]], str):
            parent[path[-1]] = [{"type": "text", "text": text}]

    def _copy(self, value: Any) -> Any:
        if not isinstance(value, dict | list | tuple):
            raise TypeError(f"a path leads into a {type(value).__name__}")
        copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
        self.copies[id(copy)] = (copy, self._draft.source(value))
        return copy


def _lay_out(container: Any, layout: _Layout) -> None:
    before = container.copy()
    if isinstance(container, dict):
        for key in layout.dropped:
            del before[key]
        container.clear()
        container.update({layout.renamed.get(key, key): value for key, value in before.items()})
        return
    if not all(0 <= place < len(before) for place in layout.dropped if isinstance(place, int)):
        raise IndexError(f"no such items: {sorted(layout.dropped, key=str)}")
    container.clear()
    for place, item in enumerate(before):
        container += layout.added.get(place, ())
        if place not in layout.dropped:
            container.append(item)
    for place in sorted(place for place in layout.added if place >= len(before)):
        container += layout.added[place]
