from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from latchguard import ConversationState, History, Identity, Message, Reason, replay, restamp
from latchguard.core.errors import DuplicateMessageError, InvalidValueError, NumberingError
from latchguard.core.refs import BLOCKED
from latchguard.core.restamping import Rebound, restamp_identities
from tests.support.messages import call, note, result

ONE, TWO, THREE = note("a", "one"), result("b", "two"), note("c", "three")
STATE = ConversationState().assign([ONE, TWO, THREE])


def test_nothing_to_do_is_the_same_state() -> None:
    """Same messages, same order: the very state, no version, no epoch (I9); the whole map is given all the same."""
    state = STATE.latch(ONE, "cut")
    outcome = restamp(state, [ONE, TWO, THREE])
    assert outcome.state is state
    assert (outcome.rebound, outcome.dropped) == ((), ())
    assert outcome.moved == {"m00001": "m00001", "m00002": "m00002", "m00003": "m00003"}


def test_refs_are_numbered_in_the_new_order() -> None:
    """1..n over the history as it is now; a latch moves with its message; one version, one epoch."""
    state = STATE.latch(ONE, "cut")
    outcome = restamp(state, [THREE, ONE, TWO])
    assert list(outcome.state.refs.items()) == [("c", "m00001"), ("a", "m00002"), ("b", "m00003")]
    assert outcome.moved == {"m00001": "m00002", "m00002": "m00003", "m00003": "m00001"}
    assert outcome.rebound == (Rebound(state.latches[0], evolve(state.latches[0], ref="m00002")),)
    assert outcome.state.latches == (outcome.rebound[0].new,)
    assert (outcome.state.version, outcome.state.epoch) == (state.version + 1, 1)


def test_moved_is_a_map_like_any_other() -> None:
    """It has a size, says what is in it, and knows no ref but those of before."""
    moved = restamp(STATE.assign([], protected=["b"]), [THREE, ONE, TWO]).moved
    assert (len(moved), repr(moved)) == (2, "{'m00001': 'm00002', 'm00003': 'm00001'}")
    assert (moved.get("m00002", "no"), moved.get("m00004", "no"), moved.get(BLOCKED, "no")) == ("no", "no", "no")


def test_unknown_messages_are_added_and_absent_ones_lose_their_ref() -> None:
    """What is gone has None in the map and no identity on record; what is new has both."""
    new = note("n", "new")
    outcome = restamp(STATE, [new, THREE])
    assert dict(outcome.state.refs) == {"n": "m00001", "c": "m00002"}
    assert outcome.state.identities == {"n": Identity.of(new), "c": Identity.of(THREE)}
    assert outcome.moved == {"m00001": None, "m00002": None, "m00003": "m00002"}
    assert outcome.state.refs.cursor == 3


def test_refs_after_a_restamp_come_from_the_cursor() -> None:
    """The next new message gets the number after the last."""
    after = restamp(STATE, [THREE, ONE]).state.assign([note("n", "new")])
    assert after.refs["n"] == "m00003"


def test_same_refs_in_another_order_is_a_change() -> None:
    """The order of the history is part of the ref map: twins are told apart by it."""
    numbering = {"a": "m00001", "b": "m00002", "c": "m00003"}
    outcome = restamp(STATE, [THREE, TWO, ONE], numbering=numbering)
    assert list(outcome.state.refs) == ["c", "b", "a"]
    assert outcome.state.epoch == 1


def test_edited_message_is_a_change() -> None:
    """The record of what a message is follows it though no ref moves."""
    edited = note("a", "edited")
    outcome = restamp(STATE, [edited, TWO, THREE])
    assert outcome.state.identities["a"] == Identity.of(edited)
    assert (outcome.state.epoch, outcome.state.refs) == (1, STATE.refs)


def test_history_serves() -> None:
    """A `History` gives the same as a list."""
    assert restamp(STATE, History([TWO, ONE])).state == restamp(STATE, [TWO, ONE]).state


def test_protected_messages_stay_protected() -> None:
    """Present, absent, and back again: the sentinel is sticky, uses up no number and is in no map."""
    state = STATE.assign([], protected=["b"])
    outcome = restamp(state, [TWO, THREE, ONE])
    assert list(outcome.state.refs.items()) == [("b", BLOCKED), ("c", "m00001"), ("a", "m00002")]
    assert outcome.moved == {"m00001": "m00002", "m00003": "m00001"}
    absent = restamp(outcome.state, [ONE]).state
    assert list(absent.refs.items()) == [("a", "m00001"), ("b", BLOCKED)]
    assert absent.identities["b"] == Identity.of(TWO)
    assert restamp(absent, [TWO, ONE]).state.refs["b"] == BLOCKED


