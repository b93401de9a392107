"""Each rule of the area `arguments`: when it fires, what it makes of it, what that costs."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from latchguard import PLACEHOLDER_ARGUMENTS, harden
from latchguard.core.findings import Wire
from latchguard.egress.layout import find_calls

P = PLACEHOLDER_ARGUMENTS
OBJECT = json.loads(P)
DEEP = "[" * 1000 + "]" * 1000


def chat(arguments: Any, **more: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}, _result("tool")], **more}


def _result(role: str) -> dict[str, Any]:
    return {"role": role, "tool_call_id": "c1", "content": "ok"}


def outcome(body: dict[str, Any], **options: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The arguments that leave, and (rule, cost) of each finding."""
    result = harden(body, Wire.OPENAI_CHAT, **options)
    call = result.body["messages"][0]["tool_calls"][0]["function"]
    return call["arguments"], [(finding.rule, finding.repair) for finding in result.findings]


LEGAL = [
    "{}",
    '{"a":{"b":[1,2]}}',
    " {} ",
    "null",
    "42",
    '"hello"',
    "[1]",
    "",
    None,
    '{"a":1e400}',
    '{"a":' + "9" * 400 + "}",
    '{"a":1,"a":2}',
    '{"a":"\\ud800"}',
    DEEP,
]
ILLEGAL = [
    "Summary of the work so far.",
    '<acp ref="m00001">...',
    " ",
    '{"command":"rm -rf /tmp/x',
    '{"a":NaN}',
    '{"a":Infinity}',
    '\ufeff{"a":1}',
    '{"a":1,}',
    '{"a":1}{"b":2}',
    "{'a':1}",
    '{"a":"\x00"} x',
    f"[{DEEP}]",
]


@pytest.mark.parametrize("arguments", LEGAL)
def test_what_json_parse_takes_passes(arguments: Any) -> None:
    """Legal arguments, the empty string, null: same object, no finding."""
    body = chat(arguments)
    result = harden(body, "openai-chat")
    assert (result.body is body, result.findings) == (True, ())


@pytest.mark.parametrize("arguments", ILLEGAL)
def test_what_json_parse_refuses_becomes_the_placeholder(arguments: str) -> None:
    """Text that is no JSON is replaced by the constant, at the cost of a placeholder; the text is in the finding."""
    assert outcome(chat(arguments)) == (P, [("args-invalid-json", "placeholder")])
    assert harden(chat(arguments), "openai-chat").findings[0].before == arguments


def test_control_characters_in_strings_are_escaped_without_loss() -> None:
    """The one lossless repair: every other character stays, and `allow="lossless"` permits it."""
    found = outcome(chat('{ "t":"a\nb\tc\x01" }'), allow="lossless")
    assert found == ('{ "t":"a\\nb\\tc\\u0001" }', [("args-invalid-json", "lossless")])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"b": 1, "a": [None, True]}, '{"b":1,"a":[null,true]}'),
        ([1], "[1]"),
        (42, "42"),
        (False, "false"),
        ({"n": 2**70}, '{"n":1180591620717411303424}'),
    ],
)
def test_a_value_in_place_of_text_becomes_its_text(arguments: Any, text: str) -> None:
    """An object, a list, a number become compact JSON in their key order, without loss."""
    assert outcome(chat(arguments)) == (text, [("args-not-string", "lossless")])


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value, value]
    return value


