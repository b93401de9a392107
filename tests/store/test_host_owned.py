"""A history that the host owns: ids, refs, identities and latches are here, and not one text.

`store` of this file is made with `keep_texts=False`, on SQLite, PostgreSQL and MariaDB.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import func, insert, select, text, update

from latchguard import Identity, Kind, Message, Role, SessionStore
from latchguard.core.errors import (
    IdentityMismatchError,
    InvalidValueError,
    MessageConflictError,
    StaleRefError,
)
from latchguard.core.latches import EmergencyTruncateLatch
from latchguard.core.reasons import Reason
from latchguard.store.checking import check_database
from latchguard.store.connections import reading
from latchguard.store.keeping import KeepTextsMismatchError, TextsNotKeptError
from latchguard.store.lives import read_life
from latchguard.store.tables import bodies, latches, messages, metadata
from latchguard.store.views import find_header
from latchguard.testing import check_store
from tests.store.conftest import clear
from tests.store.host import HostStore
from tests.store.killing import FINISHED, dump, dying_store, open_store, run_and_kill

MARKER = "the secret of the host"


def user(message_id: str, body: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, f"{body}: {MARKER}")


A, B = user("a", "one"), user("b", "two")
CALL = Message("c", Role.ASSISTANT, Kind.TOOL_CALL, f'{{"say":"{MARKER}"}}', MARKER, f"call of {MARKER}")
RESULT = Message("d", Role.TOOL, Kind.TOOL_RESULT, f"nul \0 half \ud800 {MARKER}", tool_call_id=f"call of {MARKER}")
HISTORY = [A, B, CALL, RESULT]


@pytest.fixture
def keeping(shared_store: SessionStore) -> SessionStore:
    """An empty database, and the store that keeps texts in it."""
    clear(shared_store)
    return shared_store


@pytest.fixture
def store(keeping: SessionStore) -> SessionStore:
    """The store of the same database that keeps none."""
    return SessionStore(keeping.engine, keep_texts=False)


def fill(store: SessionStore, session: str = "s") -> None:
    """Latch, edit, renumber, clear."""
    store.append(session, HISTORY, protected=["b"])
    with store.turn(session, [RESULT]) as turn:
        turn.latch(RESULT, "clip of the result")
    store.latch(session, A, "view of one", view="v")
    store.latch(session, A, "clip of one")
    store.edit(session, evolve(B, text=f"edited: {MARKER}"))
    store.restamp(session, [RESULT, A, CALL])


def host_of(store: SessionStore) -> HostStore:
    """Give a host with its table beside *store*."""
    host = HostStore(store)
    host.make_table()
    return host


def texts_shown(store: SessionStore, given: list[Message]) -> list[str]:
    return [message.text for message in store.replay("s", given).messages]


def findings(store: SessionStore) -> list[tuple[str, str]]:
    with reading(store.engine, None) as connection:
        return [(finding.rule, finding.path) for finding in check_database(connection)]


def test_no_text_is_in_any_row(store: SessionStore) -> None:
    """Neither texts nor tool names nor call ids, whatever was done; the clips are there."""
    fill(store)
    with store.engine.connect() as connection:
        tables = [connection.execute(select(table)).all() for table in metadata.tables.values()]
        assert connection.execute(select(func.count()).select_from(bodies)).scalar_one() == 0
    assert MARKER not in repr(tables)
    assert "clip of the result" in repr(tables)


@pytest.mark.parametrize("keep_texts", [False, True])
def test_no_text_is_in_the_file(tmp_path: Path, *, keep_texts: bool) -> None:
    """The bytes of SQLite's file hold a text only where the store keeps texts; they hold the clips."""
    store = SessionStore(f"sqlite:///{tmp_path}/own.db", keep_texts=keep_texts)
    store.upgrade()
    fill(store)
    store.close()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (MARKER.encode() in raw) is keep_texts
    assert b"clip of the result" in raw


def test_the_laws_hold_for_a_host(store: SessionStore) -> None:
    """Bodies in the host's table, all else here, one transaction for both: every law of the harness holds."""
    check_store(lambda: host_of(store), runs=3, steps=15, seed=1)


@pytest.mark.long
def test_the_laws_hold_for_a_host_for_long(store: SessionStore) -> None:
    """The same, many runs."""
    check_store(lambda: host_of(store), runs=100, steps=30, seed=2)


HOST_WRITES: dict[str, Callable[[HostStore], object]] = {
    "append": lambda host: host.append("s", [user("new", "new")]),
    "edit": lambda host: host.edit("s", evolve(B, text="edited")),
    "restamp": lambda host: host.restamp("s", [RESULT, user("new", "new"), A]),
    "fork": lambda host: host.fork("s", "fork", "b"),
}


