"""`latchguard why`: what became of every latch of a message."""

import re
import subprocess
import sys

import pytest

from latchguard import Kind, Message, Reason, Role, SessionStore
from latchguard.core.errors import UnknownMessageError
from latchguard.store.connections import reading
from latchguard.store.lives import Life, read_life
from latchguard.store.views import find_header


def user(message_id: str, text: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, text)


ONE, TWO = user("a", "one"), user("b", "two")


def life_of(store: SessionStore, target: str) -> Life:
    with reading(store.engine, None) as connection:
        return read_life(connection, find_header(connection, "s"), target)


def fill(store: SessionStore) -> None:
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    store.latch("s", ONE, "clip 2")
    store.latch("s", ONE, "view", view="v")


def test_the_life_of_a_latch(store: SessionStore) -> None:
    """By message or by ref: what shows, what it hides, what it superseded."""
    fill(store)
    for target in ("a", "m00001"):
        life = life_of(store, target)
        assert life.row is not None
        assert (life.row.message_id, life.shown and life.shown.text) == ("a", "clip 2")
        assert [(latch.text, reason) for latch, reason in life.in_force] == [("clip 2", None), ("view", None)]
        assert [(one.drop.latch.text, one.drop.reason) for one in life.dropped] == [("clip", Reason.SUPERSEDED)]


def test_a_refused_latch_has_its_reason(store: SessionStore) -> None:
    """The message was edited since."""
    fill(store)
    store.edit("s", user("a", "edited"))
    assert {reason for _, reason in life_of(store, "a").in_force} == {Reason.HASH_MISMATCH}


def test_a_ref_that_nobody_holds(store: SessionStore) -> None:
    """The latches that had it last are named; a ref that never had one is unknown."""
    fill(store)
    store.restamp("s", [])
    life = life_of(store, "m00001")
    assert (life.row, {one.drop.reason for one in life.dropped}) == (None, {Reason.GONE, Reason.SUPERSEDED})
    with pytest.raises(UnknownMessageError):
        life_of(store, "m00002")


def why(store: SessionStore, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "latchguard", "why", str(store.engine.url), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_command(sqlite_store: SessionStore) -> None:
    """One line per latch, with the number that `release` takes; 10 where nothing is there."""
    fill(sqlite_store)
    status, output = why(sqlite_store, "s", "m00001")
    assert status == 0
    assert re.sub(r"[0-9a-f]{12}|\d{4}-[^,]+Z", "~", output).splitlines() == [
        "message 'a': m00001; user text ~",
        "  in force    clip on m00001, made for ~, 'clip 2': shown",
        "  in force    view 'v' on m00001, made for ~, 'view': hidden by the clip",
        "  dropped     clip on m00001, made for ~, 'clip': superseded, ~, drop 1",
    ]
    assert why(sqlite_store, "s", "b")[1].splitlines()[1:] == ["  no latch was ever made for it"]
    assert [why(sqlite_store, *arguments)[0] for arguments in (("s", "nobody"), ("nowhere", "a"))] == [10, 10]
