from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from latchguard import (
    ConversationState,
    EmergencyTruncateLatch,
    Identity,
    Kind,
    Message,
    Reason,
    Role,
    ViewLatch,
    replay,
)
from latchguard.core.errors import DuplicateMessageError, InvalidValueError, LatchError, UnknownMessageError
from latchguard.core.refs import BLOCKED
from latchguard.core.restamping import restamp
from tests.support.messages import call, note, result

ONE, TWO, THREE = note("a", "one"), result("b", "two"), note("c", "three")


def state_of(*messages: Message, protected: tuple[str, ...] = ()) -> ConversationState:
    return ConversationState().assign(messages, protected=protected)


def shown(message: Message, state: ConversationState) -> str:
    return replay([message], state).messages[0].text


def reasons(state: ConversationState) -> list[tuple[str, Reason]]:
    return [(drop.latch.text, drop.reason) for drop in state.quarantine]


def test_assign_numbers_new_messages_in_order() -> None:
    """Refs count from 1; what a message is is noted."""
    state = state_of(ONE, TWO)
    assert dict(state.refs) == {"a": "m00001", "b": "m00002"}
    assert state.identities == {"a": Identity.of(ONE), "b": Identity.of(TWO)}
    assert (state.version, state.epoch) == (1, 0)


def test_assign_again_is_the_same_state() -> None:
    """Known messages keep their refs; nothing new gives the very same object (I9)."""
    state = state_of(ONE, TWO)
    assert state.assign([TWO, ONE]) is state
    assert state.assign([]) is state


def test_assign_mixes_known_and_new() -> None:
    """A whole history may be given each turn; only what is new gets a ref, from the cursor on."""
    state = state_of(ONE).assign([TWO, ONE, THREE])
    assert dict(state.refs) == {"a": "m00001", "b": "m00002", "c": "m00003"}


def test_assign_takes_a_generator() -> None:
    """Any iterable of messages will do."""
    assert list(ConversationState().assign(message for message in (ONE, TWO)).refs) == ["a", "b"]


def test_assign_notes_that_a_known_message_changed() -> None:
    """The version counts it; the ref stays."""
    state = state_of(ONE, TWO)
    after = state.assign([note("a", "other")])
    assert after.identities == {"a": Identity.of(note("a", "other")), "b": Identity.of(TWO)}
    assert (after.refs, after.version) == (state.refs, 2)


def test_protected_messages_get_the_sentinel() -> None:
    """New and known ones; the cursor does not move for them."""
    state = state_of(ONE, TWO, protected=("a",)).assign([THREE], protected=["b"])
    assert dict(state.refs) == {"a": BLOCKED, "b": BLOCKED, "c": "m00002"}


def test_protection_is_sticky() -> None:
    """A protected message stays so though a later call does not name it, and naming it again changes nothing."""
    state = state_of(ONE, protected=("a",))
    assert state.assign([ONE]) is state
    assert state.assign([ONE], protected={"a"}) is state


def test_protection_drops_the_latches_of_the_message() -> None:
    """They go to quarantine, `blocked-ref`; latches of others stay."""
    state = state_of(ONE, TWO).latch(ONE, "cut").latch(ONE, "seen", view="v").latch(TWO, "other")
    after = state.assign([], protected=["a"])
    assert reasons(after) == [("cut", Reason.BLOCKED_REF), ("seen", Reason.BLOCKED_REF)]
    assert [latch.text for latch in after.latches] == ["other"]
    assert after.version == state.version + 1


def test_unknown_protected_id() -> None:
    """An id that is neither known nor new is a mistake of the caller's."""
    with pytest.raises(UnknownMessageError) as caught:
        state_of(ONE).assign([TWO], protected=["b", "z"])
    assert caught.value.message_id == "z"


@pytest.mark.parametrize(
    ("messages", "protected", "path"),
    [
        (None, (), "messages"),
        ("ab", (), "messages"),
        ([ONE, "b"], (), "messages[1]"),
        ([ONE], "a", "protected"),
        ([ONE], 5, "protected"),
        ([ONE], [["a"]], "protected"),
        ([note("\ud800", "x")], (), "message.id"),
    ],
)
def test_assign_refuses_wrong_types(messages: Any, protected: Any, path: str) -> None:
    """The argument that is wrong is named; an id with half a pair could not be stored."""
    with pytest.raises(InvalidValueError) as caught:
        ConversationState().assign(messages, protected=protected)
    assert caught.value.path == path


