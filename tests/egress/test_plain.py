"""The fast answers speak: a healthy body is not walked."""

from typing import Any

import pytest

from latchguard.core.findings import Wire
from latchguard.egress.plain import plainly_named, plainly_paired

CALL = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
HEALTHY: dict[Wire, dict[str, Any]] = {
    Wire.OPENAI_CHAT: {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ],
    },
    Wire.OPENAI_RESPONSES: {
        "input": [
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ],
    },
    Wire.ANTHROPIC: {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]},
        ],
    },
    Wire.GEMINI: {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {}}}]},
        ],
    },
}


@pytest.mark.parametrize("wire", Wire)
def test_healthy_body_with_a_call_is_answered_without_a_walk(wire: Wire) -> None:
    """Any doubt means a walk that is right but slow: on each wire a body with a call must leave no doubt."""
    assert plainly_named(HEALTHY[wire], wire, {})
    assert plainly_paired(HEALTHY[wire], wire)
