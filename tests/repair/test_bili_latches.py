"""Where latches go, in small sessions: each rule of the proof, and the shapes that entries take."""

import json
from typing import Any

import pytest

from latchguard import Identity, Message, replay
from latchguard.core.findings import Repair
from latchguard.core.message import Kind, Role
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import PlanOptions
from latchguard.sources.bili import load_bili
from tests.repair.sessions import (
    ARGUMENTS,
    MARKER,
    OTHER_MARKER,
    call,
    clip,
    kernel_id,
    long_text,
    messages_of,
    read_fixture,
    ref,
    result,
    session,
    state_of,
    user,
)

CLIPS = "emergencyTruncateLatch"
FIRST, SECOND, THIRD = (result(long_text(seed), f"call_{seed}") for seed in (1, 2, 3))


def identity(message: dict[str, Any]) -> dict[str, str]:
    name = message.get("toolName") if message["contentType"] == "tool-call" else None
    found = Identity.of(
        Message(
            "x", Role(message["role"]), Kind(message["contentType"]), message["text"], name, message.get("toolCallId")
        )
    )
    return {"hash": found.hash, "role": str(found.role), "kind": str(found.kind)}


def repair(raw: bytes, **options: Any) -> Any:
    """Give the state after the repair; it must be the last one."""
    chosen = PlanOptions(**options)
    repaired = apply_plan(raw, plan_bytes(raw, options=chosen))
    assert plan_bytes(repaired, options=chosen).steps == ()
    return state_of(repaired)


def rules(raw: bytes, **options: Any) -> list[tuple[str, str, bool]]:
    found = plan_bytes(raw, options=PlanOptions(**options)).findings
    return [(finding.rule, str(finding.repair), finding.applied) for finding in found]


def reasons(state: Any) -> list[tuple[str, str]]:
    return [(record["ref"], record["reason"]) for record in state["latchguardQuarantine"]]


BOUND = [("latch-without-identity", "lossless", True)]
MOVED = [("stale-latch", "lossless", True)]
DROPPED = [("stale-latch", "placeholder", True)]
LEFT = [("latch-without-identity", "detect", False)]


@pytest.mark.parametrize("flat", [False, True])
def test_a_right_latch_gains_its_identity(flat: bool) -> None:
    """A latch on the message it is a clip of gains that message's identity and stays."""
    entry = {"ref": ref(2), "text": clip(FIRST["text"])}
    raw = session([user("hi"), FIRST], clips=[entry], flat=flat)
    assert rules(raw) == BOUND
    assert repair(raw)[CLIPS] == [{**entry, "identity": identity(FIRST)}]


def test_a_map_keeps_its_type() -> None:
    """In a map ref -> text the entry becomes ref -> {text, identity}, in its place."""
    texts = {ref(1): clip(FIRST["text"]), ref(2): clip(SECOND["text"])}
    raw = session([FIRST, SECOND], clips=texts)
    assert rules(raw) == BOUND * 2
    state = repair(raw)
    assert state[CLIPS] == {
        ref(1): {"text": texts[ref(1)], "identity": identity(FIRST)},
        ref(2): {"text": texts[ref(2)], "identity": identity(SECOND)},
    }


def test_latches_of_a_map_change_places() -> None:
    """Two entries that must swap their keys do so, and so does a third that takes a free one."""
    raw = session(
        [FIRST, SECOND, user("x"), THIRD],
        clips={ref(1): clip(SECOND["text"]), ref(2): clip(FIRST["text"]), ref(3): clip(THIRD["text"])},
    )
    assert rules(raw) == MOVED * 3
    assert repair(raw)[CLIPS] == {
        ref(2): {"text": clip(SECOND["text"]), "identity": identity(SECOND)},
        ref(1): {"text": clip(FIRST["text"]), "identity": identity(FIRST)},
        ref(4): {"text": clip(THIRD["text"]), "identity": identity(THIRD)},
    }


