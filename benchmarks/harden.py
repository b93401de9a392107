"""What the guard at the exit costs on valid bodies, against parsing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import orjson

from benchmarks.table import Row, best_ms, exponent, print_table
from latchguard import harden_json
from latchguard.core.findings import Wire
from latchguard.egress.arguments import argument_hits

ARGUMENTS_BUDGET, ALL_BUDGET = 1.5, 3
SIZES = (1_000, 10_000, 100_000)
ARGUMENTS = {"path": "/src/package/module.py", "start": 1, "end": 200, "reason": "see what the function does"}
RESULT = "def double(x: int) -> int:\n    return x + x\n" * 12
ANSWER = "The function doubles its argument, and so do its three callers. " * 4


def make_body(wire: Wire, size: int) -> bytes:
    """Make a valid body of *size* messages, a fifth of them calls, 350 bytes a message."""
    turns = range(size // 5)
    if wire is Wire.OPENAI_RESPONSES:
        return orjson.dumps({"model": "m", "input": [item for turn in turns for item in _items(turn)]})
    if wire is Wire.ANTHROPIC:
        messages = [message for turn in turns for message in _anthropic(turn)]
        return orjson.dumps({"model": "m", "max_tokens": 9, "tools": [_TOOL], "messages": messages})
    if wire is Wire.GEMINI:
        return orjson.dumps({"contents": [content for turn in turns for content in _contents(turn)]})
    return orjson.dumps({"model": "m", "messages": [message for turn in turns for message in _messages(turn)]})


_TOOL = {"name": "read_file", "description": "read", "input_schema": {"type": "object"}}


def _messages(turn: int) -> list[dict[str, object]]:
    function = {"name": "read_file", "arguments": orjson.dumps({**ARGUMENTS, "turn": turn}).decode()}
    return [
        {"role": "user", "content": f"What does function {turn} do?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": RESULT},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "Thanks; go on."},
    ]


def _items(turn: int) -> list[dict[str, object]]:
    arguments = orjson.dumps({**ARGUMENTS, "turn": turn}).decode()
    return [
        {"role": "user", "content": f"What does function {turn} do?"},
        {"type": "function_call", "call_id": f"call_{turn}", "name": "read_file", "arguments": arguments},
        {"type": "function_call_output", "call_id": f"call_{turn}", "output": RESULT},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
        {"role": "user", "content": "Thanks; go on."},
    ]


def _anthropic(turn: int) -> list[dict[str, object]]:
    use = {"type": "tool_use", "id": f"call_{turn}", "name": "read_file", "input": {**ARGUMENTS, "turn": turn}}
    return [
        {"role": "user", "content": f"What does function {turn} do?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{turn}", "content": RESULT}]},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "Thanks; go on."},
    ]


def _contents(turn: int) -> list[dict[str, object]]:
    response = {"name": "read_file", "response": {"output": RESULT}}
    return [
        {"role": "user", "parts": [{"text": f"What does function {turn} do?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read_file", "args": {**ARGUMENTS, "turn": turn}}}]},
        {"role": "user", "parts": [{"functionResponse": response}]},
        {"role": "model", "parts": [{"text": ANSWER}]},
        {"role": "user", "parts": [{"text": "Thanks; go on."}]},
    ]


def rows() -> Iterator[Row]:
    """Measure."""
    points: list[tuple[int, float]] = []
    for wire in Wire:
        for size in SIZES if wire is Wire.OPENAI_CHAT else (10_000,):
            raw = make_body(wire, size)
            gate = size == 10_000  # noqa: PLR2004  # the size that the budget names
            parse_ms, arguments_ms, harden_ms = _alternate(
                lambda r=raw: orjson.loads(r),  # type: ignore[misc]
                lambda r=raw, w=wire: argument_hits(orjson.loads(r), w, decoded=True),  # type: ignore[misc]
                lambda r=raw, w=wire: harden_json(r, w),  # type: ignore[misc]
            )
            for work, took, budget in (
                ("arguments rules", arguments_ms, ARGUMENTS_BUDGET),
                ("harden_json, all rules", harden_ms, ALL_BUDGET),
            ):
                yield Row(f"{work}, {wire}", f"{size}", took, "orjson.loads", parse_ms, budget if gate else None)
            if wire is Wire.OPENAI_CHAT:
                points.append((size, harden_ms))
    yield Row("fitted exponent: harden_json", "1k..100k", exponent(points), "linear", 1)


def _alternate(*works: Callable[[], object], rounds: int = 9) -> list[float]:
    """Take the best time of each, in turns, so that all meet the same noise."""
    times = [[best_ms(work, 1) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


if __name__ == "__main__":
    sys.exit(not print_table(rows()))
