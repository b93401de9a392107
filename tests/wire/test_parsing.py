"""Parsing: what a body says, as messages."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.errors import InvalidValueError, LatchguardError, UnknownMessageError, WireUndecidedError
from latchguard.core.findings import Wire
from latchguard.core.jsonspans import format_path
from latchguard.core.message import Kind, Message, Role
from latchguard.testing.bodies import damaged_bodies, legal_bodies
from latchguard.wire import convert, parse, render
from tests.wire.cases import CASES

CHAT, ANTHROPIC, GEMINI, RESPONSES = Wire.OPENAI_CHAT, Wire.ANTHROPIC, Wire.GEMINI, Wire.OPENAI_RESPONSES
Row = tuple[str, str, str, str | None, str | None, str]


def rows(wire: Wire, body: Any) -> list[Row]:
    """Give role, kind, text, tool name, call id and path of each message."""
    parsed = parse(body, wire)
    return [
        (str(m.role), str(m.kind), m.text, m.tool_name, m.tool_call_id, format_path(parsed.frame.path(m.id)))
        for m in parsed.messages
    ]


IMAGE = {"type": "image_url", "image_url": {"url": "u"}}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"role": "user", "content": "x"}, [("user", "text", "x", None, None, "$[0].content")]),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            [("user", "text", "x", None, None, "$[0].content[0]")],
        ),
        ({"role": "system", "content": "x"}, [("system", "text", "x", None, None, "$[0].content")]),
        ({"role": "developer", "content": ""}, [("developer", "text", "", None, None, "$[0].content")]),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE, 5, {"text": "?"}, {"type": 5}]},
            [
                ("user", "text", "x", None, None, "$[0].content[0]"),
                ("user", "other", json.dumps(IMAGE, separators=(",", ":")), None, None, "$[0].content[1]"),
            ],
        ),
        (
            {
                "role": "assistant",
                "content": "x",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "raw"}},
                ],
                "reasoning_content": "hm",
            },
            [
                ("assistant", "reasoning", "hm", None, None, "$[0].reasoning_content"),
                ("assistant", "text", "x", None, None, "$[0].content"),
                ("assistant", "tool-call", "{}", "f", "c1", "$[0].tool_calls[0]"),
                ("assistant", "tool-call", "raw", "g", "c2", "$[0].tool_calls[1]"),
            ],
        ),
        ({"role": "assistant", "reasoning": "hm"}, [("assistant", "reasoning", "hm", None, None, "$[0].reasoning")]),
        ({"role": "user", "content": None, "reasoning_content": "no"}, []),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
            [("assistant", "tool-call", "", "f", "c", "$[0].tool_calls[0]")],
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": {"b": 1, "a": "\u00e9"}}}]},
            [("assistant", "tool-call", '{"b":1,"a":"\u00e9"}', None, None, "$[0].tool_calls[0]")],
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            [("assistant", "tool-call", "{}", "f", None, "$[0].function_call")],
        ),
        (
            {"role": "function", "name": "f", "content": "r"},
            [("tool", "tool-result", "r", None, None, "$[0]")],
        ),
        ({"role": "tool", "tool_call_id": "c"}, [("tool", "tool-result", "", None, "c", "$[0]")]),
        ({"role": "tool", "tool_call_id": "c", "content": []}, [("tool", "tool-result", "", None, "c", "$[0]")]),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]},
            [("tool", "tool-result", "r", None, "c", "$[0]")],
        ),
        (
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}] * 2},
            [("tool", "other", '[{"type":"text","text":"r"},{"type":"text","text":"r"}]', None, "c", "$[0]")],
        ),
        ({"role": "tool", "tool_call_id": "c", "content": {"n": 1}}, [("tool", "other", '{"n":1}', None, "c", "$[0]")]),
        ({"role": "critic", "content": "x"}, []),
        ({"role": "assistant", "content": None, "tool_calls": [5, {"function": 5}, {}]}, []),
        ("junk", []),
    ],
)
def test_chat(entry: Any, expected: list[Row]) -> None:
    """A chat entry is its reasoning, its texts and its calls; a tool entry is one result."""
    assert rows(CHAT, [entry]) == expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "user", "content": "x"}, [("user", "text", "x", None, None, "$[0].content")]),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}],
            },
            [
                ("assistant", "text", "x", None, None, "$[0].content[0]"),
                ("assistant", "other", '{"type":"refusal","refusal":"no"}', None, None, "$[0].content[1]"),
            ],
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "prose"},
            [("assistant", "tool-call", "prose", "f", "c", "$[0]")],
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
            [("assistant", "tool-call", "x", "f", "c", "$[0]")],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "r"},
            [("tool", "tool-result", "r", None, "c", "$[0]")],
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
            [("tool", "tool-result", "r", None, "c", "$[0]")],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
            [("tool", "other", '[{"type":"input_image"}]', None, "c", "$[0]")],
        ),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in ("a", "b")]},
            [("assistant", "reasoning", "a\n\nb", None, None, "$[0]")],
        ),
        (
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
            [("assistant", "reasoning", "a", None, None, "$[0]")],
        ),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
            [("assistant", "reasoning", "gAAA", None, None, "$[0]")],
        ),
        ({"type": "reasoning"}, [("assistant", "reasoning", "", None, None, "$[0]")]),
        (
            {"type": "web_search_call", "status": "completed"},
            [("assistant", "other", '{"type":"web_search_call","status":"completed"}', None, None, "$[0]")],
        ),
        (
            {"type": "tool_search_output", "call_id": None},
            [("tool", "other", '{"type":"tool_search_output","call_id":null}', None, None, "$[0]")],
        ),
        ({"type": "message", "role": "tool", "content": "x"}, []),
        ({"type": "message", "role": "user"}, []),
        ({"type": 5}, []),
        (5, []),
    ],
)
def test_responses(item: Any, expected: list[Row]) -> None:
    """An item of Responses is one message, a message item one per part."""
    assert rows(RESPONSES, [item]) == expected


def test_responses_body() -> None:
    """`instructions` is a system text, a string input the user's; conversation items lie under `items`."""
    assert rows(RESPONSES, {"instructions": "i", "input": "x"}) == [
        ("system", "text", "i", None, None, "$.instructions"),
        ("user", "text", "x", None, None, "$.input"),
    ]
    items = [{"role": "user", "content": "x"}]
    assert rows(RESPONSES, {"items": items}) == [("user", "text", "x", None, None, "$.items[0].content")]


