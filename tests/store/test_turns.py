"""One call per turn."""

import pytest
from attrs import evolve

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import (
    IdentityMismatchError,
    LatchError,
    MessageConflictError,
    SessionNotFoundError,
    StaleStateError,
    UnknownMessageError,
)


def user(message_id: str, text: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, text)


ONE, TWO, THREE = user("a", "one"), user("b", "two"), user("c", "three")


def test_a_turn_appends_replays_and_latches(store: SessionStore) -> None:
    """All of it is one step of the version, and the next turn shows it again."""
    with store.turn("s", [ONE, TWO]) as turn:
        assert (turn.refs, turn.messages, turn.epoch) == (["m00001", "m00002"], [ONE, TWO], 0)
        turn.latch(ONE, "clip")
        assert turn.messages == [evolve(ONE, text="clip"), TWO]
    assert store.state("s").version == 1
    with store.turn("s", [ONE, TWO, THREE]) as turn:
        assert turn.refs == ["m00001", "m00002", "m00003"]
        assert turn.messages == [evolve(ONE, text="clip"), TWO, THREE]
        turn.unlatch(ONE)
    assert store.state("s").version == 2
    assert store.replay("s").messages == [ONE, TWO, THREE]


def test_the_end_of_a_history_is_enough(store: SessionStore) -> None:
    """Latches on messages that are not given are refused in the replay, and stay."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    with store.turn("s", [TWO, THREE]) as turn:
        assert turn.messages == [TWO, THREE]
        assert [outcome.latch.text for outcome in turn.replay.refused] == ["clip"]
    assert store.replay("s").messages == [evolve(ONE, text="clip"), TWO, THREE]


def test_a_turn_without_news_writes_nothing(store: SessionStore) -> None:
    """Neither a version nor a session."""
    store.append("s", [ONE])
    with store.turn("s", [ONE]):
        pass
    with store.turn("new", []):
        pass
    assert store.state("s").version == 1
    assert store.sessions() == ["s"]


def test_an_error_inside_writes_nothing(store: SessionStore) -> None:
    """As in a transaction: the model call failed, so nothing was said."""
    with pytest.raises(ZeroDivisionError), store.turn("s", [ONE]) as turn:
        turn.latch(ONE, str(1 / 0))
    with pytest.raises(SessionNotFoundError):
        store.state("s")


def test_a_turn_that_lost_the_race_writes_nothing(store: SessionStore) -> None:
    """Somebody else wrote between its start and its end: the refs that it showed may be another's."""
    store.append("s", [ONE])
    with pytest.raises(StaleStateError) as caught, store.turn("s", [ONE, TWO]):
        store.append("s", [THREE])
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert store.replay("s").messages == [ONE, THREE]


def test_two_first_turns_of_a_session(store: SessionStore) -> None:
    """The second to end is the one that lost."""
    with pytest.raises(StaleStateError) as caught, store.turn("s", [ONE]):
        store.append("s", [TWO])
    assert (caught.value.expected, caught.value.found) == (0, 1)
    assert store.messages("s") == [TWO]


def test_expect_version(store: SessionStore) -> None:
    """The version that the host saw is checked at the start."""
    store.append("s", [ONE])
    with pytest.raises(StaleStateError), store.turn("s", [ONE], expect_version=0):
        pass
    with store.turn("s", [ONE, TWO], expect_version=1):
        pass
    assert store.messages("s") == [ONE, TWO]


def test_our_own_output_comes_back(store: SessionStore) -> None:
    """A host that stores what the model saw: no conflict, no clip of a clip, the original stays."""
    shown = evolve(ONE, text="clip")
    with store.turn("s", [ONE]) as turn:
        turn.latch(ONE, "clip")
    with store.turn("s", [shown, TWO]) as turn:
        assert turn.messages == [shown, TWO]
        turn.latch(shown, "shorter")
        assert turn.messages == [evolve(ONE, text="shorter"), TWO]
    assert store.messages("s") == [ONE, TWO]
    assert store.replay("s").messages == [evolve(ONE, text="shorter"), TWO]


def test_a_known_id_with_another_text_is_a_conflict(store: SessionStore) -> None:
    """At the start of the turn."""
    store.append("s", [ONE])
    with pytest.raises(MessageConflictError), store.turn("s", [user("a", "other")]):
        pass


def test_latches_only_on_messages_of_the_turn(store: SessionStore) -> None:
    """Unknown, changed, and tool calls are refused."""
    call = Message("call", Role.ASSISTANT, Kind.TOOL_CALL, "{}", tool_name="t", tool_call_id="c")
    with store.turn("s", [ONE, call]) as turn:
        with pytest.raises(UnknownMessageError):
            turn.latch(TWO, "clip")
        with pytest.raises(IdentityMismatchError):
            turn.latch(user("a", "other"), "clip")
        with pytest.raises(LatchError):
            turn.latch(call, "clip")
    assert store.state("s").latches == ()


def test_protected_messages_in_a_turn(store: SessionStore) -> None:
    """They get the sentinel."""
    with store.turn("s", [ONE, TWO], protected=["a"]) as turn:
        assert turn.refs == ["BLOCKED", "m00001"]
    assert dict(store.state("s").refs) == {"a": "BLOCKED", "b": "m00001"}


def test_a_message_that_is_protected_as_it_was_shown(store: SessionStore) -> None:
    """The turn that protects it shows the same text as the one before, and so does the next."""
    shown = evolve(ONE, text="clip")
    with store.turn("s", [ONE]) as turn:
        turn.latch(ONE, "clip")
    for _ in range(2):
        with store.turn("s", [shown], protected=["a"]) as turn:
            assert turn.messages == [shown]
    assert store.messages("s") == [shown]


def test_a_turn_that_brings_a_protected_message_back_is_a_write(store: SessionStore) -> None:
    """The history is another one, though no ref changed."""
    store.append("s", [ONE, TWO], protected=["b"])
    store.restamp("s", [ONE])
    for _ in range(2):
        with store.turn("s", [ONE, TWO]):
            pass
        assert (store.messages("s"), store.state("s").version) == ([ONE, TWO], 3)


def test_a_turn_in_the_hosts_transaction(store: SessionStore) -> None:
    """The host commits, or nothing is there."""
    with store.engine.connect() as connection:
        with store.turn("s", [ONE], connection=connection) as turn:
            turn.latch(ONE, "clip")
        assert store.replay("s", connection=connection).messages == [evolve(ONE, text="clip")]
        connection.rollback()
    assert store.sessions() == []
