from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from latchguard import ConversationState, EmergencyTruncateLatch, History, Identity, Message, Reason, replay
from latchguard.core.errors import DuplicateMessageError, InvalidValueError
from latchguard.core.replaying import LatchOutcome
from tests.support.messages import call, note, result

ONE, TWO, CALL = note("a", "one"), result("b", "two"), call("k")
STATE = ConversationState().assign([ONE, TWO, CALL])


def test_no_latch_gives_the_sequence_that_came() -> None:
    """The very same object (I10), list or history."""
    messages = [ONE, TWO]
    history = History(messages)
    assert replay(messages, STATE).messages is messages
    assert replay(history, STATE).messages is history


def test_latch_replaces_the_text_of_its_message() -> None:
    """All else of the message is kept, the other messages are the same objects, the input is untouched."""
    state = STATE.latch(TWO, "cut")
    messages = [ONE, TWO, CALL]
    outcome = replay(messages, state)
    assert list(outcome.messages) == [ONE, evolve(TWO, text="cut"), CALL]
    assert outcome.messages[0] is ONE
    assert outcome.messages[2] is CALL
    assert outcome.applied == (LatchOutcome(state.latches[0], None, TWO),)
    assert outcome.refused == ()
    assert messages == [ONE, TWO, CALL]


def test_text_that_shows_already_is_untouched() -> None:
    """Our own output sent back is the same sequence; the latch counts as applied."""
    state = STATE.latch(ONE, "cut")
    messages = [note("a", "cut"), TWO]
    outcome = replay(messages, state)
    assert outcome.messages is messages
    assert [found.latch.text for found in outcome.applied] == ["cut"]


def test_hidden_view_is_neither_applied_nor_refused() -> None:
    """With one of each class only the clip counts."""
    state = STATE.latch(ONE, "seen", view="v").latch(ONE, "cut")
    outcome = replay([ONE], state)
    assert ([found.latch.text for found in outcome.applied], outcome.refused) == (["cut"], ())


def test_view_shows_where_the_clip_is_refused() -> None:
    """Each latch is judged by itself."""
    clip = EmergencyTruncateLatch("m00001", Identity.of(TWO), "0" * 64, "wrong")
    state = STATE.latch(ONE, "seen", view="v")
    outcome = replay([ONE], evolve(state, latches=(clip, *state.latches)))
    assert outcome.messages[0].text == "seen"
    assert outcome.refused == (LatchOutcome(clip, Reason.ROLE_MISMATCH, ONE),)


@pytest.mark.parametrize(
    ("ref", "message", "reason", "holder"),
    [
        ("m00001", note("a", "edited"), Reason.HASH_MISMATCH, True),
        ("m00001", result("a", "one"), Reason.ROLE_MISMATCH, True),
        ("m00001", evolve(call("a"), role=ONE.role), Reason.KIND_MISMATCH, True),
        ("m00001", note("z", "one"), Reason.HOLDER_ABSENT, False),
        ("m00009", ONE, Reason.UNASSIGNED_REF, False),
        ("BLOCKED", ONE, Reason.BLOCKED_REF, False),
    ],
)
def test_refusals(ref: str, message: Message, reason: Reason, holder: bool) -> None:
    """A latch that does not fit is skipped and returned with its reason and the message that holds its ref."""
    latch = evolve(STATE.latch(ONE, "cut").latches[0], ref=ref)
    messages = [message]
    outcome = replay(messages, evolve(STATE, latches=(latch,)))
    assert outcome.messages is messages
    assert outcome.applied == ()
    assert outcome.refused == (LatchOutcome(latch, reason, message if holder else None),)


def test_latch_never_lands_on_a_tool_call() -> None:
    """Not even one that was made for the call (I2)."""
    latch = EmergencyTruncateLatch("m00003", Identity.of(CALL), "0" * 64, "prose")
    outcome = replay([CALL], evolve(STATE, latches=(latch,)))
    assert outcome.messages[0] is CALL
    assert outcome.refused == (LatchOutcome(latch, Reason.FORBIDDEN_KIND, CALL),)


