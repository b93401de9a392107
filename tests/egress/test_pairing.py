"""The rules of the area `pairing`, beyond what the cases show."""

from __future__ import annotations

from typing import Any

import pytest

from latchguard import harden, harden_json
from latchguard.core.jsontext import dump_json
from latchguard.egress.pairing import CONTINUE_TEXT, NO_RESULT_TEXT

USER = {"role": "user", "content": "q"}
SAID = {"role": "assistant", "content": "a"}


def asks(*ids: str) -> dict[str, Any]:
    calls = [{"id": key, "type": "function", "function": {"name": "f", "arguments": "{}"}} for key in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool(call_id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def use(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": key, "name": "f", "input": {}} for key in ids]}


def block(call_id: str, content: str = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str = "t") -> dict[str, Any]:
    return {"type": "text", "text": value}


def rules(body: Any, wire: str, **options: Any) -> list[str]:
    return [finding.rule for finding in harden(body, wire, **options).findings]


def chat(*messages: Any, **options: Any) -> tuple[list[Any], list[str]]:
    """What leaves on chat, in objects and in bytes alike, and the rules that fired."""
    return _both({"messages": list(messages)}, "openai-chat", "messages", options)


def claude(*messages: Any, **options: Any) -> tuple[list[Any], list[str]]:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    return _both({"tools": tools, "messages": list(messages)}, "anthropic", "messages", options)


def _both(body: dict[str, Any], wire: str, key: str, options: dict[str, Any]) -> tuple[list[Any], list[str]]:
    result = harden(body, wire, **options)
    raw = harden_json(dump_json(body), wire, **options).raw
    assert raw == dump_json(result.body)
    return result.body[key], [finding.rule for finding in result.findings]


def test_result_before_its_call_moves_behind_it() -> None:
    """A real result is kept wherever it stands."""
    assert chat(USER, tool("c1"), asks("c1"), USER) == ([USER, asks("c1"), tool("c1"), USER], ["misplaced-result"])


def test_results_of_two_turns_go_each_to_their_own() -> None:
    """Parallel results that were collected behind the last turn."""
    found = chat(USER, asks("c1"), asks("c2", "c3"), tool("c3"), tool("c1"), tool("c2"), USER)
    assert found == (
        [USER, asks("c1"), tool("c1"), asks("c2", "c3"), tool("c3"), tool("c2"), USER],
        ["misplaced-result"],
    )


def test_open_call_at_the_end_gets_a_placeholder_unless_stored() -> None:
    """A request may not end with an open call; a history at rest may."""
    assert chat(USER, asks("c1")) == ([USER, asks("c1"), tool("c1", NO_RESULT_TEXT)], ["unanswered-call"])
    assert chat(USER, asks("c1", "c2"), tool("c1"), profile="stored") == ([USER, asks("c1", "c2"), tool("c1")], [])
    assert chat(USER, asks("c1"), USER, profile="stored")[1] == ["unanswered-call"]


def test_second_result_with_other_content_is_lossy() -> None:
    """The first is kept, the other is in the finding; `allow="placeholder"` leaves both."""
    messages = (USER, asks("c1"), tool("c1"), tool("c1", "other"), USER)
    assert chat(*messages) == ([USER, asks("c1"), tool("c1"), USER], ["duplicate-result"])
    result = harden({"messages": list(messages)}, "openai-chat", allow="placeholder")
    assert [(found.repair, found.applied, found.before["content"]) for found in result.findings] == [
        ("lossy", False, "other")
    ]


def test_repeated_message_goes() -> None:
    """An exact repeat of the message before is one message too many, and its result stays."""
    assert chat(USER, asks("c1"), asks("c1"), tool("c1"), USER) == (
        [USER, asks("c1"), tool("c1"), USER],
        ["duplicate-call-id"],
    )


def test_well_paired_repeats_are_legal_on_chat() -> None:
    """Chat servers pair by place; only `strict-ids` wants every id once, and renames the later pairs at both ends."""
    messages = [USER, asks("x"), tool("x"), asks("x"), tool("x", "2"), asks("x"), tool("x", "3"), USER]
    assert chat(*messages) == (messages, [])
    renamed, found = chat(*messages, profile="strict-ids")
    assert found == ["duplicate-call-id"] * 2
    assert [message["tool_call_id"] for message in renamed if message["role"] == "tool"] == ["x", "x_dup1", "x_dup2"]
    assert [message["tool_calls"][0]["id"] for message in renamed if "tool_calls" in message] == [
        "x",
        "x_dup1",
        "x_dup2",
    ]


def test_ids_that_cannot_be_told_apart_are_named_and_left() -> None:
    """Two calls of one turn with one id and two results: detect, and no other pairing rule touches them."""
    messages = [USER, asks("x", "x"), tool("x", "1"), tool("x", "2"), USER]
    assert chat(*messages) == (messages, ["duplicate-call-id"])


def test_two_dialects_that_differ_are_named_and_left() -> None:
    """A `tool_use` block with the id of a call but another input is not dropped."""
    message = {**asks("c1"), "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"other": 1}}]}
    assert chat(USER, message, tool("c1"), USER) == ([USER, message, tool("c1"), USER], ["duplicate-call-id"])


def test_placeholder_goes_behind_the_real_results_on_anthropic() -> None:
    """Into the next user turn, text behind it; a text content becomes blocks; without a user turn a new one."""
    hole = {**block("t2", NO_RESULT_TEXT), "is_error": True}
    assert claude(USER, use("t1", "t2"), user(block("t1"), text()), SAID, USER) == (
        [USER, use("t1", "t2"), user(block("t1"), hole, text()), SAID, USER],
        ["unanswered-call"],
    )
    assert claude(USER, use("t2"), USER)[0] == [USER, use("t2"), user(hole, text("q"))]
    assert claude(USER, use("t2"))[0] == [USER, use("t2"), user(hole)]
    first = {**block("t1", NO_RESULT_TEXT), "is_error": True}
    assert claude(USER, use("t1", "t2"))[0] == [USER, use("t1", "t2"), user(first, hole)]


def test_late_results_come_to_the_front() -> None:
    """Within one user turn results lead, in their order."""
    assert claude(USER, use("a", "b"), user(text(), block("b"), block("a"))) == (
        [USER, use("a", "b"), user(block("b"), block("a"), text())],
        ["result-not-first"] * 2,
    )


def test_orphan_alone_takes_its_message_with_it() -> None:
    """A block goes; a message goes only where nothing else is in it."""
    assert claude(USER, SAID, user(block("gone"), text())) == ([USER, SAID, user(text())], ["orphan-result"])
    assert claude(USER, SAID, user(block("g1"), block("g2")), SAID, USER) == (
        [USER, SAID, SAID, USER],
        ["orphan-result"] * 2,
    )


def test_repeated_ids_on_anthropic_are_renamed_in_pairs() -> None:
    """`tool_use` ids must be unique there, well paired or not."""
    messages, found = claude(USER, use("x"), user(block("x")), use("x"), user(block("x")), SAID, USER)
    assert found == ["duplicate-call-id"]
    assert (messages[3]["content"][0]["id"], messages[4]["content"][0]["tool_use_id"]) == ("x_dup1", "x_dup1")


SERVER = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
]


def test_server_tools_pair_inside_the_assistants_turns() -> None:
    """A pair is legal, so is an open use in the last turn; half of a pair elsewhere goes."""
    pair = {"role": "assistant", "content": SERVER}
    half = {"role": "assistant", "content": [text(), SERVER[0]]}
    assert claude(USER, pair, USER) == ([USER, pair, USER], [])
    assert claude(USER, half) == ([USER, half], [])
    assert claude(USER, half, USER, SAID, USER) == (
        [USER, {"role": "assistant", "content": [text()]}, USER, SAID, USER],
        ["server-tool-unpaired"],
    )


def test_trailing_assistant_is_a_fault_where_prefill_is_refused() -> None:
    """On Anthropic a last assistant message is a prefill, unless the profile says that there is none."""
    assert claude(USER, SAID) == ([USER, SAID], [])
    assert claude(USER, SAID, profile="anthropic-no-prefill") == (
        [USER, SAID, {"role": "user", "content": CONTINUE_TEXT}],
        ["trailing-assistant"],
    )


def function_call(call_id: str, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "name": "f", "arguments" if kind == "function_call" else "input": "{}"}


def output(call_id: str, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": "ok"}


def test_responses_output_may_stand_anywhere_behind_its_call() -> None:
    """Only the order of call and output counts there; a placeholder goes behind the block of calls and outputs."""
    legal = {"input": [function_call("c1"), function_call("c2"), output("c2"), USER, output("c1")]}
    assert rules(legal, "openai-responses") == []
    opened = {"input": [function_call("c1"), function_call("c2"), output("c2"), USER]}
    result = harden(opened, "openai-responses")
    assert result.body["input"][3] == {**output("c1"), "output": NO_RESULT_TEXT}
    before = {"input": [output("c1"), function_call("c1"), USER]}
    assert harden(before, "openai-responses").body["input"] == [function_call("c1"), output("c1"), USER]


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "r1"}, {"conversation": "c1"}, {"conversation": {"id": "c1"}}]
)
def test_responses_orphan_is_legal_where_the_server_holds_the_call(more: dict[str, Any]) -> None:
    """The call may live on the server, or behind an item reference, or in the conversation that items are added to."""
    assert rules({"input": [output("c1")], **more}, "openai-responses") == []
    assert rules({"input": [{"type": "item_reference", "id": "fc_1"}, output("c1")]}, "openai-responses") == []
    assert rules({"items": [output("c1")]}, "openai-responses") == []
    assert rules({"items": [function_call("c1")]}, "openai-responses") == []
    assert rules({"input": [output("c1")], "previous_response_id": None}, "openai-responses") == ["orphan-result"]


def test_responses_pairs_alternate_and_the_later_is_renamed() -> None:
    """Call, output, call, output with one id: the second pair gets a new one."""
    items = [function_call("x"), output("x"), function_call("x"), output("x")]
    result = harden({"input": items}, "openai-responses")
    assert [item["call_id"] for item in result.body["input"]] == ["x", "x", "x_dup1", "x_dup1"]


def test_gemini_pairs_by_id_where_there_is_one_and_by_name_else() -> None:
    """A response without id answers the first open call of its name in the turn before."""
    calls = [{"functionCall": {"name": "f", "id": "1"}}, {"functionCall": {"name": "g"}}]
    answers = [{"functionResponse": {"name": "g", "response": {}}}]
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": calls},
        {"role": "function", "parts": answers},
    ]
    result = harden({"contents": contents}, "gemini")
    assert [finding.rule for finding in result.findings] == ["unanswered-call"]
    made = {"functionResponse": {"id": "1", "name": "f", "response": {"error": NO_RESULT_TEXT}}}
    assert result.body["contents"][2]["parts"] == [*answers, made]


