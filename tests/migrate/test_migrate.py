"""The repair of latches in a host's own tables, on every database."""

import tracemalloc
from contextlib import nullcontext
from uuid import UUID

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Uuid,
    func,
    insert,
    inspect,
    select,
    update,
)

from latchguard import Identity, LatchguardError
from latchguard.core.errors import InvalidValueError
from latchguard.migrate import RepairPlan, repair_latches, undo_latches
from latchguard.repair.database_errors import ColumnError
from latchguard.repair.database_tables import host_tables, read_open_sessions
from latchguard.repair.errors import RunNotFoundError
from latchguard.repair.planning import plan_bytes
from latchguard.store.tables import repair_journal, repair_progress
from tests.migrate.talks import (
    COLUMNS,
    LONG,
    clips,
    lines,
    make_tables,
    many_sessions,
    metadata,
    of_fixture,
    rows_of,
    short_clip,
)
from tests.repair.sessions import NAMES, long_text, read_fixture


def repair(engine: Engine, *, apply: bool = False) -> RepairPlan:
    with engine.connect() as connection:
        return repair_latches(connection, messages=lines, latches=clips, columns=COLUMNS, apply=apply)


def test_latches_of_the_fixtures_are_judged_as_in_files(engine: Engine) -> None:
    """Each fixture's latches, as rows, are bound to the expected messages; the others lose their ref, with a reason."""
    with engine.begin() as connection:
        make_tables(connection, [of_fixture(name, read_fixture(name)[0]) for name in NAMES])
    repair(engine, apply=True)
    with engine.connect() as connection:
        rows = connection.execute(select(clips)).all()
        held = {(row.talk, row.place): row for row in connection.execute(select(lines)) if row.place}
    for name in NAMES:
        expected = read_fixture(name)[1]
        bound = [row for row in rows if row.talk == name and row.why is None]
        found = sorted((held[name, row.place].line, row.place) for row in bound)
        assert found == sorted((entry["id"], entry["ref"]) for entry in expected["bound"])
        dropped = [row for row in rows if row.talk == name and row.why is not None]
        assert len(dropped) == len(expected["quarantined"])
        assert [row.place for row in dropped] == [None] * len(dropped)
        assert sorted(str(row.why) for row in dropped) == reasons_in_the_file(read_fixture(name)[0])


def reasons_in_the_file(raw: bytes) -> list[str]:
    found = [finding.after for finding in plan_bytes(raw).findings if isinstance(finding.after, dict)]
    return sorted(after["reason"] for after in found if "reason" in after)


def test_a_bound_row_says_what_its_message_is(engine: Engine) -> None:
    """Hash, role and kind are those of the message under the row's ref."""
    sessions = list(many_sessions(8))
    with engine.begin() as connection:
        make_tables(connection, sessions)
    repair(engine, apply=True)
    known = {(old.name, ref): Identity.of(message) for old in sessions for message, ref in old.messages}
    with engine.connect() as connection:
        rows = connection.execute(select(clips).where(clips.c.why.is_(None))).all()
    assert len(rows) == 10
    for row in rows:
        identity = known[row.talk, row.place]
        assert (row.made_hash, row.made_role, row.made_kind) == (identity.hash, identity.role, identity.kind)


def test_a_dry_run_is_the_plan(engine: Engine) -> None:
    """It writes nothing, and gives the very value that applying gives; a second run finds nothing."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(8))
        before = rows_of(connection, lines, clips)
    planned = repair(engine)
    with engine.connect() as connection:
        assert rows_of(connection, lines, clips) == before
        assert sorted(inspect(connection).get_table_names()) == ["talk_clips", "talk_lines"]
    assert planned.counts == {"bound": 6, "rebound": 4, "unproven": 2}
    assert planned.sessions == 6
    assert planned.run is None
    assert repair(engine, apply=True) == planned
    assert repair(engine, apply=True) == RepairPlan(0, {}, ())
    with engine.connect() as connection:
        assert read_open_sessions(connection, host_tables(lines, clips, COLUMNS), None) == []


def test_an_undone_repair_leaves_every_row_as_it_was(engine: Engine) -> None:
    """Undo proof: all rows of all tables are equal, and what the journal held is gone."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(12))
        before = rows_of(connection, lines, clips)
    run = repair(engine, apply=True).run
    assert run is not None
    with engine.connect() as connection:
        assert rows_of(connection, lines, clips) != before
        connection.rollback()
        assert undo_latches(connection, latches=clips, columns=COLUMNS, run=run) == ()
        assert rows_of(connection, lines, clips) == before
        assert rows_of(connection, repair_journal, repair_progress) == {
            repair_journal.name: [],
            repair_progress.name: [],
        }
        connection.rollback()
        assert undo_latches(connection, latches=clips, columns=COLUMNS) == ()
        with pytest.raises(RunNotFoundError):
            undo_latches(connection, latches=clips, columns=COLUMNS, run=run)


