"""What a body says beside its messages, carried from one wire to another; and what cannot be.

1. A field is a row: for each wire the places where it stands, the first of them the one that is written.
2. Function tools are carried with name, description and schema. Hosted tools have no counterpart.
3. What no row names, and every key and part that no message holds, is lost and listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from latchguard.core.findings import Wire
from latchguard.core.jsonspans import Path, format_path
from latchguard.core.message import Kind
from latchguard.tools.schemas import to_json_schema
from latchguard.wire.base import Unit, get_in, set_in
from latchguard.wire.media import HOLDERS, READ_KEYS
from latchguard.wire.parsing import FORMATS, Frame, Place

__all__ = ["Lost", "carry_fields", "find_leftovers"]


@frozen
class Lost:
    """Something that a conversion could not carry over, or not as it was.

    Args:
        path: where it stands in the body that was converted, as a JSON path.
        why: the reason, one clause.
    """

    path: str
    why: str


_CHAT, _RESPONSES, _ANTHROPIC, _GEMINI = Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES, Wire.ANTHROPIC, Wire.GEMINI


def _same(name: str) -> dict[Wire, tuple[Path, ...]]:
    return dict.fromkeys((_CHAT, _RESPONSES, _ANTHROPIC), ((name,),))


_FIELDS: Final[tuple[Mapping[Wire, tuple[Path, ...]], ...]] = (
    _same("model"),
    {
        _CHAT: (("max_completion_tokens",), ("max_tokens",)),
        _RESPONSES: (("max_output_tokens",),),
        _ANTHROPIC: (("max_tokens",),),
        _GEMINI: (("generationConfig", "maxOutputTokens"),),
    },
    {**_same("temperature"), _GEMINI: (("generationConfig", "temperature"),)},
    {**_same("top_p"), _GEMINI: (("generationConfig", "topP"),)},
    {
        _CHAT: (("stop",),),
        _ANTHROPIC: (("stop_sequences",),),
        _GEMINI: (("generationConfig", "stopSequences"),),
    },
    _same("stream"),
)


def carry_fields(frame: Frame, wire: Wire) -> tuple[dict[str, Any], tuple[Lost, ...]]:
    """Give the body without messages on *wire*, and what of the frame's body has no place there."""
    body = frame.body
    if not isinstance(body, dict):
        return {}, ()
    out: dict[str, Any] = {}
    carried: set[Path] = {section.at[:1] for section in frame.sections}
    for row in _FIELDS:
        for path in row.get(frame.wire, ()):
            value = get_in(body, path) if isinstance(body.get(path[0]), dict) or len(path) == 1 else None
            if value is not None and wire in row:
                target = row[wire][0]
                out = set_in(out if len(target) == 1 else {target[0]: {}, **out}, target, _as_list(value, target))
                carried.add(path)
    tools, lost = _carry_tools(body.get("tools"), frame.wire, wire)
    if tools:
        out["tools"] = tools
    lost += [Lost(format_path(path), "no counterpart") for path in _rest(body) if path not in carried]
    return out, tuple(lost)


def _as_list(value: Any, target: Path) -> Any:
    return [value] if isinstance(value, str) and target[-1] in ("stop", "stop_sequences", "stopSequences") else value


def _rest(body: Mapping[str, Any]) -> Iterator[Path]:
    for key, value in body.items():
        if key == "generationConfig" and isinstance(value, dict):
            yield from ((key, name) for name, setting in value.items() if not _is_nothing(setting))
        elif key != "tools" and not _is_nothing(value):
            yield (key,)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ([], {})


@frozen
class _Tool:
    """A function tool: its path, its name and description, its JSON Schema, and keys that are carried no further."""

    path: Path
    named: dict[str, Any]
    schema: Any
    is_strict: bool
    rest: tuple[str, ...]


_SCHEMA_KEYS: Final = ("parameters", "input_schema", "parametersJsonSchema")


def _carry_tools(tools: Any, source: Wire, target: Wire) -> tuple[list[Any], list[Lost]]:
    made: list[Any] = []
    lost: list[Lost] = []
    for path, tool in _list_tools(tools, source):
        if tool is None:
            lost.append(Lost(format_path(path), "a hosted tool, or of unknown shape"))
            continue
        made.append(_build_tool(tool, target))
        rest = (*tool.rest, "strict") if tool.is_strict and target is _GEMINI else tool.rest
        lost += [Lost(format_path((*tool.path, key)), "no counterpart") for key in rest]
    return ([{"functionDeclarations": made}] if made and target is _GEMINI else made), lost


