"""Rendering: changes stay in their place."""

import json
import logging
from copy import deepcopy
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.errors import DuplicateMessageError, InvalidValueError
from latchguard.core.findings import Finding, Repair, Wire
from latchguard.core.identity import Identity
from latchguard.core.jsonspans import JsonSpans, Path
from latchguard.core.jsontext import load_json
from latchguard.core.message import Kind, Message, Role
from latchguard.testing.bodies import damaged_bodies, legal_bodies
from latchguard.wire import parse, render, render_checked
from latchguard.wire.base import get_in
from tests.wire.cases import CASES

CHANGES = [(case, number) for case, (wire, body) in CASES.items() for number in range(len(parse(body, wire).messages))]


def dump(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def with_member(raw: bytes, path: Path, old: bytes) -> bytes:
    """Put *old* in place of the value at *path* of *raw*."""
    start, end = JsonSpans(raw).span(path)
    return raw[:start] + old + raw[end:]


@pytest.mark.parametrize("case", CASES)
def test_an_untouched_body_is_the_same_object(case: str) -> None:
    """Rendering what was parsed gives the body itself."""
    wire, body = CASES[case]
    parsed = parse(body, wire)
    assert render(parsed.messages, parsed.frame) is body


@pytest.mark.parametrize(("case", "number"), CHANGES)
def test_a_change_stays_inside_its_span(case: str, number: int) -> None:
    """Every byte outside the changed message's span is the byte that came; inside it the new text is read back."""
    wire, body = CASES[case]
    before = dump(body)
    parsed = parse(body, wire)
    message = parsed.messages[number]
    text = '{"changed":1}' if message.kind is Kind.TOOL_CALL else "changed"
    messages = [*parsed.messages]
    messages[number] = evolve(message, text=text)
    after = render(messages, parsed.frame)
    path = parsed.frame.path(message.id)
    start, end = JsonSpans(before).span(path)
    assert with_member(dump(after), path, before[start:end]) == before
    assert parse(after, wire).messages[number].text == text
    assert dump(body) == before


CHAT, ANTHROPIC, GEMINI, RESPONSES = Wire.OPENAI_CHAT, Wire.ANTHROPIC, Wire.GEMINI, Wire.OPENAI_RESPONSES
PLACEHOLDER = load_json(PLACEHOLDER_ARGUMENTS)


def text(text: str, role: Role = Role.USER, message_id: str = "new") -> Message:
    return Message(message_id, role, Kind.TEXT, text)


def edit(wire: Wire, body: Any, change: Any) -> Any:
    """Parse *body*, let *change* make a new list of its messages, and render that."""
    before = deepcopy(body)
    parsed = parse(body, wire)
    after = render(change([*parsed.messages]), parsed.frame)
    assert body == before
    return after


def call(arguments: Any = "{}", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def use(arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": arguments}


U, A = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


def test_a_removed_message_leaves_and_its_entry_with_the_last() -> None:
    """Blocks vanish one by one, an entry with its last message, what is no message stays."""
    body = {"messages": [U, {"role": "assistant", "content": "x", "tool_calls": [call(), call("{}", "c2")]}, "junk", A]}
    entry: dict[str, Any] = {"role": "assistant", "content": "x", "tool_calls": [call("{}", "c2")]}
    assert edit(CHAT, body, lambda m: [*m[:2], *m[3:]]) == {"messages": [U, entry, "junk", A]}
    entry = {"role": "assistant", "content": None, "tool_calls": [call(), call("{}", "c2")]}
    assert edit(CHAT, body, lambda m: [m[0], *m[2:]]) == {"messages": [U, entry, "junk", A]}
    assert edit(CHAT, body, lambda m: m[:2]) == {"messages": [U, {"role": "assistant", "content": "x"}, "junk"]}
    assert edit(CHAT, body, lambda m: [m[4]]) == {"messages": ["junk", A]}
    assert edit(CHAT, body, lambda _: []) == {"messages": ["junk"]}


def test_appended_messages_come_last() -> None:
    """New messages get new wire objects; calls join the text before them, results follow."""
    new = [
        text("ok", Role.ASSISTANT, "1"),
        Message("2", Role.ASSISTANT, Kind.TOOL_CALL, '{"a":1}', "f", "c1"),
        Message("3", Role.TOOL, Kind.TOOL_RESULT, "r", None, "c1"),
        text("next", Role.USER, "4"),
    ]
    empty = {"role": "assistant", "content": None}
    assert edit(CHAT, {"messages": [U, empty]}, lambda m: [*m, *new]) == {
        "messages": [
            U,
            empty,
            {"role": "assistant", "content": "ok", "tool_calls": [call('{"a":1}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
            {"role": "user", "content": "next"},
        ]
    }
    assert edit(ANTHROPIC, {"messages": [U]}, lambda m: [*m, *new]) == {
        "messages": [
            U,
            {"role": "assistant", "content": [{"type": "text", "text": "ok"}, use({"a": 1})]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "r"},
                    {"type": "text", "text": "next"},
                ],
            },
        ]
    }
    assert edit(RESPONSES, {"input": []}, lambda m: [*m, *new])["input"] == [
        {"type": "message", "role": "assistant", "content": "ok"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "next"}]},
    ]
    assert edit(GEMINI, {}, lambda m: [*m, *new])["contents"] == [
        {"role": "model", "parts": [{"text": "ok"}, {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "r"}}},
                {"text": "next"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (CHAT, {"role": "assistant", "content": "ok", "reasoning_content": "a\n\nb"}),
        (
            ANTHROPIC,
            [
                {"type": "thinking", "thinking": "a"},
                {"type": "thinking", "thinking": "b"},
                {"type": "text", "text": "ok"},
            ],
        ),
        (GEMINI, [{"text": "a", "thought": True}, {"text": "b", "thought": True}, {"text": "ok"}]),
        (RESPONSES, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]}),
    ],
)
def test_new_reasoning_is_unsigned(wire: Wire, expected: Any) -> None:
    """Reasoning that a host adds stands before the text, without a signature, which no host can make."""
    new = [Message(each, Role.ASSISTANT, Kind.REASONING, each) for each in ("a", "b")]
    (first, *_) = edit(wire, [], lambda _: [*new, text("ok", Role.ASSISTANT)])
    key = {ANTHROPIC: "content", GEMINI: "parts"}.get(wire)
    assert (first[key] if key else first) == expected


