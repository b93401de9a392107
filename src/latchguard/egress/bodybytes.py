"""From a repaired body back to bytes: only the spans of what changed, every other byte copied."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from latchguard.core.jsonspans import Edit, Insert, JsonSpans, Path, Remove, Replace, edit_json
from latchguard.core.jsontext import dump_json
from latchguard.egress.draft import Draft

__all__ = ["render_bytes"]


def render_bytes(raw: bytes, draft: Draft) -> bytes:
    """Give *raw*, which `draft.original` was parsed from, with the changes of *draft*; *raw* itself without any.

    An untouched container is the same object before and after, a changed one remembers what it is a copy of: so the
    difference is found by identity, and an item that only moved keeps its bytes.
    """
    return raw if draft.body is draft.original else edit_json(raw, list(_edits(raw, draft)))


def _edits(raw: bytes, draft: Draft) -> Iterator[Edit]:
    spans = JsonSpans(raw)
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
            origins = _origins(draft, old, new)
            stays = _longest_rise(origins)
            kept = {origins[place] for place in stays}
            yield from (Remove((*path, place)) for place in range(len(old)) if place not in kept)
            before = len(old)
            inserts = []
            for place in range(len(new) - 1, -1, -1):
                origin = origins[place]
                if place in stays and origin is not None:
                    before = origin
                    todo.append(((*path, origin), old[origin], new[place]))
                else:
                    moved = origin is not None and new[place] is old[origin]
                    value = _copied(spans, (*path, origin)) if moved and origin is not None else dump_json(new[place])
                    inserts.append(Insert(path, value, before=before))
            yield from reversed(inserts)


def _copied(spans: JsonSpans, path: Path) -> bytes:
    start, end = spans.span(path)
    return spans.raw[start:end]


def _origins(draft: Draft, old: Sequence[Any], new: Sequence[Any]) -> list[int | None]:
    """For each item of *new* the place in *old* that it comes from; scalars of equal lists keep their places."""
    if len(old) == len(new) and not any(isinstance(item, dict | list) for item in new):
        return list(range(len(new)))
    places = {id(item): place for place, item in enumerate(old) if isinstance(item, dict | list)}
    scalars = iter([place for place, item in enumerate(old) if not isinstance(item, dict | list)])
    return [
        places.get(id(draft.source(item))) if isinstance(item, dict | list) else next(scalars, None) for item in new
    ]


def _longest_rise(origins: Sequence[int | None]) -> set[int]:
    """Places of the longest rising run of *origins*: what need not move."""
    tails: list[int] = []  # the smallest end of a rise of each length, and the place where it ends
    ends: list[int] = []
    previous: dict[int, int] = {}
    for place, origin in enumerate(origins):
        if origin is None:
            continue
        length = bisect_left(tails, origin)
        tails[length : length + 1] = [origin]
        ends[length : length + 1] = [place]
        if length:
            previous[place] = ends[length - 1]
    chain: set[int] = set()
    at = ends[-1] if ends else None
    while at is not None:
        chain.add(at)
        at = previous.get(at)
    return chain
