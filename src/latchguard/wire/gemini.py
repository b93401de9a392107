"""Gemini `generateContent`, in the REST spelling (camelCase) and the SDK's (snake_case).

1. Each part is one message; a part whose `thought` is true is reasoning. Signatures are the frame's.
2. `functionCall.args` is an object; its text is compact JSON as received. Ids of calls are optional.
3. A response of one string under `output`, `result` or `error` is that text (the keys that the API reference and the
   SDKs use); any other object is its compact JSON. One with media parts is `other`.
4. A signature without a part of its own is no message.
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
    Write,
    block_of,
    dump_text,
    load_object,
    role_of,
    split_turns,
    string_of,
    text_of_arguments,
    write_object,
    write_or,
    write_plain,
)

__all__ = ["GEMINI"]

_ROLES: Final = {"user": Role.USER, "model": Role.ASSISTANT, "function": Role.USER, "system": Role.SYSTEM}
_SYSTEM_KEYS: Final = ("systemInstruction", "system_instruction")
_CALLS: Final = ("functionCall", "function_call")
_RESPONSES: Final = ("functionResponse", "function_response")
_OUTPUTS: Final = ("output", "result", "error")
# What a part may hold beside text, calls and responses; a part with none of these keys is no message.
_OTHER: Final = (
    "inlineData", "inline_data", "fileData", "file_data", "executableCode", "executable_code",
    "codeExecutionResult", "code_execution_result", "toolCall", "toolResponse",
)  # fmt: skip
_write_part: Final = write_or(lambda text: {"text": text})


def _write_response(text: str, _old: Any) -> dict[str, Any]:
    found = load_object(text)
    return {"output": text} if found is None else found


def _read(body: Any) -> tuple[Section, ...]:
    if isinstance(body, list):
        return (Section((), body, tuple(_read_contents(body))),)
    contents = body.get("contents")
    main = Section(("contents",), None, (), exists=contents is not None)
    if isinstance(contents, list):
        main = Section(("contents",), contents, tuple(_read_contents(contents)))
    return _read_system(body), main


def _read_system(body: dict[str, Any]) -> Section:
    key = next((key for key in _SYSTEM_KEYS if body.get(key) is not None), _SYSTEM_KEYS[0])
    system = body.get(key)
    if isinstance(system, str):
        unit = Unit(0, Span((), (), write_plain), Role.SYSTEM, Kind.TEXT, system)
        return Section((key,), None, (unit,), wrap="parts")
    if isinstance(system, dict) and isinstance(parts := system.get("parts"), list):
        units = [unit for number, part in enumerate(parts) for unit in _read_part(number, Role.SYSTEM, part, ())]
        return Section((key, "parts"), parts, tuple(units))
    return Section((key,), None, (), exists=system is not None, wrap="parts")


def _read_contents(contents: Sequence[Any]) -> Iterator[Unit]:
    for number, content in enumerate(contents):
        if not isinstance(content, dict) or (role := role_of(_ROLES, content.get("role", "user"))) is None:
            continue
        parts = content.get("parts")
        for position, part in enumerate(parts if isinstance(parts, list) else ()):
            yield from _read_part(number, role, part, ("parts", position))


def _read_part(number: int, role: Role, part: Any, path: Path) -> Iterator[Unit]:
    if not isinstance(part, dict):
        return
    call, response = (
        next((key for key in keys if isinstance(part.get(key), dict)), None) for keys in (_CALLS, _RESPONSES)
    )
    if call:
        yield from _read_call(number, role, part[call], path, call)
    elif response:
        yield from _read_response(number, part[response], path, response)
    elif isinstance(text := part.get("text"), str):
        kind = Kind.REASONING if part.get("thought") is True else Kind.TEXT
        yield Unit(number, Span(path, (*path, "text"), write_plain), role, kind, text)
    elif any(key in part for key in _OTHER) and (dumped := dump_text(part)) is not None:
        yield Unit(number, Span(path, path, _write_part), role, Kind.OTHER, dumped)


def _read_call(number: int, role: Role, call: dict[str, Any], path: Path, key: str) -> Iterator[Unit]:
    if (text := text_of_arguments(call.get("args"))) is not None:
        span = Span(path, (*path, key, "args"), write_object, (*path, key, "name"), (*path, key, "id"))
        yield Unit(number, span, role, Kind.TOOL_CALL, text, string_of(call.get("name")), string_of(call.get("id")))


def _read_response(number: int, answer: dict[str, Any], path: Path, key: str) -> Iterator[Unit]:
    response, call_id = answer.get("response"), string_of(answer.get("id"))
    at: Path = (*path, key, "response")
    kind = Kind.OTHER if answer.get("parts") else Kind.TOOL_RESULT
    key_of_text = _key_of_text(response)
    text = text_of_arguments(response)
    write: Write = _write_response
    if isinstance(response, dict) and key_of_text:
        at, text, write = (*at, key_of_text), response[key_of_text], write_plain
    if text is not None:
        yield Unit(number, Span(path, at, write, call_id=(*path, key, "id")), Role.TOOL, kind, text, None, call_id)


def _key_of_text(response: Any) -> str | None:
    """Give the one key under which *response* holds a text; None where it is no such object."""
    if not isinstance(response, dict) or len(response) != 1:
        return None
    return next((key for key in _OUTPUTS if isinstance(response.get(key), str)), None)


def _build(drafts: Sequence[Draft]) -> list[Any]:
    return [
        {"role": "model" if is_assistant else "user", "parts": _build_parts(run)}
        for is_assistant, run in split_turns(drafts)
    ]


def _build_parts(drafts: Sequence[Draft]) -> list[Any]:
    return [_build_part(draft) for draft in drafts]


def _build_part(draft: Draft) -> dict[str, Any]:
    message = draft.message
    marked = {"id": message.tool_call_id} if message.tool_call_id else {}
    if message.kind is Kind.TOOL_CALL:
        return {"functionCall": {**marked, "name": message.tool_name or "", "args": write_object(message.text)}}
    if message.role is Role.TOOL:
        text = "\n".join(draft.texts) if draft.texts else message.text
        answer = {"name": draft.answers or "unknown", "response": {"error" if draft.failed else "output": text}}
        return {"functionResponse": {**marked, **answer}}
    if message.kind is Kind.REASONING:
        return {"text": message.text, "thought": True}
    if draft.media:
        media_type, source = draft.media
        return (
            {"inlineData": {"mimeType": media_type, "data": source}}
            if media_type
            else {"fileData": {"fileUri": source}}
        )
    return block_of(message) or {"text": message.text}


GEMINI: Final = Format(
    read=_read,
    build=_build,
    build_head=_build_parts,
    objects=True,
    taken=frozenset(
        (
            "role",
            "parts",
            "text",
            "functionCall",
            "functionResponse",
            "function_call",
            "function_response",
            "args",
            "response",
            "output",
            "result",
            "error",
            "id",
            "inlineData",
            "inline_data",
            "fileData",
            "file_data",
        )
    ),
)
