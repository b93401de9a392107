"""The rules of the area `tooling`, beyond what the cases show."""

from __future__ import annotations

from typing import Any

from latchguard import harden

USER = {"role": "user", "content": "q"}


def fired(result: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.repair) for finding in result.findings]


def test_types_become_lower_case_on_schema_nodes_only() -> None:
    """Through properties, items and anyOf; a key named `type` inside data stays; TYPE_UNSPECIFIED goes."""
    schema = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "enum": ["OBJECT"], "default": {"type": "STRING"}},
            "list": {"type": "ARRAY", "items": {"anyOf": [{"type": "NUMBER"}, {"type": "TYPE_UNSPECIFIED", "a": 1}]}},
        },
    }
    body = {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    result = harden(body, "openai-chat")
    assert {finding.rule for finding in result.findings} == {"schema-type-case"}
    assert result.body["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["OBJECT"], "default": {"type": "STRING"}},
            "list": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"a": 1}]}},
        },
    }
    assert harden(result.body, "openai-chat").findings == ()


def test_upper_case_is_gemini_s_own_spelling() -> None:
    """There it stays, and so do the keys of objects, declared in either case."""
    schema = {"type": "OBJECT", "properties": {"a": {"type": "object", "properties": {}}}, "required": ["a"]}
    contents = [{"role": "user", "parts": [{"text": "q"}]}]
    body = {"contents": contents, "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}
    assert harden(body, "gemini").body is body


def test_one_definition_per_tool_that_the_history_uses() -> None:
    """In the order of their first calls; results without any call name no tool."""
    blocks = [
        {"type": "tool_use", "id": key, "name": name, "input": {}} for key, name in zip("abc", "gfg", strict=True)
    ]
    results = [{"type": "tool_result", "tool_use_id": key, "content": "ok"} for key in "abc"]
    messages = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    result = harden({"messages": messages, "tools": []}, "anthropic")
    assert fired(result) == [("tools-missing-for-history", "placeholder")]
    assert [tool["name"] for tool in result.body["tools"]] == ["g", "f"]
    assert harden(messages, "anthropic").findings == ()
    lone = {"messages": [{"role": "user", "content": results[:1]}]}
    assert ("tools-missing-for-history", "detect") in fired(harden(lone, "anthropic", allow="placeholder"))
