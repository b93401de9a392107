from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard import History, Message
from latchguard.core.errors import DuplicateMessageError, InvalidValueError
from latchguard.core.history import index_messages, positions_of, to_messages
from tests.support.messages import note

ONE, TWO, THREE = note("a", "one"), note("b", "two"), note("c", "three")


def test_history_reads_as_a_sequence() -> None:
    """Length, order, items, slices and membership are those of the messages."""
    history = History([ONE, TWO])
    assert (len(history), list(history), history[-1], history[0:1], TWO in history) == (2, [ONE, TWO], TWO, [ONE], True)


def test_history_takes_any_iterable() -> None:
    """A generator serves, and so does nothing at all."""
    assert list(History(message for message in (ONE, TWO))) == [ONE, TWO]
    assert list(History()) == []


def test_positions() -> None:
    """Each id has its position, appended ones too."""
    history = History([ONE])
    history.append(TWO)
    history.extend([THREE])
    assert history.positions == {"a": 0, "b": 1, "c": 2}


def test_history_owns_its_list() -> None:
    """A change of the list it was built from does not reach it."""
    given_list = [ONE]
    history = History(given_list)
    given_list.append(TWO)
    assert list(history) == [ONE]


def test_repr_counts() -> None:
    """The representation gives the length, no content."""
    assert repr(History([ONE, TWO])) == "History(2 messages)"


@pytest.mark.parametrize(
    ("start", "added", "first", "second"),
    [
        ([ONE, TWO, note("a", "x")], [], 0, 2),
        ([ONE, TWO], [note("b", "x")], 1, 2),
        ([ONE], [TWO, THREE, note("b", "x")], 1, 3),
        ([ONE, ONE, ONE], [], 0, 1),
    ],
)
def test_duplicate_ids(start: list[Message], added: list[Message], first: int, second: int) -> None:
    """The error names the id and both positions, counted over the whole history."""
    with pytest.raises(DuplicateMessageError) as caught:
        History(start).extend(added)
    assert (caught.value.first, caught.value.second) == (first, second)
    assert caught.value.message_id == (added or start)[-1].id


@pytest.mark.parametrize("added", [[TWO, note("a", "x")], [TWO, "no message"], None])
def test_failed_extend_leaves_the_history_as_it_was(added: Any) -> None:
    """Neither messages nor positions of a refused batch stay behind."""
    history = History([ONE])
    with pytest.raises((DuplicateMessageError, InvalidValueError)):
        history.extend(added)
    assert (list(history), history.positions) == ([ONE], {"a": 0})


@pytest.mark.parametrize("messages", [None, 5, "messages", b"messages", ONE])
def test_no_iterable(messages: Any) -> None:
    """What cannot be iterated, or is a string, is refused with what was expected."""
    with pytest.raises(InvalidValueError) as caught:
        to_messages(messages)
    assert (caught.value.path, caught.value.expected) == ("messages", "messages, oldest first")


@pytest.mark.parametrize("wrong", [None, "text", {"id": "a"}, 5])
def test_no_message_inside(wrong: Any) -> None:
    """The position of what is no message is named, counted over the whole history."""
    with pytest.raises(InvalidValueError) as caught:
        History([ONE]).extend([TWO, wrong, THREE])
    assert (caught.value.path, caught.value.expected) == ("messages[2]", "a Message")


def test_subclasses_of_message_are_messages() -> None:
    """A host may subclass Message."""

    class Special(Message):
        pass

    special = Special("b", ONE.role, ONE.kind)
    assert list(History([ONE, special])) == [ONE, special]


def test_history_is_not_indexed_again() -> None:
    """The positions of a history are the ones it keeps."""
    history = History([ONE])
    assert positions_of(history) is history.positions
    assert positions_of([ONE, TWO]) == {"a": 0, "b": 1}


@pytest.mark.parametrize("messages", [None, iter([ONE]), {ONE}])
def test_positions_need_a_sequence(messages: Any) -> None:
    """What has no order and no items cannot be replayed; the error says so."""
    with pytest.raises(InvalidValueError) as caught:
        positions_of(messages)
    assert (caught.value.path, caught.value.expected) == ("messages", "a sequence of messages")


@given(st.lists(st.sampled_from("abcdef"), max_size=8))
def test_index_refuses_exactly_the_histories_with_twice_the_same_id(ids: Iterable[str]) -> None:
    """Every id at its position, or the first repetition is named."""
    names = list(ids)
    messages = [note(name, "x") for name in names]
    if len(set(names)) == len(names):
        assert [index_messages(messages)[name] for name in names] == list(range(len(names)))
    else:
        with pytest.raises(DuplicateMessageError) as caught:
            index_messages(messages)
        error = caught.value
        assert names[error.first] == names[error.second] == error.message_id
        assert len(set(names[: error.second])) == error.second