@pytest.mark.parametrize("joined", [False, True], ids=["own", "joined"])
@pytest.mark.parametrize("change", [{"place": "m00009"}, {"words": "another text"}], ids=["ref", "text"])
def test_undo_leaves_a_session_that_was_written_since(engine: Engine, change: dict[str, str], *, joined: bool) -> None:
    """Wholly, and says so; the others are restored. In the caller's transaction too, which stays usable."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(4))
        before = rows_of(connection, clips)
    run = repair(engine, apply=True).run
    assert run is not None
    mine = clips.c.talk == "s000001"
    with engine.begin() as connection:
        connection.execute(update(clips).where(mine, clips.c.look.is_(None)).values(change))  # views come first
        changed = connection.execute(select(clips).where(mine).order_by(clips.c.id)).all()
    with engine.connect() as connection, connection.begin() if joined else nullcontext():
        errors = undo_latches(connection, latches=clips, columns=COLUMNS, run=run)
        assert [error.code for error in errors] == ["lost-race"]
    with engine.connect() as connection:
        assert connection.execute(select(clips).where(mine).order_by(clips.c.id)).all() == changed
        others = [row for row in rows_of(connection, clips)["talk_clips"] if row[1] != "s000001"]
    assert others == [row for row in before["talk_clips"] if row[1] != "s000001"]


def test_numbers_bytes_and_uuids(engine: Engine) -> None:
    """Refs as numbers, digests as bytes, keys as UUIDs: bound, and undone, as they are."""
    own = MetaData()
    history = Table(
        "notes",
        own,
        Column("id", Uuid, primary_key=True),
        Column("session", Uuid, nullable=False),
        Column("ref", Integer),
        *(Column(name, String(32)) for name in ("role", "kind")),
        Column("text", LONG),
        Column("protected", Boolean, nullable=False),
    )
    marks = Table(
        "marks",
        own,
        *(Column(name, Uuid, primary_key=True) for name in ("part", "number")),
        Column("session", Uuid, nullable=False),
        Column("ref", Integer),
        Column("text", LONG),
        *(Column(name, LargeBinary(32)) for name in ("hash", "shown")),
        *(Column(name, String(32)) for name in ("role", "kind", "reason")),
    )
    talk, key = UUID(int=1), UUID(int=2)
    texts = [long_text(seed, 900) for seed in range(2)]
    same = {"session": talk, "role": "user", "kind": "text"}
    rows = [{**same, "id": UUID(int=9 + n), "ref": n or None, "text": texts[n], "protected": n == 0} for n in range(2)]
    with engine.begin() as connection:
        own.create_all(connection)
        connection.execute(insert(history), rows)
        for number, (ref, text) in enumerate([(7, texts[1]), (1, texts[0])]):
            mark = {"part": key, "number": UUID(int=number), "session": talk, "ref": ref, "text": short_clip(text)}
            connection.execute(insert(marks), mark)
        before = rows_of(connection, marks)
    with engine.connect() as connection:
        plan = repair_latches(connection, messages=history, latches=marks, columns={}, apply=True)
        assert plan.counts == {"blocked-ref": 1, "rebound": 1}
        (step,) = (step for step in plan.steps if step.identity)
        bound = connection.execute(select(marks).where(marks.c.reason.is_(None))).one()
        assert step.identity is not None
        assert (bound.ref, bound.hash.hex(), bound.shown.hex()) == (1, step.identity.hash, step.shown)
        connection.rollback()
        assert undo_latches(connection, latches=marks, columns={}) == ()
        assert rows_of(connection, marks) == before


def test_memory_does_not_grow_with_the_sessions(sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a further session, that holds 4,000 characters, less than 100 bytes remain."""
    monkeypatch.setattr("latchguard.repair.database_tables._PAGE", 10)
    monkeypatch.setattr("latchguard.migrate.MAX_LISTED", 5)
    peaks = []
    for count in (100, 800):
        with sqlite_engine.begin() as connection:
            metadata.drop_all(connection)
            make_tables(connection, many_sessions(count))
        repair(sqlite_engine)
        tracemalloc.start()
        assert repair(sqlite_engine).sessions == count * 3 // 4
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 100 * (800 - 100)


