"""Aliases for tool names that a provider refuses."""

import json
import re
import subprocess
import sys
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.errors import InvalidValueError
from latchguard.core.message import Kind, Message, Role
from latchguard.tools import ToolNames

DOTTED = "repo.files.read"
ALIAS = ToolNames().alias(DOTTED)
VALID = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


@given(st.lists(st.text(max_size=80) | st.sampled_from(["a.b", "a_b", "a b", "", "x" * 65, "\ud800"]), max_size=8))
def test_names_come_back(names: list[str]) -> None:
    """Every alias is one that OpenAI takes, belongs to one name, and is no name of a declared tool but its own."""
    tools = ToolNames(names)
    aliases = {name: tools.alias(name) for name in names}
    assert all(VALID.match(alias) for alias in aliases.values())
    assert {name: tools.restore(alias) for name, alias in aliases.items()} == {name: name for name in names}
    assert all(alias == name or alias not in names for name, alias in aliases.items())


@pytest.mark.parametrize("name", ["read_file", "a-b", "x" * 64, "0"])
def test_a_name_that_fits_is_its_own_alias(name: str) -> None:
    """What the provider takes is sent as it is, the very string."""
    assert ToolNames([name]).alias(name) is name


def test_the_alias_is_the_same_in_every_order_and_on_every_turn() -> None:
    """Neither the order of the tools nor what else is declared changes an alias."""
    names = [DOTTED, "b.c", "read_file"]
    found = {tuple(ToolNames(order).alias(name) for name in names) for order in permutations(names)}
    assert found == {(ALIAS, ToolNames().alias("b.c"), "read_file")}
    assert ToolNames([*names, "later.tool"]).alias(DOTTED) == ALIAS


def test_the_alias_is_the_same_in_every_process() -> None:
    """The bytes of an alias are fixed, so that the prefix cache holds."""
    assert ALIAS == "repo_files_read_91a2fe16d6"
    code = f"from latchguard.tools import ToolNames; print(ToolNames([{DOTTED!r}]).alias({DOTTED!r}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ALIAS


def test_an_alias_steps_aside_for_a_real_name() -> None:
    """A declared tool that bears the alias keeps its name, and the alias becomes another, still reversible."""
    tools = ToolNames([DOTTED, ALIAS])
    assert tools.alias(ALIAS) == ALIAS
    assert tools.alias(DOTTED) != ALIAS
    assert VALID.match(tools.alias(DOTTED))
    assert (tools.restore(ALIAS), tools.restore(tools.alias(DOTTED))) == (ALIAS, DOTTED)


def test_names_that_differ_only_in_refused_characters_stay_apart() -> None:
    """`a.b`, `a b` and `a/b` are three tools."""
    assert len({ToolNames().alias(name) for name in ("a.b", "a b", "a/b")}) == 3


def test_an_unknown_alias_is_left_alone() -> None:
    """Only what was given out is restored."""
    assert ToolNames().restore(ALIAS) == ALIAS


@pytest.mark.parametrize("name", [None, 5, b"x"])
def test_a_name_is_a_string(name: Any) -> None:
    """Anything else is the documented error."""
    with pytest.raises(InvalidValueError):
        ToolNames().alias(name)
    with pytest.raises(InvalidValueError):
        ToolNames([name])


REQUESTS = {
    "openai-chat": {
        "tools": [
            {"type": "function", "function": {"name": "$N", "parameters": {"name": DOTTED}}},
            {"type": "custom", "custom": {"name": "$N"}},
        ],
        "functions": [{"name": "$N"}],
        "function_call": {"name": "$N"},
        "tool_choice": {"type": "function", "function": {"name": "$N"}},
        "messages": [
            {"role": "user", "name": "A. User", "content": DOTTED},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "$N", "arguments": json.dumps({"name": DOTTED})}}],
            },
            {"role": "tool", "tool_call_id": "c", "name": "$N", "content": ""},
            {"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "$N", "input": DOTTED}}]},
            {"role": "assistant", "function_call": {"name": "$N", "arguments": "{}"}},
            {"role": "function", "name": "$N", "content": ""},
        ],
    },
    "openai-responses": {
        "tools": [{"type": "function", "name": "$N"}, {"type": "custom", "name": "$N"}],
        "tool_choice": {"type": "function", "name": "$N"},
        "input": [
            {"role": "user", "name": "A. User", "content": ""},
            {"type": "function_call", "call_id": "c", "name": "$N", "arguments": "{}"},
        ],
    },
    "anthropic": {
        "tools": [{"name": "$N", "input_schema": {"properties": {"name": {"name": DOTTED}}}}],
        "tool_choice": {"type": "tool", "name": "$N"},
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "$N", "input": {"name": DOTTED}}]}
        ],
    },
    "gemini-sdk": {
        "tools": [{"function_declarations": [{"name": "$N"}]}],
        "tool_config": {"function_calling_config": {"allowed_function_names": ["$N"]}},
        "contents": [
            {"parts": [{"function_call": {"name": "$N", "args": {"name": DOTTED}}}]},
            {"parts": [{"function_response": {"name": "$N", "response": {"name": DOTTED}}}]},
        ],
    },
    "gemini": {
        "tools": [{"functionDeclarations": [{"name": "$N"}]}],
        "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["$N"]}},
        "contents": [
            {"parts": [{"functionCall": {"name": "$N", "args": {"name": DOTTED}}}]},
            {"parts": [{"functionResponse": {"name": "$N", "response": {"name": DOTTED}}}]},
        ],
    },
}