@pytest.mark.parametrize(
    ("role", "block", "expected"),
    [
        ("user", {"type": "text", "text": "x"}, ("user", "text", "x", None, None)),
        ("system", {"type": "text", "text": "x"}, ("system", "text", "x", None, None)),
        (
            "assistant",
            {"type": "tool_use", "id": "c", "name": "f", "input": {"b": 1, "a": 2}},
            ("assistant", "tool-call", '{"b":1,"a":2}', "f", "c"),
        ),
        (
            "assistant",
            {"type": "tool_use", "id": "c", "name": "f", "input": "prose"},
            ("assistant", "tool-call", "prose", "f", "c"),
        ),
        ("assistant", {"type": "tool_use", "id": "c", "name": "f"}, ("assistant", "tool-call", "", "f", "c")),
        (
            "user",
            {"type": "tool_result", "tool_use_id": "c", "content": "r", "is_error": True},
            ("tool", "tool-result", "r", None, "c"),
        ),
        (
            "user",
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}]},
            ("tool", "tool-result", "r", None, "c"),
        ),
        ("user", {"type": "tool_result", "tool_use_id": "c"}, ("tool", "tool-result", "", None, "c")),
        (
            "user",
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]},
            ("tool", "other", '[{"type":"image"}]', None, "c"),
        ),
        (
            "assistant",
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            ("assistant", "reasoning", "hm", None, None),
        ),
        ("assistant", {"type": "redacted_thinking", "data": "d"}, ("assistant", "reasoning", "d", None, None)),
        (
            "assistant",
            {"type": "server_tool_use", "id": "s"},
            ("assistant", "other", '{"type":"server_tool_use","id":"s"}', None, "s"),
        ),
        (
            "assistant",
            {"type": "web_search_tool_result", "tool_use_id": "s"},
            ("assistant", "other", '{"type":"web_search_tool_result","tool_use_id":"s"}', None, "s"),
        ),
        ("user", {"type": "text", "text": 5}, ("user", "other", '{"type":"text","text":5}', None, None)),
        ("user", {"type": 5}, None),
        ("user", {"text": "x"}, None),
        ("user", 5, None),
        ("tool", {"type": "text", "text": "x"}, None),
        (None, {"type": "text", "text": "x"}, None),
    ],
)
def test_anthropic(role: Any, block: Any, expected: Any) -> None:
    """A block is one message; a result is the tool's, whoever's entry it stands in."""
    found = rows(ANTHROPIC, [{"role": role, "content": [block]}])
    assert found == ([(*expected, "$[0].content[0]")] if expected else [])


