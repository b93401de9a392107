"""`harden` and `harden_json` as a whole: what they look at, what they leave, what they say and raise."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from attrs import evolve

from latchguard import PLACEHOLDER_ARGUMENTS, harden, harden_json
from latchguard.core.errors import InvalidValueError, UnknownProfileError, WireUndecidedError
from latchguard.core.findings import Repair
from latchguard.egress import hardening
from latchguard.egress.draft import Drop, Set
from latchguard.egress.rule import Fix, Hit, Scene, Trigger

POISON = "Summary of the work so far: all tests pass."
QUOTED = json.dumps(PLACEHOLDER_ARGUMENTS).encode()


def call(arguments: Any = POISON, name: str = "f", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def test_only_the_arguments_of_the_poisoned_call_change() -> None:
    """Ids, names, types and every other message keep their objects; the path and the tool are named."""
    body = {
        "messages": [
            {"role": "user", "content": "q"},
            assistant(call("{}"), call(call_id="c2")),
            result(),
            result("c2"),
        ]
    }
    before = deepcopy(body)
    hardened = harden(body, "openai-chat")
    assert body == before
    first, second, *rest = hardened.body["messages"]
    assert (first is body["messages"][0], rest == body["messages"][2:]) == (True, True)
    assert second["tool_calls"] == [call("{}"), call(PLACEHOLDER_ARGUMENTS, call_id="c2")]
    finding = hardened.findings[0]
    assert (finding.path, finding.tool_name) == ("$.messages[1].tool_calls[1].function.arguments", "f")
    assert (hardened.changed, hardened.clean, hardened.failed) == (True, True, ())


def test_legacy_function_call_is_guarded() -> None:
    """`function_call` on a message carries arguments too."""
    message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": POISON}}
    body = {"messages": [message, {"role": "function", "name": "f", "content": "ok"}]}
    hardened = harden(body, "openai-chat")
    assert hardened.body["messages"][0]["function_call"] == {"name": "f", "arguments": PLACEHOLDER_ARGUMENTS}
    assert hardened.findings[0].path == "$.messages[0].function_call.arguments"


@pytest.mark.parametrize("key", ["input", "items"])
def test_responses_items_are_guarded(key: str) -> None:
    """`function_call` items of a request and of a conversation's items."""
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": POISON}
    body = {key: [item, {"type": "function_call_output", "call_id": "c1", "output": "ok"}]}
    hardened = harden(body, "openai-responses")
    assert hardened.body[key][0]["arguments"] == PLACEHOLDER_ARGUMENTS


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("openai-chat", {"messages": [{"role": "user", "content": "q", "tool_calls": [call()]}]}),
        ("openai-chat", {"messages": [{"role": "assistant", "content": "a", "tool_calls": "none"}]}),
        ("openai-chat", {"messages": [assistant({"id": "c1", "type": "function"}), result()]}),
        (
            "openai-chat",
            {
                "messages": [
                    assistant({"id": "c1", "type": "custom", "custom": {"name": "f", "input": POISON}}),
                    result(),
                ]
            },
        ),
        ("openai-chat", {"messages": "text", "input": 3}),
        ("openai-chat", {"model": "m"}),
        ("openai-chat", []),
        ("openai-responses", {"input": POISON}),
        (
            "openai-responses",
            {
                "input": [
                    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": POISON},
                    {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
                ]
            },
        ),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "t", "input": POISON}]}]}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": POISON}, 3, None]}, None]}),
    ],
)
def test_what_holds_no_json_arguments_is_left_alone(wire: str, body: Any) -> None:
    """Free-form inputs, other roles, other shapes: no argument rule speaks of them."""
    found = harden(body, wire).findings
    assert [finding for finding in found if finding.rule.startswith(("args", "input"))] == []


def test_bare_list_of_messages_is_a_body() -> None:
    """What can be hardened before a request is built: the messages alone, list or tuple."""
    messages = [assistant(call()), result()]
    hardened = harden(messages)
    assert hardened.body[0]["tool_calls"][0]["function"]["arguments"] == PLACEHOLDER_ARGUMENTS
    assert hardened.findings[0].path == "$[0].tool_calls[0].function.arguments"
    assert harden(tuple(messages), "openai-chat").body == hardened.body


@pytest.mark.parametrize(("allow", "applied"), [("lossless", False), ("placeholder", True), ("lossy", True)])
def test_allow_bounds_the_cost(allow: str, applied: bool) -> None:
    """A dearer repair is found and not made."""
    body = {"messages": [assistant(call()), result()]}
    hardened = harden(body, "openai-chat", allow=allow)
    assert [(finding.applied, finding.before) for finding in hardened.findings] == [(applied, POISON)]
    assert (hardened.clean, hardened.changed, hardened.body is body) == (applied, applied, not applied)