@pytest.mark.parametrize("name", HOST_WRITES)
def test_a_kill_leaves_the_hosts_rows_and_ours_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Killed before and after every statement of either and before the commit: both are as before, or both as after."""
    monkeypatch.setattr("latchguard.store.changes.time.time", lambda: 1_700_000_000)
    start, done, path = tmp_path / "start.db", tmp_path / "done.db", tmp_path / "killed" / "own.db"
    host = open_host(start, open_store)
    host.store.upgrade()
    host.make_table()
    host.append("s", HISTORY)
    host.latch("s", RESULT, "clip")
    host.engine.dispose()
    shutil.copy(start, done)
    HOST_WRITES[name](open_host(done, open_store))
    before, after, step, status = dump(start), dump(done), 0, -signal.SIGKILL
    assert before != after
    while status == -signal.SIGKILL:
        step += 1
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        shutil.copy(start, path)
        status = run_and_kill(lambda: HOST_WRITES[name](open_host(path, partial(dying_store, step=step))))  # noqa: B023  # it runs at once
        assert dump(path) in (before, after)
    assert (status, dump(path)) == (FINISHED, after)
    assert step > 5


def open_host(path: Path, open_file: Callable[[Path], SessionStore]) -> HostStore:
    store = open_file(path)
    store.keep_texts = False
    return HostStore(store)


def test_a_retry_is_told_by_identity(store: SessionStore) -> None:
    """A known id with equal identity is a retry; with another it is a conflict, and nothing is written."""
    assert store.append("s", HISTORY) == [*store.append("s", HISTORY[:2]), "m00003", "m00004"]
    for changed in (evolve(A, text="other"), evolve(A, role=Role.ASSISTANT), evolve(CALL, tool_name="other")):
        with pytest.raises(MessageConflictError) as caught:
            store.append("s", [changed, user("new", "new")])
        assert (caught.value.session, caught.value.message_id) == ("s", changed.id)
    assert (store.state("s").version, len(store.state("s").refs)) == (1, 4)


def test_our_own_output_comes_back(store: SessionStore) -> None:
    """A host that stores what it was shown meets no conflict, and the clip stays one of the original."""
    store.append("s", [A])
    store.latch("s", A, "clip")
    [shown] = store.replay("s", [A]).messages
    assert store.append("s", [shown]) == ["m00001"]
    store.latch("s", shown, "another clip")
    assert [latch.identity for latch in store.state("s").latches] == [Identity.of(A)]
    assert texts_shown(store, [A]) == texts_shown(store, [shown]) == ["another clip"]


def test_a_latch_needs_the_message_that_is_stored(store: SessionStore) -> None:
    """By its identity: another text under the same id is refused."""
    store.append("s", [A])
    other = evolve(A, text="other")
    for use in (partial(store.latch, text="x"), store.unlatch):
        with pytest.raises(IdentityMismatchError) as caught:
            use("s", other)
        assert caught.value.message_id == "a"


def test_latches_land_right_after_restamps(store: SessionStore) -> None:
    """From the stored identities alone, and from the host's history; twins are told apart by their ids."""
    twin = evolve(A, id="twin")
    history = [B, A, twin, RESULT]
    store.append("s", history)
    store.latch("s", A, "clip of one")
    store.latch("s", RESULT, "clip of the result")
    assert store.restamp("s", numbering={"b": "m00004", "a": "m00003", "twin": "m00002", "d": "m00001"}).moved == {
        "m00001": "m00004",
        "m00002": "m00003",
        "m00003": "m00002",
        "m00004": "m00001",
    }
    assert texts_shown(store, history) == [B.text, "clip of one", A.text, "clip of the result"]
    reordered = [RESULT, twin, CALL, A]
    assert store.restamp("s", reordered).dropped == ()
    assert texts_shown(store, reordered) == ["clip of the result", A.text, CALL.text, "clip of one"]
    assert store.restamp("s", [twin, CALL, A]).dropped[0].reason is Reason.GONE
    store.append("s", [RESULT])
    assert texts_shown(store, [RESULT]) == ["clip of the result"]


def test_a_changed_message_is_refused_its_latch(store: SessionStore) -> None:
    """The host's message is hashed at each replay: a latch lands on nothing but what it was made for."""
    store.append("s", [A])
    store.latch("s", A, "clip")
    changed = evolve(A, text="other")
    outcome = store.replay("s", [changed])
    assert (list(outcome.messages), [one.reason for one in outcome.refused]) == ([changed], [Reason.HASH_MISMATCH])


