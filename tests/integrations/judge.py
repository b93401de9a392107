"""A strict provider's verdict on a request body. Shares no code with latchguard.

JSON is judged by Node's `JSON.parse`, the shape of a body by the official SDKs' own request types, and the pairing
of calls and results by the few lines below.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Self

import pytest
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from google.genai import types as gemini
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError

NODE = """
const lines = require('readline').createInterface({input: process.stdin});
lines.on('line', line => {
  const text = Buffer.from(line, 'hex').toString('utf8');
  try { JSON.parse(text); console.log('valid'); } catch (error) { console.log('invalid'); }
});
"""

# The SDKs' types of a whole answer's request and of a streamed one's.
SHAPES: dict[str, tuple[Any, Any]] = {
    "chat": (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming),
    "responses": (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming),
    "messages": (MessageCreateParamsNonStreaming, MessageCreateParamsStreaming),
    "count_tokens": (MessageCountTokensParams, MessageCountTokensParams),
}


class Node:
    """`JSON.parse` in one child process, asked line by line."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            if os.environ.get("CI"):
                pytest.fail("CI must have Node: it judges JSON")
            pytest.skip("Node judges JSON here")
        self._child = subprocess.Popen([node, "-e", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()

    def parses(self, text: str | bytes) -> bool:
        """Ask `JSON.parse`."""
        raw = text.encode() if isinstance(text, str) else text
        child = self._child
        assert child.stdin
        assert child.stdout
        with self._lock:
            child.stdin.write(raw.hex().encode() + b"\n")
            child.stdin.flush()
            return child.stdout.readline() == b"valid\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._child:
            assert self._child.stdin
            self._child.stdin.close()


def judge(node: Node, shape: str, raw: bytes) -> list[str]:
    """Say what a strict provider has against a body; nothing where it takes it."""
    if not node.parses(raw):
        return ["parse_error.101: the body is no JSON"]
    body = json.loads(raw)
    complaints = [f"parse_error.101: arguments {text!r}" for text in ARGUMENTS[shape](body) if not node.parses(text)]
    return complaints or [*_check_shape(shape, body), *PAIRING[shape](body)]


def _check_shape(shape: str, body: dict[str, Any]) -> Iterable[str]:
    try:
        if shape == "gemini":
            for content in body["contents"]:
                gemini.Content.model_validate(content)
        else:
            _exhaust(_adapter(shape, streamed=body.get("stream") is True).validate_python(body))
    except ValidationError as error:
        yield f"invalid_request_error: {error.errors()[0]['loc']} {error.errors()[0]['msg']}"


@cache
def _adapter(shape: str, *, streamed: bool) -> TypeAdapter[Any]:
    return TypeAdapter(SHAPES[shape][streamed])


def _exhaust(value: Any) -> None:
    """Read all: the items of an `Iterable` are checked only while they are read."""
    for item in value.values() if isinstance(value, Mapping) else value:
        if not isinstance(item, str | bytes | int | float | None):
            _exhaust(item)


def _chat_arguments(body: dict[str, Any]) -> Iterable[str]:
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            yield arguments if isinstance(arguments, str) else "{}"  # another type is the shape's complaint


def _responses_arguments(body: dict[str, Any]) -> Iterable[str]:
    for item in body["input"] if isinstance(body["input"], list) else ():
        if item.get("type") == "function_call":
            yield item["arguments"] if isinstance(item["arguments"], str) else "{}"


def _no_arguments(body: dict[str, Any]) -> Iterable[str]:
    return ()


def _chat_pairing(body: dict[str, Any]) -> Iterable[str]:
    open_calls: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                yield f"a result for no open call: {message['tool_call_id']}"
            open_calls.discard(message["tool_call_id"])
        else:
            yield from (f"no result for {call}" for call in sorted(open_calls))
            open_calls = {call["id"] for call in message.get("tool_calls") or ()}
    yield from (f"no result for {call}" for call in sorted(open_calls))


def _responses_pairing(body: dict[str, Any]) -> Iterable[str]:
    items = body["input"] if isinstance(body["input"], list) else []
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"}
    results = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    yield from (f"call and result do not pair: {call}" for call in sorted(calls ^ results))


def _messages_pairing(body: dict[str, Any]) -> Iterable[str]:
    wanted: set[str] = set()
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != wanted:
            yield f"tool_use and tool_result do not pair: {sorted(results ^ wanted)}"
        wanted = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if wanted:
        yield f"no tool_result for {sorted(wanted)}"


def _gemini_pairing(body: dict[str, Any]) -> Iterable[str]:
    wanted: list[str] = []
    for content in body["contents"]:
        results = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if sorted(results) != sorted(wanted):
            yield f"function responses {results} do not equal the function calls {wanted}"
        wanted = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
    if wanted:
        yield f"no function response for {wanted}"


ARGUMENTS: dict[str, Callable[[dict[str, Any]], Iterable[str]]] = {
    "chat": _chat_arguments,
    "responses": _responses_arguments,
    "messages": _no_arguments,
    "count_tokens": _no_arguments,
    "gemini": _no_arguments,
}
PAIRING: dict[str, Callable[[dict[str, Any]], Iterable[str]]] = {
    "chat": _chat_pairing,
    "responses": _responses_pairing,
    "messages": _messages_pairing,
    "count_tokens": _messages_pairing,
    "gemini": _gemini_pairing,
}