def _list_tools(tools: Any, source: Wire) -> Iterator[tuple[Path, _Tool | None]]:
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        path: Path = ("tools", number)
        if source is not _GEMINI:
            yield path, _read_tool(path, tool, source)
            continue
        for key in tool if isinstance(tool, dict) else ():
            declared = tool[key] if key in ("functionDeclarations", "function_declarations") else None
            if not isinstance(declared, list):
                yield (*path, key), None
                continue
            for position, declaration in enumerate(declared):
                yield (*path, key, position), _read_tool((*path, key, position), declaration, source)


def _read_tool(path: Path, tool: Any, source: Wire) -> _Tool | None:
    if source is _CHAT and isinstance(tool, dict):
        path, tool = (*path, "function"), tool.get("function")
    if not isinstance(tool, dict) or tool.get("type", "function") not in ("function", "custom"):
        return None
    if not isinstance(tool.get("name"), str) or (source is not _ANTHROPIC and tool.get("type") == "custom"):
        return None
    key = next((key for key in _SCHEMA_KEYS if key in tool), None)
    schema = to_json_schema(tool[key]) if key else {"type": "object", "properties": {}}
    named = {name: tool[name] for name in ("name", "description") if tool.get(name) is not None}
    rest = sorted({*tool} - {"type", "name", "description", "strict", key})
    return _Tool(path, named, schema, tool.get("strict") is True, tuple(rest))


def _build_tool(tool: _Tool, target: Wire) -> dict[str, Any]:
    if target is _RESPONSES:  # strict unless it is told not to be, unlike the others
        return {"type": "function", **tool.named, "parameters": tool.schema, "strict": tool.is_strict}
    strict = {"strict": True} if tool.is_strict and target is not _GEMINI else {}
    if target is _CHAT:
        return {"type": "function", "function": {**tool.named, "parameters": tool.schema, **strict}}
    return {**tool.named, "input_schema" if target is _ANTHROPIC else "parametersJsonSchema": tool.schema, **strict}


def find_leftovers(frame: Frame, kept: Collection[str]) -> Iterator[Lost]:
    """Give the keys and parts that no message holds, of entries and of messages in *kept* (their ids)."""
    places = [[place for place in frame.places.values() if place.section == number] for number in range(2)]
    for section, found in zip(frame.sections, places, strict=False):
        bearing: dict[int, list[Place]] = {}
        for place in found:
            bearing.setdefault(place.unit.entry, []).append(place)
        for number, entry in enumerate(section.entries or ()):
            at = (*section.at, number)
            if number not in bearing:
                yield Lost(format_path(at), "of unknown shape")
                continue
            units = [place.unit for place in bearing[number]]
            chosen = [place.unit for place in bearing[number] if place.message.id in kept]
            paths = [*_unread_parts(entry, units), *_unread_keys(entry, chosen, FORMATS[frame.wire].taken)]
            yield from (Lost(format_path((*at, *path)), "no counterpart") for path in paths)


def _unread_parts(entry: Any, units: Sequence[Unit]) -> Iterator[Path]:
    read = {unit.span.path[:2] for unit in units}
    for key in ("content", "tool_calls", "parts") if () not in read else ():
        parts = entry.get(key)
        yield from (
            (key, number)
            for number in range(len(parts if isinstance(parts, list) else ()))
            if (key, number) not in read
        )


def _unread_keys(entry: Any, units: Sequence[Unit], taken: Collection[str]) -> Iterator[Path]:
    seen: set[Path] = set()
    for unit in units:
        span = unit.span
        named = [path[:-1] for path in (span.name, span.call_id) if path]
        for holder in _holders(unit):
            value = get_in(entry, holder)
            read = READ_KEYS if holder and holder[-1] in HOLDERS else taken
            for key in value if isinstance(value, dict) and holder not in seen else ():
                if key not in read and not (key == "name" and holder in named) and not _is_nothing(value[key]):
                    yield (*holder, key)
            seen.add(holder)


def _holders(unit: Unit) -> Iterator[Path]:
    """Give the objects around a message's text: the entry, its own block, what lies between, what holds an image."""
    span = unit.span
    yield ()
    for length in range(len(span.path), max(len(span.path) + 1, len(span.text))):
        yield span.text[:length]
    if unit.kind is Kind.OTHER and span.text == span.path:
        yield from ((*span.path, key) for key in HOLDERS)
