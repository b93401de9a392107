"""Fast answers for healthy bodies: loops over the usual shape, at a fraction of the price of a walk.

Each says True only where the full walk would find nothing; any other shape, and any doubt, is False, and the walk
decides. They read, make nothing, and never raise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from latchguard.core.findings import Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.layout import at, conversations, declared_tools

__all__ = [
    "NAME",
    "OUTPUT_TYPES",
    "RESPONSES_ID_LIMIT",
    "plainly_named",
    "plainly_paired",
    "plainly_reasoned",
    "plainly_written",
]

OUTPUT_TYPES: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
RESPONSES_ID_LIMIT: Final = 64
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_OUTPUTS: Final = tuple(OUTPUT_TYPES.values())


def plainly_paired(body: Any, wire: Wire) -> bool:
    """Say whether every call of *body* has an id of its own and its one result at its place."""
    try:
        return all(_PAIRED[wire](at(body, path)) for path in conversations(body, wire))
    except (TypeError, KeyError, AttributeError, ValueError, IndexError):
        return False


def plainly_named(body: Any, wire: Wire, demands: Mapping[str, Any]) -> bool:
    """Say whether every name is one that the wire takes, every id short and plain enough, every item id one."""
    try:
        tools = [tool["name"] for _, tool in declared_tools(body, wire)]
        if len(set(tools)) != len(tools) or not _are_names(set(tools)):
            return False
        return all(_is_named(body, path, wire, demands) for path in conversations(body, wire))
    except (TypeError, KeyError, AttributeError, ValueError, IndexError):
        return False


def _is_named(body: Any, path: Path, wire: Wire, demands: Mapping[str, Any]) -> bool:
    messages = at(body, path)
    calls = _CALLS[wire](messages)
    chat = wire is Wire.OPENAI_CHAT
    if not _are_names({call["function"]["name"] if chat else call["name"] for call in calls}):
        return False
    if wire is Wire.OPENAI_RESPONSES:
        item_ids = [item["id"] for item in messages if "id" in item]
        if len(set(item_ids)) != len(item_ids) or (item_ids and body["store"] is False):
            return False
    if wire is Wire.GEMINI:
        return True
    ids = [call[_ID_KEYS[wire]] for call in calls]
    limit = demands.get("call-id-length", RESPONSES_ID_LIMIT if wire is Wire.OPENAI_RESPONSES else sys.maxsize)
    form = demands.get("call-id-form")
    return max(map(len, ids), default=0) <= limit and (form is None or all(map(re.compile(form).fullmatch, ids)))


def _are_names(names: set[Any]) -> bool:
    return all(map(NAME.fullmatch, names))


_ID_KEYS: Final = {Wire.OPENAI_CHAT: "id", Wire.OPENAI_RESPONSES: "call_id", Wire.ANTHROPIC: "id"}
_CALLS: Final[Mapping[Wire, Callable[[Sequence[Any]], list[Any]]]] = {
    Wire.OPENAI_CHAT: lambda messages: [
        call for message in messages if "tool_calls" in message for call in message["tool_calls"] or ()
    ],
    Wire.OPENAI_RESPONSES: lambda items: [item for item in items if item.get("type") in OUTPUT_TYPES],
    Wire.ANTHROPIC: lambda messages: [
        block
        for message in messages
        if type(message["content"]) is not str
        for block in message["content"]
        if block["type"] == "tool_use"
    ],
    Wire.GEMINI: lambda contents: [
        part[key]
        for content in contents
        for part in content["parts"]
        for key in ("functionCall", "function_call")
        if key in part
    ],
}


# Demands of which a content rule may have to look at every block.
_LOOKS_AT_BLOCKS: Final = frozenset(
    {
        "content-key",
        "content-text",
        "no-empty-text",
        "prefill",
        "reasoning-content",
        "result-text",
        "roles-alternate",
        "text-only",
    }
)
_STR: Final = {str}


def plainly_written(body: Any, wire: Wire, demands: Mapping[str, Any]) -> bool:
    """Say whether no text, result or field of *body* concerns a content rule; surrogate halves are not looked for."""
    if not _LOOKS_AT_BLOCKS.isdisjoint(demands):
        return False
    try:
        if wire is Wire.ANTHROPIC and isinstance(body, dict) and "system" in body:
            system = body["system"]
            if type(system) is not str and not _blocks_written(system):
                return False
        return all(_WRITTEN[wire](at(body, path)) for path in conversations(body, wire))
    except (TypeError, KeyError, AttributeError, ValueError):
        return False


def _chat_written(messages: Sequence[Any]) -> bool:
    results = {type(message["content"]) for message in messages if message["role"] == "tool"}
    return results <= _STR and [] not in [message["tool_calls"] for message in messages if "tool_calls" in message]


def _anthropic_written(messages: Sequence[Any]) -> bool:
    for message in messages:
        content = message["content"]
        if type(content) is str:
            if not content or content.isspace():
                return False
        elif not _blocks_written(content):
            return False
    return True


def _blocks_written(blocks: Sequence[Any]) -> bool:
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            text = block["text"]
            if not text or text.isspace():
                return False
        elif kind == "tool_result":
            if type(block["content"]) is not str:
                return False
        elif kind not in ("tool_use", "thinking", "redacted_thinking"):
            return False
    return True


_WRITTEN: Final[Mapping[Wire, Callable[[Sequence[Any]], bool]]] = {
    Wire.OPENAI_CHAT: _chat_written,
    Wire.OPENAI_RESPONSES: lambda items: {type(item["output"]) for item in items if "output" in item} <= _STR,
    Wire.ANTHROPIC: _anthropic_written,
    Wire.GEMINI: lambda _contents: True,
}


def plainly_reasoned(body: Any, wire: Wire) -> bool:
    """Say whether *body* holds no reasoning item and no thought signature inside a call."""
    try:
        return all(_REASONED[wire](at(body, path)) for path in conversations(body, wire))
    except (TypeError, KeyError, AttributeError, ValueError):
        return False


def _gemini_reasoned(contents: Sequence[Any]) -> bool:
    calls = [part["functionCall"] for content in contents for part in content["parts"] if "functionCall" in part]
    snake = [1 for content in contents for part in content["parts"] if "function_call" in part]
    return not snake and not [1 for call in calls if "thoughtSignature" in call or "thought_signature" in call]


_REASONED: Final[Mapping[Wire, Callable[[Sequence[Any]], bool]]] = {
    Wire.OPENAI_CHAT: lambda _messages: True,
    Wire.OPENAI_RESPONSES: lambda items: "reasoning" not in [item.get("type") for item in items],
    Wire.ANTHROPIC: lambda _messages: True,
    Wire.GEMINI: _gemini_reasoned,
}


def _chat_paired(messages: Sequence[Any]) -> bool:
    waiting: set[Any] = set()
    seen: set[Any] = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        elif "tool_calls" in message and (calls := message["tool_calls"]):
            if message["role"] != "assistant" or not isinstance(message.get("content"), str | None):
                return False
            waiting.update([call["id"] for call in calls])
            before = len(seen)
            seen |= waiting
            if len(seen) != before + len(calls):
                return False
    return not waiting


def _responses_paired(items: Sequence[Any]) -> bool:
    waiting: dict[Any, str] = {}
    seen: set[Any] = set()
    for item in items:
        kind = item.get("type")
        if kind in OUTPUT_TYPES:
            call_id = item["call_id"]
            if call_id in seen:
                return False
            seen.add(call_id)
            waiting[call_id] = OUTPUT_TYPES[kind]
        elif kind in _OUTPUTS:
            if waiting.pop(item["call_id"]) != kind:
                return False
        elif "call_id" in item:
            return False
    return not waiting


def _anthropic_paired(messages: Sequence[Any]) -> bool:
    waiting: set[Any] = set()
    seen: set[Any] = set()
    role = None
    for message in messages:
        before, role, content = role, message["role"], message["content"]
        if type(content) is str:
            if waiting:
                return False
        elif role == "user":
            results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
            if results and (role == before or any(block["type"] != "tool_result" for block in content[: len(results)])):
                return False
            for call_id in results:
                waiting.remove(call_id)
            if waiting:
                return False
        elif role != "assistant" or waiting or not _adds_calls(content, waiting, seen):
            return False
    return not waiting and role != "assistant"


def _adds_calls(blocks: Sequence[Any], waiting: set[Any], seen: set[Any]) -> bool:
    for block in blocks:
        kind = block["type"]
        if kind == "tool_use":
            if block["id"] in seen:
                return False
            seen.add(block["id"])
            waiting.add(block["id"])
        elif kind not in ("text", "thinking", "redacted_thinking"):
            return False
    return True


def _gemini_paired(contents: Sequence[Any]) -> bool:
    waiting: list[Any] = []
    role: Any = "model"
    for content in contents:
        before, role, parts = role, content["role"], content["parts"]
        if role == "model":
            if waiting or before == "model":
                return False
            waiting = [_key(part["functionCall"]) for part in parts if "functionCall" in part]
            if any("function_call" in part for part in parts):
                return False
        elif role in ("user", "function"):
            answers = [_key(part["functionResponse"]) for part in parts if "functionResponse" in part]
            if any("function_response" in part for part in parts):
                return False
            for key in answers:
                waiting.remove(key)
            if waiting:
                return False
        else:
            return False
    return not waiting and role != "model"


def _key(call: Mapping[str, Any]) -> tuple[Any, Any]:
    return call.get("id"), call["name"]


_PAIRED: Final[Mapping[Wire, Callable[[Sequence[Any]], bool]]] = {
    Wire.OPENAI_CHAT: _chat_paired,
    Wire.OPENAI_RESPONSES: _responses_paired,
    Wire.ANTHROPIC: _anthropic_paired,
    Wire.GEMINI: _gemini_paired,
}
