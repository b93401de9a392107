"""Rules of the area `tooling`: the declared tools are there, and their schemas are in the wire's own spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from latchguard.core.findings import Repair, Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.draft import Drop, Set
from latchguard.egress.layout import SCHEMA_KEYS, at, conversations, declared_tools, find_calls, is_list
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule

__all__ = ["RULES", "tool_hits"]

_TYPE_NAMES: Final = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_UNSPECIFIED: Final = "TYPE_UNSPECIFIED"
_OF_OBJECTS: Final = ("properties", "required")
# Where a schema holds further schemas: under names, in a list, or as one.
_NAMED: Final = ("properties", "$defs", "definitions", "patternProperties")
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not")
_PLACEHOLDER: Final = "placeholder"


def tool_hits(body: Any, wire: Wire) -> dict[Trigger, list[Hit]]:
    """Look at the declared tools; at the history only where none is declared."""
    hits: dict[Trigger, list[Hit]] = {}
    for path, tool in declared_tools(body, wire):
        name = tool.get("name")
        for key in SCHEMA_KEYS:
            if isinstance(tool.get(key), dict):
                hit = Hit((*path, key), tool[key], name if isinstance(name, str) else None)
                hits.setdefault(Trigger.SCHEMA, []).append(hit)
    if wire is Wire.ANTHROPIC and isinstance(body, dict) and not body.get("tools"):
        calls = [call for call in find_calls(body, wire) if call.holder.get("type") == "tool_use"]
        names = dict.fromkeys(call.name for call in calls if call.name)
        if names or _holds_results(body, wire):
            hits[Trigger.NO_TOOLS] = [Hit(("tools",), list(names))]
    return hits


def _holds_results(body: Any, wire: Wire) -> bool:
    contents = [message.get("content") for path in conversations(body, wire) for message in _messages(at(body, path))]
    blocks = [block for content in contents if is_list(content) for block in content or ()]
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _messages(messages: Any) -> list[Mapping[str, Any]]:
    return [message for message in messages if isinstance(message, dict)]


def schema_nodes(schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Give every schema node below *schema* with its path; data (`default`, `enum`, `example`) is none. Iterative."""
    todo: list[tuple[Path, Any]] = [(path, schema)]
    while todo:
        here, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield here, node
        for key in _NAMED:
            if isinstance(node.get(key), dict):
                todo += (((*here, key, name), child) for name, child in node[key].items())
        for key in _LISTED:
            if is_list(node.get(key)):
                todo += (((*here, key, place), child) for place, child in enumerate(node[key]))
        todo += (((*here, key), node[key]) for key in _SINGLE if key in node)


def check_schema_keys(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A schema node that is no object has `properties` or `required`.

    Fires on Gemini: "properties: only allowed for OBJECT type". Seen: anomalyco/opencode#11889.
    Repair: the keys go, lossless: they mean nothing there.
    """
    for path, node in schema_nodes(hit.value, hit.path):
        kind = node.get("type")
        if isinstance(kind, str) and kind.upper() in _TYPE_NAMES and kind.upper() != "OBJECT":
            for key in _OF_OBJECTS:
                if key in node:
                    here = (*path, key)
                    yield Fix(here, Repair.LOSSLESS, (Drop(here),), node[key], tool_name=hit.tool_name)


def check_schema_case(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A schema in Gemini's spelling on another wire: `OBJECT` for `object`.

    Fires on both OpenAI wires and Anthropic, on schema nodes only: a key named `type` inside `default`, `enum` or
    `example` is data. Documented: JSON Schema types are lower case; servers answer 400.
    Repair: lower case, and `TYPE_UNSPECIFIED` goes; lossless.
    """
    for path, node in schema_nodes(hit.value, hit.path):
        kind = node.get("type")
        here = (*path, "type")
        if kind == _UNSPECIFIED:
            yield Fix(here, Repair.LOSSLESS, (Drop(here),), kind, tool_name=hit.tool_name)
        elif isinstance(kind, str) and kind in _TYPE_NAMES:
            after = kind.lower()
            yield Fix(here, Repair.LOSSLESS, (Set(here, after),), kind, after, tool_name=hit.tool_name)


def check_no_tools(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """The history holds calls or results, and the body declares no tool.

    Fires on Anthropic: "Requests which include `tool_use` or `tool_result` blocks must define tools"; Bedrock:
    "toolConfig field must be defined". Seen: BerriAI/litellm#4689.
    Repair: one placeholder definition per tool that the history uses. Without any name it is named only.
    """
    tools = [{"name": name, "description": _PLACEHOLDER, "input_schema": {"type": "object"}} for name in hit.value]
    if tools:
        yield Fix(hit.path, Repair.PLACEHOLDER, (Set(hit.path, tools),), after=tools)
    else:
        yield Fix(hit.path, Repair.DETECT, note="results, but no call that names a tool")


RULES: Final[tuple[EgressRule, ...]] = (
    make_rule(
        "tool-schema-invalid",
        Trigger.SCHEMA,
        Repair.LOSSLESS,
        check_schema_keys,
        wires=(Wire.GEMINI,),
        errors=("properties: only allowed for OBJECT type",),
    ),
    make_rule(
        "schema-type-case",
        Trigger.SCHEMA,
        Repair.LOSSLESS,
        check_schema_case,
        wires=(Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES, Wire.ANTHROPIC),
        errors=("is not valid under any of the given schemas", "Invalid schema for function"),
    ),
    make_rule(
        "tools-missing-for-history",
        Trigger.NO_TOOLS,
        Repair.PLACEHOLDER,
        check_no_tools,
        wires=(Wire.ANTHROPIC,),
        moves_prefix=True,
        errors=(
            "Requests which include `tool_use` or `tool_result` blocks must define tools",
            "toolConfig field must be defined when using toolUse and toolResult",
        ),
    ),
)