def test_assign_refuses_duplicates() -> None:
    """Two messages with one id: which is meant cannot be known."""
    with pytest.raises(DuplicateMessageError):
        ConversationState().assign([ONE, note("a", "other")])


def test_clip_shows_until_it_is_cleared() -> None:
    """A latch goes on with its ref; clearing moves it to quarantine."""
    state = state_of(ONE).latch(ONE, "cut")
    latch = state.latches[0]
    assert latch == EmergencyTruncateLatch("m00001", Identity.of(ONE), Identity.of(note("a", "cut")).hash, "cut")
    assert (shown(ONE, state), state.version) == ("cut", 2)
    after = state.unlatch(ONE)
    assert (shown(ONE, after), after.version, reasons(after)) == ("one", 3, [("cut", Reason.CLEARED)])


def test_clip_hides_the_view() -> None:
    """With one of each class the clip shows, whichever came first; cleared, the view shows."""
    for state in (
        state_of(ONE).latch(ONE, "seen", view="v").latch(ONE, "cut"),
        state_of(ONE).latch(ONE, "cut").latch(ONE, "seen", view="v"),
    ):
        assert shown(ONE, state) == "cut"
        after = state.unlatch(ONE)
        assert (shown(ONE, after), reasons(after)) == ("seen", [("cut", Reason.CLEARED)])
        assert [(d.latch.text, d.reason) for d in after.unlatch(ONE).quarantine][1:] == [("seen", Reason.CLEARED)]


def test_later_latch_supersedes_one_of_its_class() -> None:
    """The other class is left alone; the old one goes to quarantine."""
    state = state_of(ONE).latch(ONE, "cut").latch(ONE, "seen", view="v").latch(ONE, "cut more")
    assert [latch.text for latch in state.latches] == ["cut more", "seen"]
    assert reasons(state) == [("cut", Reason.SUPERSEDED)]


def test_view_with_another_name_supersedes() -> None:
    """There is one view latch per message, whatever its name."""
    state = state_of(ONE).latch(ONE, "seen", view="v").latch(ONE, "seen", view="w")
    assert [latch.view for latch in state.latches if isinstance(latch, ViewLatch)] == ["w"]
    assert reasons(state) == [("seen", Reason.SUPERSEDED)]


def test_same_latch_again_is_the_same_state() -> None:
    """Nothing changes, no version is counted (I9), for the message as it is and as it shows."""
    state = state_of(ONE).latch(ONE, "cut")
    assert state.latch(ONE, "cut") is state
    assert state.latch(note("a", "cut"), "cut") is state


def test_no_clip_of_a_clip() -> None:
    """A latch on what we showed keeps the identity of the original."""
    state = state_of(ONE).latch(ONE, "cut")
    after = state.latch(note("a", "cut"), "cut more")
    assert [latch.identity for latch in after.latches] == [Identity.of(ONE)]
    assert reasons(after) == [("cut", Reason.SUPERSEDED)]
    assert after.identities["a"] == Identity.of(note("a", "cut"))


def test_host_that_stored_an_earlier_output_sees_the_later_one() -> None:
    """The text of a superseded latch is a form of the message: the new latch applies to it."""
    state = state_of(ONE).latch(ONE, "cut").latch(note("a", "cut"), "cut more")
    assert [shown(note("a", text), state) for text in ("one", "cut", "cut more")] == ["cut more"] * 3


def test_view_on_a_stored_clip_keeps_the_original_identity() -> None:
    """The other class knows the clip's form too."""
    state = state_of(ONE).latch(ONE, "cut").latch(note("a", "cut"), "seen", view="v")
    assert {latch.identity for latch in state.latches} == {Identity.of(ONE)}


def test_latch_on_a_changed_message_retires_what_waited() -> None:
    """Latches of either class that were made for what the message was go to quarantine with the mismatch."""
    changed = note("a", "other")
    state = state_of(ONE).latch(ONE, "cut").latch(ONE, "seen", view="v").latch(changed, "new")
    assert [(latch.text, latch.identity) for latch in state.latches] == [("new", Identity.of(changed))]
    assert reasons(state) == [("cut", Reason.HASH_MISMATCH), ("seen", Reason.HASH_MISMATCH)]