def test_gemini_conversation_that_begins_with_calls_gets_a_user_turn() -> None:
    """A call turn must follow a user turn."""
    contents = [
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ]
    result = harden({"contents": contents}, "gemini")
    assert [finding.rule for finding in result.findings] == ["call-turn-not-after-user"]
    assert result.body["contents"] == [{"role": "user", "parts": [{"text": CONTINUE_TEXT}]}, *contents]


def test_paths_name_places_of_the_body_that_was_given() -> None:
    """Whatever earlier repairs moved, a finding points into the caller's own body."""
    messages = [USER, tool("gone"), asks("c1"), USER, {**asks("c2")}]
    messages[4]["tool_calls"][0]["function"]["arguments"] = "prose"
    result = harden({"messages": messages}, "openai-chat")
    assert [(finding.rule, finding.path) for finding in result.findings] == [
        ("orphan-result", "$.messages[1]"),
        ("unanswered-call", "$.messages[2].tool_calls[0]"),
        ("unanswered-call", "$.messages[4].tool_calls[0]"),
        ("args-invalid-json", "$.messages[4].tool_calls[0].function.arguments"),
    ]


def test_bytes_of_what_moves_and_of_what_stays_are_copied() -> None:
    """A moved message keeps its very bytes, white space and number tokens included."""
    raw = (
        b'{"messages":[ {"role":"user","content":"q"} ,\n {"role":"tool", "tool_call_id":"c1","content":"ok","x":1.10},'
        b' {"role":"assistant","tool_calls":[{"id":"c1", "function":{"name":"f","arguments":"{}"}}]},\t{"role":"user",'
        b'"content":"r", "y":1e400} ] }'
    )
    assert harden_json(raw, "openai-chat").raw == (
        b'{"messages":[ {"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c1", "function":{'
        b'"name":"f","arguments":"{}"}}]} ,\n {"role":"tool", "tool_call_id":"c1","content":"ok","x":1.10},\t{'
        b'"role":"user","content":"r", "y":1e400} ] }'
    )


def test_what_one_repair_gives_another_to_find_is_found() -> None:
    """A result that moves to a call of another type gets that type; the second pass of a caller has nothing to do."""
    items = [output("c1"), USER, function_call("c1", "custom_tool_call")]
    result = harden({"input": items}, "openai-responses")
    assert [finding.rule for finding in result.findings] == ["misplaced-result", "output-kind-mismatch"]
    assert result.body["input"][2] == output("c1", "custom_tool_call_output")
    assert harden(result.body, "openai-responses").body is result.body


def test_insertion_before_a_value_that_is_replaced_keeps_both() -> None:
    """In bytes too, where both changes begin at one place."""
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": ["\ud800"]},
    ]
    raw = dump_json({"contents": contents})
    assert harden_json(raw, "gemini").raw == dump_json(harden({"contents": contents}, "gemini").body)