def test_a_repair_joins_the_callers_transaction(engine: Engine) -> None:
    """Rolled back, nothing has happened."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(4))
        before = rows_of(connection, lines, clips)
    with engine.connect() as connection:
        connection.begin()
        assert repair_latches(connection, messages=lines, latches=clips, columns=COLUMNS, apply=True).sessions == 3
        connection.rollback()
    with engine.connect() as connection:
        assert rows_of(connection, lines, clips) == before


def test_a_unique_key_over_session_and_ref_holds_while_latches_swap(engine: Engine) -> None:
    """Two clips that stand under each other's refs change places."""
    with engine.begin() as connection:
        make_tables(connection, [])
        clips_key = Table("talk_clips", MetaData(), autoload_with=connection)
    index = "CREATE UNIQUE INDEX one_clip ON talk_clips (talk, place)"
    old = next(iter(many_sessions(1)))
    (first, _, first_text), (third, _, third_text) = old.latches
    with engine.begin() as connection:
        connection.exec_driver_sql(index)
        make_tables(
            connection, [type(old)(old.name, old.messages, [(third, None, first_text), (first, None, third_text)])]
        )
    with engine.connect() as connection:
        plan = repair_latches(connection, messages=lines, latches=clips_key, columns=COLUMNS, apply=True)
        assert plan.counts == {"rebound": 2}
        found = connection.execute(select(clips.c.words, clips.c.place)).all()
    assert {(words, place) for words, place in found} == {(first_text, "m00001"), (third_text, "m00003")}


def test_a_plan_lists_so_many_steps_and_counts_all(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a large database fits in memory."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(8))
    monkeypatch.setattr("latchguard.migrate.MAX_LISTED", 3)
    plan = repair(engine)
    assert plan.counts == {"bound": 6, "rebound": 4, "unproven": 2}
    assert [step.outcome for step in plan.steps].count("bound") == 3
    assert len(plan.steps) == 8


BAD = [
    ({**COLUMNS, "messages.id": "nowhere"}, "messages.id"),
    ({**COLUMNS, "latches.reason": "nowhere"}, "latches.reason"),
    ({**COLUMNS, "latches.ref": "talk"}, "latches.ref"),
    ({**COLUMNS, "latches.hash": "id"}, "latches.hash"),
    ({}, "messages.session"),
]


@pytest.mark.parametrize(("columns", "name"), BAD, ids=[name for _, name in BAD])
def test_a_column_that_is_missing_is_named(columns: dict[str, str], name: str) -> None:
    """By our name and the host's, before anything is read."""
    with pytest.raises(ColumnError) as caught:
        repair_latches(None, messages=lines, latches=clips, columns=columns)  # type: ignore[arg-type]  # not asked
    assert caught.value.name == name


def test_a_name_that_is_not_ours_is_refused() -> None:
    """A typing error does not pass for a wish."""
    with pytest.raises(InvalidValueError) as caught:
        repair_latches(None, messages=lines, latches=clips, columns={"txet": "words"})  # type: ignore[arg-type]
    assert caught.value.found == "'txet'"


@pytest.mark.parametrize("keys", [(), ("when",)])
def test_a_table_whose_rows_cannot_be_named_is_refused(keys: tuple[str, ...]) -> None:
    """No primary key, or one of a type that a journal cannot hold."""
    columns = [Column(column.name, column.type) for column in clips.c if column.name != "id"]
    table = Table("odd", MetaData(), *columns, Column("when", DateTime, primary_key="when" in keys))
    with pytest.raises(ColumnError):
        repair_latches(None, messages=lines, latches=table, columns=COLUMNS)  # type: ignore[arg-type]


def test_a_kind_that_is_none_is_refused(engine: Engine) -> None:
    """A host whose kinds have other names is told which value was found."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(1))
        connection.execute(update(lines).values(sort="tool_use"))
    with pytest.raises(LatchguardError) as caught:
        repair(engine)
    assert "tool_use" in str(caught.value)


def test_sessions_are_read_page_by_page(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, a page of them is held at a time."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(8))
    planned = repair(engine)
    monkeypatch.setattr("latchguard.repair.database_tables._PAGE", 2)
    assert repair(engine) == planned
    assert repair(engine, apply=True) == planned
    assert repair(engine) == RepairPlan(0, {}, ())


def test_a_killed_job_goes_on_where_it_was(engine: Engine) -> None:
    """With one transaction per session, what a broken run has done stays done; the next does the rest."""
    with engine.begin() as connection:
        make_tables(connection, many_sessions(8))
        connection.execute(update(lines).where(lines.c.talk == "s000005").values(sort="nonsense"))
    with pytest.raises(InvalidValueError):
        repair(engine, apply=True)
    with engine.begin() as connection:
        done = select(func.count(func.distinct(clips.c.talk))).where(clips.c.made_hash.is_not(None))
        assert connection.execute(done).scalar_one() == 4
        kinds = [(f"s000005-{key}", kind) for key, kind in (("a", "text"), ("b", "tool-call"), ("c", "tool-result"))]
        for line, kind in kinds:
            connection.execute(update(lines).where(lines.c.line == line).values(sort=kind))
    assert repair(engine, apply=True).sessions == 2