def test_replay_stays_idempotent_where_a_view_shows_what_a_clip_was_made_for() -> None:
    """A clip of "b", then the message is "a" and a view shows "b": replaying the output changes nothing."""
    was, now = note("a", "b"), note("a", "a")
    state = state_of(was).latch(was, "clip of b").latch(now, "b", view="v")
    assert shown(now, state) == "b"
    assert shown(note("a", "b"), state) == "b"


def test_latch_notes_what_the_message_is_now() -> None:
    """The state's record of a message follows the message that was latched."""
    state = state_of(ONE).latch(note("a", "other"), "cut")
    assert state.identities["a"] == Identity.of(note("a", "other"))


def test_latches_of_one_message_do_not_touch_another() -> None:
    """Twins have latches of their own."""
    state = state_of(ONE, note("z", "one")).latch(ONE, "cut")
    assert (shown(ONE, state), shown(note("z", "one"), state)) == ("cut", "one")


@pytest.mark.parametrize(
    ("message", "ref", "reason"),
    [
        (call("k"), "m00002", Reason.FORBIDDEN_KIND),
        (Message("r", Role.ASSISTANT, Kind.REASONING, "x"), None, Reason.FORBIDDEN_KIND),
        (Message("o", Role.USER, Kind.OTHER, "x"), None, Reason.FORBIDDEN_KIND),
        (note("unknown", "x"), None, Reason.UNASSIGNED_REF),
        (note("p", "x"), BLOCKED, Reason.BLOCKED_REF),
    ],
)
def test_latches_that_may_not_be(message: Message, ref: str | None, reason: Reason) -> None:
    """Calls, reasoning and other (I2), messages without a ref and protected ones are refused with the reason."""
    state = state_of(ONE, call("k"), note("p", "x"), protected=("p",))
    with pytest.raises(LatchError) as caught:
        state.latch(message, "cut")
    assert (caught.value.message_id, caught.value.ref, caught.value.reason) == (message.id, ref, reason)


@pytest.mark.parametrize(
    ("message", "text", "view", "path"),
    [(None, "t", None, "message"), (ONE, None, None, "text"), (ONE, b"t", None, "text"), (ONE, "t", 5, "view")],
)
def test_latch_refuses_wrong_types(message: Any, text: Any, view: Any, path: str) -> None:
    """The argument that is wrong is named."""
    with pytest.raises(InvalidValueError) as caught:
        state_of(ONE).latch(message, text, view=view)
    assert caught.value.path == path


def test_unlatch_without_a_latch_is_the_same_state() -> None:
    """On a message with a ref, without one, and a protected one."""
    state = state_of(ONE, TWO, note("p", "x"), protected=("p",)).latch(TWO, "cut")
    for message in (ONE, note("unknown", "x"), note("p", "x")):
        assert state.unlatch(message) is state


def test_unlatch_clears_what_waits_on_a_changed_message() -> None:
    """The latch of the message as it was is cleared, though it does not show."""
    state = state_of(ONE).latch(ONE, "cut")
    assert reasons(state.unlatch(note("a", "other"))) == [("cut", Reason.CLEARED)]


def test_unlatch_clears_what_shows_before_what_waits() -> None:
    """A view that shows is cleared; the clip of another identity stays."""
    clip = EmergencyTruncateLatch("m00001", Identity.of(note("x", "other")), "0" * 64, "waits")
    state = state_of(ONE).latch(ONE, "seen", view="v")
    state = evolve(state, latches=(clip, *state.latches))
    after = state.unlatch(ONE)
    assert ([latch.text for latch in after.latches], reasons(after)) == (["waits"], [("seen", Reason.CLEARED)])


def test_unlatch_refuses_what_is_no_message() -> None:
    """An id alone does not say what the message is."""
    with pytest.raises(InvalidValueError) as caught:
        state_of(ONE).unlatch("a")  # type: ignore[arg-type]
    assert caught.value.path == "message"


def test_gone_comes_back_when_its_message_is_appended_again() -> None:
    """Under a new id as well; the drop leaves the quarantine."""
    gone = restamp(state_of(ONE, TWO).latch(ONE, "cut"), [TWO]).state
    assert reasons(gone) == [("cut", Reason.GONE)]
    back = gone.assign([note("new", "one")])
    assert ([(latch.ref, latch.text) for latch in back.latches], back.quarantine) == ([("m00002", "cut")], ())
    assert shown(note("new", "one"), back) == "cut"