def test_anthropic_body() -> None:
    """`system` is one text or blocks; string content is a text."""
    main = ("user", "text", "x", None, None, "$.messages[0].content")
    entries = [{"role": "user", "content": "x"}]
    body: dict[str, Any] = {"system": "s", "messages": entries}
    assert rows(ANTHROPIC, body) == [("system", "text", "s", None, None, "$.system"), main]
    body = {"system": [5, {"type": "text", "text": "s"}], "messages": entries}
    assert rows(ANTHROPIC, body) == [("system", "text", "s", None, None, "$.system[1]"), main]
    assert rows(ANTHROPIC, {"system": 5, "messages": entries}) == [main]


@pytest.mark.parametrize(
    ("role", "part", "expected"),
    [
        ("user", {"text": "x"}, ("user", "text", "x", None, None)),
        ("model", {"text": "x", "thoughtSignature": "s"}, ("assistant", "text", "x", None, None)),
        ("model", {"text": "x", "thought": True}, ("assistant", "reasoning", "x", None, None)),
        ("model", {"text": "x", "thought": False}, ("assistant", "text", "x", None, None)),
        (
            "model",
            {"functionCall": {"name": "f", "args": {"a": 1}, "id": "c"}},
            ("assistant", "tool-call", '{"a":1}', "f", "c"),
        ),
        ("model", {"function_call": {"name": "f"}}, ("assistant", "tool-call", "", "f", None)),
        ("model", {"functionCall": {"args": "prose"}}, ("assistant", "tool-call", "prose", None, None)),
        *(
            (
                "user",
                {"functionResponse": {"name": "f", "response": {key: "r"}}},
                ("tool", "tool-result", "r", None, None),
            )
            for key in ("output", "result", "error")
        ),
        (
            "function",
            {"function_response": {"id": "c", "response": {"output": "r", "n": 1}}},
            ("tool", "tool-result", '{"output":"r","n":1}', None, "c"),
        ),
        (
            "user",
            {"functionResponse": {"response": {"rows": "r"}}},
            ("tool", "tool-result", '{"rows":"r"}', None, None),
        ),
        (
            "user",
            {"functionResponse": {"response": {"output": 1}}},
            ("tool", "tool-result", '{"output":1}', None, None),
        ),
        ("user", {"functionResponse": {}}, ("tool", "tool-result", "", None, None)),
        (
            "user",
            {"functionResponse": {"response": {"output": "r"}, "parts": [{"inlineData": {}}]}},
            ("tool", "other", "r", None, None),
        ),
        ("user", {"inlineData": {}}, ("user", "other", '{"inlineData":{}}', None, None)),
        ("model", {"executableCode": {}}, ("assistant", "other", '{"executableCode":{}}', None, None)),
        (None, {"text": "x"}, None),
        ("user", {"thoughtSignature": "s"}, None),
        ("user", {"text": 5}, None),
        ("user", {"functionCall": "f"}, None),
        ("user", 5, None),
    ],
)
def test_gemini(role: Any, part: Any, expected: Any) -> None:
    """A part is one message; signatures are none."""
    found = rows(GEMINI, [{"role": role, "parts": [part]}])
    assert found == ([(*expected, "$[0].parts[0]")] if expected else [])


@pytest.mark.parametrize("key", ["systemInstruction", "system_instruction"])
def test_gemini_body(key: str) -> None:
    """The system instruction is a text or parts, in both spellings; a content without a role is the user's."""
    contents = [{"parts": [{"text": "x"}]}]
    main = ("user", "text", "x", None, None, "$.contents[0].parts[0]")
    body: dict[str, Any] = {key: {"parts": [{"text": "s"}]}, "contents": contents}
    assert rows(GEMINI, body) == [("system", "text", "s", None, None, f"$.{key}.parts[0]"), main]
    assert rows(GEMINI, {key: "s", "contents": contents}) == [("system", "text", "s", None, None, f"$.{key}"), main]


@pytest.mark.parametrize(
    "key",
    [
        "inlineData",
        "inline_data",
        "fileData",
        "file_data",
        "executableCode",
        "executable_code",
        "codeExecutionResult",
        "code_execution_result",
        "toolCall",
        "toolResponse",
    ],
)
def test_gemini_parts_of_other_kinds(key: str) -> None:
    """Media and what the provider's own tools did are `other`, in both spellings."""
    assert rows(GEMINI, [{"parts": [{key: {}}]}]) == [
        ("user", "other", f'{{"{key}":{{}}}}', None, None, "$[0].parts[0]")
    ]