@pytest.mark.parametrize(
    ("wire", "path"),
    [
        (CHAT, ("content",)),
        (ANTHROPIC, ("content", 0, "content")),
        (RESPONSES, ("output",)),
    ],
)
def test_a_new_result_of_parts_is_written_as_parts(wire: Wire, path: Path) -> None:
    """A result of kind `other` whose text is JSON of a list is that list; any other text is a text."""
    result = Message("new", Role.TOOL, Kind.OTHER, '[{"type":"text","text":"a"}]', None, "c")
    assert get_in(edit(wire, [], lambda _: [result])[0], path) == [{"type": "text", "text": "a"}]
    assert get_in(edit(wire, [], lambda _: [evolve(result, text="t")])[0], path) == "t"


@pytest.mark.parametrize(
    ("wire", "key"), [(CHAT, "content"), (ANTHROPIC, "content"), (GEMINI, "parts"), (RESPONSES, "content")]
)
def test_a_new_block_is_the_object_that_its_text_holds(wire: Wire, key: str) -> None:
    """A message of kind `other` brings its wire object as text."""
    new = Message("new", Role.USER, Kind.OTHER, '{"type":"x"}')
    assert edit(wire, [], lambda _: [new])[0][key] == [{"type": "x"}]


def test_a_new_result_answers_a_custom_call_in_kind() -> None:
    """The output of a custom tool call is of the call's own type."""
    made = {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"}
    result = Message("new", Role.TOOL, Kind.TOOL_RESULT, "r", None, "c1")
    items = edit(RESPONSES, {"input": [made]}, lambda m: [*m, result])["input"]
    assert items == [made, {"type": "custom_tool_call_output", "call_id": "c1", "output": "r"}]


def test_a_message_inside_an_entry_splits_it() -> None:
    """Order is as given; what is no message stays in the first part."""
    body = {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, 5, use({})], "odd": 1}]}
    found = edit(ANTHROPIC, body, lambda m: [m[0], text("n"), m[1]])
    assert found["messages"] == [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, 5], "odd": 1},
        {"role": "user", "content": [{"type": "text", "text": "n"}]},
        {"role": "assistant", "content": [use({})], "odd": 1},
    ]


def test_moved_messages_take_their_objects_along() -> None:
    """Reordered entries are the very objects; entries without messages keep their place among the rest."""
    body = {"messages": [U, "junk", A, {"role": "user", "content": "v"}]}
    found = edit(CHAT, body, lambda m: [m[2], m[0], m[1]])["messages"]
    assert found == ["junk", body["messages"][3], U, A]
    assert found[2] is U
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]}]}
    assert edit(ANTHROPIC, body, lambda m: m[::-1])["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "2"}]},
        {"role": "user", "content": [{"type": "text", "text": "1"}]},
    ]


