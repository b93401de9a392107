"""From a repaired body back to bytes: only the spans of what changed, every other byte copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from latchguard.core.jsonspans import Edit, Insert, Path, Remove, Replace, edit_json
from latchguard.core.jsontext import dump_json
from latchguard.egress.draft import Draft

__all__ = ["render_bytes"]


def render_bytes(raw: bytes, draft: Draft) -> bytes:
    """Give *raw*, which `draft.original` was parsed from, with the changes of *draft*; *raw* itself without any."""
    return raw if draft.body is draft.original else edit_json(raw, list(_edits(draft)))


def _edits(draft: Draft) -> Iterator[Edit]:
    todo: list[tuple[Path, Any, Any]] = [((), draft.original, draft.body)]
    while todo:
        path, old, new = todo.pop()
        if old is new:
            continue
        if draft.source(new) is not old or not isinstance(old, dict | list):
            yield Replace(path, dump_json(new))
        elif isinstance(old, dict):
            yield from (Remove((*path, key)) for key in old if key not in new)
            yield from (Insert(path, dump_json(value), key) for key, value in new.items() if key not in old)
            todo += (((*path, key), value, new[key]) for key, value in old.items() if key in new)
        else:
            todo += (((*path, place), value, new[place]) for place, value in enumerate(old))