@pytest.mark.parametrize(
    ("wire", "entry"),
    [
        (CHAT, {"role": "user", "content": "x"}),
        (ANTHROPIC, {"role": "user", "content": "x"}),
        (RESPONSES, {"role": "user", "content": [{"type": "text", "text": "x"}]}),
        (GEMINI, {"parts": [{"text": "x"}]}),
    ],
)
def test_junk_hides_nothing_behind_it(wire: Wire, entry: Any) -> None:
    """Entries of no known shape are passed over one by one."""
    assert [row[2] for row in rows(wire, ["junk", entry, {"role": "?"}, entry])] == ["x", "x"]


def test_input_comes_before_items() -> None:
    """A body with both keys is a request."""
    assert rows(RESPONSES, {"input": "x", "items": [{"role": "user", "content": "y"}]})[0][2] == "x"


TWINS = {
    "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "x"},
    ]
}


def test_derived_ids_name_content_and_rank_of_twins() -> None:
    """Twins differ by their rank, other roles by their digest; the bytes are fixed."""
    assert [message.id for message in parse(TWINS, CHAT).messages] == [
        "w_8d8f380e7e5c4247546c9fdd8e853078",
        "w_5f682657bc2746174d4d302a508f6888",
        "w_8d8f380e7e5c4247546c9fdd8e853078_1",
    ]


