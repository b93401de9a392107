"""One body on its way out: repaired, left as it is, or left unguarded under a name."""

import json
import logging
from typing import Any

import pytest

import latchguard
from latchguard.core.errors import InvalidValueError, UnknownProfileError
from latchguard.integrations import door
from latchguard.integrations.door import UNGUARDED, Passage, pass_body
from latchguard.integrations.encodings import decode_body, encode_body
from latchguard.integrations.endpoints import Endpoint, find_endpoint

PLACEHOLDER = latchguard.PLACEHOLDER_ARGUMENTS
LIMIT = 1 << 20
CLIP = "Summary of the work so far"


def endpoint(path: str) -> Endpoint:
    found = find_endpoint(path)
    assert found
    return found


CHAT, RESPONSES, MESSAGES = endpoint("/chat/completions"), endpoint("/responses"), endpoint("/messages")
BATCHES, ITEMS = endpoint("/messages/batches"), endpoint("/conversations/conv_1/items")


def passed(raw: bytes, where: Endpoint = CHAT, **options: Any) -> Passage:
    return pass_body(raw, where, **{"limit_bytes": LIMIT, **options})


def chat(arguments: str) -> bytes:
    """A body with odd white space, a number that no float carries and a key twice."""
    return (
        b'{ "model":"m","model" : "n", "seed":1e400,"messages":[{"role":"user","content":"x"},{"role":"assistant",'
        b'"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"run","arguments":'
        + json.dumps(arguments).encode()
        + b'}}]},{"role":"tool","tool_call_id":"c","content":"y"}]\n}\n'
    )


def tool_use(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "run", "input": arguments}]}


def test_clean_body_is_the_same_object() -> None:
    """A body without a fault leaves as the very bytes that came."""
    raw = chat('{"cmd": "ls"}')
    passage = passed(raw)
    assert passage.raw is raw
    assert passage == Passage(raw)


def test_repair_changes_the_arguments_alone() -> None:
    """Every byte outside the repaired value is copied."""
    passage = passed(chat(CLIP))
    assert passage.raw == chat(PLACEHOLDER)
    assert [(finding.rule, finding.path, finding.before) for finding in passage.findings] == [
        ("args-invalid-json", "$.messages[1].tool_calls[0].function.arguments", CLIP)
    ]
    assert (passage.changed, passage.clean, passage.unguarded) == (True, True, None)


def test_allow_bounds_the_repair() -> None:
    """A repair above `allow` is reported and not made."""
    raw = chat(CLIP)
    passage = passed(raw, allow="lossless")
    assert passage.raw is raw
    assert (passage.changed, passage.clean) == (False, False)


def test_profile_is_passed_on() -> None:
    """What a target demands beyond its wire is repaired under its profile only."""
    raw = chat("[1]")
    assert passed(raw).changed is False
    assert passed(raw, profile="strict-args").raw == chat('{"value":[1]}')


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd", "deflate, gzip", "identity"])
def test_encoded_body_is_decoded_and_encoded_again(name: str) -> None:
    """The fault inside an encoded body is repaired; an encoded body without one keeps its very bytes."""
    passage = passed(encode_body(chat(CLIP), name), encodings=name)
    assert decode_body(passage.raw, name, LIMIT) == chat(PLACEHOLDER)
    raw = encode_body(chat("{}"), name)
    assert passed(raw, encodings=name).raw is raw


def deep(levels: int) -> bytes:
    return chat(CLIP).replace(b"1e400", b"[" * levels + b"]" * levels)


UNREAD: dict[str, tuple[bytes, Endpoint, dict[str, Any]]] = {
    "unsupported-wire": (chat(CLIP), endpoint("/model/m/converse"), {}),
    "encoding-unknown": (chat(CLIP), CHAT, {"encodings": "compress"}),
    "encoding-broken": (chat(CLIP), CHAT, {"encodings": "gzip"}),
    "too-large": (chat(CLIP), CHAT, {"limit_bytes": 40}),
    "not-json": (chat(CLIP)[:-4], CHAT, {}),
    "too-deep": (deep(2000), CHAT, {}),
    "other-shape": (b'"text"', CHAT, {}),
}


@pytest.mark.parametrize("name", UNREAD)
def test_body_that_is_not_read_leaves_under_its_name(name: str) -> None:
    """What cannot be checked leaves as it came, and is named."""
    raw, where, options = UNREAD[name]
    passage = passed(raw, where, **options)
    assert passage == Passage(raw, unguarded=name)
    assert passage.raw is raw
    assert name in UNGUARDED


