"""Which wire a body is of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.errors import WireUndecidedError
from latchguard.core.findings import Wire
from latchguard.wire.detect import detect_wire, require_wire
from tests.wire.cases import CASES

TEXT = [{"role": "user", "content": "hi"}]
CHAT, ANTHROPIC, GEMINI, RESPONSES = Wire.OPENAI_CHAT, Wire.ANTHROPIC, Wire.GEMINI, Wire.OPENAI_RESPONSES


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_of_its_own_wire(case: str) -> None:
    """The shape of each case's body decides, and decides right."""
    wire, body = CASES[case]
    assert detect_wire(body) is wire


@pytest.mark.parametrize(
    ("body", "wire"),
    [
        ({"model": "m", "messages": TEXT}, CHAT),
        ({"model": "gpt-5", "max_tokens": 9, "messages": TEXT}, CHAT),
        ({"model": "claude-x", "max_tokens": 9, "messages": TEXT}, ANTHROPIC),
        ({"model": "claude-x", "messages": TEXT}, None),
        ({"model": "kimi", "max_tokens": 9, "messages": TEXT}, None),
        ({"messages": TEXT}, None),
        ({"model": 5, "messages": TEXT}, None),
        ({"messages": TEXT, "system": "s"}, ANTHROPIC),
        ({"messages": TEXT, "system": None}, None),
        ({"messages": TEXT, "anthropic_version": "bedrock-2023-05-31"}, ANTHROPIC),
        ({"messages": TEXT, "stop_sequences": ["x"]}, ANTHROPIC),
        ({"messages": TEXT, "seed": 1}, CHAT),
        ({"messages": TEXT, "tools": [{"type": "function", "function": {"name": "f"}}]}, CHAT),
        ({"messages": TEXT, "tools": [5, {"name": "f", "input_schema": {}}]}, ANTHROPIC),
        ({"messages": TEXT, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, ANTHROPIC),
        ({"messages": [{"role": "system", "content": "s"}, *TEXT]}, CHAT),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, CHAT),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, ANTHROPIC),
        ({"messages": [{"role": "assistant", "content": [{"type": "mcp_tool_use"}]}]}, ANTHROPIC),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}], "tool_calls": []}]}, CHAT),
        ({"messages": [{"role": "user", "content": [{"text": "bedrock"}]}]}, None),
        ({"messages": 5}, None),
        ({"messages": [None, 5, {"role": []}]}, None),
        ({"contents": []}, GEMINI),
        ({"input": "hi"}, RESPONSES),
        ({"items": []}, RESPONSES),
        ({"input": [], "messages": []}, None),
        ({"contents": [], "messages": []}, None),
        ({}, None),
        (None, None),
        ("hi", None),
        (TEXT, None),
        ([], None),
        ([{"role": "user", "parts": []}], GEMINI),
        ([*TEXT, {"type": "function_call"}], RESPONSES),
        ([*TEXT, {"type": "web_search_call"}], RESPONSES),
        ([{"role": "user", "content": [{"type": "input_text"}]}], RESPONSES),
        ([*TEXT, {"role": "tool", "content": ""}], CHAT),
        ([*TEXT, {"role": "user", "content": [{"type": "tool_result"}]}], ANTHROPIC),
    ],
)
def test_shape_decides_or_nothing_does(body: Any, wire: Wire | None) -> None:
    """The first evidence that speaks decides; contradicting or missing evidence is None, an answer."""
    assert detect_wire(body) is wire


@pytest.mark.parametrize(
    ("keys", "wire"),
    [
        ("system anthropic_version anthropic_beta stop_sequences mcp_servers", ANTHROPIC),
        (
            (
                "functions function_call frequency_penalty logprobs max_completion_tokens n parallel_tool_calls "
                "presence_penalty reasoning_effort response_format seed stop stream_options"
            ),
            CHAT,
        ),
    ],
)
def test_a_key_that_one_wire_has_decides(keys: str, wire: Wire) -> None:
    """Each of these settings exists on one of the two wires that keep `messages`."""
    assert {key: detect_wire({"messages": TEXT, key: 1}) for key in keys.split()} == dict.fromkeys(keys.split(), wire)


@pytest.mark.parametrize(
    ("kinds", "wire"),
    [
        ("image_url input_audio file refusal video_url", CHAT),
        ("input_text output_text input_image input_file", RESPONSES),
        (
            (
                "tool_use tool_result server_tool_use web_search_tool_result mcp_tool_use mcp_tool_result thinking "
                "redacted_thinking image document search_result container_upload"
            ),
            ANTHROPIC,
        ),
        ("text unknown", None),
    ],
)
def test_a_block_that_one_wire_has_decides(kinds: str, wire: Wire | None) -> None:
    """Each of these block types exists on one wire."""
    found = {kind: detect_wire([{"role": "user", "content": [{"type": kind}]}]) for kind in kinds.split()}
    assert found == dict.fromkeys(kinds.split(), wire)


@pytest.mark.parametrize(
    ("tool", "wire"),
    [
        ({"type": "function", "function": {}}, CHAT),
        ({"type": "custom", "custom": {}}, CHAT),
        ({"name": "f", "input_schema": {}}, ANTHROPIC),
        ({"type": "bash_20250124", "name": "bash"}, ANTHROPIC),
        ({"type": "web_search"}, None),
    ],
)
def test_the_shape_of_a_tool_decides(tool: Any, wire: Wire | None) -> None:
    """Tools are declared in another shape on each wire."""
    assert detect_wire({"messages": TEXT, "tools": [tool]}) is wire


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["messages", "role", "content", "type", "tools", "model"]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_value_gets_an_answer(body: Any) -> None:
    """No value makes detection raise."""
    assert detect_wire(body) in {None, *Wire}


def test_named_wire_is_taken_as_it_is() -> None:
    """A wire that is named is not questioned, and its plain string does too."""
    assert require_wire({}, "gemini") is GEMINI


NESTED: Any = []
for _ in range(20_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("body", "wire"), [({"messages": TEXT}, None), ({"contents": []}, "grpc"), ({}, 7), ({}, NESTED)]
)
def test_undecided_body_and_unknown_wire_are_one_error(body: Any, wire: Any) -> None:
    """Where nothing decides, the error names the wires to choose from."""
    with pytest.raises(WireUndecidedError) as caught:
        require_wire(body, wire)
    assert caught.value.code == "wire-undecided"
    assert caught.value.candidates == tuple(Wire)
