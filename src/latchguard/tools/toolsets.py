"""Tool servers that were registered twice.

1. Only an explicit `dedup_key` says that two entries are the same server; a blank one says nothing. Keys are compared
   as they are, never trimmed or folded.
2. The entry with `dedup_preferred` stays, else the one with the smallest id. Two such marks in one group, or a mark
   without a key, are errors.
3. URLs, queries and headers are never looked at: they select the tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from latchguard.core.errors import InvalidValueError, cut

__all__ = ["dedupe_toolsets"]

_Server = TypeVar("_Server")


def dedupe_toolsets(servers: Iterable[_Server]) -> list[_Server]:
    """Give *servers* with one entry for each `dedup_key`.

    Args:
        servers: mappings or objects with `id`, and where wanted `dedup_key` and `dedup_preferred`.

    Returns:
        The entries that stay: the same objects, in the same order.

    Raises:
        InvalidValueError: a field has the wrong type, a mark stands without a key, or two in one group.

    Guarantees:
        Pure; what stays does not depend on the order of *servers*; twice is once.
    """
    entries = list(servers)
    groups: dict[str, list[int]] = {}
    for position, server in enumerate(entries):
        key = _read(server, position, "dedup_key", str, "")
        preferred = _read(server, position, "dedup_preferred", bool, default=False)
        _read(server, position, "id", str, None)
        if key.strip():
            groups.setdefault(key, []).append(position)
        elif preferred:
            raise InvalidValueError(f"servers[{position}].dedup_preferred", "a dedup_key beside it", cut(key))
    gone = {
        position for key, group in groups.items() for position in group if position != _survivor(entries, key, group)
    }
    return [server for position, server in enumerate(entries) if position not in gone]


def _survivor(entries: list[Any], key: str, group: list[int]) -> int:
    marked = [position for position in group if _get(entries[position], "dedup_preferred")]
    if len(marked) > 1:
        found = " and ".join(cut(_get(entries[position], "id")) for position in marked)
        raise InvalidValueError(f"servers[{marked[1]}].dedup_preferred", f"one mark for dedup_key {cut(key)}", found)
    return marked[0] if marked else min(group, key=lambda position: str(_get(entries[position], "id")))


def _read(server: Any, position: int, name: str, wanted: type, default: Any) -> Any:
    value = _get(server, name)
    if value is None and default is not None:
        return default
    if not isinstance(value, wanted):
        raise InvalidValueError(f"servers[{position}].{name}", f"a {wanted.__name__}", cut(value))
    return value


def _get(server: Any, name: str) -> Any:
    return server.get(name) if isinstance(server, Mapping) else getattr(server, name, None)
