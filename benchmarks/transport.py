"""What the guard adds to one request, in memory: the network is left out, so that its noise hides nothing."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson

from benchmarks.table import Row, best_ms, print_table
from latchguard.integrations.encodings import encode_body
from latchguard.integrations.httpx import guard

URL = "http://127.0.0.1/v1/chat/completions"
SIZES = {"10 kB": 10_000, "1 MB": 1_000_000, "10 MB": 10_000_000}
CLEAN_BUDGET = 3  # that of `harden_json` with all rules: a guard adds nothing of its own to a large body
REPEATS = {"10 kB": 300, "1 MB": 20, "10 MB": 9}


def make_body(size_bytes: int, arguments: str = '{"path": "src/main.py", "line": 12}') -> bytes:
    """Make a chat body of about *size_bytes* in which every fifth message is a call; the last has *arguments*."""
    messages: list[dict[str, Any]] = []
    size = 0
    while size < size_bytes:
        number = len(messages)
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        turn: list[dict[str, Any]] = [
            {"role": "user", "content": f"Look at {number}. " + "Some words of a question. " * 8},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "a line of code\n" * 60},
            {"role": "assistant", "content": "It is fine. " * 20},
            {"role": "user", "content": "Go on."},
        ]
        messages += turn
        size += len(json.dumps(turn))
    return json.dumps({"model": "m", "messages": messages}, separators=(",", ":")).encode()


def poison(body: bytes) -> bytes:
    """Cut the arguments of the last call short."""
    parsed = json.loads(body)
    call = next(message for message in reversed(parsed["messages"]) if "tool_calls" in message)
    call["tool_calls"][0]["function"]["arguments"] = '{"path": "src/ma'
    return json.dumps(parsed, separators=(",", ":")).encode()


def answer(_: httpx2.Request) -> httpx2.Response:
    """Stand for the network."""
    return httpx2.Response(200, json={})


def request_ms(transport: Any, raw: bytes, repeats: int, headers: dict[str, str] | None = None) -> float:
    """Time one whole request of a client, with *transport* at its end."""
    with httpx2.Client(transport=transport) as client:
        return best_ms(lambda: client.post(URL, content=raw, headers=headers), repeats)


def rows() -> Iterator[Row]:
    """Measure."""
    logging.getLogger("latchguard").setLevel(logging.CRITICAL)
    for size, size_bytes in SIZES.items():
        body, repeats = make_body(size_bytes), REPEATS[size]
        parse = best_ms(lambda raw=body: orjson.loads(raw), repeats)  # type: ignore[misc]
        bare = request_ms(httpx2.MockTransport(answer), body, repeats)
        yield Row("the client's own work, nothing sent", size, bare, "orjson.loads of the body", parse)
        for work, raw, headers in (
            ("clean", body, None),
            ("clean, gzip", encode_body(body, "gzip"), {"content-encoding": "gzip"}),
            ("one repair", poison(body), None),
        ):
            took = request_ms(guard(httpx2.MockTransport(answer)), raw, repeats, headers)
            # Where the body is small, the guard's fixed cost is most of it, as it is the client's.
            budget = CLEAN_BUDGET if work == "clean" and size_bytes >= SIZES["1 MB"] else None
            yield Row(f"the guard adds: {work}", size, took - bare, "orjson.loads of the body", parse, budget)


if __name__ == "__main__":
    sys.exit(not print_table(rows()))