def test_a_stale_latch_moves_to_the_message_it_proves() -> None:
    """A clip under another message's ref moves to the ref of its own."""
    raw = session([user("hi"), FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"]), "madeAt": 7}])
    assert rules(raw) == MOVED
    assert repair(raw)[CLIPS] == [
        {"ref": ref(2), "text": clip(FIRST["text"]), "madeAt": 7, "identity": identity(FIRST)}
    ]


@pytest.mark.parametrize(("present", "found"), [(call(), DROPPED), (user("short"), DROPPED)])
def test_a_disproved_latch_goes_to_the_quarantine(present: dict[str, Any], found: Any) -> None:
    """With its holder there and no message proven, the entry moves to the quarantine with all it holds."""
    entry = {"ref": ref(1), "text": clip(FIRST["text"]), "madeAt": 7}
    raw = session([present], clips=[entry])
    assert rules(raw) == found
    state = repair(raw)
    assert state[CLIPS] == []
    assert state["latchguardQuarantine"] == [{**entry, "latch": CLIPS, "reason": "unproven"}]


def test_a_quarantined_map_entry_keeps_its_ref() -> None:
    """An entry of a map has no ref of its own; its record in the quarantine has."""
    raw = session([user("short")], clips={ref(1): "no marker"})
    assert repair(raw)["latchguardQuarantine"] == [
        {"latch": CLIPS, "ref": ref(1), "text": "no marker", "reason": "unproven"}
    ]


def test_the_quarantine_grows() -> None:
    """A second repair adds to the quarantine that is there, and never looks at what is in it."""
    old = {"latch": CLIPS, "ref": ref(9), "text": clip(THIRD["text"]), "reason": "gone"}
    raw = session([user("x")], clips=[{"ref": ref(1), "text": "t"}], state={"latchguardQuarantine": [old]})
    found = repair(raw)["latchguardQuarantine"]
    assert found == [old, {"ref": ref(1), "text": "t", "latch": CLIPS, "reason": "unproven"}]


def test_a_quarantine_of_the_wrong_type_loses_nothing() -> None:
    """What stands where the quarantine belongs is kept as its first entry."""
    raw = session([user("x")], clips=[{"ref": ref(1), "text": "t"}], state={"latchguardQuarantine": "odd"})
    found = repair(raw)["latchguardQuarantine"]
    assert found == ["odd", {"ref": ref(1), "text": "t", "latch": CLIPS, "reason": "unproven"}]


def test_a_latch_stays_where_its_holder_is_out_of_the_file() -> None:
    """A snapshot is often the tail only: a latch of an older message is reported and left, though it fits another."""
    text = clip(FIRST["text"])
    refs = {"byRaw": {"h_old": ref(1), kernel_id(FIRST): ref(2)}, "byRef": {ref(1): "h_old", ref(2): kernel_id(FIRST)}}
    raw = session([FIRST], clips=[{"ref": ref(1), "text": text}], state={"messageRefs": refs})
    assert rules(raw) == LEFT
    assert plan_bytes(raw).steps == ()


def test_a_latch_of_a_ref_that_nobody_holds_moves_or_stays() -> None:
    """Under a ref that the map does not know a proven latch moves, an unproven one is reported and left."""
    proven = session([FIRST], clips=[{"ref": ref(77), "text": clip(FIRST["text"])}])
    assert rules(proven) == MOVED
    assert [entry["ref"] for entry in repair(proven)[CLIPS]] == [ref(1)]
    assert rules(session([FIRST], clips=[{"ref": ref(77), "text": clip(SECOND["text"])}])) == LEFT


@pytest.mark.parametrize("marker", [MARKER, OTHER_MARKER])
def test_nested_clips_prove_their_original(marker: str) -> None:
    """A clip of a clip proves by the head before its first marker and the tail after its last."""
    text = FIRST["text"][:600] + MARKER + "what a clip left" + marker + FIRST["text"][-600:]
    raw = session([user("x"), FIRST], clips=[{"ref": ref(1), "text": text}])
    assert rules(raw) == MOVED


def test_an_original_that_quotes_a_marker_is_proven() -> None:
    """The text is split at every marker: one that the original quotes does not hide the right one."""
    original = result(long_text(5)[:400] + OTHER_MARKER + long_text(6), "call_5")
    raw = session([user("x"), original], clips=[{"ref": ref(1), "text": clip(original["text"])}])
    assert original["text"][:1000].count(OTHER_MARKER) == 1
    assert rules(raw) == MOVED


@pytest.mark.parametrize(("head", "tail", "found"), [(256, 256, MOVED), (255, 256, DROPPED), (256, 255, DROPPED)])
def test_head_and_tail_must_be_long_enough(head: int, tail: int, found: Any) -> None:
    """256 UTF-16 units on each side prove, 255 do not."""
    raw = session([user("x"), FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"], MARKER, head, tail)}])
    assert rules(raw) == found


@pytest.mark.parametrize("length", [2000, 2001])
def test_the_original_must_be_longer_than_head_and_tail(length: int) -> None:
    """A text that is just head and tail was never clipped."""
    original = result(FIRST["text"][:length])
    raw = session([user("x"), original], clips=[{"ref": ref(1), "text": clip(original["text"])}])
    assert rules(raw) == (MOVED if length == 2001 else DROPPED)


@pytest.mark.parametrize(("high", "low"), [("\\ud83d", "\\ude00"), ("\\ufffd", "\\ufffd"), ("\\ud83d", "")])
def test_half_a_character_at_the_cut_is_set_aside(high: str, low: str) -> None:
    """The kernel cuts between the halves of a character; the half may be written as it is or as U+FFFD."""
    original = result("😀" * 600 + long_text(1) + "😀" * 600, "call_1")
    text = "😀" * 500 + "HIGH" + MARKER + "LOW" + "😀" * 500
    raw = session([user("x"), original], clips=[{"ref": ref(1), "text": text}])
    raw = raw.replace(b"HIGH", high.encode()).replace(b"LOW", low.encode())
    assert rules(raw) == MOVED
    assert state_of(apply_plan(raw, plan_bytes(raw)))[CLIPS][0]["text"] == state_of(raw)[CLIPS][0]["text"]


@pytest.mark.parametrize("tag", ["[m00012] ", "<acp ref=m00012>\n", "<dcp-message-id>m00012</dcp-message-id>\n"])
def test_a_leading_tag_of_the_kernel_is_set_aside(tag: str) -> None:
    """The kernel's own tag before the clip or before the message does not hide the original."""
    tagged = result(tag + FIRST["text"], "call_1")
    assert rules(session([user("x"), FIRST], clips=[{"ref": ref(1), "text": clip(tag + FIRST["text"])}])) == MOVED
    assert rules(session([user("x"), tagged], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])) == MOVED


def test_the_holder_wins_over_its_twins() -> None:
    """A clip that is true of its holder is its holder's, whatever other message it fits."""
    twin = {**FIRST, "toolCallId": "call_9"}
    raw = session([twin, FIRST], clips=[{"ref": ref(2), "text": clip(FIRST["text"])}])
    assert rules(raw) == BOUND


@pytest.mark.parametrize("other", [FIRST, {**FIRST, "toolCallId": "call_9"}])
def test_several_candidates_are_ambiguous(other: dict[str, Any]) -> None:
    """Neither twins nor messages of several identities take a latch that is under a third one's ref."""
    raw = session([user("x"), FIRST, other], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    assert reasons(repair(raw)) == [(ref(1), "ambiguous")]


def test_only_latchable_kinds_are_proven() -> None:
    """A clip that fits a tool call only is forbidden; one that fits a call and a result is the result's."""
    arguments = json.dumps({"text": FIRST["text"]})
    raw = session([user("x"), call(arguments)], clips=[{"ref": ref(1), "text": clip(arguments)}])
    assert reasons(repair(raw)) == [(ref(1), "forbidden-kind")]
    both = session([user("x"), call(arguments), result(arguments)], clips=[{"ref": ref(2), "text": clip(arguments)}])
    assert [entry["ref"] for entry in repair(both)[CLIPS]] == [ref(3)]


def test_a_protected_message_takes_no_latch() -> None:
    """A clip of a protected message goes to the quarantine, whether it stands under the sentinel or another ref."""
    for place in ("BLOCKED", ref(1)):
        raw = session([user("x"), FIRST], clips=[{"ref": place, "text": clip(FIRST["text"])}], protected=[1])
        assert reasons(repair(raw)) == [(place, "blocked-ref")]


def test_a_latch_under_the_sentinel_goes_where_it_is_proven() -> None:
    """The sentinel is nobody's ref: the proof alone decides; without one a protected message disproves it."""
    raw = session([user("x"), FIRST], clips=[{"ref": "BLOCKED", "text": clip(FIRST["text"])}], protected=[0])
    assert [entry["ref"] for entry in repair(raw)[CLIPS]] == [ref(2)]
    raw = session([user("x"), FIRST], clips=[{"ref": "BLOCKED", "text": clip(SECOND["text"])}], protected=[0])
    assert reasons(repair(raw)) == [("BLOCKED", "unproven")]
    assert rules(session([FIRST], clips=[{"ref": "BLOCKED", "text": clip(SECOND["text"])}])) == LEFT


def test_a_message_that_shows_the_text_counts_as_proven() -> None:
    """A host that sent the clip back has it as the message's own text."""
    text = clip(FIRST["text"])
    raw = session([user("x"), result(text)], clips=[{"ref": ref(1), "text": text}])
    assert rules(raw) == MOVED
    assert repair(raw)[CLIPS][0]["identity"] == identity(result(text))


def test_a_view_without_a_marker_stays_where_it_may() -> None:
    """Nothing proves or disproves it: it is reported and left, but not on a kind that takes no latch."""
    assert rules(session([FIRST], views=[{"ref": ref(1), "text": "crushed"}])) == LEFT
    assert reasons(repair(session([call()], views=[{"ref": ref(1), "text": "crushed"}]))) == [
        (ref(1), "forbidden-kind")
    ]
    protected = session([FIRST], views=[{"ref": "BLOCKED", "text": "crushed"}], protected=[0])
    assert reasons(repair(protected)) == [("BLOCKED", "blocked-ref")]


def test_an_emergency_latch_without_a_marker_is_unproven() -> None:
    """A clip always has a marker; one that has none was made by nobody."""
    assert reasons(repair(session([FIRST], clips=[{"ref": ref(1), "text": "cut"}]))) == [(ref(1), "unproven")]


def test_a_clip_of_a_view_is_proven_by_the_view() -> None:
    """A message may be proven by the text of its own view latch."""
    view = long_text(7)
    raw = session(
        [user("x"), FIRST],
        views=[{"ref": ref(2), "text": view}],
        clips=[{"ref": ref(2), "text": clip(view)}],
    )
    assert rules(raw) == LEFT + BOUND
    assert repair(raw)[CLIPS][0]["identity"] == identity(FIRST)


def test_the_later_latch_of_a_class_supersedes() -> None:
    """Of two clips that belong to one message the last stored one stays."""
    first, last = clip(FIRST["text"], MARKER, 900, 900), clip(FIRST["text"])
    raw = session([user("x"), FIRST], clips=[{"ref": ref(2), "text": first}, {"ref": ref(1), "text": last}])
    state = repair(raw)
    assert [(entry["ref"], entry["text"]) for entry in state[CLIPS]] == [(ref(2), last)]
    assert reasons(state) == [(ref(2), "superseded")]


def test_equal_latches_collapse_without_loss() -> None:
    """Two clips of one message with one text become one, and nothing goes to the quarantine."""
    text = clip(FIRST["text"])
    raw = session([user("x"), FIRST], clips=[{"ref": ref(2), "text": text}, {"ref": ref(1), "text": text}])
    assert rules(raw) == BOUND + MOVED
    state = repair(raw, allow=Repair.LOSSLESS)
    assert state[CLIPS] == [{"ref": ref(2), "text": text, "identity": identity(FIRST)}]
    assert "latchguardQuarantine" not in state


def test_a_clip_and_a_view_of_one_message_both_stay() -> None:
    """One latch of each class may sit on a message."""
    raw = session(
        [FIRST],
        clips=[{"ref": ref(1), "text": clip(FIRST["text"])}],
        views={ref(1): clip(FIRST["text"], OTHER_MARKER)},
    )
    assert rules(raw) == BOUND * 2


def test_a_proven_view_supersedes_an_unproven_one() -> None:
    """A view that nothing speaks for gives way to one that is proven for the same message."""
    raw = session(
        [user("x"), FIRST],
        views=[{"ref": ref(2), "text": "crushed"}, {"ref": ref(1), "text": clip(FIRST["text"])}],
    )
    assert reasons(repair(raw)) == [(ref(2), "superseded")]


def test_a_right_identity_is_no_finding() -> None:
    """A latch that has its holder's identity is as it should be, wherever its text comes from."""
    entry = {"ref": ref(1), "text": "any text", "identity": identity(FIRST)}
    assert rules(session([FIRST], clips=[entry])) == []
    kept = {ref(1): {"text": "any text", "identity": identity(FIRST)}}
    assert rules(session([FIRST], clips=kept)) == []


def test_an_identity_leads_a_latch_to_its_message() -> None:
    """A latch with an identity follows it, without any proof by text."""
    entry = {"ref": ref(1), "text": "any text", "identity": identity(FIRST)}
    assert rules(session([user("x"), FIRST], clips=[entry])) == MOVED
    assert repair(session([user("x"), FIRST], clips=[entry]))[CLIPS] == [{**entry, "ref": ref(2)}]
    kept = {ref(1): {"text": "any text", "identity": identity(FIRST), "more": 1.0}}
    assert repair(session([user("x"), FIRST], clips=kept))[CLIPS] == {ref(2): kept[ref(1)]}


@pytest.mark.parametrize(
    ("holder", "reason"),
    [
        ({**FIRST, "text": "edited"}, "hash-mismatch"),
        ({**FIRST, "role": "user", "contentType": "tool-result"}, "role-mismatch"),
        (user(FIRST["text"]) | {"role": "tool"}, "kind-mismatch"),
    ],
)
def test_an_identity_that_no_message_has_names_the_mismatch(holder: dict[str, Any], reason: str) -> None:
    """Without a message of its identity, and without proof, a latch is dropped for what differs."""
    entry = {"ref": ref(1), "text": "any text", "identity": identity(FIRST)}
    assert reasons(repair(session([holder], clips=[entry]))) == [(ref(1), reason)]


def test_a_wrong_identity_yields_to_the_proof() -> None:
    """The text proves the holder: the latch gains the holder's identity, and the finding says it was wrong."""
    entry = {"ref": ref(1), "text": clip(FIRST["text"]), "identity": identity(SECOND)}
    raw = session([FIRST], clips=[entry])
    assert rules(raw) == MOVED
    assert repair(raw)[CLIPS] == [{**entry, "identity": identity(FIRST)}]


@pytest.mark.parametrize("bad", [None, "x", 5, [], {}, {"hash": "0", "role": "tool", "kind": "text"}, {"hash": [1]}])
def test_a_malformed_identity_counts_as_none(bad: Any) -> None:
    """What is no identity is replaced by the right one."""
    entry = {"ref": ref(1), "text": clip(FIRST["text"]), "identity": bad}
    raw = session([FIRST], clips=[entry])
    assert rules(raw) == BOUND
    assert repair(raw)[CLIPS] == [{**entry, "identity": identity(FIRST)}]


def test_a_malformed_identity_in_a_map_is_replaced_in_place() -> None:
    """An entry of a map that is an object already keeps its place and its other members."""
    entry = {"text": clip(FIRST["text"]), "identity": None, "more": 1}
    raw = session([FIRST, user("x")], clips={ref(1): entry, ref(2): "cut"})
    assert repair(raw)[CLIPS] == {ref(1): {**entry, "identity": identity(FIRST)}}


def test_an_identity_of_a_forbidden_kind_is_dropped() -> None:
    """No identity lets a latch sit on a tool call."""
    entry = {"ref": ref(1), "text": "x", "identity": identity(call())}
    assert reasons(repair(session([call()], clips=[entry]))) == [(ref(1), "forbidden-kind")]


def test_a_latch_that_its_message_already_shows_keeps_its_identity() -> None:
    """A host sent the shown text back: the identity of the original stays, and the replay applies."""
    text = clip(FIRST["text"])
    raw = session([{**FIRST, "text": text}], clips=[{"ref": ref(1), "text": text, "identity": identity(FIRST)}])
    assert rules(raw) == []
    loaded = load_bili(raw)
    assert replay(loaded.messages, loaded.state).refused == ()


@pytest.mark.parametrize(
    "entry",
    [None, 5, "text", [], {}, {"ref": ref(1)}, {"text": "x"}, {"ref": 5, "text": "x"}, {"ref": ref(1), "text": None}],
)
def test_an_entry_that_is_no_latch_is_reported_and_left(entry: Any) -> None:
    """Bad data is a finding: it is named by its path and stays as it is."""
    raw = session([FIRST], clips=[entry])
    (found,) = plan_bytes(raw).findings
    assert (found.rule, found.path, str(found.repair)) == (
        "latch-without-identity",
        "$.payload.state.emergencyTruncateLatch[0]",
        "detect",
    )


@pytest.mark.parametrize("container", [5, "text", True])
def test_latches_that_are_no_list_and_no_map_are_reported(container: Any) -> None:
    """The container itself is the finding."""
    raw = session([FIRST], state={CLIPS: container})
    assert [(found.path, str(found.repair)) for found in plan_bytes(raw).findings] == [
        ("$.payload.state.emergencyTruncateLatch", "detect")
    ]


def test_nothing_dearer_than_allowed_is_done() -> None:
    """With lossless repairs only, a latch that would be quarantined stays, its finding not applied."""
    raw = session(
        [user("x"), FIRST], clips=[{"ref": ref(1), "text": "cut"}, {"ref": ref(2), "text": clip(FIRST["text"])}]
    )
    assert rules(raw, allow=Repair.LOSSLESS) == [("stale-latch", "placeholder", False), *BOUND]
    assert [entry["ref"] for entry in repair(raw, allow=Repair.LOSSLESS)[CLIPS]] == [ref(1), ref(2)]


@pytest.mark.parametrize("keyed", [False, True])
def test_no_latch_moves_onto_one_that_must_stay(keyed: bool) -> None:
    """Where the latch at the right ref may not be dropped, what belongs there waits, and so does its follower."""
    texts = {ref(1): clip(SECOND["text"]), ref(2): "cut", ref(3): clip(FIRST["text"])}
    clips = texts if keyed else [{"ref": key, "text": text} for key, text in texts.items()]
    raw = session([FIRST, SECOND, user("x")], clips=clips)
    assert rules(raw, allow=Repair.LOSSLESS) == [
        ("stale-latch", "lossless", False),
        ("stale-latch", "placeholder", False),
        ("stale-latch", "lossless", False),
    ]
    assert plan_bytes(raw, options=PlanOptions(allow=Repair.LOSSLESS)).steps == ()
    assert rules(raw) == [*MOVED, *DROPPED, *MOVED]
    assert reasons(repair(raw)) == [(ref(2), "unproven")]


def test_a_key_that_holds_no_latch_is_not_overwritten() -> None:
    """In a map a latch does not move to a key under which something else stands."""
    raw = session([user("x"), FIRST], clips={ref(1): clip(FIRST["text"]), ref(2): 5})
    assert rules(raw) == [("stale-latch", "lossless", False), *LEFT]


def test_a_message_without_a_ref_of_its_own_takes_no_latch() -> None:
    """Where the ref map gives a proven message no ref of its own, its latch is left in place, not bound."""
    refs = {"byRaw": {kernel_id(FIRST): ref(1)}, "byRef": {}}
    raw = session([FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}], state={"messageRefs": refs})
    assert rules(raw) == LEFT


def test_a_latch_of_a_message_that_lost_its_ref_leaves_its_holder() -> None:
    """The message that a latch is proven for holds no ref: the latch must not stay on another one."""
    refs = {"byRaw": {"other": ref(1)}, "byRef": {ref(1): "other"}}
    messages = [FIRST, {**user("x"), "id": "other"}]
    raw = session(messages, clips=[{"ref": ref(1), "text": clip(FIRST["text"])}], state={"messageRefs": refs})
    assert reasons(repair(raw)) == [(ref(1), "unassigned-ref")]


def test_of_two_messages_that_claim_a_ref_the_inverse_map_names_the_holder() -> None:
    """The one that both directions agree on is the holder; the other is reported with the ref map."""
    refs = {"byRaw": {kernel_id(FIRST): ref(1), "other": ref(1)}, "byRef": {ref(1): "other"}}
    messages = [FIRST, {**user("x"), "id": "other"}]
    raw = session(messages, clips=[{"ref": ref(1), "text": "cut"}], state={"messageRefs": refs})
    latch, claim = plan_bytes(raw).findings
    assert latch.before["message"] == "other"
    assert (claim.rule, claim.path) == ("stale-ref", f"$.payload.state.messageRefs.byRaw.{kernel_id(FIRST)}")


def test_a_message_with_an_empty_id_holds_no_ref_by_default() -> None:
    """A ref that the inverse map does not know is nobody's, also where a message's id is the empty string."""
    refs: dict[str, Any] = {"byRaw": {}, "byRef": {}}
    entry = {"ref": ref(1), "text": clip(SECOND["text"]), "identity": identity(SECOND)}
    raw = session([FIRST, {**user("x"), "id": ""}], clips=[entry], state={"messageRefs": refs})
    assert rules(raw) == LEFT


def test_two_messages_under_one_id_take_no_latch() -> None:
    """Ids must be unique: where two different messages share one, neither is the holder."""
    other = {**user("x"), "id": kernel_id(FIRST)}
    raw = session([FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    document = json.loads(raw)
    document["payload"]["messages"].append(other)
    raw = json.dumps(document).encode()
    assert reasons(repair(raw)) == [(ref(1), "ambiguous")]


def test_a_message_stored_twice_is_one() -> None:
    """The same message twice is no ambiguity."""
    raw = session([FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    document = json.loads(raw)
    document["payload"]["messages"] *= 2
    assert rules(json.dumps(document).encode()) == BOUND


def test_a_message_that_cannot_be_read_disproves_nothing() -> None:
    """A latch whose holder has the wrong types is left in place."""
    raw = session([FIRST], clips=[{"ref": ref(1), "text": clip(SECOND["text"])}])
    document = json.loads(raw)
    document["payload"]["messages"][0]["text"] = 5
    assert rules(json.dumps(document).encode()) == LEFT


def test_messages_of_the_plugin_snapshot_hold_latches_too() -> None:
    """A message that only the plugin's snapshot has, under an id that the ref map knows, is in the file."""
    raw = session([user("x"), FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    document = json.loads(raw)
    record = document["payload"]
    record["pluginSnapshot"] = [record["messages"].pop()]
    assert rules(json.dumps(document).encode()) == MOVED


def test_every_other_byte_is_copied() -> None:
    """Odd spacing, escapes, number tokens and duplicate keys outside of the edited spans come out as they went in."""
    odd = b'{ "a" : 1e400, "a" :\t-0.0, "\\u00e9": "\\/", "n": 12345678901234567890123 }'
    raw = session([user("x"), FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}], record={"odd": 1})
    raw = raw.replace(b'"odd":1', b'"odd" :  ' + odd).replace(b'{"ref":"m00001"', b'{ "ref" : "m00001"', 1)
    repaired = apply_plan(raw, plan_bytes(raw))
    stamp = b',"identity":' + json.dumps(identity(FIRST), separators=(",", ":")).encode()
    assert repaired == raw.replace(b'"ref" : "m00001"', b'"ref" : "m00002"', 1).replace(
        b'"}],"viewLatch"', b'"' + stamp + b'}],"viewLatch"'
    ).replace(b'"}]},"messages"', b'"' + stamp + b'}]},"messages"')
    assert odd in repaired


def test_of_duplicate_keys_the_last_counts() -> None:
    """As in JavaScript the last of two members is the value, and the repair edits that one."""
    raw = session([user("x"), FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    twice = raw.replace(b'"ref":"m00001",', b'"ref":"m00002","ref":"m00001",', 1)
    repaired = apply_plan(twice, plan_bytes(twice))
    assert state_of(repaired)[CLIPS][0]["ref"] == ref(2)
    assert repaired.count(b'"ref":"m00002","ref":"m00002",') == 1


def test_a_byte_order_mark_stays() -> None:
    """A file with a byte-order mark keeps it."""
    raw = b"\xef\xbb\xbf" + session([FIRST], clips=[{"ref": ref(1), "text": clip(FIRST["text"])}])
    repaired = apply_plan(raw, plan_bytes(raw))
    assert repaired[:3] == b"\xef\xbb\xbf"
    assert json.loads(repaired[3:])["payload"]["state"][CLIPS][0]["identity"] == identity(FIRST)


def test_arguments_of_other_calls_never_change() -> None:
    """No repair touches a call that carries no clip."""
    raw, _ = read_fixture("stale-on-tool-call")
    repaired = apply_plan(raw, plan_bytes(raw))
    calls = [message["text"] for message in messages_of(repaired) if message["contentType"] == "tool-call"]
    assert calls == [message["text"] for message in messages_of(raw) if message["contentType"] == "tool-call"]
    assert ARGUMENTS not in calls