def test_each_finding_is_one_warning_with_everything_escaped(caplog: pytest.LogCaptureFixture) -> None:
    """Rule, session, tool, path, the first 64 bytes; no control, newline or bidi character reaches the log."""
    evil = "a\n\x1b[2J\u202e" + "x" * 100
    body = {"messages": [assistant(call(evil, name="t\n\u202e")), result()]}
    harden(body, "openai-chat", session="s\n1")
    assert {(record.name, record.levelno) for record in caplog.records} == {("latchguard.egress", logging.WARNING)}
    name, text = (record.getMessage() for record in caplog.records)
    assert name.isascii()
    assert name.isprintable()
    assert r"'t\n\u202e'" in name
    assert text.isascii()
    assert text.isprintable()
    assert all(part in text for part in ("args-invalid-json", r"'s\n1'", "tool_calls[0]", r"\x1b[2J"))
    assert text.count("x") < 64


def test_nothing_is_printed_without_a_handler() -> None:
    """A host that configures no logging sees nothing on its terminal."""
    code = f"from latchguard import harden; harden({ {'messages': [assistant(call())]}!r}, 'openai-chat')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("body", [None, "text", 3, b"{}"])
def test_a_body_that_is_none_is_an_error(body: Any) -> None:
    """Only objects and lists are bodies."""
    with pytest.raises(InvalidValueError) as caught:
        harden(body, "openai-chat")
    assert caught.value.path == "$"


@pytest.mark.parametrize("allow", ["detect", "all", None, 3])
def test_unknown_allow_is_an_error(allow: Any) -> None:
    """`allow` is one of three costs; `detect` is none."""
    with pytest.raises(InvalidValueError) as caught:
        harden({"messages": []}, "openai-chat", allow=allow)
    assert caught.value.path == "allow"


def test_wire_is_told_from_the_body_or_named() -> None:
    """Decided shapes need no name; undecided ones are an error that lists the candidates."""
    body = {"messages": [assistant(call()), result()]}
    assert harden(body).body == harden(body, "openai-chat").body
    with pytest.raises(WireUndecidedError):
        harden({"messages": [{"role": "user", "content": "hi"}]})
    with pytest.raises(WireUndecidedError):
        harden(body, "smoke-signals")


def test_unknown_profile_is_an_error() -> None:
    """A profile that does not exist is named, with those that do."""
    with pytest.raises(UnknownProfileError) as caught:
        harden({"messages": []}, "openai-chat", profile="strict-args,strictargs")
    assert caught.value.found == "strictargs"


RAW = (
    b'{ "seed":9007199254740993, "x" : 1.10,"y":1e400, "messages":[ {"role":"assistant" ,"content":null,'
    b'"tool_calls" :[{"id":"c1","type":"function",'
    b'"function":{"arguments":"{}", "name":"f","arguments" :  "Summ\\u0061ry"}}]},'
    b'\n\t{"role":"tool","tool_call_id":"c1","content":"ok \\ud83d\\ude00"} ] , "big":123456789012345678901234567890}\n'
)


def test_bytes_outside_the_repaired_span_are_copied() -> None:
    """White space, number tokens, escapes, duplicate keys (the last counts) stay; one span changes."""
    hardened = harden_json(RAW, "openai-chat")
    assert hardened.raw == RAW.replace(b'"Summ\\u0061ry"', QUOTED)
    assert hardened.findings[0].before == "Summary"


def test_numbers_of_an_object_in_place_of_text_keep_their_digits() -> None:
    """An integer beyond 64 bits is not rounded on its way into a string."""
    raw = json.dumps({"messages": [assistant(call({"n": 123456789012345678901})), result()]}).encode()
    assert b'"arguments": "{\\"n\\":123456789012345678901}"' in harden_json(raw, "openai-chat").raw


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"prose", b'\xef\xbb\xbf{"messages":[]}', b'{"messages":[],}', b'{"a":NaN}', b"3", b'"x"', b'"\xff"'],
)
def test_bytes_that_are_no_json_body_are_an_error(raw: bytes) -> None:
    """Nothing can be told about such a body; one documented error, and the caller still has the bytes."""
    with pytest.raises(InvalidValueError):
        harden_json(raw, "openai-chat")


