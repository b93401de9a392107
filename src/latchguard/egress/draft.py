"""A body under repair: copied where it changes, never mutated.

1. Edits name places in the body as it is before their batch; a batch applies whole or not at all.
2. What no edit touches stays the same object, so that the bytes of it can be copied (I10).
3. Each copy remembers what it is a copy of: findings name places in the body that was given, whatever moved since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from latchguard.core.jsonspans import Path

__all__ = ["BodyEdit", "Draft", "Drop", "Put", "Set"]


@frozen
class Set:
    """Put *value* at *path*; a new key goes to the end of its object."""

    path: Path
    value: Any


@frozen
class Drop:
    """Take the member or item at *path* out of its container."""

    path: Path


@frozen
class Put:
    """Insert *value* into the list at *path*, before the item that is at *position* now."""

    path: Path
    position: int
    value: Any


BodyEdit: TypeAlias = Set | Drop | Put


class Draft:
    """The body that was given (`original`), and as it is now (`body`)."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.body = original
        # id of a copy -> the copy (kept alive, so that its id stays its own) and what it is a copy of
        self._copies: dict[int, tuple[Any, Any]] = {}

    def apply(self, edits: Iterable[BodyEdit]) -> None:
        """Make one batch of edits. Raises `KeyError`, `IndexError` or `TypeError` where a path leads nowhere."""
        batch = _Batch(self)
        layouts: dict[Path, tuple[set[str | int], dict[int, list[Any]]]] = {}
        for edit in edits:
            if isinstance(edit, Set):
                batch.own(edit.path[:-1])[edit.path[-1]] = edit.value
            elif isinstance(edit, Drop):
                layouts.setdefault(edit.path[:-1], (set(), {}))[0].add(edit.path[-1])
            else:
                layouts.setdefault(edit.path, (set(), {}))[1].setdefault(edit.position, []).append(edit.value)
        for path in sorted(layouts, key=len, reverse=True):  # inner places first: their paths still hold
            _lay_out(batch.own(path), *layouts[path])
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
                wanted = self.source(child)
                translated[step] = next((place for place, item in enumerate(before) if item is wanted), key)
            node = child
        return tuple(translated)


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

    def _copy(self, value: Any) -> Any:
        if not isinstance(value, dict | list | tuple):
            raise TypeError(f"a path leads into a {type(value).__name__}")
        copy: Any = dict(value) if isinstance(value, Mapping) else list(value)
        self.copies[id(copy)] = (copy, self._draft.source(value))
        return copy


def _lay_out(container: Any, dropped: set[str | int], added: Mapping[int, list[Any]]) -> None:
    if isinstance(container, dict):
        for key in dropped:
            del container[key]
        return
    items = list(container)
    if not all(0 <= place < len(items) for place in dropped if isinstance(place, int)):
        raise IndexError(f"no such items: {sorted(dropped, key=str)}")
    container.clear()
    for place, item in enumerate(items):
        container += added.get(place, ())
        if place not in dropped:
            container.append(item)
    for place in sorted(place for place in added if place >= len(items)):
        container += added[place]
