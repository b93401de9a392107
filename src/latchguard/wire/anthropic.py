"""Anthropic Messages, and what speaks it (Bedrock, Vertex).

1. Each block is one message. A `tool_result` is a message of the role tool, whoever's entry it stands in.
2. Arguments are objects; their text is compact JSON as received. Text in place of an object is kept as it is.
3. The text of redacted thinking is its data. Signatures, cache marks and `is_error` are the frame's.
4. Client tools only are calls; `server_tool_use`, `mcp_tool_use` and their results are `other`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from latchguard.core.jsonspans import Path
from latchguard.core.message import Kind, Role
from latchguard.wire.base import (
    Draft,
    Format,
    Section,
    Span,
    Unit,
    block_of,
    dump_text,
    read_result,
    role_of,
    split_turns,
    string_of,
    text_of,
    text_of_arguments,
    write_object,
    write_or,
    write_plain,
    write_value,
)

__all__ = ["ANTHROPIC"]

_ROLES: Final = {str(role): role for role in Role if role is not Role.TOOL}
_TEXT_TYPES: Final = frozenset({"text"})
_REASONING: Final = {"thinking": "thinking", "redacted_thinking": "data"}
_write_block: Final = write_or(lambda text: {"type": "text", "text": text})


def _read(body: Any) -> tuple[Section, ...]:
    if isinstance(body, list):
        return (Section((), body, tuple(_read_entries(body))),)
    entries = body.get("messages")
    main = Section(("messages",), None, (), exists=entries is not None)
    if isinstance(entries, list):
        main = Section(("messages",), entries, tuple(_read_entries(entries)))
    return _read_system(body.get("system")), main


def _read_system(system: Any) -> Section:
    if isinstance(system, list):
        units = [unit for number, block in enumerate(system) for unit in _read_block(number, Role.SYSTEM, block, ())]
        return Section(("system",), system, tuple(units))
    if isinstance(system, str):
        unit = Unit(0, Span((), (), write_plain), Role.SYSTEM, Kind.TEXT, system)
        return Section(("system",), None, (unit,))
    return Section(("system",), None, (), exists=system is not None)


def _read_entries(entries: Sequence[Any]) -> Iterator[Unit]:
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or (role := role_of(_ROLES, entry.get("role"))) is None:
            continue
        content = entry.get("content")
        if isinstance(content, str):
            yield Unit(number, Span(("content",), ("content",), write_plain), role, Kind.TEXT, content)
        for position, block in enumerate(content if isinstance(content, list) else ()):
            yield from _read_block(number, role, block, ("content", position))


def _read_block(number: int, role: Role, block: Any, path: Path) -> Iterator[Unit]:
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return
    if (text := text_of(block, _TEXT_TYPES)) is not None:
        yield Unit(number, Span(path, (*path, "text"), write_plain), role, Kind.TEXT, text)
    elif (key := _REASONING.get(kind)) and isinstance(block.get(key), str):
        yield Unit(number, Span(path, (*path, key), write_plain), role, Kind.REASONING, block[key])
    elif kind == "tool_use":
        if (text := text_of_arguments(block.get("input"))) is not None:
            span = Span(path, (*path, "input"), write_object, (*path, "name"), (*path, "id"))
            name, call_id = string_of(block.get("name")), string_of(block.get("id"))
            yield Unit(number, span, role, Kind.TOOL_CALL, text, name, call_id)
    elif kind == "tool_result":
        if (result := read_result(block.get("content"), (*path, "content"), _TEXT_TYPES)) is not None:
            found, text, at, write = result
            span = Span(path, at, write, call_id=(*path, "tool_use_id"))
            yield Unit(number, span, Role.TOOL, found, text, None, string_of(block.get("tool_use_id")))
    elif (dumped := dump_text(block)) is not None:
        call_id = string_of(block.get("tool_use_id", block.get("id")))
        yield Unit(number, Span(path, path, _write_block), role, Kind.OTHER, dumped, None, call_id)


def _build(drafts: Sequence[Draft]) -> list[Any]:
    entries: list[Any] = []
    for is_assistant, run in split_turns(drafts):
        entries.append({"role": "assistant" if is_assistant else "user", "content": _build_blocks(run)})
    return entries


def _build_blocks(drafts: Sequence[Draft]) -> list[Any]:
    return [_build_block(draft) for draft in drafts]


def _build_block(draft: Draft) -> dict[str, Any]:
    message = draft.message
    if message.kind is Kind.TOOL_CALL:
        call_id, name = message.tool_call_id or message.id, message.tool_name or ""
        return {"type": "tool_use", "id": call_id, "name": name, "input": write_object(message.text)}
    if message.role is Role.TOOL:
        return _build_result(draft)
    if message.kind is Kind.REASONING:
        return {"type": "thinking", "thinking": message.text}
    if draft.media:
        media_type, source = draft.media
        found = (
            {"type": "base64", "media_type": media_type, "data": source}
            if media_type
            else {"type": "url", "url": source}
        )
        return {"type": "image", "source": found}
    return block_of(message) or {"type": "text", "text": message.text}


def _build_result(draft: Draft) -> dict[str, Any]:
    message = draft.message
    content: Any = message.text
    if draft.texts:
        content = [{"type": "text", "text": text} for text in draft.texts]
    elif message.kind is Kind.OTHER:
        content = write_value(message.text, [])
    block = {"type": "tool_result", "tool_use_id": message.tool_call_id or message.id, "content": content}
    return {**block, "is_error": True} if draft.failed else block


ANTHROPIC: Final = Format(
    read=_read,
    build=_build,
    build_head=_build_blocks,
    objects=True,
    taken=frozenset(("role", "content", "type", "text", "id", "input", "tool_use_id", "is_error", "source")),
)
