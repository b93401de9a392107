"""Where a body keeps its conversation and its tools, per wire.

The places are the providers' request references: Chat Completions `messages` and `tools[].function`, Responses
`input` (`items` of a conversation) and `tools[]`, Anthropic Messages `messages` and `tools[].input_schema`, Gemini
`contents` and `tools[].functionDeclarations[]` (proto3 JSON takes snake_case names too).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from latchguard.core.findings import Wire
from latchguard.core.jsonspans import Path

__all__ = [
    "CALL_BLOCKS",
    "SCHEMA_KEYS",
    "Call",
    "at",
    "conversations",
    "declared_names",
    "declared_parameters",
    "declared_tools",
    "find_calls",
    "is_list",
]

_SEQUENCES: Final[Mapping[Wire, tuple[str, ...]]] = {
    Wire.OPENAI_CHAT: ("messages",),
    Wire.OPENAI_RESPONSES: ("input", "items"),
    Wire.ANTHROPIC: ("messages",),
    Wire.GEMINI: ("contents",),
}
CALL_BLOCKS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")  # a tuple: junk need not be hashable
_NOTHING: Final[Mapping[str, Any]] = {}


class Call(NamedTuple):
    """One tool call: the path of its arguments, the object that holds them, their key, the tool's name."""

    path: Path
    holder: Mapping[str, Any]
    key: str
    name: str | None


def conversations(body: Any, wire: Wire) -> list[Path]:
    """Give the paths of the message lists in *body*: none where it holds none, or a mere string."""
    if is_list(body):
        return [()]
    return [(key,) for key in _SEQUENCES[wire] if is_list(body.get(key))]


def is_list(value: Any) -> bool:
    """Say whether *value* is an array: a list, or the tuple that a host may have in its place."""
    return isinstance(value, list | tuple)


def at(body: Any, path: Path) -> Any:
    """Give the value at *path*."""
    for key in path:
        body = body[key]
    return body


def find_calls(body: Any, wire: Wire) -> Iterator[Call]:
    """Give every tool call whose arguments are JSON, in order. Iterative; skips what has another shape."""
    for path in conversations(body, wire):
        yield from _FINDERS[wire](at(body, path), path)


def _chat_calls(messages: Sequence[Any], base: Path) -> Iterator[Call]:
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") != "assistant":
            continue
        calls = message.get("tool_calls")
        if isinstance(calls, list | tuple):
            for number, call in enumerate(calls):
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(function, dict):
                    path = (*base, place, "tool_calls", number, "function", "arguments")
                    yield Call(path, function, "arguments", _name(function))
        function = message.get("function_call")
        if isinstance(function, dict):
            yield Call((*base, place, "function_call", "arguments"), function, "arguments", _name(function))


def _responses_calls(items: Sequence[Any], base: Path) -> Iterator[Call]:
    for place, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "function_call":
            yield Call((*base, place, "arguments"), item, "arguments", _name(item))


def _anthropic_calls(messages: Sequence[Any], base: Path) -> Iterator[Call]:
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") != "assistant":
            continue
        blocks = message.get("content")
        if isinstance(blocks, list | tuple):
            for number, block in enumerate(blocks):
                if isinstance(block, dict) and block.get("type") in CALL_BLOCKS:
                    yield Call((*base, place, "content", number, "input"), block, "input", _name(block))


def _gemini_calls(contents: Sequence[Any], base: Path) -> Iterator[Call]:
    for place, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if isinstance(parts, list | tuple):
            for number, part in enumerate(parts):
                if not isinstance(part, dict):
                    continue
                for key in ("functionCall", "function_call"):
                    call = part.get(key)
                    if isinstance(call, dict):
                        yield Call((*base, place, "parts", number, key, "args"), call, "args", _name(call))


_FINDERS: Final = {
    Wire.OPENAI_CHAT: _chat_calls,
    Wire.OPENAI_RESPONSES: _responses_calls,
    Wire.ANTHROPIC: _anthropic_calls,
    Wire.GEMINI: _gemini_calls,
}


def _name(holder: Mapping[str, Any]) -> str | None:
    name = holder.get("name")
    return name if isinstance(name, str) else None


def declared_parameters(body: Any, wire: Wire) -> dict[str, Mapping[str, Any]]:
    """Give the parameter schemas of the declared tools by name; the first of two equal names counts."""
    found: dict[str, Mapping[str, Any]] = {}
    for _, tool in declared_tools(body, wire):
        name = tool.get("name")
        schema = next((tool[key] for key in SCHEMA_KEYS if isinstance(tool.get(key), dict)), None)
        if isinstance(name, str) and schema is not None:
            found.setdefault(name, schema)
    return found


def declared_names(body: Any, wire: Wire) -> set[str]:
    """Give the names of the declared tools."""
    return {name for _, tool in declared_tools(body, wire) if isinstance(name := tool.get("name"), str)}


SCHEMA_KEYS: Final = ("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema")


def declared_tools(body: Any, wire: Wire) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Give the path and the definition of each declared tool: the object that bears its name."""
    holder = body if isinstance(body, dict) else _NOTHING
    for key in ("tools", "functions"):
        for place, tool in _items(holder, key):
            if wire is Wire.OPENAI_CHAT and isinstance(tool.get("function"), dict):
                yield (key, place, "function"), tool["function"]
            elif wire is Wire.GEMINI:
                for declarations in ("functionDeclarations", "function_declarations"):
                    for number, declared in _items(tool, declarations):
                        yield (key, place, declarations, number), declared
            else:
                yield (key, place), tool


def _items(holder: Mapping[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    value: Any = holder.get(key)
    for place, item in enumerate(value if is_list(value) else ()):
        if isinstance(item, dict):
            yield place, item
