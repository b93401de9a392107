"""Replay and restamp in memory, and what `import latchguard` costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.table import Row, best_ms, exponent, print_table
from latchguard import ConversationState, History, Kind, Message, Role, replay, restamp

LATCHES = 150
SIZES = (1_000, 10_000, 50_000, 100_000)


def make_history(size: int) -> list[Message]:
    """Make a history as agents have it: question, call, result, answer."""
    made: list[Message] = []
    for turn in range(size // 4 + 1):
        call = f"call_{turn}"
        made += (
            Message(f"u{turn}", Role.USER, Kind.TEXT, f"Look at module {turn}."),
            Message(f"c{turn}", Role.ASSISTANT, Kind.TOOL_CALL, f'{{"path":"m{turn}.py"}}', "read", call),
            Message(f"r{turn}", Role.TOOL, Kind.TOOL_RESULT, f"{turn} " + "line of code\n" * 40, None, call),
            Message(f"a{turn}", Role.ASSISTANT, Kind.TEXT, f"Module {turn} is fine."),
        )
    return made[:size]


def latched(messages: list[Message], latches: int = LATCHES) -> ConversationState:
    """Put *latches* clips on results spread over the history."""
    state = ConversationState().assign(messages)
    results = [message for message in messages if message.kind is Kind.TOOL_RESULT]
    for message in results[:: max(1, len(results) // latches)][:latches]:
        state = state.latch(message, f"{message.text[:40]} ... {message.text[-40:]}")
    return state


def rows() -> Iterator[Row]:
    """Measure."""
    points: dict[str, list[tuple[int, float]]] = {"History": [], "list": [], "restamp": []}
    for size in SIZES:
        messages = make_history(size)
        state, history, tail = latched(messages), History(messages), messages[1:]
        on_history = best_ms(lambda h=history, s=state: replay(h, s), 20)  # type: ignore[misc]
        on_list = best_ms(lambda m=messages, s=state: replay(m, s), 10)  # type: ignore[misc]
        moved = best_ms(lambda m=tail, s=state: restamp(s, m), 3)  # type: ignore[misc]
        gate = size == 50_000  # noqa: PLR2004  # the size that the budget names
        yield Row("replay on a History, 150 latches", f"{size}", on_history, "budget in ms", 5, 1 if gate else None)
        yield Row("replay on a list, 150 latches", f"{size}", on_list, "budget in ms", 15, 1 if gate else None)
        yield Row("restamp, all refs move, 150 latches", f"{size}", moved, "1 us a message", size / 1000)
        for name, took in (("History", on_history), ("list", on_list), ("restamp", moved)):
            points[name].append((size, took))
    for name, measured in points.items():
        yield Row(f"fitted exponent: {name}", "1k..100k", exponent(measured), "linear", 1)
    base = _import_ms("")
    yield Row("import latchguard", "", _import_ms(", latchguard"), "import attrs, cattrs, orjson", base, 1.3)
    every = _import_ms("; from latchguard import ConversationState, load_state, replay, restamp")
    yield Row("... and the whole core used", "", every, "import attrs, cattrs, orjson", base)


def _import_ms(more: str) -> float:
    code = (
        "import time; t = time.perf_counter(); "
        f"import attrs, cattrs, orjson{more}; print((time.perf_counter() - t) * 1000)"
    )
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(9))  # noqa: S603


if __name__ == "__main__":
    sys.exit(not print_table(rows()))
