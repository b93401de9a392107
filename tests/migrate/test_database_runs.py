"""`latchguard repair URL` on latchguard's own tables, on every database."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, update

from latchguard import Reason, SessionStore
from latchguard.core.errors import StaleStateError, StoreFailedError
from latchguard.repair.database_runs import open_reader, recorded_url
from latchguard.store.connections import make_engine
from latchguard.store.schema import HEAD, OPEN
from latchguard.store.tables import latches, quarantine, sessions
from tests.migrate.own import make_old_store, stored_rows
from tests.migrate.talks import many_sessions, of_fixture
from tests.repair.command import latchguard
from tests.repair.sessions import NAMES, read_fixture


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def run_of(state: Path, place: int = -1) -> str:
    return latchguard("runs", state=state).stdout.splitlines()[place].split(" ")[0]


def test_from_the_schema_of_old_to_the_newest(engine: Engine, tmp_path: Path) -> None:
    """Scan, dry run, repair, third run, last revision: each says what it found and leaves what it should."""
    make_old_store(engine, many_sessions(8))
    url, store, before = url_of(engine), SessionStore(engine), stored_rows(engine)
    for command in ("scan", "repair"):
        ran = latchguard(command, "--json", url, state=tmp_path)
        assert ran.returncode == 1
        document = json.loads(ran.stdout)
        assert document["count"]["files"]["findings"] == 6
        assert document["count"]["files"]["clean"] == 2
        assert {rule: found["count"] for rule, found in document["count"]["rules"].items()} == {
            "latch-without-identity": 6,
            "stale-latch": 6,
        }
        assert stored_rows(engine) == before
    assert store.upgrade() == OPEN
    assert latchguard("repair", "--apply", url, state=tmp_path).returncode == 0
    after = stored_rows(engine)
    assert latchguard("scan", url, state=tmp_path).returncode == 0
    again = latchguard("repair", "--apply", url, state=tmp_path)
    assert (again.returncode, again.stdout) == (0, "8 sessions: 8 clean\n")
    assert stored_rows(engine) == after
    assert store.upgrade() == HEAD
    assert latchguard("scan", url, state=tmp_path).returncode == 0


def test_latches_of_the_fixtures_are_judged_as_in_files(engine: Engine, tmp_path: Path) -> None:
    """Each lands on the expected message and is applied there; the others are in quarantine with a reason."""
    old = [of_fixture(name, read_fixture(name)[0]) for name in NAMES]
    make_old_store(engine, old)
    assert latchguard("repair", "--apply", url_of(engine), state=tmp_path).returncode == 0
    store = SessionStore(engine)
    for name in NAMES:
        expected = read_fixture(name)[1]
        replayed = store.replay(name)
        assert replayed.refused == ()
        found = sorted((outcome.holder.id, outcome.latch.ref) for outcome in replayed.applied if outcome.holder)
        assert found == sorted((entry["id"], entry["ref"]) for entry in expected["bound"])
        drops = [stored.drop for stored in store.quarantine(name)]
        assert [drop.latch.ref for drop in drops] == expected["quarantined"]
        assert {drop.reason for drop in drops} <= {expected.get("reason", drop.reason) for drop in drops}
    assert store.upgrade() == HEAD


def test_until_a_session_is_done_its_latches_are_refused(engine: Engine, tmp_path: Path) -> None:
    """A job that stops half way is safe: no latch lands anywhere without proof, and the last revision refuses."""
    make_old_store(engine, many_sessions(4))
    store = SessionStore(engine)
    only = latchguard("repair", "--apply", "--session", "s000000", url_of(engine), state=tmp_path)
    assert only.returncode == 0
    assert "1 session: 1 repaired" in only.stdout
    assert [len(store.replay("s000000").applied), len(store.replay("s000001").applied)] == [2, 0]
    assert [outcome.reason for outcome in store.replay("s000001").refused] == [Reason.NO_IDENTITY] * 2
    assert store.upgrade() == OPEN
    assert latchguard("repair", "--apply", url_of(engine), state=tmp_path).returncode == 0
    assert store.upgrade() == HEAD


def test_an_undone_repair_leaves_every_row_as_it_was(engine: Engine, tmp_path: Path) -> None:
    """Undo proof: every row of every table is equal, but that the versions have counted two writes."""
    make_old_store(engine, many_sessions(12))
    before = stored_rows(engine)
    assert latchguard("repair", "--apply", url_of(engine), state=tmp_path).returncode == 0
    assert stored_rows(engine) != before
    undone = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert (undone.returncode, undone.stdout.splitlines()[-1]) == (0, "9 sessions restored")
    assert stored_rows(engine) == before
    with engine.connect() as connection:
        versions = connection.execute(select(sessions.c.version).order_by(sessions.c.id)).scalars().all()
    assert versions == [5, 5, 5, 3] * 3
    again = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert (again.returncode, again.stdout) == (0, "0 files restored\n")


def test_undo_leaves_a_session_that_was_written_since(sqlite_engine: Engine, tmp_path: Path) -> None:
    """A latch that was made or cleared, a drop that is gone: the session stays whole as it is, status 12."""
    make_old_store(sqlite_engine, many_sessions(3))
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path)
    store = SessionStore(sqlite_engine)
    store.unlatch("s000000", store.messages("s000000")[0])
    store.purge(older_than_s=-10, session="s000002")
    after = stored_rows(sqlite_engine)
    undone = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert undone.returncode == 12
    assert undone.stdout.splitlines()[-1] == "1 session restored"
    assert "session s000000: a latch changed since it was repaired" in undone.stderr
    assert "session s000002: a dropped latch left the quarantine since" in undone.stderr
    now = stored_rows(sqlite_engine)
    for table in ("latchguard_latches", "latchguard_quarantine"):
        for rows in (after, now):
            rows[table] = [row for row in rows[table] if row[1] != 2]
        assert now[table] == after[table]


def test_undo_leaves_a_place_that_was_taken_since(engine: Engine, tmp_path: Path) -> None:
    """The clip that was dropped from the first message cannot go back where a new one stands."""
    make_old_store(engine, many_sessions(3))
    latchguard("repair", "--apply", "--session", "s000002", url_of(engine), state=tmp_path)
    store = SessionStore(engine)
    store.latch("s000002", store.messages("s000002")[0], "a new clip")
    after = stored_rows(engine)
    undone = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert undone.returncode == 12
    assert "another latch took its place since" in undone.stderr
    assert stored_rows(engine) == after


def test_undo_ends_with_the_last_revision(sqlite_engine: Engine, tmp_path: Path) -> None:
    """Once identities are demanded no latch can lose its own; nothing changes, and the run says so."""
    make_old_store(sqlite_engine, many_sessions(3))
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path)
    assert SessionStore(sqlite_engine).upgrade() == HEAD
    after = stored_rows(sqlite_engine)
    undone = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert undone.returncode == 20
    assert "can be undone at schema 0002, found 0003" in undone.stderr
    assert stored_rows(sqlite_engine) == after


def test_a_turn_that_is_open_during_the_repair_is_told(engine: Engine, tmp_path: Path) -> None:
    """The repair counts as a write: who read before it cannot write over it."""
    make_old_store(engine, many_sessions(1))
    store = SessionStore(engine)
    history = list(store.messages("s000000"))

    def take_turn() -> None:
        with store.turn("s000000", history) as turn:
            assert latchguard("repair", "--apply", url_of(engine), state=tmp_path).returncode == 0
            turn.latch(history[0], "a clip of before the repair")

    with pytest.raises(StaleStateError):
        take_turn()
    assert len(store.replay("s000000").applied) == 2


def test_a_newer_latch_keeps_its_place(sqlite_engine: Engine, tmp_path: Path) -> None:
    """A latch of old that belongs where a latch with an identity stands is the older one."""
    make_old_store(sqlite_engine, many_sessions(2))
    store = SessionStore(sqlite_engine)
    store.latch("s000001", store.messages("s000001")[0], "a view of this release", view="fresh")
    assert latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path).returncode == 0
    assert [drop.drop.reason for drop in store.quarantine("s000001")] == [Reason.SUPERSEDED]
    assert store.replay("s000001").messages[0].text == "a view of this release"


def test_what_is_not_allowed_is_left(sqlite_engine: Engine, tmp_path: Path) -> None:
    """With `--allow lossless` nothing is dropped: findings are left, status 3, and the session stays open."""
    make_old_store(sqlite_engine, many_sessions(4))
    ran = latchguard("repair", "--apply", "--allow", "lossless", url_of(sqlite_engine), state=tmp_path)
    assert ran.returncode == 3
    assert "4 sessions: 1 clean, 2 repaired, 1 with findings left" in ran.stdout
    with sqlite_engine.connect() as connection:
        assert connection.execute(select(latches.c.id).where(latches.c.hash.is_(None))).scalars().all() == [5]
        assert connection.execute(select(quarantine)).all() == []


def test_a_scan_cannot_write(engine: Engine) -> None:
    """Its connection is refused every write by the database itself."""
    make_old_store(engine, many_sessions(1))

    def write() -> None:
        with open_reader(url_of(engine)) as connection:
            connection.execute(update(sessions).values(version=9))

    with pytest.raises(StoreFailedError, match=r"(?i)read.?only"):
        write()


def test_a_scan_verifies_a_database_in_which_nothing_waits(sqlite_engine: Engine, tmp_path: Path) -> None:
    """What `db check` finds, a scan finds too."""
    make_old_store(sqlite_engine, many_sessions(4))
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path)
    with sqlite_engine.begin() as connection:
        stray = {"session_id": 99, "ref": 1, "is_view": False, "text": "x", "hash": bytes(32), "shown": bytes(32)}
        connection.execute(insert(latches).values(**stray, role="user", kind="text"))
    ran = latchguard("scan", "--json", url_of(sqlite_engine), state=tmp_path)
    assert ran.returncode == 1
    assert "dangling-row" in json.loads(ran.stdout)["count"]["rules"]


def test_runs_are_listed_and_forgotten(sqlite_engine: Engine, tmp_path: Path) -> None:
    """Where they were noted, and by the database itself; a forgotten one cannot be undone."""
    make_old_store(sqlite_engine, many_sessions(4))
    url = url_of(sqlite_engine)
    latchguard("repair", "--apply", url, state=tmp_path)
    run = run_of(tmp_path)
    assert latchguard("runs", state=tmp_path).stdout == f"{run}  3 sessions of {recorded_url(url)}: repaired\n"
    assert latchguard("runs", url, state=tmp_path).stdout == f"{run}  3 sessions in latchguard_latches: repaired\n"
    assert latchguard("runs", "--forget", run, state=tmp_path).returncode == 0
    assert latchguard("runs", url, state=tmp_path).stdout == ""
    assert latchguard("undo", run, url, state=tmp_path).returncode == 10


def test_a_database_that_is_gone_is_said_to_be(sqlite_engine: Engine, tmp_path: Path) -> None:
    """The list of runs does not fail for it; undoing does, with the status of a source that is not there."""
    make_old_store(sqlite_engine, many_sessions(2))
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path)
    run = run_of(tmp_path)
    (tmp_path / "own.db").unlink()
    listed = latchguard("runs", state=tmp_path)
    told = f"{run}  sessions of {url_of(sqlite_engine)}: not to be asked (source-not-found)\n"
    assert (listed.returncode, listed.stdout) == (0, told)
    assert latchguard("undo", run, state=tmp_path).returncode == 10


def test_a_run_of_another_machine_is_undone_by_its_url(sqlite_engine: Engine, tmp_path: Path) -> None:
    """The database keeps its own journal."""
    make_old_store(sqlite_engine, many_sessions(2))
    before = stored_rows(sqlite_engine)
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path / "here")
    undone = latchguard("undo", run_of(tmp_path / "here"), url_of(sqlite_engine), state=tmp_path / "there")
    assert (undone.returncode, undone.stdout.splitlines()[-1]) == (0, "2 sessions restored")
    assert stored_rows(sqlite_engine) == before


def test_a_run_of_another_machine_is_forgotten_by_its_url(sqlite_engine: Engine, tmp_path: Path) -> None:
    """In the database; there is nothing else to forget here."""
    make_old_store(sqlite_engine, many_sessions(2))
    url = url_of(sqlite_engine)
    latchguard("repair", "--apply", url, state=tmp_path / "here")
    assert latchguard("runs", "--forget", run_of(tmp_path / "here"), url, state=tmp_path / "there").returncode == 0
    assert latchguard("runs", url, state=tmp_path / "there").stdout == ""


def test_a_session_that_was_deleted_stays_deleted(sqlite_engine: Engine, tmp_path: Path) -> None:
    """Its journal went with it; the others are restored."""
    make_old_store(sqlite_engine, many_sessions(3))
    latchguard("repair", "--apply", url_of(sqlite_engine), state=tmp_path)
    SessionStore(sqlite_engine).delete("s000001")
    undone = latchguard("undo", run_of(tmp_path), state=tmp_path)
    assert (undone.returncode, undone.stdout.splitlines()[-1]) == (0, "2 sessions restored")
    assert SessionStore(sqlite_engine).sessions() == ["s000000", "s000002"]


def test_a_run_notes_no_password(tmp_path: Path) -> None:
    """And the whole path of a file."""
    assert recorded_url("postgresql+psycopg://me:secret@db/chats") == "postgresql+psycopg://me@db/chats"
    assert recorded_url("sqlite:///a.db") == f"sqlite:///{Path('a.db').absolute()}"


@pytest.mark.parametrize(
    ("url", "status"),
    [("sqlite:////no/such/file.db", 10), ("nonsense://x", 1), ("postgresql+psycopg://x@127.0.0.1:1/none", 20)],
)
def test_a_database_that_is_not_there(tmp_path: Path, url: str, status: int) -> None:
    """Has its status, with one line that says what was expected; no file is made."""
    for command in (("scan",), ("repair", "--apply")):
        ran = latchguard(*command, url, state=tmp_path)
        assert ran.stderr.splitlines()[0].startswith(f"latchguard: {url}: ")
        assert (len(ran.stderr.splitlines()), ran.stderr.count(url)) == (1, 1)
        assert ran.returncode == status + 2 * (status == 1 and "--apply" in command)


def test_a_schema_that_is_too_old_is_named(tmp_path: Path) -> None:
    """The job needs the columns of the second revision; the message says what to run."""
    path = tmp_path / "empty.db"
    make_engine(f"sqlite:///{path}").connect().close()
    path.touch()
    ran = latchguard("scan", f"sqlite:///{path}", state=tmp_path)
    assert ran.returncode == 20
    assert "run `upgrade`" in ran.stderr