@pytest.mark.parametrize("ref", ["BLOCKED", "m00001"])
def test_a_refused_latch_keeps_no_other_from_its_message(ref: str) -> None:
    """Whether nobody holds its ref or the holder is absent, those behind it apply."""
    first, second = STATE.latch(ONE, "1").latch(TWO, "2").latches
    outcome = replay([TWO], evolve(STATE, latches=(evolve(first, ref=ref), second)))
    assert [found.latch.text for found in outcome.refused] == ["1"]
    assert outcome.messages[0].text == "2"


def test_refused_latches_stay() -> None:
    """A stripped history costs no latch: the next whole one shows it again."""
    state = STATE.latch(ONE, "cut")
    assert replay([TWO], state).refused[0].reason is Reason.HOLDER_ABSENT
    assert replay([ONE, TWO], state).messages[0].text == "cut"


def test_outcomes_come_in_the_order_of_refs() -> None:
    """Whatever the order of the messages."""
    state = STATE.latch(TWO, "2").latch(ONE, "1")
    outcome = replay([TWO, ONE], state)
    assert [found.latch.text for found in outcome.applied] == ["1", "2"]
    assert [message.text for message in outcome.messages] == ["2", "1"]


def test_duplicate_ids() -> None:
    """Two messages with one id are refused."""
    with pytest.raises(DuplicateMessageError):
        replay([ONE, ONE], STATE)


@pytest.mark.parametrize(
    ("messages", "state", "path"),
    [
        (None, STATE, "messages"),
        (iter([ONE]), STATE, "messages"),
        ([{"id": "a"}], STATE, "messages[0]"),
        ([ONE], None, "state"),
        ([ONE], b"{}", "state"),
        (STATE, [ONE], "messages"),
    ],
)
def test_wrong_types(messages: Any, state: Any, path: str) -> None:
    """The argument that is wrong is named, swapped ones too."""
    with pytest.raises(InvalidValueError) as caught:
        replay(messages, state)
    assert caught.value.path == path


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
BODIES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("xyz"), min_size=8, max_size=8)
CUTS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("123x"), st.sampled_from([None, "v"])), max_size=8
)


def built(names: list[str], bodies: dict[str, str]) -> list[Message]:
    return [result(name, bodies[name]) if name in "aeg" else note(name, bodies[name]) for name in names]


def latched(messages: list[Message], cuts: list[tuple[str, str, str | None]]) -> ConversationState:
    state = ConversationState().assign(messages)
    by_id = {message.id: message for message in messages}
    for name, text, view in cuts:
        if name in by_id:
            state = state.latch(by_id[name], text, view=view)
    return state


@given(NAMES, BODIES, BODIES, CUTS)
def test_texts_change_only_by_latches_of_the_same_identity(
    names: list[str], bodies: dict[str, str], later: dict[str, str], cuts: list[tuple[str, str, str | None]]
) -> None:
    """I1, field by field, or our own output sent back; every other message is the same object (I10)."""
    state = latched(built(names, bodies), cuts)
    history = built(names, later)
    outcome = replay(history, state)
    made = [*state.latches, *(drop.latch for drop in state.quarantine)]
    for found in outcome.applied:
        wanted = found.latch.identity
        outputs = {Identity(one.shown, wanted.role, wanted.kind) for one in made if one.identity == wanted}
        assert found.holder is not None
        assert Identity.of(found.holder) in {wanted, *outputs}
    texts = {found.holder.id: found.latch.text for found in outcome.applied if found.holder}
    for before, after in zip(history, outcome.messages, strict=True):
        assert after == evolve(before, text=texts.get(before.id, before.text))
        assert (after is before) == (after == before)


@given(NAMES, BODIES, CUTS, st.integers(0, 8))
def test_replay_is_idempotent_and_stable_in_its_prefix(
    names: list[str], bodies: dict[str, str], cuts: list[tuple[str, str, str | None]], length: int
) -> None:
    """A second replay gives the very sequence (I9); a shorter history, the beginning (I13)."""
    messages = built(names, bodies)
    state = latched(messages, cuts)
    outcome = replay(messages, state)
    assert replay(outcome.messages, state).messages is outcome.messages
    assert list(replay(messages[:length], state).messages) == list(outcome.messages[:length])
    assert list(replay(History(messages), state).messages) == list(outcome.messages)