@pytest.mark.parametrize(
    ("raw", "where", "name"),
    [
        (chat(CLIP).replace(b"x", b"\xff"), CHAT, "not-json"),
        (b"\xef\xbb\xbf" + chat(CLIP), CHAT, "not-json"),
        (chat(CLIP).replace(b"1e400", b"NaN"), CHAT, "not-json"),
        (b"", CHAT, "not-json"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}', endpoint("/x:rawPredict"), "other-shape"),
        (b'{"requests":[]}', BATCHES, "other-shape"),
        (b'{"params":1}', BATCHES, "other-shape"),
        (b'{"requests":[{"params":1}]}', BATCHES, "other-shape"),
        (b'{"metadata":{}}', ITEMS, "other-shape"),
        (b'{"requests":[', BATCHES, "not-json"),
        (b'{"items":[', ITEMS, "not-json"),
        (b'{"role":"user","content":"x"}', MESSAGES, "other-shape"),
        (b'{"prompt":{"id":"p"}}', RESPONSES, "other-shape"),
        (encode_body(chat(CLIP) * 2000, "gzip"), CHAT, "not-json"),
    ],
)
def test_unread_bodies_at_the_edges(raw: bytes, where: Endpoint, name: str) -> None:
    """No UTF-8, a byte-order mark, `NaN`, nothing at all, an undecided wire, a batch without requests."""
    assert passed(raw, where).unguarded == name


def test_depth_up_to_the_limit_is_read() -> None:
    """A body nested 990 levels is checked like any other."""
    assert passed(deep(990)).raw == deep(990).replace(json.dumps(CLIP).encode(), json.dumps(PLACEHOLDER).encode())


def test_each_request_of_a_batch_is_checked() -> None:
    """A batch holds whole requests: each is repaired in its place, the rest of the bytes copied."""

    def batch(second: Any) -> bytes:
        history = [
            {"role": "user", "content": "go"},
            tool_use(second),
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]},
        ]
        tools = [{"name": "run", "input_schema": {"type": "object"}}]
        whole = {"model": "m", "max_tokens": 1, "tools": tools, "messages": history}
        requests = [
            {"custom_id": "a", "params": {"model": "m", "max_tokens": 1, "messages": history[:1]}},
            {"custom_id": "b", "params": whole, "extra": 1.50},
        ]
        return json.dumps({"requests": requests}, indent=1).encode()

    passage = passed(batch(CLIP), BATCHES)
    assert json.loads(passage.raw) == json.loads(batch(json.loads(PLACEHOLDER)))
    assert [(finding.rule, finding.path) for finding in passage.findings] == [
        ("input-not-object", "$.requests[1].params.messages[1].content[0].input")
    ]
    raw = batch({"cmd": "ls"})
    assert passed(raw, BATCHES).raw is raw


def test_items_added_to_a_conversation_are_checked() -> None:
    """Responses items that are added to a stored conversation; a result whose call it holds already is no orphan."""

    def items(arguments: str) -> bytes:
        call = {"type": "function_call", "call_id": "c", "name": "run", "arguments": arguments}
        earlier = {"type": "function_call_output", "call_id": "b", "output": "done"}
        return json.dumps({"items": [earlier, call]}).encode()

    passage = passed(items(CLIP), ITEMS, profile="strict-args")
    assert passage.raw == items(PLACEHOLDER)
    assert [(finding.rule, finding.path) for finding in passage.findings] == [
        ("args-invalid-json", "$.items[1].arguments")
    ]


def test_wire_is_told_by_the_body_where_the_path_serves_several() -> None:
    """Vertex and Bedrock serve each publisher's own format."""
    body = {"anthropic_version": "vertex-2023-10-16", "messages": [{"role": "user", "content": "x"}, tool_use(CLIP)]}
    passage = passed(json.dumps(body).encode(), endpoint("/publishers/a/models/m:streamRawPredict"))
    assert [finding.rule for finding in passage.findings if finding.path.endswith(".input")] == ["input-not-object"]


def test_body_of_another_wire_than_its_path_says_is_checked_as_what_it_is() -> None:
    """A gateway may take another wire's body at a path: the path is believed only where the body fits."""
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "run", "args": CLIP}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {}}}]},
    ]
    passage = passed(json.dumps({"contents": contents}).encode(), CHAT)
    assert [finding.rule for finding in passage.findings] == ["input-not-object"]


def test_fault_of_the_check_costs_the_check_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the check raises, the body leaves as it came, with one ERROR that is safe to print."""

    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("a fault\n\x1b[31mwith colours" + "!" * 999)

    monkeypatch.setattr(door, "harden_json", broken)
    raw = chat(CLIP)
    with caplog.at_level(logging.ERROR, "latchguard"):
        passage = passed(raw, session="s\n1")
    assert passage == Passage(raw, unguarded="failed")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    text = record.getMessage()
    assert "RuntimeError" in text
    assert "/chat/completions" in text
    assert "test_door.py" in text
    assert len(text) < 500
    assert text.isprintable()


@pytest.mark.parametrize("options", [{"profile": "no-such-profile"}, {"allow": "detect"}, {"allow": "everything"}])
def test_misuse_is_an_error(options: dict[str, Any]) -> None:
    """An option that `harden` does not take is the caller's fault, not the body's."""
    with pytest.raises((UnknownProfileError, InvalidValueError)):
        passed(chat("{}"), **options)
