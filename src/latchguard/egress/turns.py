"""The turns of a conversation: which calls they make and which results they hold, and how the two pair.

1. A call's results belong into the turn right after it. Chat: the run of `tool` messages after an assistant message.
   Anthropic and Gemini: the run of user messages after a run of assistant messages, since both APIs join adjacent
   messages of one role; each message by itself where a profile says so. Responses: anywhere after the call.
2. Pairing is positional: a result answers an open call of the turn before it that has its id; a global set of ids
   would call the second of two equal ids answered. Gemini's ids are optional; without them names pair, in order.
3. An id that several calls bear with nothing between to tell them apart is *tangled*: it is reported, and no other rule
   touches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

from attrs import Factory, define, frozen

from latchguard.core.findings import Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.layout import at, conversations, is_list
from latchguard.egress.plain import OUTPUT_TYPES

__all__ = ["Block", "Pairing", "Turn", "Waiting", "pair_turns", "text_or_none"]

_OTHER_CALLS: Final = ("local_shell_call", "shell_call", "apply_patch_call", "computer_call", "tool_search_call")


class Block(NamedTuple):
    """A call or a result: its place, its id, its tool's name, itself, its type on the Responses wire."""

    path: Path
    call_id: str | None
    name: str | None
    value: Any
    kind: str = ""


@define
class Turn:
    """One turn.

    Args:
        first: place of its first message.
        last: place of its last message.
        side: `call` for the model's, `result` for what answers it, else empty.
        calls: the calls it makes.
        results: the results it holds.
        late: those of the results that come after something else (Anthropic).
    """

    first: int
    last: int
    side: str
    calls: list[Block] = Factory(list)
    results: list[Block] = Factory(list)
    late: list[Block] = Factory(list)


@frozen
class Pairing:
    """How calls and results pair.

    Args:
        base: the path of the message list.
        turns: in order.
        answers: place of a call -> its result.
        open_calls: (turn, call) without a result, in order.
        strays: results that answer no call of the turn before them, in order.
        tangled: ids of which nobody can say which result belongs to which call.
    """

    base: Path
    turns: Sequence[Turn]
    answers: Mapping[Path, Block]
    open_calls: Sequence[tuple[int, Block]]
    strays: Sequence[tuple[int, Block]]
    tangled: frozenset[str]


