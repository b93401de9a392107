"""OpenAI Chat Completions, and the servers that copy it.

1. An assistant entry holds reasoning (`reasoning_content`, `reasoning`: DeepSeek, vLLM, OpenRouter), text, calls.
2. Empty text beside calls is padding (some servers want `""`, some null) and no message.
3. A tool entry is one result; so is an entry of the legacy role `function`, which has no call id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
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
    write_or,
    write_plain,
    write_value,
)

__all__ = ["CHAT"]

_ROLES: Final = {**{str(role): role for role in Role}, "function": Role.TOOL}
_TEXT_TYPES: Final = frozenset({"text"})
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")
_write_block: Final = write_or(lambda text: {"type": "text", "text": text})
_CALL_TYPES: Final = {"function": "arguments", "custom": "input"}


def _read(body: Any) -> tuple[Section, ...]:
    at: Path = () if isinstance(body, list) else ("messages",)
    entries = body if isinstance(body, list) else body.get("messages")
    if not isinstance(entries, list):
        return (Section(at, None, (), exists=entries is not None),)
    return (Section(at, entries, tuple(_read_entries(entries))),)


def _read_entries(entries: Sequence[Any]) -> Iterator[Unit]:
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or (role := role_of(_ROLES, entry.get("role"))) is None:
            continue
        if role is Role.TOOL:
            yield from _read_result(number, entry)
            continue
        calls = tuple(_read_calls(number, role, entry))
        yield from _read_reasoning(number, role, entry)
        yield from (unit for unit in _read_content(number, role, entry.get("content")) if unit.text or not calls)
        yield from calls


def _read_result(number: int, entry: dict[str, Any]) -> Iterator[Unit]:
    result = read_result(entry.get("content"), ("content",), _TEXT_TYPES)
    if result is not None:
        kind, text, at, write = result
        span = Span((), at, write, call_id=("tool_call_id",))
        yield Unit(number, span, Role.TOOL, kind, text, None, string_of(entry.get("tool_call_id")))


def _read_reasoning(number: int, role: Role, entry: dict[str, Any]) -> Iterator[Unit]:
    key = next((key for key in _REASONING_KEYS if isinstance(entry.get(key), str) and entry[key]), None)
    if key and role is Role.ASSISTANT:
        yield Unit(number, Span((key,), (key,), write_plain), role, Kind.REASONING, entry[key])


def _read_content(number: int, role: Role, content: Any) -> Iterator[Unit]:
    if isinstance(content, str):
        yield Unit(number, Span(("content",), ("content",), write_plain), role, Kind.TEXT, content)
    for position, block in enumerate(content if isinstance(content, list) else ()):
        path: Path = ("content", position)
        if (text := text_of(block, _TEXT_TYPES)) is not None:
            yield Unit(number, Span(path, (*path, "text"), write_plain), role, Kind.TEXT, text)
        elif isinstance(block, dict) and isinstance(block.get("type"), str) and (dumped := dump_text(block)):
            yield Unit(number, Span(path, path, _write_block), role, Kind.OTHER, dumped)


def _read_calls(number: int, role: Role, entry: dict[str, Any]) -> Iterator[Unit]:
    calls = entry.get("tool_calls")
    for position, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            kind = "custom" if isinstance(call.get("custom"), dict) else "function"
            yield from _read_call(number, role, call, kind, ("tool_calls", position))
    yield from _read_call(number, role, entry, "function_call", ())


def _read_call(number: int, role: Role, holder: dict[str, Any], key: str, path: Path) -> Iterator[Unit]:
    called = holder.get(key)
    if not isinstance(called, dict):
        return
    field = _CALL_TYPES.get(key, "arguments")
    text = text_of_arguments(called.get(field))
    if text is not None:
        call_id = (*path, "id") if path else None
        span = Span(path or (key,), (*path, key, field), write_plain, (*path, key, "name"), call_id)
        tool_call_id = string_of(holder.get("id")) if path else None
        yield Unit(
            number,
            span,
            role,
            Kind.TOOL_CALL,
            text,
            string_of(called.get("name")),
            tool_call_id,
            custom=key == "custom",
        )


def _build(drafts: Sequence[Draft]) -> list[Any]:
    entries: list[Any] = []
    for is_assistant, run in split_turns(drafts):
        if is_assistant:
            entries.append(_build_assistant(run))
            continue
        for _, group in groupby(run, lambda draft: (draft.message.role, draft.group or draft.message.id)):
            entries += _build_others(list(group))
    return entries


def _build_assistant(drafts: Sequence[Draft]) -> dict[str, Any]:
    said = [draft for draft in drafts if draft.message.kind not in (Kind.TOOL_CALL, Kind.REASONING)]
    thought = [draft.message.text for draft in drafts if draft.message.kind is Kind.REASONING]
    calls = [_build_call(draft) for draft in drafts if draft.message.kind is Kind.TOOL_CALL]
    entry: dict[str, Any] = {"role": "assistant", "content": _build_content(said) if said else None}
    if thought:
        entry["reasoning_content"] = "\n\n".join(thought)
    if calls:
        entry["tool_calls"] = calls
    return entry


def _build_call(draft: Draft) -> dict[str, Any]:
    message = draft.message
    kind = "custom" if draft.custom else "function"
    called = {"name": message.tool_name or "", _CALL_TYPES[kind]: message.text}
    return {"id": message.tool_call_id or message.id, "type": kind, kind: called}


def _build_others(drafts: Sequence[Draft]) -> list[Any]:
    role = drafts[0].message.role
    if role is not Role.TOOL:
        return [{"role": str(role), "content": _build_content(drafts)}]
    return [
        {"role": "tool", "tool_call_id": draft.message.tool_call_id or draft.message.id, "content": _result(draft)}
        for draft in drafts
    ]


def _result(draft: Draft) -> Any:
    if draft.texts:
        return [{"type": "text", "text": text} for text in draft.texts]
    return write_value(draft.message.text, []) if draft.message.kind is Kind.OTHER else draft.message.text


def _build_content(drafts: Sequence[Draft]) -> Any:
    blocks = [_build_block(draft) for draft in drafts]
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].get("type") == "text" else blocks


def _build_block(draft: Draft) -> dict[str, Any]:
    if draft.media:
        media_type, source = draft.media
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{media_type};base64,{source}" if media_type else source},
        }
    return block_of(draft.message) or {"type": "text", "text": draft.message.text}


CHAT: Final = Format(
    read=_read,
    build=_build,
    build_head=None,
    objects=False,
    taken=frozenset(
        (
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "function_call",
            "id",
            "type",
            "text",
            "function",
            "custom",
            "arguments",
            "input",
            "reasoning_content",
            "reasoning",
            "image_url",
        )
    ),
)
