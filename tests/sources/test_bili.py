"""Session files as a typed view, and as messages and state."""

import json
import shutil
import subprocess
from hashlib import sha256
from typing import Any

import pytest

from latchguard import Identity, LatchguardError, Reason, replay
from latchguard.core.message import Kind, Role
from latchguard.sources.bili import hashes_to_id, is_kernel_id, is_session, load_bili, view_session
from tests.repair.sessions import NAMES, call, clip, kernel_id, long_text, read_fixture, ref, result, session, user


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_ids_are_hashes(name: str) -> None:
    """Every message of the kernel hashes to its id, but for spread poison and the result that got a tool's name."""
    raw, expected = read_fixture(name)
    view = view_session(json.loads(raw))
    odd = {entry["id"] for entry in expected.get("spread", ())} | (
        {"h_015a21960c0eed66"} if name == "blocked-protected" else set()
    )
    wrong = {
        entry.message.id for entry in (*view.messages, *view.calls)
        if not entry.message.id.endswith("_copy") and not hashes_to_id(entry.stored, entry.stored["text"])
    }  # fmt: skip
    assert wrong == odd


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@pytest.mark.parametrize("text", ["plain", "häß 😀", "\ud83d", "a\udc00b", "\ud83d\ud83d\ude00\ude00", "\x00", ""])
def test_ids_hash_as_in_node(text: str) -> None:
    """Lone halves are hashed as Node hashes them."""
    script = (
        "const t = JSON.parse(process.argv[1]);"
        "console.log(require('crypto').createHash('sha256').update('user|text|||' + t).digest('hex'))"
    )
    found = subprocess.check_output(["node", "-e", script, json.dumps(text)], text=True).strip()
    message = {"role": "user", "contentType": "text", "id": f"h_{found[:16]}"}
    assert hashes_to_id(message, text)
    assert not hashes_to_id(message, text + "x")


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        ("h_0123456789abcdef", True),
        ("h_0123456789abcdef_12", True),
        ("h_0123456789abcdef_copy", False),
        ("h_0123456789ABCDEF", False),
        ("h_0123456789abcde", False),
        ("x", False),
    ],
)
def test_kernel_ids_have_one_form(message_id: str, expected: bool) -> None:
    """`h_`, 16 hex digits, and a number for twins."""
    assert is_kernel_id(message_id) is expected


def test_messages_are_read_as_the_core_names_them() -> None:
    """Roles, kinds, ids and texts; a tool's name is kept on calls only, and what is unknown is `other`."""
    odd = {"id": "o", "role": "assistant", "contentType": "image", "text": None}
    named = {**result("out"), "toolName": "bash"}
    loaded = load_bili(session([user("hi"), call(), named, odd]))
    found = [(m.role, m.kind, m.text, m.tool_name, m.tool_call_id) for m in loaded.messages]
    assert found == [
        (Role.USER, Kind.TEXT, "hi", None, None),
        (Role.ASSISTANT, Kind.TOOL_CALL, call()["text"], "bash", "call_1"),
        (Role.TOOL, Kind.TOOL_RESULT, "out", None, "call_1"),
        (Role.ASSISTANT, Kind.OTHER, "", None, None),
    ]
    assert list(loaded.state.refs.items()) == [(m.id, ref(n)) for n, m in enumerate(loaded.messages, 1)]
    assert loaded.state.refs.cursor == 5
    assert loaded.session == "ses_test"


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        [],
        {},
        {**user("x"), "role": "robot"},
        {**user("x"), "role": None},
        {**user("x"), "contentType": 5},
        {**user("x"), "text": 5},
        {**user("x"), "id": 5},
        {**call(), "toolName": 5},
        {**call(), "toolCallId": []},
    ],
)
def test_messages_of_the_wrong_type_are_left_out(bad: Any) -> None:
    """What cannot be read is no message; the others are."""
    document = json.loads(session([user("x")]))
    document["payload"]["messages"].append(bad if not isinstance(bad, dict) else {"id": "bad", **bad})
    assert [message.text for message in load_bili(json.dumps(document).encode()).messages] == ["x"]


def test_latches_have_the_identity_that_is_stored() -> None:
    """A latch with an identity replays; one without is refused, `no-identity`; its ref's holder is named."""
    text = clip(long_text(1))
    loaded = load_bili(session([result(long_text(1))]))
    identity = Identity.of(loaded.messages[0])
    stored = {"hash": identity.hash, "role": "tool", "kind": "tool-result"}
    raw = session(
        [result(long_text(1)), call()],
        clips=[{"ref": ref(1), "text": text, "identity": stored}, {"ref": ref(2), "text": text}],
        views={ref(1): {"text": "view", "identity": stored, "view": "crush"}, "m1": "no ref"},
    )
    loaded = load_bili(raw)
    shown = replay(loaded.messages, loaded.state)
    assert [(outcome.latch.ref, outcome.latch.text) for outcome in shown.applied] == [(ref(1), text)]
    assert [(outcome.reason, outcome.holder) for outcome in shown.refused] == [(Reason.NO_IDENTITY, loaded.messages[1])]
    assert [getattr(latch, "view", None) for latch in loaded.state.latches] == [None, "crush", None]


def test_protected_messages_are_protected() -> None:
    """The sentinel of the file is the sentinel of the state."""
    loaded = load_bili(session([user("a"), user("b")], protected=[0]))
    assert list(loaded.state.refs.values()) == ["BLOCKED", ref(2)]


def test_refs_of_messages_out_of_the_file_are_known() -> None:
    """A latch whose holder is not in the snapshot is refused as absent, not as one of a ref that nobody has."""
    refs = {"byRaw": {"h_old": ref(1), "bili:ref-floor": ref(9)}, "byRef": {ref(1): "h_old"}}
    stored = {"hash": "0" * 64, "role": "tool", "kind": "tool-result"}
    raw = session([], clips=[{"ref": ref(1), "text": "x", "identity": stored}], state={"messageRefs": refs})
    loaded = load_bili(raw)
    assert [outcome.reason for outcome in replay(loaded.messages, loaded.state).refused] == [Reason.HOLDER_ABSENT]
    assert (dict(loaded.state.refs), loaded.state.refs.cursor) == ({"h_old": ref(1)}, 10)


@pytest.mark.parametrize("document", [None, 5, [], {}, {"state": []}, {"payload": {"state": {}}}, {"payload": []}])
def test_what_is_no_session_is_none(document: Any) -> None:
    """A session has an object `state` with refs or blocks."""
    assert not is_session(document)
    with pytest.raises(LatchguardError) as caught:
        load_bili(json.dumps(document).encode())
    assert caught.value.code == "no-session"


def test_the_kernels_hash_is_the_documented_one() -> None:
    """SHA-256 over role, content type, call id, tool name and text, joined by bars."""
    text = "role|type"
    digest = sha256(b"assistant|tool-call|call_1|bash|role|type").hexdigest()[:16]
    assert kernel_id(call(text)) == f"h_{digest}"
    assert hashes_to_id({**call(text), "id": f"h_{digest}_3"}, text)