def test_text_is_no_bytes() -> None:
    """`harden_json` takes bytes only."""
    with pytest.raises(InvalidValueError) as caught:
        harden_json("{}", "openai-chat")  # type: ignore[arg-type]
    assert caught.value.path == "raw"


def test_deep_body_is_an_error_in_bytes_and_no_trouble_as_an_object() -> None:
    """2,000 levels: no parser here takes such bytes; as an object its calls are guarded, without recursion."""
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]
    body = {"tools": deep, "messages": [assistant(call(deep), call("prose", call_id="c2")), result(), result("c2")]}
    hardened = harden(body, "openai-chat")
    calls = hardened.body["messages"][0]["tool_calls"]
    assert [entry["function"]["arguments"] for entry in calls] == [PLACEHOLDER_ARGUMENTS] * 2
    with pytest.raises(InvalidValueError):
        harden_json(b'{"tools":' + b"[" * 2_000 + b"]" * 2_000 + b',"messages":[]}', "openai-chat")


@pytest.mark.long
def test_a_body_of_200_megabytes_is_hardened() -> None:
    """Size has no limit of its own."""
    filler = b'{"role":"user","content":"' + b"x" * 1_000_000 + b'"},'
    raw = (
        b'{"messages":[' + filler * 200 + json.dumps(assistant(call())).encode() + b"," + json.dumps(result()).encode()
    )
    hardened = harden_json(raw + b"]}", "openai-chat")
    assert [finding.path for finding in hardened.findings] == ["$.messages[200].tool_calls[0].function.arguments"]
    assert len(hardened.raw) == len(raw) + 2 + len(QUOTED) - len(json.dumps(POISON))


def test_output_does_not_depend_on_the_hash_seed() -> None:
    """Same input, same bytes and findings, in every process (I8)."""
    code = f"from latchguard import harden_json; r = harden_json({RAW!r}, 'openai-chat'); print(r.raw, r.findings)"
    outputs = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_rule_that_raises_costs_neither_the_request_nor_the_arguments(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out for that body and named; the other rules of its area and the argument rules have run."""

    def explode(hit: Hit, scene: Scene) -> Iterator[Fix]:
        raise RuntimeError("boom \n\x1b[31m" + "long " * 99)

    (rules, find), *others = hardening._AREAS
    broken = tuple(evolve(rule, check=explode) if rule.slug == "orphan-result" else rule for rule in rules)
    monkeypatch.setattr(hardening, "_AREAS", ((broken, find), *others))
    body = {"messages": [{"role": "user", "content": "q"}, result("gone"), assistant(call())]}
    hardened = harden(body, "openai-chat")
    assert hardened.failed == ("orphan-result",)
    assert [finding.rule for finding in hardened.findings] == ["unanswered-call", "args-invalid-json"]
    assert hardened.body["messages"][1] == result("gone")
    (logged,) = (record for record in caplog.records if "orphan-result" in record.getMessage())
    assert logged.levelname == "ERROR"
    first, *trace = caplog.handler.format(logged).splitlines()
    assert first.endswith(r"raised RuntimeError: 'boom \n\x1b[31m" + "long " * 10 + "lon'")
    assert "test_hardening.py" in "".join(trace)
    assert "\x1b" not in caplog.text


def test_a_walk_that_raises_costs_its_area_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a broken walk leaves the argument rules as they are."""

    def explode(run: object) -> dict[Trigger, list[Hit]]:
        raise RuntimeError("boom")

    (rules, _), *others = hardening._AREAS
    monkeypatch.setattr(hardening, "_AREAS", ((rules, explode), *others))
    hardened = harden({"messages": [assistant(call())]}, "openai-chat")
    assert set(hardened.failed) == {rule.slug for rule in rules if "openai-chat" in rule.wires and not rule.demand}
    assert [finding.rule for finding in hardened.findings] == ["args-invalid-json"]


def test_a_repair_that_leads_nowhere_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of edits is applied whole or not at all."""

    def mislead(hit: Hit, scene: Scene) -> Iterator[Fix]:
        edits = (Set(("messages", 0, "content"), "changed"), Drop(("messages", 99)))
        yield Fix(hit.path, Repair.LOSSLESS, edits)

    (rules, find), *others = hardening._AREAS
    broken = tuple(evolve(rule, check=mislead) if rule.slug == "unanswered-call" else rule for rule in rules)
    monkeypatch.setattr(hardening, "_AREAS", ((broken, find), *others))
    body = {"messages": [{"role": "user", "content": "q"}, assistant(call("{}"))]}
    hardened = harden(body, "openai-chat")
    assert (hardened.failed, hardened.findings, hardened.body is body) == (("unanswered-call",), (), True)