def named(value: Any, name: str) -> Any:
    return json.loads(json.dumps(value).replace("$N", name))


@pytest.mark.parametrize("wire", REQUESTS)
def test_declared_tools_choice_and_old_history_are_aliased(wire: str) -> None:
    """Every place of a tool's name is changed, and nothing else: no text, argument, schema, or name of a person."""
    body = named(REQUESTS[wire], DOTTED)
    tools = ToolNames.of_request(body)
    assert tools.alias_body(body) == named(REQUESTS[wire], ALIAS)
    assert body == named(REQUESTS[wire], DOTTED)


def test_what_a_request_declares_keeps_its_name() -> None:
    """A declared tool that bears another's alias is seen, whatever the order."""
    for names in ([DOTTED, ALIAS], [ALIAS, DOTTED]):
        body = {"tools": [{"type": "function", "name": name} for name in names]}
        sent = {tool["name"] for tool in ToolNames.of_request(body).alias_body(body)["tools"]}
        assert ALIAS in sent
        assert len(sent) == 2


@pytest.mark.parametrize("wire", REQUESTS)
def test_a_body_of_valid_names_is_the_same_object(wire: str) -> None:
    """Nothing to alias, nothing changed."""
    body = named(REQUESTS[wire], "read_file")
    assert ToolNames.of_request(body).alias_body(body) is body


@pytest.mark.parametrize("wire", REQUESTS)
def test_a_name_that_only_old_history_calls_is_restored_too(wire: str) -> None:
    """The model may call what it reads in the history."""
    body = {
        key: value for key, value in named(REQUESTS[wire], DOTTED).items() if key in ("messages", "input", "contents")
    }
    tools = ToolNames.of_request(body)
    tools.alias_body(body)
    assert tools.restore(ALIAS) == DOTTED


ANSWERS = {
    "chat": {"choices": [{"message": {"tool_calls": [{"function": {"name": "$N", "arguments": ALIAS}}]}}]},
    "chat-custom": {"choices": [{"message": {"tool_calls": [{"custom": {"name": "$N", "input": ALIAS}}]}}]},
    "chat-legacy": {"choices": [{"message": {"function_call": {"name": "$N"}}}]},
    "responses": {"output": [{"type": "function_call", "name": "$N", "arguments": ALIAS}]},
    "anthropic": {"content": [{"type": "tool_use", "name": "$N", "input": {"name": ALIAS}}]},
    "gemini": {"candidates": [{"content": {"parts": [{"functionCall": {"name": "$N", "args": {"name": ALIAS}}}]}}]},
}
EVENTS = {
    "chat": {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": "$N"}}]}}]},
    "chat-custom": {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "custom": {"name": "$N"}}]}}]},
    "chat-legacy": {"choices": [{"index": 0, "delta": {"function_call": {"name": "$N"}}}]},
    "anthropic-start": {"type": "message_start", "message": {"content": [{"type": "tool_use", "name": "$N"}]}},
    "gemini-sdk": {"candidates": [{"content": {"parts": [{"function_call": {"name": "$N"}}]}}]},
    "responses-item": {"type": "response.output_item.added", "item": {"type": "function_call", "name": "$N"}},
    "responses-done": {"type": "response.function_call_arguments.done", "name": "$N", "arguments": ALIAS},
    "responses-end": {"type": "response.completed", "response": {"output": [{"type": "function_call", "name": "$N"}]}},
    "anthropic": {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "$N", "input": {}}},
    "gemini": ANSWERS["gemini"],
}