def test_only_gone_comes_back() -> None:
    """A latch that was cleared or superseded stays in quarantine when its message is appended again."""
    state = state_of(ONE, TWO).latch(ONE, "cut").latch(ONE, "cut more").unlatch(ONE)
    back = restamp(state, [TWO]).state.assign([note("new", "one")])
    assert (back.latches, len(back.quarantine)) == ((), 2)


def test_gone_does_not_come_back_on_a_protected_message() -> None:
    """A protected message takes no latch."""
    gone = restamp(state_of(ONE, TWO).latch(ONE, "cut"), [TWO]).state
    back = gone.assign([note("new", "one")], protected=["new"])
    assert (back.latches, reasons(back)) == ((), [("cut", Reason.GONE)])


def test_one_of_two_gone_twins_comes_back_per_message() -> None:
    """Equal drops are told apart by count: one message takes one of them."""
    twin = note("t", "one")
    gone = restamp(state_of(ONE, twin, TWO).latch(ONE, "cut").latch(twin, "cut"), [TWO]).state
    assert len(gone.quarantine) == 2
    back = gone.assign([note("new", "one")])
    assert (len(back.latches), reasons(back)) == (1, [("cut", Reason.GONE)])
    again = back.assign([note("newer", "one")])
    assert ([latch.ref for latch in again.latches], again.quarantine) == (["m00002", "m00003"], ())


def test_gone_twins_that_showed_different_texts_stay_gone() -> None:
    """Which text is right cannot be told."""
    twin = note("t", "one")
    gone = restamp(state_of(ONE, twin, TWO).latch(ONE, "cut").latch(twin, "other"), [TWO]).state
    back = gone.assign([note("new", "one")])
    assert (back.latches, back.quarantine) == ((), gone.quarantine)


def test_gone_clip_and_view_come_back_together() -> None:
    """One of each class fits on one message."""
    gone = restamp(state_of(ONE, TWO).latch(ONE, "cut").latch(ONE, "seen", view="v"), [TWO]).state
    back = gone.assign([note("new", "one")])
    assert ([latch.text for latch in back.latches], back.quarantine) == (["cut", "seen"], ())


def test_stored_order_holds_after_each_change() -> None:
    """By ref number, the clip before the view, in whatever order they were made."""
    state = state_of(ONE, TWO, THREE).latch(THREE, "3").latch(ONE, "1v", view="v").latch(TWO, "2").latch(ONE, "1")
    assert [latch.text for latch in state.latches] == ["1", "1v", "2", "3"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from([None, "v"])), max_size=6))
def test_every_latch_ever_made_is_somewhere(steps: list[tuple[str, str, str | None]]) -> None:
    """Bound or in quarantine (I3): one more with each change; at most one of each class per message."""
    messages = {name: note(name, f"text of {name}") for name in "abc"}
    state = state_of(*messages.values())
    made = 0
    for name, text, view in steps:
        after = state.latch(messages[name], text, view=view)
        made += after is not state
        state = after
        assert len(state.latches) + len(state.quarantine) == made
    assert len({(latch.ref, type(latch)) for latch in state.latches}) == len(state.latches)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=12), st.sets(st.sampled_from("abcdefgh")))
def test_refs_stay_one_to_one_and_grow(names: list[str], protected: set[str]) -> None:
    """However messages come, ids and refs are one to one and a ref is never issued twice (I4)."""
    state = ConversationState()
    issued: list[str] = []
    for name in names:
        before = dict(state.refs)
        state = state.assign([note(name, name)], protected=[name] if name in protected else [])
        issued += [ref for key, ref in state.refs.items() if key not in before and ref != BLOCKED]
        assert {key: state.refs[key] for key in before} == before
    assert issued == [f"m{number:05d}" for number in range(1, len(issued) + 1)]
    assert {state.refs.holder(ref) for ref in issued} == set(names) - protected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("refs", {"a": "m00001"}),
        ("identities", ()),
        ("latches", None),
        ("quarantine", {}),
        ("version", "1"),
        ("epoch", None),
    ],
)
def test_state_refuses_fields_of_the_wrong_type(name: str, value: Any) -> None:
    """What would fail far from here, in the first call that reads it, is refused where it is given."""
    fields: dict[str, Any] = {name: value}
    with pytest.raises(InvalidValueError) as caught:
        ConversationState(**fields)
    assert caught.value.path == name
