"""Which wire a body is of, told from its shape.

1. The first evidence that speaks decides, in this order: the top key; a key or tool that only one wire has; an entry
   that only one has (chat's roles and `tool_calls`); a block that only one has.
2. Plain text under `messages` is legal on two wires. There the model's name and a missing `max_tokens` (which Anthropic
   demands) decide where they agree; else the answer is None.
3. Shapes as documented by the providers' API references in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from latchguard.core.errors import WireUndecidedError, cut
from latchguard.core.findings import Wire

__all__ = ["detect_wire", "is_plain", "require_wire"]

# The keys under which each wire keeps its history; `messages` leaves two wires open.
_TOP_KEYS: Final[Mapping[str, Wire | None]] = {
    "messages": None,
    "contents": Wire.GEMINI,
    "input": Wire.OPENAI_RESPONSES,
    "items": Wire.OPENAI_RESPONSES,
}
# Keys of a body with `messages` that one of the two wires has and the other has not.
_BODY_KEYS: Final = {
    **dict.fromkeys(
        ("system", "anthropic_version", "anthropic_beta", "stop_sequences", "mcp_servers"),
        Wire.ANTHROPIC,
    ),
    **dict.fromkeys(
        (
            "functions", "function_call", "frequency_penalty", "logprobs", "max_completion_tokens", "n",
            "parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop",
            "stream_options",
        ),
        Wire.OPENAI_CHAT,
    ),
}  # fmt: skip
_CHAT_ROLES: Final = frozenset({"system", "developer", "tool", "function"})
_CHAT_KEYS: Final = frozenset({"tool_calls", "tool_call_id", "function_call", "reasoning_content"})
_ANTHROPIC_BLOCKS: Final = re.compile(
    r"(?:.*_)?tool_(?:use|result)|thinking|redacted_thinking|image|document|search_result|container_upload"
)
_CHAT_BLOCKS: Final = frozenset({"image_url", "input_audio", "file", "refusal", "video_url"})
_RESPONSES_ITEMS: Final = re.compile(
    r"message|reasoning|item_reference|compaction|\w+_call|\w+_call_output|tool_search_output|mcp_\w+"
)
_RESPONSES_BLOCKS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_OPENAI_MODEL: Final = re.compile(r"(?:gpt-|chatgpt-|o[0-9])")


def detect_wire(body: object) -> Wire | None:
    """Say of which wire *body* is, or None where its shape does not decide.

    Args:
        body: a request body, or the bare list of its messages, items or contents.

    Guarantees:
        Pure, stable, never raises, whatever *body* holds.
    """
    if isinstance(body, list):
        return _detect_entries(body)
    if not isinstance(body, Mapping):
        return None
    found = [wire for key, wire in _TOP_KEYS.items() if key in body]
    if found != [None]:
        return found[0] if len(found) == 1 else None
    for key, wire in _BODY_KEYS.items():
        if body.get(key) is not None:
            return wire
    return _detect_tools(body.get("tools")) or _detect_entries(body["messages"]) or _detect_model(body)


def require_wire(body: object, wire: Wire | str | None = None) -> Wire:
    """Give *wire*, or where it is None the wire that *body* is of.

    Raises:
        WireUndecidedError: *wire* is no wire, or it is None and the shape of *body* does not decide.
    """
    if wire is not None and (not isinstance(wire, str) or wire not in tuple(Wire)):
        raise WireUndecidedError(cut(wire), tuple(Wire))
    found = detect_wire(body) if wire is None else Wire(wire)
    if found is None:
        shape = sorted(str(key) for key in body) if isinstance(body, Mapping) else type(body).__name__
        raise WireUndecidedError(cut(shape), tuple(Wire))
    return found


def is_plain(body: object) -> bool:
    """Say whether *body* is of chat or Anthropic and reads the same on both: all that differs would have decided."""
    if isinstance(body, Mapping):
        return isinstance(body.get("messages"), list) and _TOP_KEYS.keys() & body.keys() == {"messages"}
    return isinstance(body, list)


def _detect_tools(tools: object) -> Wire | None:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            if "function" in tool or "custom" in tool:
                return Wire.OPENAI_CHAT
            if "input_schema" in tool or re.search("_[0-9]{8}$", str(tool.get("type"))):
                return Wire.ANTHROPIC
    return None


def _detect_entries(entries: object) -> Wire | None:
    known = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    for entry in known:
        if "parts" in entry:
            return Wire.GEMINI
        if isinstance(kind := entry.get("type"), str) and _RESPONSES_ITEMS.fullmatch(kind):
            return Wire.OPENAI_RESPONSES
        if not _CHAT_KEYS.isdisjoint(entry):
            return Wire.OPENAI_CHAT
    kinds = set(_block_kinds(known))
    if kinds & _RESPONSES_BLOCKS:
        return Wire.OPENAI_RESPONSES
    if kinds & _CHAT_BLOCKS or any(_is_chat_role(entry.get("role")) for entry in known):
        return Wire.OPENAI_CHAT
    return Wire.ANTHROPIC if any(map(_ANTHROPIC_BLOCKS.fullmatch, kinds)) else None


def _block_kinds(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for entry in entries:
        content = entry.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, Mapping) and isinstance(kind := block.get("type"), str):
                yield kind


def _is_chat_role(role: object) -> bool:
    return isinstance(role, str) and role in _CHAT_ROLES


def _detect_model(body: Mapping[str, Any]) -> Wire | None:
    model = body.get("model")
    if not isinstance(model, str):
        return None
    capped = body.get("max_tokens") is not None
    if model.startswith("claude"):
        return Wire.ANTHROPIC if capped else None
    return Wire.OPENAI_CHAT if not capped or _OPENAI_MODEL.match(model) else None
