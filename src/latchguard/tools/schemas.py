"""Schemas of tools: Gemini's upper-case types as JSON Schema's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["to_json_schema"]

# The values of Gemini's `Type`, by https://ai.google.dev/api/caching#Type (read November 2026).
_TYPES: Final = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_UNSPECIFIED: Final = "TYPE_UNSPECIFIED"

# Where a schema holds schemas. What stands under any other key is data: a `type` in it is no type.
_ONE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS: Final = ("anyOf", "allOf", "oneOf", "prefixItems", "items")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def to_json_schema(schema: Any) -> Any:
    """Give *schema* with its types in lower case, as servers that take JSON Schema want them.

    Args:
        schema: a tool's parameter schema, from Gemini or any other source.

    Returns:
        The schema with `type` in lower case in every schema node; `TYPE_UNSPECIFIED` is left out. The very object
        that was given where nothing changes, so twice is once.

    Guarantees:
        Pure, never recursive. Every other key is kept, in its order; `default`, `example`, `enum` and the like are
        data and not looked into.
    """
    root: list[Any] = [schema]
    holders: list[tuple[Any, Any]] = [(root, 0)]
    is_changed = False
    while holders:
        holder, key = holders.pop()
        if not isinstance(node := holder[key], dict):
            continue
        copy = _with_types(node)
        is_changed = is_changed or copy != node
        holder[key] = copy
        holders += _open(copy)
    return root[0] if is_changed else schema


def _with_types(node: dict[str, Any]) -> dict[str, Any]:
    if "type" not in node:
        return dict(node)
    found = node["type"]
    if isinstance(found, list):
        types: Any = [_lower(name) for name in found if name != _UNSPECIFIED]
    else:
        types = [] if found == _UNSPECIFIED else _lower(found)
    return {key: types if key == "type" else value for key, value in node.items() if key != "type" or types != []}


def _lower(name: Any) -> Any:
    return name.lower() if isinstance(name, str) and name.upper() in _TYPES else name


def _open(node: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Copy the containers of *node* that hold schemas, and give the place of each schema."""
    yield from ((node, key) for key in _ONE if isinstance(node.get(key), dict))
    for key in _LISTS:
        if isinstance(node.get(key), list):
            node[key] = list(node[key])
            yield from ((node[key], position) for position in range(len(node[key])))
    for key in _MAPS:
        if isinstance(node.get(key), dict):
            node[key] = dict(node[key])
            yield from ((node[key], name) for name in node[key])
