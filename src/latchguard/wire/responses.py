"""OpenAI Responses, and conversation items.

1. An item is one message, but for items of type `message`, whose parts are one each. Items may carry a host id.
2. Function and custom tool calls are calls, their outputs results; every other typed item is `other`.
3. The text of a reasoning item is its summary, else its content, else what is encrypted.
4. `instructions` is a head of one text. A string `input` is one text of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from attrs import evolve

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

__all__ = ["RESPONSES"]

_ROLES: Final = {str(role): role for role in Role if role is not Role.TOOL}
_TEXT_TYPES: Final = frozenset({"input_text", "output_text", "text"})
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
# Where a reasoning item keeps readable text: the key, and the type of its parts.
_REASONING: Final = {"summary": "summary_text", "content": "reasoning_text"}

_write_input_block: Final = write_or(lambda text: {"type": "input_text", "text": text})
_write_output_block: Final = write_or(lambda text: {"type": "output_text", "text": text})
_write_user_item: Final = write_or(lambda text: _message("user", text))
_write_assistant_item: Final = write_or(lambda text: _message("assistant", text))


def _read(body: Any) -> tuple[Section, ...]:
    if isinstance(body, list):
        return (Section((), body, tuple(_read_items(body))),)
    head = _read_text(("instructions",), body.get("instructions"), Role.SYSTEM)
    key = "items" if "items" in body and "input" not in body else "input"
    items = body.get(key)
    if not isinstance(items, list):
        return head, _read_text((key,), items, Role.USER)
    return head, Section((key,), items, tuple(_read_items(items)))


def _read_text(at: Path, value: Any, role: Role) -> Section:
    units = (Unit(0, Span((), (), write_plain), role, Kind.TEXT, value),) if isinstance(value, str) else ()
    return Section(at, None, units, exists=value is not None)


def _read_items(items: Sequence[Any]) -> Iterator[Unit]:
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        host_id = string_of(item.get("id"))
        for position, unit in enumerate(_read_item(number, item)):
            yield evolve(unit, host_id=host_id) if host_id and position == 0 else unit


def _read_item(number: int, item: dict[str, Any]) -> Iterator[Unit]:
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        return
    call_id = string_of(item.get("call_id"))
    if kind == "message":
        yield from _read_message(number, item)
    elif kind in _CALLS:
        if (text := text_of_arguments(item.get(_CALLS[kind]))) is not None:
            span = Span((), (_CALLS[kind],), write_plain, ("name",), ("call_id",))
            yield Unit(
                number,
                span,
                Role.ASSISTANT,
                Kind.TOOL_CALL,
                text,
                string_of(item.get("name")),
                call_id,
                custom=kind == "custom_tool_call",
            )
    elif kind in _OUTPUTS:
        if (result := read_result(item.get("output"), ("output",), _TEXT_TYPES)) is not None:
            found, text, at, write = result
            yield Unit(number, Span((), at, write, None, ("call_id",)), Role.TOOL, found, text, None, call_id)
    elif kind == "reasoning":
        yield _read_reasoning(number, item)
    elif (dumped := dump_text(item)) is not None:
        role = Role.TOOL if kind.endswith("_output") else Role.ASSISTANT
        span = Span((), (), _write_user_item if role is Role.TOOL else _write_assistant_item)
        yield Unit(number, span, role, Kind.OTHER, dumped, None, call_id)


def _read_message(number: int, item: dict[str, Any]) -> Iterator[Unit]:
    role, content = role_of(_ROLES, item.get("role")), item.get("content")
    if role is None:
        return
    if isinstance(content, str):
        yield Unit(number, Span(("content",), ("content",), write_plain), role, Kind.TEXT, content)
    for position, block in enumerate(content if isinstance(content, list) else ()):
        path: Path = ("content", position)
        if (text := text_of(block, _TEXT_TYPES)) is not None:
            yield Unit(number, Span(path, (*path, "text"), write_plain), role, Kind.TEXT, text)
        elif isinstance(block, dict) and isinstance(block.get("type"), str) and (dumped := dump_text(block)):
            write = _write_output_block if role is Role.ASSISTANT else _write_input_block
            yield Unit(number, Span(path, path, write), role, Kind.OTHER, dumped)


def _read_reasoning(number: int, item: dict[str, Any]) -> Unit:
    for key, part_type in _REASONING.items():
        parts = item.get(key)
        texts = [text_of(part, (part_type,)) for part in parts] if isinstance(parts, list) else []
        if text := "\n\n".join(text for text in texts if text):
            write = _write_summary if key == "summary" else _write_thoughts
            return Unit(number, Span((), (key,), write), Role.ASSISTANT, Kind.REASONING, text)
    key, text = "encrypted_content", string_of(item.get("encrypted_content")) or ""
    span = Span((), (key,), write_plain) if text else Span((), ("summary",), _write_summary)
    return Unit(number, span, Role.ASSISTANT, Kind.REASONING, text)


def _write_summary(text: str, _old: Any = None) -> list[Any]:
    return [{"type": "summary_text", "text": text}]


def _write_thoughts(text: str, _old: Any) -> list[Any]:
    return [{"type": "reasoning_text", "text": text}]


def _message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def _build(drafts: Sequence[Draft]) -> list[Any]:
    items: list[Any] = []
    for _, run in split_turns(drafts):
        for said, members in groupby(run, _said_with):
            group = list(members)
            items += [_build_said(group)] if said else map(_build_item, group)
    return items


def _said_with(draft: Draft) -> object:
    """Give what drafts share that become one message item; None for those that are items of their own."""
    message = draft.message
    is_said = message.kind in (Kind.TEXT, Kind.OTHER) and message.role is not Role.TOOL
    group = message.id if message.role is Role.ASSISTANT else draft.group or message.id
    return (message.role, group) if is_said else None


def _build_item(draft: Draft) -> dict[str, Any]:
    message, kind = draft.message, "custom_tool_call" if draft.custom else "function_call"
    call_id = message.tool_call_id or message.id
    if message.kind is Kind.TOOL_CALL:
        return {"type": kind, "call_id": call_id, "name": message.tool_name or "", _CALLS[kind]: message.text}
    if message.kind is Kind.REASONING:
        return {"type": "reasoning", "summary": _write_summary(message.text)}
    output: Any = message.text
    if draft.texts:
        output = [{"type": "input_text", "text": text} for text in draft.texts]
    elif message.kind is Kind.OTHER:
        output = write_value(message.text, [])
    return {"type": f"{kind}_output", "call_id": call_id, "output": output}


def _build_said(drafts: Sequence[Draft]) -> dict[str, Any]:
    first = drafts[0].message
    if first.role is Role.ASSISTANT and first.kind is Kind.TEXT:
        return _message("assistant", first.text)  # parts of the assistant's demand an id and a status
    return _message(str(first.role), [_build_part(draft) for draft in drafts])


def _build_part(draft: Draft) -> dict[str, Any]:
    if draft.media:
        media_type, source = draft.media
        return {"type": "input_image", "image_url": f"data:{media_type};base64,{source}" if media_type else source}
    return block_of(draft.message) or {"type": "input_text", "text": draft.message.text}


RESPONSES: Final = Format(
    read=_read,
    build=_build,
    build_head=None,
    objects=False,
    taken=frozenset(
        ("type", "role", "content", "call_id", "arguments", "input", "output", "text", "id", "status", "image_url")
    ),
)