NEED_TEXTS: dict[str, Callable[[SessionStore], Any]] = {
    "messages": lambda store: store.messages("s"),
    "replay": lambda store: store.replay("s"),
    "resolve": lambda store: store.resolve("s", "m00001"),
    "stream": lambda store: next(store.stream("s")),
}


@pytest.mark.parametrize("operation", NEED_TEXTS)
def test_what_needs_texts_says_so(store: SessionStore, operation: str) -> None:
    """Each by its name, with the session and what to do instead; nothing comes back with an empty text."""
    store.append("s", HISTORY)
    with pytest.raises(TextsNotKeptError) as caught:
        NEED_TEXTS[operation](store)
    error = caught.value
    assert (error.code, error.session, error.operation) == ("texts-not-kept", "s", operation)
    assert error.instead in str(error)


def test_a_ref_resolves_to_an_id(store: SessionStore, keeping: SessionStore) -> None:
    """Through its epoch, as `resolve` does; in a session with texts too."""
    for some in (store, keeping):
        name = repr(some.keep_texts)
        some.append(name, HISTORY)
        assert some.resolve_id(name, "m00003", epoch=0) == "c"
        some.restamp(name, [CALL, A])
        assert some.resolve_id(name, "m00001", epoch=1) == "c"
        for ref, epoch in (("m00001", 0), ("m00003", None), ("BLOCKED", None)):
            with pytest.raises(StaleRefError) as caught:
                some.resolve_id(name, ref, epoch=epoch)
            assert (caught.value.ref, caught.value.found_epoch) == (ref, 1)


def test_the_rest_of_the_store(store: SessionStore) -> None:
    """Release, fork, purge and delete look at identities alone."""
    fill(store)
    store.unlatch("s", RESULT)
    [cleared] = [stored.id for stored in store.quarantine("s") if stored.drop.reason is Reason.CLEARED]
    store.release(cleared)
    assert texts_shown(store, HISTORY) == ["clip of one", B.text, CALL.text, "clip of the result"]
    store.fork("s", "fork", "a")
    assert [one.text for one in store.replay("fork", [RESULT, A]).messages] == ["clip of the result", "clip of one"]
    with pytest.raises(TextsNotKeptError):
        store.messages("fork")
    store.unlatch("s", A)
    assert store.purge(older_than_s=-10) == 1
    for session in ("s", "fork"):
        store.delete(session)
    assert (store.sessions(), findings(store)) == ([], [])


TAKE_MESSAGES: dict[str, Callable[[SessionStore], Any]] = {
    "append": lambda store: store.append("s", [user("new", "new")]),
    "edit": lambda store: store.edit("s", evolve(A, text="other")),
    "restamp": lambda store: store.restamp("s", [B]),
    "fork": lambda store: store.fork("s", "new"),
    "turn": lambda store: store.turn("s", [user("new", "new")]).__enter__(),
}


@pytest.mark.parametrize("operation", TAKE_MESSAGES)
@pytest.mark.parametrize("keep_texts", [False, True])
def test_two_sorts_are_never_mixed(keeping: SessionStore, operation: str, *, keep_texts: bool) -> None:
    """A store takes messages for sessions of its own sort only: no text is lost, none is stored unasked."""
    SessionStore(keeping.engine, keep_texts=not keep_texts).append("s", [A])
    with pytest.raises(KeepTextsMismatchError) as caught:
        TAKE_MESSAGES[operation](SessionStore(keeping.engine, keep_texts=keep_texts))
    error = caught.value
    assert (error.code, error.session) == ("keep-texts-mismatch", "s")
    assert (error.expected, error.found) == (keep_texts, not keep_texts)
    assert keeping.sessions() == ["s"]
    assert (dict(keeping.state("s").refs), keeping.state("s").version) == ({"a": "m00001"}, 1)


def test_a_turn_finds_the_session_made_meanwhile(store: SessionStore, keeping: SessionStore) -> None:
    """By a store of the other sort: nothing is written, though no version has moved."""
    with pytest.raises(KeepTextsMismatchError), store.turn("s", [A]):
        keeping.append("s", [])
    assert (dict(store.state("s").refs), store.state("s").version) == ({}, 0)


def test_a_sound_database_has_no_finding(store: SessionStore, keeping: SessionStore) -> None:
    """Sessions of both sorts stand beside each other."""
    fill(store)
    fill(keeping, "other")
    assert findings(store) == []


def test_a_latch_is_held_against_the_stored_identity(store: SessionStore) -> None:
    """One that sits on another message is found; so is a text that should not be there."""
    fill(store)
    with store.engine.begin() as connection:
        connection.execute(update(latches).where(latches.c.is_view).values(ref=3))
    assert findings(store) == [("stale-latch", "session 's', message 'c'")]
    with store.engine.begin() as connection:
        first = connection.execute(select(messages.c.session_id, messages.c.body).limit(1)).one()
        connection.execute(insert(bodies).values(session_id=first[0], body=first[1], text="a text"))
    assert [slug for slug, _ in findings(store)] == ["dangling-row", "text-changed"]