def test_another_role_or_kind_is_another_message() -> None:
    """A message whose role changed is built anew in its place."""
    found = edit(CHAT, {"messages": [U, A]}, lambda m: [evolve(m[0], role=Role.SYSTEM), m[1]])
    assert found == {"messages": [{"role": "system", "content": "u"}, A]}


@pytest.mark.parametrize(
    ("wire", "body", "expected"),
    [
        (ANTHROPIC, {"messages": [U]}, {"messages": [U], "system": [{"type": "text", "text": "s"}]}),
        (
            ANTHROPIC,
            {"system": "old", "messages": [U]},
            {"system": [{"type": "text", "text": "old"}, {"type": "text", "text": "s"}], "messages": [U]},
        ),
        (
            ANTHROPIC,
            {"system": [{"type": "text", "text": "old", "cache_control": {}}], "messages": []},
            {
                "system": [{"type": "text", "text": "old", "cache_control": {}}, {"type": "text", "text": "s"}],
                "messages": [],
            },
        ),
        (GEMINI, {"contents": []}, {"contents": [], "systemInstruction": {"parts": [{"text": "s"}]}}),
        (
            GEMINI,
            {"system_instruction": {"role": "system", "parts": [{"text": "old"}]}, "contents": []},
            {"system_instruction": {"role": "system", "parts": [{"text": "old"}, {"text": "s"}]}, "contents": []},
        ),
        (
            GEMINI,
            {"systemInstruction": "old", "contents": []},
            {"systemInstruction": {"parts": [{"text": "old"}, {"text": "s"}]}, "contents": []},
        ),
        (CHAT, {"messages": [U]}, {"messages": [U, {"role": "system", "content": "s"}]}),
        (
            RESPONSES,
            {"instructions": "old", "input": "u"},
            {
                "instructions": "old",
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
                    {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "s"}]},
                ],
            },
        ),
    ],
)
def test_a_new_system_text_goes_where_the_wire_keeps_them(wire: Wire, body: Any, expected: Any) -> None:
    """In the head where there is one, else among the messages."""
    assert edit(wire, body, lambda m: [*m, text("s", Role.SYSTEM)]) == expected