class Waiting:
    """Open calls, found by id, and by name where names pair: linear, however many there are."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._by_key: dict[tuple[str, str | None], dict[Path, tuple[int, Block]]] = {}
        self._open: dict[Path, tuple[int, Block]] = {}

    def add(self, number: int, call: Block) -> None:
        """Add *call*, made in turn *number*."""
        self._open[call.path] = (number, call)
        for key in self._keys(call):
            self._by_key.setdefault(key, {})[call.path] = (number, call)

    def take(self, result: Block) -> tuple[int, Block] | None:
        """Take the first call that *result* answers: by id, else by name where one of both has no id."""
        return self._remove(next(self._fitting(result), None))

    def take_nearest(self, number: int, result: Block) -> tuple[int, Block] | None:
        """Take the call that a result in turn *number* may answer: of those before it the last, else the first."""
        fitting = list(self._fitting(result))
        before = [entry for entry in fitting if entry[0] < number]
        return self._remove(before[-1] if before else next(iter(fitting), None))

    def rest(self) -> list[tuple[int, Block]]:
        """Give what nothing answered, in order."""
        return list(self._open.values())

    def clear(self) -> None:
        """Forget all."""
        self._by_key.clear()
        self._open.clear()

    def _keys(self, block: Block) -> list[tuple[str, str | None]]:
        keys: list[tuple[str, str | None]] = [] if block.call_id is None else [("id", block.call_id)]
        return [*keys, ("name", block.name)] if self._named else keys

    def _fitting(self, result: Block) -> Iterator[tuple[int, Block]]:
        for key in self._keys(result):
            for entry in self._by_key.get(key, {}).values():
                call = entry[1]
                if key[0] == "id" or result.call_id is None or call.call_id is None:
                    yield entry

    def _remove(self, entry: tuple[int, Block] | None) -> tuple[int, Block] | None:
        if entry is not None:
            self._open.pop(entry[1].path, None)
            for key in self._keys(entry[1]):
                self._by_key.get(key, {}).pop(entry[1].path, None)
        return entry


def pair_turns(body: Any, wire: Wire, *, join: bool = True) -> Iterator[Pairing]:
    """Give the pairing of each message list of *body*; *join* joins adjacent messages of one role where APIs do."""
    for base in conversations(body, wire):
        turns = list(_READERS[wire](at(body, base), base, join=join))
        yield _pair(base, turns, adjacent=wire is not Wire.OPENAI_RESPONSES, named=wire is Wire.GEMINI)


def _pair(base: Path, turns: Sequence[Turn], *, adjacent: bool, named: bool) -> Pairing:
    answers: dict[Path, Block] = {}
    waiting = Waiting(named=named)  # calls of the turn before; of all turns where nearness is free
    left: list[tuple[int, Block]] = []
    strays: list[tuple[int, Block]] = []
    for number, turn in enumerate(turns):
        for result in turn.results:
            taken = waiting.take(result)
            if taken is None:
                strays.append((number, result))
            else:
                answers[taken[1].path] = result
        if adjacent:
            left += waiting.rest()
            waiting.clear()
        for call in turn.calls:
            waiting.add(number, call)
    return Pairing(base, turns, answers, left + waiting.rest(), strays, frozenset(_tangled(turns, adjacent=adjacent)))


def _tangled(turns: Sequence[Turn], *, adjacent: bool) -> Iterator[str]:
    """Ids that two calls bear before a result does: of one turn where results follow their turn, else anywhere."""
    waiting: dict[str, int] = {}  # id -> calls since its last result
    tangled: set[str] = set()
    answered = {result.call_id for turn in turns for result in turn.results}
    for turn in turns:
        for result in turn.results:
            if waiting.pop(result.call_id or "", 0) > 1:
                tangled.add(result.call_id or "")
        if adjacent:
            waiting = {}
        for call in turn.calls:
            if call.call_id is not None and call.call_id in answered:
                waiting[call.call_id] = waiting.get(call.call_id, 0) + 1
    return iter(tangled)


def text_or_none(value: Any) -> str | None:
    """Give *value* where it is a text that can be an id or a name."""
    return value if isinstance(value, str) and value else None


def _read_chat(messages: Sequence[Any], base: Path, *, join: bool) -> Iterator[Turn]:
    turn: Turn | None = None
    for place, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "tool":
            if turn is None:
                turn = Turn(place, place, "result")
            turn.last = place
            call_id = text_or_none(message.get("tool_call_id"))
            if call_id is not None:
                turn.results.append(Block((*base, place), call_id, text_or_none(message.get("name")), message))
            continue
        if turn is not None:
            yield turn
            turn = None
        made = Turn(place, place, "call" if role == "assistant" else "")
        if role == "assistant" and is_list(calls := message.get("tool_calls")):
            made.calls = [
                Block((*base, place, "tool_calls", number), call_id, _chat_name(call), call)
                for number, call in enumerate(calls)
                if isinstance(call, dict) and (call_id := text_or_none(call.get("id"))) is not None
            ]
        yield made
    if turn is not None:
        yield turn


def _chat_name(call: Mapping[str, Any]) -> str | None:
    holder = call.get("function") or call.get("custom")
    return text_or_none(holder.get("name")) if isinstance(holder, dict) else None


def _read_responses(items: Sequence[Any], base: Path, *, join: bool) -> Iterator[Turn]:
    outputs = tuple(OUTPUT_TYPES.values())
    for place, item in enumerate(items):
        turn = Turn(place, place, "")
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and (call_id := text_or_none(item.get("call_id"))) is not None:
            block = Block((*base, place), call_id, text_or_none(item.get("name")), item, kind)
            if kind in OUTPUT_TYPES or kind in _OTHER_CALLS:
                turn.side, turn.calls = "call", [block]
            elif kind in outputs or kind.endswith("_call_output"):
                turn.side, turn.results = "result", [block]
        yield turn


def _read_anthropic(messages: Sequence[Any], base: Path, *, join: bool) -> Iterator[Turn]:
    for turn, group in _runs(messages, {"assistant": "call", "user": "result"}, join=join):
        other_seen = False
        for place, message in group:
            blocks: Any = message.get("content")
            if not is_list(blocks):
                other_seen = other_seen or blocks is not None
                continue
            for number, block in enumerate(blocks):
                kind = block.get("type") if isinstance(block, dict) else None
                path = (*base, place, "content", number)
                if kind == "tool_use" and turn.side == "call":
                    if call_id := text_or_none(block.get("id")):
                        turn.calls.append(Block(path, call_id, text_or_none(block.get("name")), block))
                elif kind == "tool_result" and turn.side == "result":
                    if call_id := text_or_none(block.get("tool_use_id")):
                        turn.results.append(Block(path, call_id, None, block))
                        if other_seen:
                            turn.late.append(turn.results[-1])
                else:
                    other_seen = True
        yield turn


def _read_gemini(contents: Sequence[Any], base: Path, *, join: bool) -> Iterator[Turn]:
    for turn, group in _runs(contents, {"model": "call", "user": "result", "function": "result"}, join=join):
        for place, content in group:
            parts: Any = content.get("parts")
            for number, part in enumerate(parts if is_list(parts) else ()):
                for side, blocks, keys in (
                    ("call", turn.calls, ("functionCall", "function_call")),
                    ("result", turn.results, ("functionResponse", "function_response")),
                ):
                    key = next(
                        (key for key in keys if isinstance(part, dict) and isinstance(part.get(key), dict)), None
                    )
                    if key is not None and turn.side == side:
                        found = part[key]
                        path = (*base, place, "parts", number)
                        name = text_or_none(found.get("name"))
                        blocks.append(Block(path, text_or_none(found.get("id")), name, part))
        yield turn


def _runs(
    messages: Sequence[Any], sides: Mapping[str, str], *, join: bool
) -> Iterator[tuple[Turn, list[tuple[int, Mapping[str, Any]]]]]:
    """Runs of messages of one side; what has no side belongs to the run around it."""
    known: list[tuple[int, Mapping[str, Any], str]] = []
    for place, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if isinstance(role, str) and role in sides:
            known.append((place, message, sides[role]))
    for side, group in groupby(known, key=lambda entry: entry[2] if join else entry[0]):
        entries = list(group)
        yield (
            Turn(entries[0][0], entries[-1][0], str(side) if join else entries[0][2]),
            [(place, message) for place, message, _ in entries],
        )


class _Reader(Protocol):
    def __call__(self, messages: Sequence[Any], base: Path, /, *, join: bool) -> Iterator[Turn]: ...


_READERS: Final[Mapping[Wire, _Reader]] = {
    Wire.OPENAI_CHAT: _read_chat,
    Wire.OPENAI_RESPONSES: _read_responses,
    Wire.ANTHROPIC: _read_anthropic,
    Wire.GEMINI: _read_gemini,
}