@pytest.mark.parametrize(
    "arguments", [{"x": float("nan")}, {"x": dt.datetime.now(tz=dt.UTC)}, {(1,): 2}, _cycle(), {"b": b"x"}]
)
def test_a_value_that_json_cannot_carry_becomes_the_placeholder(arguments: Any) -> None:
    """NaN, foreign objects, foreign keys, cycles cannot be sent: the placeholder, never something else in silence."""
    assert outcome(chat(arguments)) == (P, [("args-not-string", "placeholder")])
    body = {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": arguments}]}]}
    hardened = harden(body, "anthropic").body
    assert hardened["messages"][0]["content"][0]["input"] == OBJECT


@pytest.mark.parametrize(
    ("arguments", "text", "rules"),
    [
        ("", "{}", [("args-empty", "lossless")]),
        ('"{\\"p\\": 1.10}"', '{"p": 1.10}', [("args-double-encoded", "lossless")]),
        (json.dumps(json.dumps(json.dumps('{"p":1}'))), '{"p":1}', [("args-double-encoded", "lossless")]),
        ('"{\\"h\\":\\"\\ud800\\"}"', '{"h":"\\ud800"}', [("args-double-encoded", "lossless")]),
        ("null", '{"value":null}', [("args-not-object", "lossless")]),
        ("[1, 2]", '{"value":[1, 2]}', [("args-not-object", "lossless")]),
        ('"{\\"cut"', '{"value":"{\\"cut"}', [("args-not-object", "lossless")]),
        (DEEP, P, [("args-not-object", "placeholder")]),
        ("prose", P, [("args-invalid-json", "placeholder")]),
        ([1], '{"value":[1]}', [("args-not-string", "lossless"), ("args-not-object", "lossless")]),
        (None, None, []),
        ("{}", "{}", []),
    ],
)
def test_strict_args_wants_an_object(arguments: Any, text: Any, rules: list[tuple[str, str]]) -> None:
    """Under `strict-args` the empty string, encoded objects and other values become objects, verbatim inside."""
    assert outcome(chat(arguments), profile="strict-args") == (text, rules)


def test_five_layers_are_too_many_to_peel() -> None:
    """An object behind more than four parses is a value like any other."""
    text = json.dumps(json.dumps(json.dumps(json.dumps('{"p":1}'))))
    assert outcome(chat(text), profile="strict-args") == (f'{{"value":{text}}}', [("args-not-object", "lossless")])


@pytest.mark.parametrize(
    ("value", "expected", "cost"),
    [
        ('{"c":"ls"}', {"c": "ls"}, "lossless"),
        (json.dumps('{"c":123456789012345678901234567890}'), {"c": 123456789012345678901234567890}, "lossless"),
        ("", {}, "lossless"),
        ("prose", OBJECT, "placeholder"),
        ("42", OBJECT, "placeholder"),
        ('{"c":1e400}', OBJECT, "placeholder"),
        ([1], OBJECT, "placeholder"),
        (True, OBJECT, "placeholder"),
    ],
)
def test_text_in_place_of_an_object_is_found_on_object_wires(value: Any, expected: Any, cost: str) -> None:
    """`tool_use.input` and `functionCall.args` are objects: parsed, or the placeholder, never in silence."""
    for wire, body in (("anthropic", anthropic(input=value)), ("gemini", gemini(args=value))):
        result = harden(body, wire)
        assert [(found.rule, found.repair, found.after) for found in result.findings] == [
            ("input-not-object", cost, expected)
        ]
        calls = list(find_calls(result.body, Wire(wire)))
        assert [call.holder[call.key] for call in calls] == [expected]


def anthropic(**call: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "t1", "name": "f", **call}
    results = [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]
    messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": results}]
    return {"messages": messages, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}


def gemini(**call: Any) -> dict[str, Any]:
    response = {"functionResponse": {"name": "f", "response": {"output": "ok"}}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "q"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", **call}}]},
            {"role": "user", "parts": [response]},
        ]
    }


def test_missing_arguments_are_legal_where_the_wire_says_so() -> None:
    """Gemini's `args` is optional; Anthropic's `input` is not, and becomes an empty object."""
    for body in (gemini(), gemini(args=None)):
        assert harden(body, "gemini").body is body
    result = harden(anthropic(), "anthropic")
    assert result.body["messages"][0]["content"][0]["input"] == {}
    assert [found.repair for found in result.findings] == ["lossless"]


SCHEMA = {"type": "object", "required": ["path", "mode"]}
DECLARED = [
    ("openai-chat", chat('{"path":1}', tools=[{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}])),
    (
        "openai-responses",
        {
            "input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"path":1}'}],
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        },
    ),
    (
        "anthropic",
        {
            "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"path": 1}}]}],
            "tools": [{"name": "f", "input_schema": SCHEMA}],
        },
    ),
    (
        "gemini",
        {
            "contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"path": 1}}}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": SCHEMA}]}],
        },
    ),
]


@pytest.mark.parametrize(("wire", "body"), DECLARED)
def test_a_required_key_that_is_missing_is_named(wire: str, body: dict[str, Any]) -> None:
    """Under `strict-required` the call is named and left as it is; elsewhere nothing is said."""
    result = harden(body, wire, profile="strict-required")
    missing = [finding for finding in result.findings if finding.rule == "args-miss-required"]
    assert [(finding.repair, finding.applied, finding.note) for finding in missing] == [
        ("detect", False, "missing: mode")
    ]
    assert not result.clean
    assert "args-miss-required" not in {finding.rule for finding in harden(body, wire).findings}