@pytest.mark.parametrize(
    ("wire", "body", "expected"),
    [
        (ANTHROPIC, {"system": "s", "messages": [U]}, {"messages": [U]}),
        (ANTHROPIC, {"system": [{"type": "text", "text": "s"}], "messages": [U]}, {"messages": [U]}),
        (GEMINI, {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": []}, {"contents": []}),
        (RESPONSES, {"instructions": "s", "input": []}, {"input": []}),
        (RESPONSES, {"input": "u"}, {"input": []}),
    ],
)
def test_a_head_leaves_with_its_last_message(wire: Wire, body: Any, expected: Any) -> None:
    """No empty `system` is sent; the main section stays as an empty list."""
    assert edit(wire, body, lambda m: m[1:]) == expected


@pytest.mark.parametrize(
    ("wire", "body", "path"),
    [
        (ANTHROPIC, {"system": "old", "messages": [U]}, ("system",)),
        (GEMINI, {"systemInstruction": "old", "contents": []}, ("systemInstruction",)),
        (RESPONSES, {"instructions": "old", "input": "u"}, ("instructions",)),
        (RESPONSES, {"input": "old"}, ("input",)),
    ],
)
def test_one_text_stays_one_text(wire: Wire, body: dict[str, Any], path: Path) -> None:
    """A head or input that is one text is still one when it is changed."""
    found = edit(wire, body, lambda m: [evolve(m[0], text="new"), *m[1:]])
    assert found == {**body, str(path[0]): "new"}


def test_a_list_without_a_body_is_rendered_as_a_list() -> None:
    """Sources keep bare lists of messages."""
    assert edit(CHAT, [U, A], lambda m: [m[1], text("n")]) == [A, {"role": "user", "content": "n"}]


@pytest.mark.parametrize("poison", ["", "prose", "42", '"{}"', "[1]", "null", '{"a":1}x', '{"a":1e400}', "{" * 2000])
@pytest.mark.parametrize("is_new", [True, False])
def test_text_that_is_no_object_becomes_the_placeholder_and_a_finding(poison: str, *, is_new: bool) -> None:
    """Where arguments are objects no poison leaves, and never a silent `{}`."""
    body = {"messages": [U, {"role": "assistant", "content": [{"type": "text", "text": "t"}, use({"a": 1})]}]}
    parsed = parse(body, ANTHROPIC)
    changed = evolve(parsed.messages[2], text=poison, id="new" if is_new else parsed.messages[2].id)
    rendered = render_checked([*parsed.messages[:2], changed], parsed.frame)
    path = "$.messages[2].content[0]" if is_new else "$.messages[1].content[1]"
    assert load_json(json.dumps(rendered.body["messages"][-1]["content"][-1]["input"])) == PLACEHOLDER
    assert rendered.findings == (
        Finding(
            rule="input-not-object",
            path=path,
            repair=Repair.PLACEHOLDER,
            applied=True,
            before=poison,
            after=PLACEHOLDER,
            tool_name="f",
        ),
    )


def test_a_placeholder_that_was_there_is_no_finding() -> None:
    """Only what this rendering replaced is reported, whatever stands beside it."""
    body = {
        "system": [use({}, "c0")],
        "messages": [{"role": "assistant", "content": [use(PLACEHOLDER), use({}, "c2")]}],
    }
    parsed = parse(body, ANTHROPIC)
    changed = [*parsed.messages[:2], evolve(parsed.messages[2], text="prose")]
    findings = render_checked(changed, parsed.frame).findings
    assert [(finding.path, finding.before) for finding in findings] == [("$.messages[0].content[1]", "prose")]


def test_gemini_gets_the_placeholder_too() -> None:
    """`args` is an object as well."""
    body = {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}]}
    parsed = parse(body, GEMINI)
    rendered = render_checked([evolve(parsed.messages[0], text="prose")], parsed.frame)
    assert rendered.body["contents"][0]["parts"][0]["functionCall"]["args"] == PLACEHOLDER
    assert [finding.path for finding in rendered.findings] == ["$.contents[0].parts[0]"]


def test_a_finding_is_logged_escaped(caplog: pytest.LogCaptureFixture) -> None:
    """`render` gives the body and logs one WARNING per finding."""
    parsed = parse({"messages": [{"role": "assistant", "content": [use({})]}]}, ANTHROPIC)
    with caplog.at_level(logging.WARNING, "latchguard"):
        render([evolve(parsed.messages[0], text="a\nb\u202e")], parsed.frame)
    assert [record.getMessage() for record in caplog.records] == [
        r"input-not-object at $.messages[0].content[0] of tool 'f': 'a\nb\u202e'"
    ]


def test_a_rename_touches_no_arguments() -> None:
    """Poison in place of an object stays what it is when only the name changes."""
    body = [{"role": "assistant", "content": [use("prose")]}]
    assert edit(ANTHROPIC, body, lambda m: [evolve(m[0], tool_name="g")])[0]["content"] == [
        {**use("prose"), "name": "g"}
    ]


def test_where_arguments_are_text_any_text_is_written() -> None:
    """On chat and Responses the arguments are a string: rendering leaves the judgement to `harden`."""
    parsed = parse({"messages": [{"role": "assistant", "tool_calls": [call()]}]}, CHAT)
    rendered = render_checked([evolve(parsed.messages[0], text="prose")], parsed.frame)
    assert rendered.body["messages"][0]["tool_calls"] == [call("prose")]
    assert rendered.findings == ()


def test_poison_that_came_with_the_body_stays_until_it_is_changed() -> None:
    """An equal message keeps its object, text in place of an object too; a change writes an object."""
    body = {"messages": [{"role": "assistant", "content": [use("prose"), use("[1]", "c2")]}]}
    parsed = parse(body, ANTHROPIC)
    changed = [evolve(parsed.messages[0], text='{"b":2,"a":1}'), parsed.messages[1]]
    rendered = render_checked(changed, parsed.frame)
    assert json.dumps(rendered.body["messages"][0]["content"]) == json.dumps([use({"b": 2, "a": 1}), use("[1]", "c2")])
    assert rendered.findings == ()