def test_the_life_of_a_latch(store: SessionStore) -> None:
    """`why` tells it from the stored identities."""
    fill(store)
    with reading(store.engine, None) as connection:
        life = read_life(connection, find_header(connection, "s"), "a")
    assert life.shown is not None
    assert [(latch.text, reason) for latch, reason in life.in_force] == [("clip of one", None), ("view of one", None)]
    assert isinstance(life.shown, EmergencyTruncateLatch)


def test_the_check_counts_what_it_cannot_hash(tmp_path: Path) -> None:
    """Texts that the host has are no fault."""
    store = SessionStore(f"sqlite:///{tmp_path}/own.db", keep_texts=False)
    store.upgrade()
    fill(store)
    store.close()
    command = [sys.executable, "-m", "latchguard", "db", "check", f"sqlite:///{tmp_path}/own.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "nothing wrong\nnot checked: 4 texts that the host has\n")


def test_an_export_without_texts(store: SessionStore, keeping: SessionStore) -> None:
    """It is exact, holds no text, and is not taken where texts are kept."""
    fill(store)
    raw = store.export("s")
    assert MARKER.encode() not in raw
    store.load(raw, session="again")
    assert store.state("again") == store.state("s")
    assert store.export("again").replace(b'"again"', b'"s"', 1) == raw
    store.append("again", [RESULT])  # a retry
    assert store.state("again").version == store.state("s").version
    with pytest.raises(KeepTextsMismatchError) as caught:
        keeping.load(raw, session="third")
    assert (caught.value.expected, caught.value.found) == (True, False)
    assert store.sessions() == ["again", "s"]


def test_a_history_becomes_the_hosts_own(store: SessionStore, keeping: SessionStore) -> None:
    """Exported with its texts, deleted, and loaded without, in one transaction: refs and latches are as they were."""
    fill(keeping)
    before = keeping.state("s")
    with store.engine.begin() as connection:
        raw = keeping.export("s", connection=connection)
        keeping.delete("s", connection=connection)
        store.load(raw, connection=connection)
    assert store.state("s") == before
    with store.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(bodies)).scalar_one() == 0
    assert texts_shown(store, [RESULT, A, CALL]) == ["clip of the result", "clip of one", CALL.text]


def test_a_bad_export_without_texts_is_refused(store: SessionStore) -> None:
    """A hash that is none, an id that no index could hold, a text where none belongs."""
    store.append("s", [A])
    raw = store.export("s")
    digest = Identity.of(A).hash.encode()
    for bad in (
        raw.replace(digest, b"0" * 63),
        raw.replace(b'"a"', b'"' + b"a" * 3000 + b'"'),
        raw.replace(b'"present":true', b'"present":true,"text":"x"'),
    ):
        assert bad != raw
        with pytest.raises(InvalidValueError):
            store.load(bad, session="new")
    assert store.sessions() == ["s"]


def test_the_database_says_which_sort_a_session_is(store: SessionStore, keeping: SessionStore) -> None:
    """In a column of its own, for every client to read."""
    keeping.append("with", [A])
    store.append("without", [A])
    with store.engine.connect() as connection:
        rows = connection.execute(text("SELECT keeps_texts FROM latchguard_sessions ORDER BY id")).scalars()
        assert [bool(one) for one in rows] == [True, False]


def test_either_store_does_what_needs_no_message_taken_in(store: SessionStore, keeping: SessionStore) -> None:
    """Latches, restamps of what is stored, reads and releases: the session's own sort decides."""
    store.append("s", HISTORY)
    keeping.latch("s", A, "clip")
    keeping.restamp("s")
    keeping.unlatch("s", A)
    keeping.release(keeping.quarantine("s")[0].id)
    assert keeping.replay("s", [A]).messages == [evolve(A, text="clip")]
    with pytest.raises(TextsNotKeptError):
        keeping.messages("s")
    keeping.append("other", HISTORY)
    assert store.messages("other") == HISTORY


def test_scan_and_repair_find_nothing_to_do(tmp_path: Path) -> None:
    """A session without texts never had a latch without an identity."""
    url = f"sqlite:///{tmp_path}/own.db"
    store = SessionStore(url, keep_texts=False)
    store.upgrade()
    fill(store)
    store.close()
    for command in ("scan", "repair"):
        done = subprocess.run([sys.executable, "-m", "latchguard", command, url], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