def test_ids_are_the_same_on_every_wire() -> None:
    """An id names what a message is, not how it is spelt."""
    chat = parse({"messages": [{"role": "user", "content": "x"}]}, CHAT).messages
    assert parse({"contents": [{"parts": [{"text": "x"}]}]}, GEMINI).messages == chat
    assert (
        parse({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, ANTHROPIC).messages == chat
    )


def test_item_ids_are_kept_where_they_are_unique() -> None:
    """Responses items bring their ids; a repeat and a second part get derived ones."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    derived = parse([{"role": "user", "content": t} for t in ("b", "a")], RESPONSES).messages
    item = {"type": "message", "role": "user", "id": "msg_1", "content": parts}
    found = [message.id for message in parse([item, {**item, "content": "a"}, {**item, "id": ""}], RESPONSES).messages]
    assert found == ["msg_1", derived[0].id, f"{derived[1].id}_1", f"{derived[1].id}_2", f"{derived[0].id}_1"]


def test_an_item_that_bears_a_derived_id_keeps_it() -> None:
    """Ids stay unique where a host's id looks like a derived one."""
    (message,) = parse([{"role": "user", "content": "x"}], RESPONSES).messages
    thief = {"role": "user", "content": "other", "id": message.id}
    found = [each.id for each in parse([thief, {"role": "user", "content": "x"}], RESPONSES).messages]
    assert found == [message.id, f"{message.id}_1"]


@given(st.sampled_from(Wire).flatmap(lambda wire: st.tuples(st.just(wire), legal_bodies(wire))), st.integers(0, 12))
def test_ids_do_not_depend_on_what_follows(case: tuple[Wire, Any], length: int) -> None:
    """The messages of a shorter history are the first of the longer one, ids included (I13)."""
    wire, body = case
    key = {CHAT: "messages", ANTHROPIC: "messages", GEMINI: "contents", RESPONSES: "input"}[wire]
    longer = parse(body, wire).messages
    shorter = parse({**body, key: body[key][:length]}, wire).messages
    assert longer[: len(shorter)] == shorter
    assert len({message.id for message in longer}) == len(longer)


def test_ids_are_the_same_in_every_process() -> None:
    """Two processes with other hash seeds derive the same ids (I8)."""
    wire, body = CASES["113-neg-anthropic-split-results"]
    code = (
        "import json, sys; from latchguard.wire import parse;"
        "print(*(m.id for m in parse(json.load(sys.stdin), sys.argv[1]).messages))"
    )
    found = {
        subprocess.check_output(
            [sys.executable, "-c", code, wire], text=True, input=json.dumps(body), env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert found == {" ".join(message.id for message in parse(body, wire).messages) + "\n"}


def test_the_wire_is_detected() -> None:
    """Without a wire the shape decides; plain text, which two wires say alike, is chat; else it is an error."""
    wire, body = CASES["060-anth-unanswered-then-text"]
    assert parse(body).frame.wire is wire
    plain = [{"role": "user", "content": "x"}]
    assert [parse(each).frame.wire for each in (plain, {"messages": plain}, [])] == [CHAT] * 3
    for undecided in ({}, {"messages": plain, "input": []}, {"messages": "x"}, "x", None):
        with pytest.raises(WireUndecidedError):
            parse(undecided)


@pytest.mark.parametrize("body", [None, "x", 5, (1,)])
def test_a_body_is_an_object_or_an_array(body: Any) -> None:
    """Anything else is the documented error."""
    with pytest.raises(InvalidValueError) as caught:
        parse(body, CHAT)
    assert caught.value.path == "$"


def test_a_frame_knows_its_own_messages_only() -> None:
    """Asking for the place of another message is the documented error."""
    with pytest.raises(UnknownMessageError):
        parse([], CHAT).frame.path("x")


def test_a_frame_shows_no_content() -> None:
    """Its repr is safe for a log."""
    assert repr(parse(TWINS, CHAT).frame) == "Frame(openai-chat, 3 messages)"


@pytest.mark.parametrize("wire", Wire)
def test_depth_does_not_matter(wire: Wire) -> None:
    """A value nested deeper than the stack is carried along; beyond 1,000 levels it is no message."""
    key = {CHAT: "arguments", ANTHROPIC: "input", GEMINI: "args", RESPONSES: "arguments"}[wire]
    for depth, count in ((900, 1), (5000, 0)):
        value: Any = {}
        for _ in range(depth):
            value = {"a": value}
        called = {"name": "f", key: value}
        entry = {
            CHAT: {"role": "assistant", "tool_calls": [{"id": "c", "function": called}]},
            ANTHROPIC: {"role": "assistant", "content": [{"type": "tool_use", **called}]},
            GEMINI: {"role": "model", "parts": [{"functionCall": called}]},
            RESPONSES: {"type": "function_call", **called},
        }[wire]
        parsed = parse([entry], wire)
        assert [len(message.text) for message in parsed.messages] == [depth * 6 + 2] * count
        assert render(parsed.messages, parsed.frame) is parsed.frame.body


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "\ud800"}, '{"a":"\\ud800"}'),
        ({"a": 10**30}, '{"a":1000000000000000000000000000000}'),
        ({"a": float("nan")}, '{"a":null}'),
        (
            {"a": [], "\ud800": {}, "b": [1, {"c": None}, 10**30]},
            '{"a":[],"\\ud800":{},"b":[1,{"c":null},1' + "0" * 30 + "]}",
        ),
        ({1: 2}, None),
        ({"a": {1, 2}}, None),
        ({"a": object()}, None),
        ({"a": 10**5000}, None),
    ],
)
def test_odd_values_become_text_or_stay_in_the_frame(value: Any, text: str | None) -> None:
    """Arguments that are no JSON are no message; nothing raises."""
    body = [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": value}]}]
    parsed = parse(body, ANTHROPIC)
    assert [message.text for message in parsed.messages] == ([] if text is None else [text])
    assert render(parsed.messages, parsed.frame) is body


KEYS = (
    "system",
    "role", "content", "type", "text", "tool_calls", "function", "arguments", "input", "parts", "functionCall", "name",
    "functionResponse", "response", "id", "call_id", "output", "summary", "source", "image_url", "url", "args",
)  # fmt: skip
WORDS = (
    "user", "assistant", "tool", "model", "system", "text", "tool_use", "tool_result", "function_call", "reasoning",
    "image", "function_call_output", "message", "thinking", "x", "", "{}",
)  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)
SECTIONS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("messages", "input", "items", "contents", "system", "systemInstruction", "instructions", "tools"),
        JUNK | st.lists(st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=6), max_size=4),
    ),
)


@given(st.sampled_from(Wire), st.sampled_from(Wire), SECTIONS)
def test_wrong_types_anywhere_lose_nothing(wire: Wire, target: Wire, body: dict[str, Any]) -> None:
    """Bodies of any shape are parsed, rendered as themselves and converted; only documented errors are raised."""
    parsed = parse(body, wire)
    assert render(parsed.messages, parsed.frame) is body
    assert {type(message) for message in parsed.messages} <= {Message}
    converted = convert(parsed, target)
    parse(converted.body, target)
    try:
        render((*parsed.messages, Message("new", Role.USER, Kind.TEXT, "x")), parsed.frame)
        render(parsed.messages[1:], parsed.frame)
        render(parsed.messages[::-1], parsed.frame)
    except LatchguardError:
        pass


@given(
    st.sampled_from(Wire).flatmap(lambda wire: st.tuples(st.just(wire), damaged_bodies(wire))), st.sampled_from(Wire)
)
def test_damaged_bodies_are_converted(case: tuple[Wire, Any], target: Wire) -> None:
    """Damage never stops a conversion, and what comes out is the target's own."""
    wire, body = case
    converted = convert(parse(body, wire), target).body
    assert convert(parse(converted, target), target).body is converted
