"""The rules of the area `naming`, beyond what the cases show."""

from __future__ import annotations

from typing import Any

import pytest

from latchguard import harden

USER = {"role": "user", "content": "q"}


def pair(call_id: str, name: Any = "f", /, **result: Any) -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    answer = {"role": "tool", "tool_call_id": call_id, "content": "ok", **result}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, answer]


def items(call_id: str, name: str = "f") -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": "ok"},
    ]


def fired(result: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.repair) for finding in result.findings]


def test_long_ids_get_their_hash_at_both_ends() -> None:
    """Ids that differ in their tails only stay apart; the new id depends on the old one alone."""
    one, other = "x" * 70 + "1", "x" * 70 + "2"
    result = harden({"input": [*items(one), *items(other)]}, "openai-responses")
    ids = [item["call_id"] for item in result.body["input"]]
    assert fired(result) == [("call-id-too-long", "lossless")] * 2
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert ids[0] != ids[2]
    assert {len(name) for name in ids} == {57}
    assert harden({"input": items(other)}, "openai-responses").body["input"][0]["call_id"] == ids[2]


def test_chat_ids_are_bounded_under_their_profile_only() -> None:
    """Forty characters, but for servers that say so; sixty-four is no limit of chat."""
    body = {"messages": [USER, *pair("y" * 41)]}
    assert harden(body, "openai-chat").body is body
    result = harden(body, "openai-chat", profile="openai-chat-id40")
    assert fired(result) == [("call-id-too-long", "lossless")]
    assert len(result.body["messages"][1]["tool_calls"][0]["id"]) == 40
    assert result.body["messages"][2]["tool_call_id"] == result.body["messages"][1]["tool_calls"][0]["id"]


def test_mistral_ids_have_nine_letters_and_digits() -> None:
    """Every other id is renamed; a right one is left."""
    result = harden({"messages": [USER, *pair("call_1"), *pair("abcDEF123")]}, "openai-chat", profile="mistral")
    ids = [message["tool_call_id"] for message in result.body["messages"] if message["role"] == "tool"]
    assert fired(result) == [("call-id-bad-charset", "lossless")]
    assert ids[1] == "abcDEF123"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


def test_an_id_that_would_collide_is_named_only() -> None:
    """No two calls ever become one."""
    new = harden({"messages": [USER, *pair("call_1")]}, "openai-chat", profile="mistral").body["messages"][2]
    body = {"messages": [USER, *pair("call_1"), *pair(new["tool_call_id"])]}
    assert fired(harden(body, "openai-chat", profile="mistral")) == [("call-id-bad-charset", "detect")]


def test_name_in_history_is_rewritten_at_every_call() -> None:
    """One finding per name; the result's copy of it goes along; a declared name is never taken over."""
    messages = [USER, *pair("c1", "a.b", name="a.b"), *pair("c2", "a.b")]
    result = harden({"messages": messages}, "openai-chat")
    assert fired(result) == [("tool-name-invalid", "placeholder")]
    assert [message["tool_calls"][0]["function"]["name"] for message in result.body["messages"][1::2]] == ["a_b"] * 2
    assert result.body["messages"][2]["name"] == "a_b"
    declared = [{"type": "function", "function": {"name": "a_b"}}]
    taken = harden({"messages": messages, "tools": declared}, "openai-chat")
    assert taken.findings[0].after != "a_b"


def test_declared_name_is_named_only() -> None:
    """An alias for a declared tool needs the way back: not here."""
    declared = [{"type": "function", "function": {"name": "a.b", "parameters": {}}}]
    body = {"messages": [USER, *pair("c1", "a.b")], "tools": declared}
    result = harden(body, "openai-chat")
    assert [(found.rule, found.repair, found.path) for found in result.findings] == [
        ("tool-name-invalid", "detect", "$.tools[0].function.name")
    ]


@pytest.mark.parametrize("name", ["", None, 7])
def test_call_without_a_name_goes_with_its_result(name: Any) -> None:
    """Where the result does not say the name, the pair is dropped as one, and an empty message with it."""
    result = harden({"messages": [USER, *pair("c1", name), USER]}, "openai-chat")
    assert fired(result) == [("tool-name-empty", "lossy")]
    assert result.body["messages"] == [USER, USER]


def test_text_beside_a_nameless_call_stays() -> None:
    """Only the calls go where the message says something."""
    call, answer = pair("c1", "")
    result = harden({"messages": [USER, {**call, "content": "said"}, answer, USER]}, "openai-chat")
    assert result.body["messages"] == [USER, {"role": "assistant", "content": "said"}, USER]


def test_equal_definitions_collapse_and_different_ones_are_named() -> None:
    """The first stays; two meanings of one name are nobody's to choose."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    other = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["a"]}}}
    result = harden({"messages": [USER], "tools": [tool, dict(tool)]}, "openai-chat")
    assert (fired(result), result.body["tools"]) == ([("duplicate-tool-name", "lossless")], [tool])
    assert fired(harden({"messages": [USER], "tools": [tool, other]}, "openai-chat")) == [
        ("duplicate-tool-name", "detect")
    ]


def test_later_item_of_two_with_one_id_loses_it() -> None:
    """The item keeps everything else."""
    item = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    result = harden({"input": [item, {**item}, USER]}, "openai-responses")
    assert fired(result) == [("item-id-duplicate", "lossless")]
    assert result.body["input"] == [item, {key: item[key] for key in ("type", "role", "content")}, USER]


def test_item_ids_are_legal_where_the_server_stores() -> None:
    """Only `store: false` makes them unresolvable."""
    item = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    for body in ({"input": [item, USER]}, {"input": [item, USER], "store": True}):
        assert harden(body, "openai-responses").body is body
