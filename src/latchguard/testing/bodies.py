"""Hypothesis strategies for request bodies: legal ones, and ones that were damaged, of every wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from latchguard.core.findings import Wire

__all__ = ["damaged_bodies", "legal_bodies"]

_Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
_NAMES: Final = st.sampled_from(["read_file", "bash", "search-web", "f"])
_SCALARS: Final = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS
_OBJECTS: Final = st.dictionaries(st.text("abcxyz_", max_size=5), _SCALARS | st.lists(_SCALARS, max_size=2), max_size=3)
_POISON: Final = st.sampled_from(
    [
        "",
        "Summary of the work so far: the tests pass.",
        '<acp ref="m00007">cut</acp>',
        '{"command":"rm -rf /tmp/x',
        '{"a":1}{"b":2}',
        '{"a":1,}',
        '{"a":NaN}',
        '{"text":"one\ntwo"}',
        '\ufeff{"a":1}',
        '"{\\"a\\":1}"',
        '"\\"{\\\\\\"a\\\\\\":1}\\""',
        "42",
        "null",
        '{"a":1e400}',
        '{"a":"\\ud800"}',
        "[" * 1001 + "]" * 1001,
    ]
)
_JUNK: Final[st.SearchStrategy[Any]] = (
    st.none() | st.booleans() | st.integers() | st.just([]) | st.just({}) | st.lists(_SCALARS, max_size=2) | _OBJECTS
)


@st.composite
def _turns(draw: _Draw) -> list[dict[str, Any]]:
    """A conversation in no wire's terms: a question, perhaps calls with their results, an answer."""
    turns = []
    for turn in range(draw(st.integers(1, 4))):
        calls = [
            {"id": f"call_{turn}_{number}", "name": draw(_NAMES), "input": draw(_OBJECTS), "result": draw(_TEXTS)}
            for number in range(draw(st.integers(0, 3)))
        ]
        turns.append({"question": draw(_TEXTS), "calls": calls, "answer": draw(_TEXTS)})
    return turns


def _encode(draw: _Draw, value: Any) -> str:
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(value, separators=separators, ensure_ascii=draw(st.booleans()))


def _chat(draw: _Draw, turns: list[dict[str, Any]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(_TEXTS)}]
    for turn in turns:
        messages.append({"role": "user", "content": turn["question"]})
        if turn["calls"]:
            calls = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": _encode(draw, call["input"])},
                }
                for call in turn["calls"]
            ]
            messages.append({"role": "assistant", "content": draw(st.none() | _TEXTS), "tool_calls": calls})
            messages += (
                {"role": "tool", "tool_call_id": call["id"], "content": call["result"]}
                for call in draw(st.permutations(turn["calls"]))
            )
        messages.append({"role": "assistant", "content": turn["answer"]})
    return {"model": "m", "messages": [*messages, {"role": "user", "content": draw(_TEXTS)}]}


def _responses(draw: _Draw, turns: list[dict[str, Any]]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for turn in turns:
        items.append({"role": "user", "content": turn["question"]})
        for call in turn["calls"]:
            arguments = _encode(draw, call["input"])
            items.append({"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": arguments})
        items += (
            {"type": "function_call_output", "call_id": call["id"], "output": call["result"]}
            for call in draw(st.permutations(turn["calls"]))
        )
        part = {"type": "output_text", "text": turn["answer"]}
        items.append({"type": "message", "role": "assistant", "content": [part]})
    return {"model": "m", "input": [*items, {"role": "user", "content": draw(_TEXTS)}]}


def _anthropic(draw: _Draw, turns: list[dict[str, Any]]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn["question"]})
        if turn["calls"]:
            blocks: list[dict[str, Any]] = [{"type": "text", "text": draw(_TEXTS)}]
            blocks += (
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["input"]}
                for call in turn["calls"]
            )
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": call["result"]}
                for call in draw(st.permutations(turn["calls"]))
            ]
            messages += ({"role": "assistant", "content": blocks}, {"role": "user", "content": results})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": turn["answer"]}]})
    names = sorted({call["name"] for turn in turns for call in turn["calls"]} | {"bash"})
    tools = [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in names]
    last = {"role": "user", "content": draw(_TEXTS)}
    return {"model": "m", "max_tokens": 100, "tools": tools, "messages": [*messages, last]}


def _gemini(draw: _Draw, turns: list[dict[str, Any]]) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    for turn in turns:
        contents.append({"role": "user", "parts": [{"text": turn["question"]}]})
        if turn["calls"]:
            calls = [{"functionCall": {"name": call["name"], "args": call["input"]}} for call in turn["calls"]]
            results = [
                {"functionResponse": {"name": call["name"], "response": {"output": call["result"]}}}
                for call in turn["calls"]
            ]
            contents += ({"role": "model", "parts": calls}, {"role": "user", "parts": results})
        contents.append({"role": "model", "parts": [{"text": turn["answer"]}]})
    return {"contents": [*contents, {"role": "user", "parts": [{"text": draw(_TEXTS)}]}]}


_MAKERS: Final[Mapping[Wire, Callable[[_Draw, list[dict[str, Any]]], dict[str, Any]]]] = {
    Wire.OPENAI_CHAT: _chat,
    Wire.OPENAI_RESPONSES: _responses,
    Wire.ANTHROPIC: _anthropic,
    Wire.GEMINI: _gemini,
}


@st.composite
def legal_bodies(draw: _Draw, wire: Wire) -> dict[str, Any]:
    """Bodies that the wire's reference allows: every call answered at its place, every argument an object."""
    return _MAKERS[wire](draw, draw(_turns()))


@st.composite
def damaged_bodies(draw: _Draw, wire: Wire) -> Any:
    """Bodies with one to four faults: poisoned or missing values, items gone, doubled, moved, junk of any type."""
    body = draw(legal_bodies(wire))
    for _ in range(draw(st.integers(1, 4))):
        if places := _places(body):
            _damage(draw, *places[draw(st.integers(0, len(places) - 1))])
    return body


def _places(body: Any) -> list[tuple[Any, str | int]]:
    """Every member and item below *body*; those that hold arguments count five times."""
    places: list[tuple[Any, str | int]] = []
    todo = [body]
    for node in todo:
        members = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, value in members:
            places += [(node, key)] * (5 if key in ("arguments", "input", "args") else 1)
            if isinstance(value, dict | list):
                todo.append(value)
    return places


def _damage(draw: _Draw, container: Any, key: Any) -> None:
    kind = draw(st.sampled_from(["poison", "poison", "junk", "drop", "double", "move"]))
    if kind == "poison":
        container[key] = draw(_POISON)
    elif kind == "junk":
        container[key] = draw(_JUNK)
    elif kind == "drop":
        del container[key]
    elif isinstance(container, list):
        item = deepcopy(container[key]) if kind == "double" else container.pop(key)
        container.insert(draw(st.integers(0, len(container))), item)
