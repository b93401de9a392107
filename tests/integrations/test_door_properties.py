"""Whatever a body holds, it leaves: as it came, or repaired; and what was repaired passes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.integrations.door import UNGUARDED, pass_body
from latchguard.integrations.endpoints import ENDPOINTS, Endpoint
from tests.integrations.calls import CLIP, chat_history, messages_history, responses_history

LIMIT = 1 << 20

endpoints = st.sampled_from(ENDPOINTS)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["messages", "input", "items", "contents", "requests", "params", "role", "content", "type", "tool_calls",
         "function", "arguments", "parts", "functionCall", "args", "tool_use", "name", "id"]
    ) | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip
arguments = st.sampled_from([CLIP, '{"a": 1', "{}", '{"cmd": "ls"}', "[1]", "", "null", "\ud83d"]) | st.text(max_size=9)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a conversation of one wire, and the key that a body has it under."""
    key, make = draw(
        st.sampled_from([("messages", chat_history), ("messages", messages_history), ("input", responses_history)])
    )
    return key, [entry for drawn in draw(st.lists(arguments, max_size=3)) for entry in make(drawn)]


def check(raw: bytes, endpoint: Endpoint, encodings: str = "") -> None:
    passage = pass_body(raw, endpoint, limit_bytes=LIMIT, encodings=encodings)
    assert passage.unguarded is None or passage.unguarded in UNGUARDED
    assert passage.unguarded != "failed"
    assert (passage.raw is raw) is not passage.changed
    again = pass_body(passage.raw, endpoint, limit_bytes=LIMIT, encodings=encodings)
    assert again.raw is passage.raw
    if passage.unguarded is None:
        assert (again.unguarded, again.changed, again.clean) == (None, False, passage.clean)


@given(
    raw=st.binary(max_size=200), endpoint=endpoints, encodings=st.sampled_from(["", "gzip", "deflate", "zstd", "br"])
)
def test_any_bytes_leave_as_they_came(raw: bytes, endpoint: Endpoint, encodings: str) -> None:
    """Bytes that are no body of anything raise nothing and stay what they are."""
    check(raw, endpoint, encodings)


@given(value=values, endpoint=endpoints)
def test_any_json_leaves(value: Any, endpoint: Endpoint) -> None:
    """JSON of any shape, with keys that a body has, raises nothing; a second pass changes nothing."""
    check(json.dumps(value).encode(), endpoint)


@given(drawn=histories(), endpoint=endpoints, data=st.data())
def test_any_history_leaves_repaired(drawn: tuple[str, Any], endpoint: Endpoint, data: st.DataObject) -> None:
    """Conversations with whatever arguments, whole or cut anywhere, in the envelope of their endpoint or in none."""
    key, history = drawn
    body: Any = {"model": "m", "max_tokens": 9, key: history}
    if endpoint.batch and data.draw(st.booleans()):
        body = {"requests": [{"custom_id": "a", "params": body}, {"params": body}]}
    if endpoint.items and data.draw(st.booleans()):
        body = {"items": history}
    raw = json.dumps(body, indent=data.draw(st.sampled_from([None, 1]))).encode()
    check(raw, endpoint)
    check(raw[: data.draw(st.integers(0, len(raw)))], endpoint)


@pytest.mark.long
def test_body_of_200_megabytes_is_repaired_where_the_limit_allows_it() -> None:
    """Size alone is no obstacle: every byte outside the repaired span is copied."""
    history = chat_history(CLIP)
    history[0]["content"] = "x" * 200_000_000
    raw = json.dumps({"model": "m", "messages": history}).encode()
    passage = pass_body(raw, ENDPOINTS[0], limit_bytes=1 << 28)
    start = raw.index(json.dumps(CLIP).encode())
    assert passage.changed
    assert passage.raw[:start] == raw[:start]
    rest = raw[start + len(json.dumps(CLIP)) :]
    assert passage.raw[-len(rest) :] == rest