@pytest.mark.parametrize("shape", ANSWERS)
def test_answers_are_restored(shape: str) -> None:
    """The host sees the real name; arguments that happen to hold an alias are data."""
    tools = ToolNames([DOTTED])
    assert tools.restore_answer(named(ANSWERS[shape], ALIAS)) == named(ANSWERS[shape], DOTTED)
    untouched = named(ANSWERS[shape], "read_file")
    assert tools.restore_answer(untouched) is untouched


@pytest.mark.parametrize("shape", EVENTS)
def test_stream_events_are_restored(shape: str) -> None:
    """Events of each provider's stream carry the real name."""
    tools = ToolNames([DOTTED])
    assert tools.stream().restore(named(EVENTS[shape], ALIAS)) == named(EVENTS[shape], DOTTED)
    assert tools.restore_answer(named(EVENTS[shape], ALIAS)) == named(EVENTS[shape], DOTTED)


def chunk(index: int = 0, *, finish: str | None = None, choice: int = 0, **function: str) -> dict[str, Any]:
    calls = [{"index": index, "function": function}] if function else []
    return {"choices": [{"index": choice, "delta": {"tool_calls": calls}, "finish_reason": finish}]}


def joined(events: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, str]]:
    """Join the pieces as the SDKs do: (choice, call) -> (name, arguments)."""
    calls: dict[tuple[int, int], tuple[str, str]] = {}
    for event in events:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                key = choice["index"], call["index"]
                name, arguments = calls.get(key, ("", ""))
                function = call["function"]
                calls[key] = name + function.get("name", ""), arguments + function.get("arguments", "")
    return calls


@given(st.data())
def test_names_in_pieces_are_restored(data: st.DataObject) -> None:
    """However a server cuts the names of parallel calls, the joined name is the real one."""
    names = data.draw(st.lists(st.sampled_from([DOTTED, "repo", "repo_files", "other.tool", "x"]), max_size=3))
    tools = ToolNames([DOTTED, "repo", "repo_files", "other.tool", "x"])
    events = []
    for index, name in enumerate(names):
        alias = tools.alias(name)
        cuts = sorted(data.draw(st.sets(st.integers(1, len(alias)), max_size=3)) | {len(alias)})
        for start, end in zip([0, *cuts], cuts, strict=False):
            events.append(chunk(index, name=alias[start:end]))
        if data.draw(st.booleans()):
            events += [chunk(index, arguments="{"), chunk(index, arguments="}")]
    events.append(chunk(finish="tool_calls"))
    stream = tools.stream()
    restored = [stream.restore(event) for event in events]
    assert [name for name, _ in joined(restored).values()] == names
    assert [told for _, told in joined(restored).values()] == [told for _, told in joined(events).values()]


def test_a_name_that_may_grow_waits_for_the_arguments() -> None:
    """A real name that begins an alias goes out with the first arguments, and once."""
    stream = ToolNames([DOTTED, "repo"]).stream()
    events = [chunk(name="repo"), chunk(arguments="{}"), chunk(arguments=" "), chunk(finish="tool_calls")]
    assert [stream.restore(event) for event in events] == [
        chunk(name=""),
        chunk(arguments="{}", name="repo"),
        chunk(arguments=" "),
        chunk(finish="tool_calls"),
    ]


@pytest.mark.parametrize(
    "event",
    [
        None,
        5,
        {"choices": 5},
        {"choices": [None, {"delta": None}, {"delta": {"tool_calls": 5}}]},
        {"choices": [{"index": [], "delta": {"tool_calls": [{"index": 0, "function": {"name": "x"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None, {"index": {}, "function": {"name": 5}}]}}]},
    ],
)
def test_odd_events_pass(event: Any) -> None:
    """An event of unknown shape is the same object."""
    assert ToolNames([DOTTED]).stream().restore(event) is event


def test_messages_are_aliased_and_restored() -> None:
    """Names of calls in a history of messages go there and back; a history without such names is the same object."""
    tools = ToolNames([DOTTED])
    text = Message("1", Role.USER, Kind.TEXT, DOTTED)
    call = Message("2", Role.ASSISTANT, Kind.TOOL_CALL, "{}", DOTTED, "c")
    aliased = tools.alias_messages([text, call])
    assert aliased == [text, Message("2", Role.ASSISTANT, Kind.TOOL_CALL, "{}", ALIAS, "c")]
    assert tools.restore_messages(aliased) == [text, call]
    assert aliased[0] is text
    plain = [text]
    assert tools.alias_messages(plain) is plain
