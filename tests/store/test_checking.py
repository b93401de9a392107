"""`db check`: a sound database has no finding, each kind of damage has its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, update

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import InvalidValueError, StoreNotFoundError
from latchguard.store.checking import CHECKS, check_database
from latchguard.store.connections import make_reader, reading
from latchguard.store.tables import bodies, latches, messages, quarantine, sessions
from tests.store.old import OLD_LATCHES, make_old_database


def user(message_id: str, text: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, text)


HISTORY = [
    user("a", "one"),
    user("b", "nul \0 half \ud800"),
    Message("c", Role.ASSISTANT, Kind.TOOL_CALL, "{}", tool_name="tool \U0001f600", tool_call_id=""),
    Message("d", Role.TOOL, Kind.TOOL_RESULT, "\u00e4" * 70_000, tool_call_id="call"),
    user("e", "five"),
]


def findings(store: SessionStore) -> list[tuple[str, str]]:
    with reading(store.engine, None) as connection:
        return [(finding.rule, finding.path) for finding in check_database(connection)]


def fill(store: SessionStore) -> None:
    store.append("s", HISTORY, protected=["b"])
    store.latch("s", HISTORY[0], "clip")
    store.latch("s", HISTORY[3], "view", view="v")
    store.latch("s", HISTORY[0], "another clip")
    store.restamp("s", HISTORY[:4])
    store.append("other", HISTORY)


def test_a_sound_database_has_no_finding(store: SessionStore) -> None:
    """Whatever its texts hold: they hash to their identities inside each database."""
    fill(store)
    assert findings(store) == []


DAMAGE: dict[str, tuple[Callable[[Connection], object], list[tuple[str, str]]]] = {
    "a changed text": (
        lambda c: c.execute(update(bodies).where(bodies.c.text == "five").values(text="six")),
        [("text-changed", "session 's', message 'e'"), ("text-changed", "session 'other', message 'e'")],
    ),
    "a changed escaped text": (
        lambda c: c.execute(update(bodies).where(bodies.c.text.like("\x1f%")).values(text="\x1f\\0000")),
        [("text-changed", "session 's', message 'b'"), ("text-changed", "session 'other', message 'b'")],
    ),
    "a lost text": (
        lambda c: c.execute(delete(bodies).where(bodies.c.text == "one")),
        [("dangling-row", "session 's', message 'a'"), ("dangling-row", "session 'other', message 'a'")],
    ),
    "a ref on an absent message": (
        lambda c: c.execute(update(messages).where(messages.c.present.is_(False)).values(ref=1000)),
        [("ref-map-broken", "session 's', message 'e'"), ("counter-behind", "session 's', message 'e'")],
    ),
    "a present message without a ref": (
        lambda c: c.execute(update(messages).where(messages.c.message_id == "c").values(ref=None)),
        [("ref-map-broken", "session 's', message 'c'"), ("ref-map-broken", "session 'other', message 'c'")],
    ),
    "an unknown reason": (
        lambda c: c.execute(update(quarantine).values(reason="because")),
        [("unknown-value", "session 's', drop")],
    ),
    "an unknown role": (
        lambda c: c.execute(update(messages).where(messages.c.message_id == "d").values(role="robot")),
        [("unknown-value", "session 's', message 'd'"), ("unknown-value", "session 'other', message 'd'")],
    ),
    "a latch on another message": (
        lambda c: c.execute(update(latches).where(latches.c.is_view).values(ref=2)),
        [("stale-latch", "session 's', message 'c'")],
    ),
    "a latch on no message": (
        lambda c: c.execute(update(latches).where(latches.c.is_view).values(ref=77)),
        [("stale-latch", "session 's', latch")],
    ),
    "a lost session": (
        lambda c: c.execute(delete(sessions).where(sessions.c.name == "s")),
        [("dangling-row", "session number")] * 13,
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(store: SessionStore, name: str) -> None:
    """Each kind by its slug, at its session and row; nothing else is said."""
    damage, expected = DAMAGE[name]
    fill(store)
    with store.engine.begin() as connection:
        damage(connection)
    found = findings(store)
    assert [slug for slug, _ in found] == [slug for slug, _ in expected]
    for (_, path), (_, start) in zip(sorted(found), sorted(expected), strict=True):
        assert path.startswith(start)


def test_a_text_that_is_no_unicode_is_found(sqlite_store: SessionStore) -> None:
    """A text with a broken byte is a finding, where it stands as it is and where it stands after the mark."""
    fill(sqlite_store)
    with sqlite_store.engine.begin() as connection:
        for broken, whole in (("1fff", "\x1f%"), ("ff", "five")):
            statement = f"UPDATE latchguard_bodies SET text = CAST(x'{broken}' AS TEXT) WHERE text LIKE '{whole}'"  # noqa: S608
            connection.exec_driver_sql(statement)
    assert findings(sqlite_store) == [
        ("text-changed", f"session {session!r}, message {message!r}")
        for session in ("s", "other")
        for message in ("b", "e")
    ]


def test_every_finding_is_on_the_page() -> None:
    """docs/store.md lists each slug."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "store.md").read_text()
    slugs = {check.slug for check in CHECKS} | {"text-changed", "latch-without-identity"}
    assert [slug for slug in sorted(slugs) if f"| `{slug}` |" not in page] == []


def test_latches_of_old_are_named(tmp_path: Path) -> None:
    """Each latch that waits for the repair is a finding."""
    old = SessionStore(f"sqlite:///{tmp_path}/old.db")
    make_old_database(old.engine)
    old.upgrade()
    slugs = [slug for slug, _ in findings(old)]
    assert slugs.count("latch-without-identity") == sum(OLD_LATCHES.values())
    old.close()


def check(url: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "latchguard", "db", "check", url], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command(sqlite_store: SessionStore) -> None:
    """Exit status 0 and 1; it reads only, so the file stays byte for byte."""
    fill(sqlite_store)
    url = str(sqlite_store.engine.url)
    path = Path(str(sqlite_store.engine.url.database))
    sqlite_store.close()
    before = path.read_bytes()
    assert check(url) == (0, "nothing wrong\n")
    assert path.read_bytes() == before
    with sqlite_store.engine.begin() as connection:
        DAMAGE["a changed text"][0](connection)
    status, output = check(url)
    assert status == 1
    assert "text-changed: session 's', message 'e': " in output


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    """Exit status 10, and still no file."""
    status, output = check(f"sqlite:///{tmp_path}/nothing.db")
    assert (status, list(tmp_path.iterdir())) == (10, [])
    assert "nothing.db" in output
    with pytest.raises(StoreNotFoundError):
        make_reader(f"sqlite:///{tmp_path}/nothing.db")


@pytest.mark.parametrize("url", ["nonsense", "nosuch://host/db", "sqlite+nosuch:///x"])
def test_no_url(url: str) -> None:
    """What is no URL is refused as a value."""
    with pytest.raises(InvalidValueError):
        SessionStore(url)
