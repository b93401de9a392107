"""A strict provider on 127.0.0.1: it judges each request, then answers on the wire that it came on."""

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.integrations.judge import Node, judge

SHAPE_BY_END = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
    "/count_tokens": "count_tokens",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}


class Seen(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes
    complaints: list[str]


class Provider:
    """Counts on strictness; `faults` are statuses to fail the next requests with, `calls` arguments to ask for."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.seen: list[Seen] = []
        self.faults: list[int] = []
        self.calls: list[Any] = []
        provider = self

        class Handler(_Handler):
            def do_POST(self) -> None:
                provider.serve(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, handler: "_Handler") -> None:
        """Judge one request and answer it."""
        raw = handler.read_body()
        path = handler.path.partition("?")[0]
        shape = next((shape for end, shape in SHAPE_BY_END.items() if path.endswith(end)), None)
        complaints = [] if shape is None else judge(self.node, shape, raw)
        self.seen.append(Seen(path, {name.lower(): value for name, value in handler.headers.items()}, raw, complaints))
        if self.faults:
            handler.answer(self.faults.pop(0), {"error": {"message": "try again", "code": 0}})
        elif complaints:
            status = 500 if complaints[0].startswith("parse_error") else 400
            handler.answer(status, {"error": {"message": complaints[0], "code": status}})
        elif shape is None:
            handler.answer(200, {"ok": True})
        else:
            body = json.loads(raw)
            call = self.calls.pop(0) if self.calls else None
            number = len(self.seen)
            if body.get("stream") or path.endswith(":streamGenerateContent"):
                handler.answer_events(STREAMS[shape]())
            else:
                handler.answer(200, ANSWERS[shape](call, number))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def answer_events(self, events: Iterable[dict[str, Any]]) -> None:
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
        self._send(200, "text/event-stream", "".join(lines).encode())

    def _send(self, status: int, content_type: str, raw: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(raw)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it
        """Say nothing."""


def _chat(call: Any, number: int) -> dict[str, Any]:
    function = {"name": "run", "arguments": call}
    calls = {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}
    message = {"role": "assistant", "content": "ok" if call is None else None, **({} if call is None else calls)}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def _chat_stream() -> Iterable[dict[str, Any]]:
    for delta, reason in (({"role": "assistant", "content": "ok"}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}


def _responses(call: Any, number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": "ok", "annotations": []}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    called = {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "run",
        "arguments": call,
        "status": "completed",
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": "completed",
        "output": [message if call is None else called],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _responses_stream() -> Iterable[dict[str, Any]]:
    yield {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "ok",
        "logprobs": [],
        "sequence_number": 0,
    }
    yield {"type": "response.completed", "response": _responses(None, 1), "sequence_number": 1}


def _messages(call: Any, number: int) -> dict[str, Any]:
    used = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": call}
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "ok"} if call is None else used],
        "stop_reason": "end_turn" if call is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _messages_stream() -> Iterable[dict[str, Any]]:
    yield {"type": "message_start", "message": {**_messages(None, 1), "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _count_tokens(call: Any, number: int) -> dict[str, Any]:
    return {"input_tokens": 7}


def _gemini(call: Any, number: int) -> dict[str, Any]:
    parts: list[Any] = [{"functionCall": {"name": "run", "args": each}} for each in call or ()]
    content = {"role": "model", "parts": parts or [{"text": "ok"}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "modelVersion": "m"}


def _gemini_stream() -> Iterable[dict[str, Any]]:
    yield _gemini(None, 1)


ANSWERS = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "count_tokens": _count_tokens,
    "gemini": _gemini,
}
STREAMS = {
    "chat": _chat_stream,
    "responses": _responses_stream,
    "messages": _messages_stream,
    "gemini": _gemini_stream,
}
