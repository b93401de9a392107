"""Processes that fork: a child never talks through the connections of its parent."""

import os
from collections.abc import Iterator

import pytest

from latchguard import Kind, Message, Role, SessionStore
from tests.store.killing import FINISHED

CHILDREN, APPENDS = 3, 10


@pytest.fixture
def used_store(database_url: str) -> Iterator[SessionStore]:
    """A store that made its engine itself and has an open connection in its pool."""
    store = SessionStore(database_url)
    store.upgrade()
    store.append("forked", [])
    yield store
    store.delete("forked")
    store.close()


def append_some(store: SessionStore, name: str) -> None:
    for number in range(APPENDS):
        store.append("forked", [Message(f"{name}/{number}", Role.USER, Kind.TEXT, "x")])


def start(store: SessionStore, name: str) -> int:
    """Append in a forked child; give its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            append_some(store, name)
            status = FINISHED
        finally:
            os._exit(status)
    return child


def test_children_write_beside_their_parent(used_store: SessionStore) -> None:
    """Each through a connection of its own: no ref is given twice, no message is lost."""
    children = [start(used_store, f"child {number}") for number in range(CHILDREN)]
    append_some(used_store, "parent")
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [FINISHED] * CHILDREN
    state = used_store.state("forked")
    count = (CHILDREN + 1) * APPENDS
    assert sorted(state.refs.values()) == [f"m{number:05d}" for number in range(1, count + 1)]
    assert state.version == count