def test_numbering_of_the_host_holds() -> None:
    """Gaps allowed; a message that it does not name gets a number after the highest."""
    outcome = restamp(STATE, [ONE, TWO, THREE], numbering={"a": "m00007", "c": "m00003"})
    assert dict(outcome.state.refs) == {"a": "m00007", "b": "m00008", "c": "m00003"}
    assert outcome.state.refs.cursor == 9
    assert restamp(outcome.state, [ONE, TWO, THREE], numbering={"a": "m00007", "c": "m00003"}).state is outcome.state


def test_numbering_moves_latches() -> None:
    """The latch goes where its message goes."""
    outcome = restamp(STATE.latch(ONE, "cut"), [ONE, TWO, THREE], numbering={"a": "m00002", "b": "m00001"})
    assert [latch.ref for latch in outcome.state.latches] == ["m00002"]


def test_numbering_of_absent_messages_uses_up_their_numbers() -> None:
    """A ledger may know messages that are not in this history; nobody else gets their number."""
    outcome = restamp(STATE, [ONE, TWO], numbering={"elsewhere": "m00005", "hidden": BLOCKED})
    assert dict(outcome.state.refs) == {"a": "m00006", "b": "m00007"}


def test_numbering_protects() -> None:
    """`BLOCKED` may be given, more than once; the latch of such a message is dropped, and its ref leads nowhere."""
    outcome = restamp(STATE.latch(ONE, "cut"), [ONE, TWO, THREE], numbering={"a": BLOCKED, "b": BLOCKED})
    assert dict(outcome.state.refs) == {"a": BLOCKED, "b": BLOCKED, "c": "m00001"}
    assert [(drop.latch.text, drop.reason) for drop in outcome.dropped] == [("cut", Reason.BLOCKED_REF)]
    assert outcome.moved == {"m00001": None, "m00002": None, "m00003": "m00001"}


def test_numbering_does_not_unprotect() -> None:
    """A ref given to a protected message is not taken."""
    state = STATE.assign([], protected=["a"])
    assert restamp(state, [ONE], numbering={"a": "m00001"}).state.refs["a"] == BLOCKED


@pytest.mark.parametrize(
    ("numbering", "message_id"),
    [
        ({"a": "m00001", "b": "m00001"}, "b"),
        ({"a": "m1"}, "a"),
        ({"a": "m00000"}, "a"),
        ({"a": None}, "a"),
        ({"a": 1}, "a"),
        ({"a": ["m00001"]}, "a"),
        ({"a": "m00002", "b": "blocked"}, "b"),
    ],
)
def test_bad_numbering(numbering: Any, message_id: str) -> None:
    """Two ids with one ref, or what is no ref: the message is named."""
    with pytest.raises(NumberingError) as caught:
        restamp(STATE, [ONE, TWO], numbering=numbering)
    assert (caught.value.message_id, caught.value.ref) == (message_id, numbering[message_id])


@pytest.mark.parametrize(
    ("state", "messages", "numbering", "path"),
    [
        (STATE, None, None, "messages"),
        (STATE, iter([ONE]), None, "messages"),
        (STATE, [ONE, None], None, "messages[1]"),
        ([ONE], STATE, None, "messages"),
        (None, [ONE], None, "state"),
        (STATE, [ONE], ["a"], "numbering"),
        (STATE, [note("\ud800", "x")], None, "message.id"),
        (STATE, [note("\ud800", "x")], {"\ud800": "m00001"}, "message.id"),
        (STATE, [note("\ud800", "x")], {"\ud800": BLOCKED}, "message.id"),
    ],
)
def test_wrong_types(state: Any, messages: Any, numbering: Any, path: str) -> None:
    """The argument that is wrong is named; an id that could not be stored is refused however it gets its ref."""
    with pytest.raises(InvalidValueError) as caught:
        restamp(state, messages, numbering=numbering)
    assert caught.value.path == path


def test_duplicates() -> None:
    """Two messages with one id are refused."""
    with pytest.raises(DuplicateMessageError):
        restamp(STATE, [ONE, ONE])


