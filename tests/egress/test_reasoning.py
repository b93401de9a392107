"""The rules of the area `reasoning`, beyond what the cases show."""

from __future__ import annotations

from typing import Any

from latchguard import harden

USER = {"role": "user", "content": "q"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "ok"}


def fired(result: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.repair) for finding in result.findings]


def responses(*items: Any, **options: Any) -> Any:
    return harden({"input": list(items)}, "openai-responses", **options)


def test_reasoning_may_be_followed_by_more_of_it_and_by_calls() -> None:
    """What follows counts behind further reasoning; a user's turn and an output are no follower."""
    assert responses(USER, THOUGHT, {**THOUGHT, "id": "rs_2"}, CALL, OUTPUT).findings == ()
    assert fired(responses(USER, CALL, {**THOUGHT}, OUTPUT)) == [("reasoning-without-follower", "lossy")]
    assert fired(responses(USER, THOUGHT)) == [("reasoning-without-follower", "lossy")]


def test_missing_summary_is_an_empty_list() -> None:
    """The field is required."""
    result = responses(USER, {"type": "reasoning", "id": "rs_1"}, SAID)
    assert fired(result) == [("reasoning-missing-field", "lossless")]
    assert result.body["input"][1]["summary"] == []


def test_encrypted_content_goes_only_when_the_error_says_so() -> None:
    """The body does not show whose key made it."""
    items = (USER, {**THOUGHT, "encrypted_content": "gAAA"}, SAID)
    assert responses(*items).findings == ()
    assert responses(*items, error="Rate limit reached").findings == ()
    assert fired(responses(*items, error="code: invalid_encrypted_content")) == [("encrypted-content-foreign", "lossy")]


def test_message_without_its_reasoning_keeps_its_text() -> None:
    """Under the profile or the error; elsewhere ids are legal."""
    items = (USER, THOUGHT, CALL, OUTPUT, {**SAID, "id": "msg_1"}, USER)
    assert responses(*items).findings == ()
    error = "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."
    result = responses(*items, error=error)
    assert fired(result) == [("follower-without-reasoning", "lossless")]
    assert result.body["input"][4] == SAID


def claude(*blocks: Any, **options: Any) -> Any:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    messages = [USER, {"role": "assistant", "content": list(blocks)}, USER]
    return harden({"messages": messages, "tools": tools}, "anthropic", **options)


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": f"s-{text}"}


TEXT = {"type": "text", "text": "a"}


def test_recorded_blocks_are_put_back() -> None:
    """Dropped, reordered or changed thinking comes back; other messages' records are not mistaken for it."""
    received = [thinking("1"), thinking("2"), TEXT]
    for sent in ([thinking("2"), thinking("1"), TEXT], [TEXT], [{**thinking("1"), "thinking": "x"}, TEXT]):
        result = claude(*sent, recorded=[[thinking("9"), {"type": "text", "text": "other"}], received])
        assert fired(result) == [("thinking-modified", "lossless")]
        assert result.body["messages"][1]["content"] == received
    assert claude(*received, recorded=received).findings == ()
    assert claude(TEXT, recorded="junk").findings == ()


def test_foreign_thinking_takes_an_empty_message_with_it() -> None:
    """A message of thoughts only is nothing without them."""
    error = "messages.1.content.0: Invalid `signature` in `thinking` block"
    result = claude(thinking("1"), {"type": "redacted_thinking", "data": "x"}, error=error)
    assert fired(result) == [("thinking-signature-foreign", "lossy")] * 2
    assert result.body["messages"] == [USER, USER]


def test_missing_thinking_is_named_when_the_error_says_so() -> None:
    """No signature can be made up."""
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    error = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    assert ("thinking-missing", "detect") in fired(claude(use, error=error))
    assert "thinking-missing" not in dict(fired(claude(use, error="other")))


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def test_signature_inside_a_call_moves_to_its_part() -> None:
    """Camel or snake case; one that stands on the part already is kept."""
    asked = {"role": "user", "parts": [{"text": "q"}]}
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
    call = {"name": "f", "args": {}, "thoughtSignature": "inner"}
    result = harden({"contents": [asked, model({"functionCall": call}), answer]}, "gemini")
    assert fired(result) == [("thought-signature-misplaced", "lossless")]
    assert result.body["contents"][1]["parts"] == [
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "inner"}
    ]
    signed = {"functionCall": call, "thoughtSignature": "outer"}
    kept = harden({"contents": [asked, model(signed), answer]}, "gemini").body["contents"][1]["parts"][0]
    assert kept["thoughtSignature"] == "outer"