@pytest.mark.parametrize(
    "case", ["002-chat-orphan-middle", "102-neg-scalar-args", "069-anth-input-string", "095-gem-signature-foreign"]
)
def test_names_and_call_ids_are_written_in_place(case: str) -> None:
    """A renamed call is renamed on the wire, with its id; None takes the id away."""
    wire, body = CASES[case]
    parsed = parse(body, wire)
    renamed = [
        evolve(message, tool_name=message.tool_name and "g", tool_call_id=message.tool_call_id and "new")
        for message in parsed.messages
    ]
    found = parse(render(renamed, parsed.frame), wire).messages
    assert [Identity.of(message) for message in found] == [Identity.of(message) for message in renamed]
    bare = [evolve(message, tool_call_id=None) for message in parsed.messages]
    found = parse(render(bare, parsed.frame), wire).messages
    assert [message.tool_call_id for message in found] == [None] * len(bare)


@pytest.mark.parametrize(
    ("wire", "entry", "key"),
    [
        (CHAT, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content"),
        (ANTHROPIC, {"role": "user", "content": [{"type": "image", "source": {}}]}, "content"),
        (GEMINI, {"role": "user", "parts": [{"inlineData": {}}]}, "parts"),
        (RESPONSES, {"role": "user", "content": [{"type": "input_image"}]}, "content"),
        (RESPONSES, {"role": "assistant", "content": [{"type": "refusal"}]}, "content"),
    ],
)
def test_another_text_of_a_media_block_is_a_text_block(wire: Wire, entry: Any, key: str) -> None:
    """JSON of a block is that block; any other text becomes a text block of the wire."""
    (block,) = edit(wire, [entry], lambda m: [evolve(m[0], text="gone")])[0][key]
    types = {CHAT: "text", ANTHROPIC: "text", RESPONSES: "input_text", GEMINI: None}
    kind = "output_text" if entry["role"] == "assistant" else types[wire]
    assert block == ({"type": kind, "text": "gone"} if kind else {"text": "gone"})
    (block,) = edit(wire, [entry], lambda m: [evolve(m[0], text='{"type":"x"}')])[0][key]
    assert block == {"type": "x"}


@pytest.mark.parametrize(
    ("item", "key", "expected"),
    [
        ({"summary": [{"type": "summary_text", "text": "a"}]}, "summary", [{"type": "summary_text", "text": "t"}]),
        (
            {"summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
            "content",
            [{"type": "reasoning_text", "text": "t"}],
        ),
        ({"summary": [], "encrypted_content": "gAAA"}, "encrypted_content", "t"),
        ({}, "summary", [{"type": "summary_text", "text": "t"}]),
    ],
)
def test_reasoning_is_written_where_it_was_read(item: Any, key: str, expected: Any) -> None:
    """Summary, content, or what was encrypted; the rest of the item stays."""
    item = {"type": "reasoning", **item}
    assert edit(RESPONSES, [item], lambda m: [evolve(m[0], text="t")]) == [{**item, key: expected}]


def test_another_text_of_an_unknown_item_is_a_message() -> None:
    """On Responses a hosted tool's item that is replaced by a text becomes a message of the side it stood on."""
    items = [{"type": "web_search_call", "id": "ws"}, {"type": "computer_call_output", "call_id": "c"}]
    assert edit(RESPONSES, items, lambda m: [evolve(message, text="t") for message in m]) == [
        {"type": "message", "role": "assistant", "content": "t"},
        {"type": "message", "role": "user", "content": "t"},
    ]


def test_a_result_of_parts_becomes_a_text_or_other_parts() -> None:
    """A new text replaces the parts; JSON of a list is the new parts."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = [{"role": "tool", "tool_call_id": "c", "content": parts}]
    assert edit(CHAT, body, lambda m: [evolve(m[0], text="t")])[0]["content"] == "t"
    assert edit(CHAT, body, lambda m: [evolve(m[0], text='[{"type":"text"}]')])[0]["content"] == [{"type": "text"}]


def test_a_structured_response_takes_objects_and_texts() -> None:
    """Gemini's response is an object: a text goes under `output`, an object is the response."""
    answer = {"name": "f", "response": {"rows": [1, 2]}}
    body = [{"role": "user", "parts": [{"functionResponse": answer}]}]
    new = edit(GEMINI, body, lambda m: [evolve(m[0], text="clip")])[0]["parts"][0]["functionResponse"]["response"]
    assert new == {"output": "clip"}
    new = edit(GEMINI, body, lambda m: [evolve(m[0], text="{}")])[0]["parts"][0]["functionResponse"]["response"]
    assert new == {}


def test_misuse_is_an_error() -> None:
    """Two messages of one id, something that is no message, a place that holds something else."""
    parsed = parse({"messages": [U]}, CHAT)
    with pytest.raises(DuplicateMessageError):
        render([*parsed.messages, *parsed.messages], parsed.frame)
    with pytest.raises(InvalidValueError) as caught:
        render([*parsed.messages, "x"], parsed.frame)  # type: ignore[list-item]  # the misuse
    assert caught.value.path == "messages[1]"


@pytest.mark.parametrize(
    ("wire", "key"), [(CHAT, "messages"), (ANTHROPIC, "messages"), (GEMINI, "contents"), (RESPONSES, "input")]
)
def test_messages_are_added_where_there_is_nothing_and_not_over_something(wire: Wire, key: str) -> None:
    """A missing or null history is begun; one of a wrong type is an error that names its place."""
    for body in ({}, {key: None}):
        assert len(edit(wire, body, lambda _: [text("x")])[key]) == 1
    parsed = parse({key: 5}, wire)
    with pytest.raises(InvalidValueError) as caught:
        render([text("x")], parsed.frame)
    assert caught.value.path == f"$.{key}"


@pytest.mark.parametrize(("wire", "key"), [(ANTHROPIC, "system"), (GEMINI, "systemInstruction")])
def test_system_texts_are_not_put_over_something(wire: Wire, key: str) -> None:
    """A head of a wrong type is not replaced."""
    parsed = parse({key: 5}, wire)
    with pytest.raises(InvalidValueError) as caught:
        render([text("x", Role.SYSTEM)], parsed.frame)
    assert caught.value.path == f"$.{key}"


@pytest.mark.parametrize("wire", Wire)
def test_a_new_call_without_a_name_has_an_empty_one(wire: Wire) -> None:
    """The key is there, for `harden` to judge; a missing id is made where the wire wants one."""
    made = edit(wire, [], lambda _: [Message("new", Role.ASSISTANT, Kind.TOOL_CALL, "{}")])
    (message,) = parse(made, wire).messages
    assert (message.tool_name, message.tool_call_id) == ("", None if wire is GEMINI else "new")


BODIES = st.sampled_from(Wire).flatmap(
    lambda wire: st.tuples(st.just(wire), st.one_of(legal_bodies(wire), damaged_bodies(wire)))
)


@given(BODIES)
def test_any_body_comes_back_as_itself(case: tuple[Wire, Any]) -> None:
    """Whatever a body holds, parsing loses nothing and rendering gives the very object."""
    wire, body = case
    before = dump(body)
    parsed = parse(body, wire)
    assert render(parsed.messages, parsed.frame) is body
    assert dump(body) == before


@given(BODIES, st.data())
def test_any_change_stays_inside_its_span(case: tuple[Wire, Any], data: st.DataObject) -> None:
    """In any body, changing one message changes bytes of its span only, and it is read back as it was written."""
    wire, body = case
    parsed = parse(body, wire)
    if not parsed.messages:
        return
    message = data.draw(st.sampled_from(parsed.messages))
    changed = evolve(message, text='{"changed":1}' if message.kind is Kind.TOOL_CALL else "changed")
    after = render([changed if each is message else each for each in parsed.messages], parsed.frame)
    path, before = parsed.frame.path(message.id), dump(body)
    start, end = JsonSpans(before).span(path)
    assert with_member(dump(after), path, before[start:end]) == before
    found = parse(after, wire).messages
    assert [each.text for each in found] == [changed.text if each is message else each.text for each in parsed.messages]


@given(BODIES, st.data())
def test_any_choice_of_messages_is_what_is_read_back(case: tuple[Wire, Any], data: st.DataObject) -> None:
    """Messages left out are gone, all others are there in their order, new ones where they were put."""
    wire, body = case
    if not isinstance(body.get({CHAT: "messages", ANTHROPIC: "messages", GEMINI: "contents"}.get(wire, "input")), list):
        return
    parsed = parse(body, wire)
    chosen = [message for message in parsed.messages if data.draw(st.booleans())]
    position = data.draw(st.integers(0, len(chosen)))
    new = text("added", data.draw(st.sampled_from([Role.USER, Role.ASSISTANT])))
    before = dump(body)
    found = parse(render([*chosen[:position], new, *chosen[position:]], parsed.frame), wire).messages
    heads = [message for message in chosen if message.role is Role.SYSTEM and wire is not CHAT]
    if position >= len(heads):
        expected = [*chosen[:position], new, *chosen[position:]]
        assert [Identity.of(message) for message in found] == [Identity.of(message) for message in expected]
    assert dump(body) == before