def test_unknown_fields_of_entries_stay_with_their_message() -> None:
    """They live as long as the message's entry."""
    state = evolve(STATE, entry_extra={"a": {"new": 1}, "b": {"new": 2}})
    assert restamp(state, [THREE, ONE]).state.entry_extra == {"a": {"new": 1}}


def test_restamp_from_identities_alone() -> None:
    """Whoever has no texts gets the same; identities that no latch can care about may be left out."""
    state = STATE.latch(ONE, "cut")
    whole = restamp(state, [THREE, ONE])
    present = {"c": Identity.of(THREE), "a": Identity.of(ONE)}
    assert restamp_identities(state, present) == whole
    thin = restamp_identities(state, {**present, "c": None})
    assert (thin.state.latches, thin.moved, thin.rebound) == (whole.state.latches, whole.moved, whole.rebound)
    assert thin.state.identities == {"a": Identity.of(ONE)}


def test_clip_is_not_moved_onto_the_call_that_took_its_ref() -> None:
    """The defect itself: after a restamp a fresh tool call holds the old ref; the clip stays with its message."""
    state = STATE.latch(ONE, "cut")
    fresh = call("k")
    after = restamp(state, [fresh, ONE, TWO, THREE]).state
    assert after.refs.holder("m00001") == "k"
    assert [message.text for message in replay([fresh, ONE], after).messages] == [fresh.text, "cut"]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Histories of a few ids and fewer texts: twins, edits and strangers are frequent."""
    ids = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=7))
    return [draw(st.sampled_from([note, result, call]))(name, draw(st.sampled_from(["x", "y"]))) for name in ids]


@st.composite
def latched_states(draw: st.DrawFn) -> tuple[ConversationState, list[Message]]:
    """A history with latches on some of its messages."""
    messages = draw(histories())
    state = ConversationState().assign(
        messages, protected=draw(st.sets(st.sampled_from([m.id for m in messages] or ["?"]))) - {"?"}
    )
    for message in messages:
        if message.tool_name is None and state.refs[message.id] != BLOCKED:
            for view in draw(st.sampled_from([(), (None,), ("v",), (None, "v")])):
                state = state.latch(message, draw(st.sampled_from(["1", "2", "x"])), view=view)
    return state, messages


@given(latched_states(), histories())
def test_nothing_vanishes_and_a_second_restamp_changes_nothing(
    before: tuple[ConversationState, list[Message]], new: list[Message]
) -> None:
    """I3 and I9; of two latches of one class none shares a message; refs are 1..n over unprotected messages (I4)."""
    state, _ = before
    outcome = restamp(state, new)
    after = outcome.state
    assert len(after.latches) + len(after.quarantine) == len(state.latches) + len(state.quarantine)
    assert after.quarantine == (*state.quarantine, *outcome.dropped)
    assert len({(latch.ref, type(latch)) for latch in after.latches}) == len(after.latches)
    assert restamp(after, new).state is after
    refs = [after.refs[message.id] for message in new if after.refs[message.id] != BLOCKED]
    assert refs == [f"m{number:05d}" for number in range(1, len(refs) + 1)]
    assert set(outcome.moved) == {ref for ref in state.refs.values() if ref != BLOCKED}


@given(latched_states(), histories())
def test_the_view_survives(before: tuple[ConversationState, list[Message]], new: list[Message]) -> None:
    """I6: a message that is there before and after shows the same, or its latch was dropped by this restamp."""
    state, old = before
    was = {message.id: (message, shown.text) for message, shown in zip(old, replay(old, state).messages, strict=True)}
    outcome = restamp(state, new)
    dropped = {drop.latch.ref for drop in outcome.dropped}
    for message, shown in zip(new, replay(new, outcome.state).messages, strict=True):
        if message.id in was and Identity.of(was[message.id][0]) == Identity.of(message):
            assert shown.text == was[message.id][1] or state.refs[message.id] in dropped


@given(latched_states(), histories())
def test_after_a_restamp_every_latch_fits_its_message(
    before: tuple[ConversationState, list[Message]], new: list[Message]
) -> None:
    """What a restamp binds is applied or hidden by a clip; nothing that it binds is refused (I1, I2)."""
    state, _ = before
    after = restamp(state, new).state
    assert replay(new, after).refused == ()


def test_numbering_by_what_is_no_message_id() -> None:
    """A key of another type names no message, and would be ignored in silence."""
    numbering: Any = {7: "m00001"}
    with pytest.raises(InvalidValueError) as caught:
        restamp(STATE, [ONE], numbering=numbering)
    assert caught.value.path == "numbering"
