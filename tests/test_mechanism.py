"""The mechanism of the defect: clip, cold load that renumbers the refs, replay, harden, on both OpenAI wires."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from latchguard import (
    PLACEHOLDER_ARGUMENTS,
    ConversationState,
    Kind,
    Message,
    Role,
    dump_state,
    harden,
    load_state,
    replay,
    restamp,
)

Body = dict[str, Any]

PROSE = "Checkpoint summary: the build failed twice.\n...[truncated]...\nNext: look at the linker flags."
LOG = Message("log", Role.TOOL, Kind.TOOL_RESULT, "line of a build log\n" * 500, tool_call_id="call_0")
FIRST = Message("first", Role.ASSISTANT, Kind.TOOL_CALL, '{"command":"make"}', "shell", "call_0")
ASK = Message("ask", Role.USER, Kind.TEXT, "Build it.")
SYSTEM = Message("system", Role.SYSTEM, Kind.TEXT, "You are a builder.")
FRESH = Message("fresh", Role.ASSISTANT, Kind.TOOL_CALL, '{"path":"Makefile"}', "read", "call_1")
FRESH_RESULT = Message("fresh-result", Role.TOOL, Kind.TOOL_RESULT, "all:", tool_call_id="call_1")

# Before: ask m00001, first m00002, log m00003. On the cold load the host's ledger knows the system message too, and the
# old ref of the log is held by a fresh tool call.
BEFORE = [ASK, FIRST, LOG]
AFTER = [SYSTEM, ASK, FRESH, FRESH_RESULT, FIRST, LOG]


class IdentityLessCore:
    """The core of old: a latch is a ref and a text, stamped onto whatever message holds the ref now."""

    def __init__(self) -> None:
        self.refs: dict[str, str] = {}
        self.latches: dict[str, str] = {}

    def number(self, messages: Sequence[Message]) -> None:
        """Give each message the ref of its place; latches are left as they are: the bug."""
        self.refs = {message.id: f"m{position:05d}" for position, message in enumerate(messages, 1)}

    def latch(self, message: Message, text: str) -> None:
        """Remember the text by the ref alone."""
        self.latches[self.refs[message.id]] = text

    def replay(self, messages: Sequence[Message]) -> list[Message]:
        """Stamp each text onto what holds its ref."""
        return [evolve(message, text=self.latches.get(self.refs[message.id], message.text)) for message in messages]


def chat_body(messages: Sequence[Message]) -> Body:
    """Render as a kernel does: the text of a call is its arguments, verbatim."""
    rendered: list[Body] = []
    for message in messages:
        if message.kind is Kind.TOOL_CALL:
            function = {"name": message.tool_name, "arguments": message.text}
            call = {"id": message.tool_call_id, "type": "function", "function": function}
            rendered.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif message.kind is Kind.TOOL_RESULT:
            rendered.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text})
        else:
            rendered.append({"role": str(message.role), "content": message.text})
    return {"model": "any", "messages": rendered}


def responses_body(messages: Sequence[Message]) -> Body:
    """The same for the Responses wire."""
    rendered: list[Body] = []
    for message in messages:
        if message.kind is Kind.TOOL_CALL:
            item = {"type": "function_call", "call_id": message.tool_call_id, "name": message.tool_name}
            rendered.append({**item, "arguments": message.text})
        elif message.kind is Kind.TOOL_RESULT:
            rendered.append({"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text})
        else:
            rendered.append({"type": "message", "role": str(message.role), "content": message.text})
    return {"model": "any", "input": rendered}


def arguments(body: Body) -> list[str]:
    """Give the arguments of every call of a body, in order."""
    calls = [call["function"] for message in body.get("messages", ()) for call in message.get("tool_calls", ())]
    calls += [item for item in body.get("input", ()) if item["type"] == "function_call"]
    return [call["arguments"] for call in calls]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


WIRES = pytest.mark.parametrize(
    ("render", "wire"), [(chat_body, "openai-chat"), (responses_body, "openai-responses")], ids=["chat", "responses"]
)
Render = Callable[[Sequence[Message]], Body]


@WIRES
def test_old_core_sends_prose_as_arguments(render: Render, wire: str) -> None:
    """The defect: where a latch is a ref and a text, the clip of the log becomes a call's arguments."""
    core = IdentityLessCore()
    core.number(BEFORE)
    core.latch(LOG, PROSE)
    core.number(AFTER)
    body = render(core.replay(AFTER))
    assert arguments(body) == [PROSE, FIRST.text]
    assert not is_json(arguments(body)[0])


@WIRES
def test_harden_stops_what_the_old_core_sends(render: Render, wire: str) -> None:
    """No invalid arguments leave (I7): the placeholder stands for the prose, which is kept in the finding."""
    core = IdentityLessCore()
    core.number(BEFORE)
    core.latch(LOG, PROSE)
    core.number(AFTER)
    body = render(core.replay(AFTER))
    hardened = harden(body, wire)
    assert arguments(hardened.body) == [PLACEHOLDER_ARGUMENTS, FIRST.text]
    assert [(finding.rule, finding.before, finding.applied) for finding in hardened.findings] == [
        ("args-invalid-json", PROSE, True)
    ]
    assert arguments(body) == [PROSE, FIRST.text]


@WIRES
def test_our_core_keeps_the_clip_on_its_message(render: Render, wire: str) -> None:
    """The same sequence: the clip goes where the log goes, the fresh call keeps its arguments, harden finds nothing."""
    state = ConversationState().assign(BEFORE).latch(LOG, PROSE)
    assert state.refs["log"] == "m00003"
    outcome = restamp(load_state(dump_state(state)), AFTER)
    assert outcome.state.refs["fresh"] == "m00003"
    assert outcome.moved["m00003"] == "m00006"
    shown = replay(AFTER, outcome.state)
    assert [found.latch.ref for found in shown.applied] == ["m00006"]
    body = render(shown.messages)
    assert arguments(body) == [FRESH.text, FIRST.text]
    assert PROSE in json.dumps(body, ensure_ascii=False).replace("\\n", "\n")
    hardened = harden(body, wire)
    assert hardened.body is body
    assert (hardened.changed, hardened.clean, hardened.findings) == (False, True, ())


@WIRES
def test_our_core_refuses_where_a_host_renumbers_by_itself(render: Render, wire: str) -> None:
    """Even a state whose refs were moved under its latches, as the old ledger did, shows the clip on no call."""
    state = ConversationState().assign(BEFORE).latch(LOG, PROSE)
    document = json.loads(dump_state(state))
    document["messages"] = json.loads(dump_state(ConversationState().assign(AFTER)))["messages"]
    document["cursor"] = len(AFTER) + 1
    shown = replay(AFTER, load_state(json.dumps(document)))
    assert [(found.reason, found.holder) for found in shown.refused] == [("role-mismatch", FRESH)]
    assert shown.messages is AFTER
    assert all(is_json(text) for text in arguments(render(shown.messages)))
