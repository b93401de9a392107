"""The repair of latches in a database: a job, one transaction per session, that can be killed, resumed and undone.

1. A session's transaction locks it, reads it, plans, writes the rows, a journal row per change and that it is done,
   reads it again (it must ask for nothing more), and commits.
2. Which sessions are open is asked of the latches themselves: a job that was killed goes on where it was.
3. Places are freed before they are taken, so that a unique key over session and ref holds at every statement.
4. Undoing a session is one transaction too: all its rows are still what the run wrote, or it is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import UUID

from attrs import evolve, frozen
from sqlalchemy import ColumnElement, Connection, and_, delete, distinct, func, insert, inspect, null, select, update
from sqlalchemy.exc import IntegrityError

from latchguard.core.errors import LatchguardError, StoreFailedError
from latchguard.core.jsontext import dump_json, load_json
from latchguard.repair.database_errors import UndoClosedError
from latchguard.repair.database_tables import SessionKey, SessionTables, read_open_sessions, read_session
from latchguard.repair.errors import LostRaceError, RunNotFoundError, UnsettledPlanError
from latchguard.repair.latch_plans import LatchPlan, LatchStep, plan_latches
from latchguard.repair.plans import PlanOptions
from latchguard.store.connections import begin_immediate, shown_url, store_errors
from latchguard.store.headers import lock_header
from latchguard.store.schema import OPEN, read_revision
from latchguard.store.tables import quarantine, repair_journal, repair_progress, sessions

__all__ = [
    "DatabaseRun",
    "Transaction",
    "forget_database_run",
    "list_database_runs",
    "make_journal",
    "plan_session",
    "repair_session",
    "session_pages",
    "transactions",
    "undo_sessions",
]

Transaction: TypeAlias = Callable[[], AbstractContextManager[None]]

_QUARANTINED: Final = ("session_id", "ref", "is_view", "view", "text", "hash", "role", "kind", "shown", "extra")


@frozen
class DatabaseRun:
    """What one run did in a database: in how many sessions of which table of latches."""

    name: str
    target: str
    sessions: int


def transactions(connection: Connection, *, nested: bool = False) -> Transaction:
    """Give what opens a transaction per session; inside a transaction of the caller's, it joins that one.

    Args:
        connection: of the database.
        nested: whether a session that fails there leaves no trace in the caller's transaction.
    """
    joined = connection.in_transaction()

    @contextmanager
    def transaction() -> Iterator[None]:
        with store_errors(connection.engine):
            if joined:
                begin_immediate(connection)
                with connection.begin_nested() if nested else nullcontext():
                    yield
                return
            with connection.begin():
                begin_immediate(connection)
                yield

    return transaction


def make_journal(connection: Connection) -> None:
    """Make the tables of progress and journal where the database has none: a host may use no other of ours."""
    for table in (repair_progress, repair_journal):
        table.create(connection, checkfirst=True)


def session_pages(connection: Connection, tables: SessionTables, transaction: Transaction) -> Iterator[SessionKey]:
    """Give the sessions that have an open latch, page by page: the memory does not grow with their number."""
    after: SessionKey | None = None
    while True:
        with transaction():
            page = read_open_sessions(connection, tables, after)
        if not page:
            return
        yield from page
        after = page[-1]


def plan_session(connection: Connection, tables: SessionTables, session: SessionKey, options: PlanOptions) -> LatchPlan:
    """Say what is wrong in one session and what would repair it. Reads only."""
    return plan_latches(read_session(connection, tables, session), options)


def repair_session(
    connection: Connection, tables: SessionTables, session: SessionKey, options: PlanOptions, run: str
) -> LatchPlan:
    """Repair one session, in the transaction that *connection* is in.

    Raises:
        LostRaceError: somebody else changed a latch meanwhile.
        UnsettledPlanError: the repaired rows ask for more: a bug; the transaction must be rolled back.
    """
    if tables.own:
        lock_header(connection, session.name)
    plan = plan_latches(read_session(connection, tables, session, lock=True), options)
    if not plan.steps:
        return plan
    _write_steps(connection, tables, plan.steps, run)
    if tables.own:
        _count_write(connection, session.name)
    again = plan_latches(read_session(connection, tables, session), options)
    if again.steps:
        raise UnsettledPlanError(_where(connection, session.name), len(again.steps))
    if not again.findings:
        _mark_done(connection, tables, session.name, run)
    return evolve(plan, left=again.findings)


def _where(connection: Connection, session: str) -> str:
    return f"{shown_url(connection.engine)}, session {session}"


def _count_write(connection: Connection, session: str) -> None:
    connection.execute(update(sessions).where(sessions.c.name == session).values(version=sessions.c.version + 1))


def _mark_done(connection: Connection, tables: SessionTables, session: str, run: str) -> None:
    # Asked first: deleting what is not there would lock a gap of MariaDB's index against other jobs.
    mine = _is_progress(tables, session)
    if connection.execute(select(repair_progress.c.run).where(mine)).first() is None:
        connection.execute(insert(repair_progress).values(target=tables.target, session=session, run=run))
    else:
        connection.execute(update(repair_progress).where(mine).values(run=run))


def _is_progress(tables: SessionTables, session: str) -> ColumnElement[bool]:
    return and_(repair_progress.c.target == tables.target, repair_progress.c.session == session)


def _write_steps(connection: Connection, tables: SessionTables, steps: Sequence[LatchStep], run: str) -> None:
    rows = [_read_row(connection, tables, step) for step in steps]
    records = [_record(tables, step, row) for step, row in zip(steps, rows, strict=True)]
    for step, row, record in zip(steps, rows, records, strict=True):
        if step.reason is not None and tables.own:
            record["quarantine"] = _quarantine(connection, tables, step, row)
        elif step.new_ref != step.ref:
            _set(connection, tables, step, {"ref": None})
    for step, record in zip(steps, records, strict=True):
        if "quarantine" not in record:
            _set(connection, tables, step, record["after"])
    connection.execute(
        insert(repair_journal),
        [
            {"run": run, "target": tables.target, "session": step.session, "step": dump_json(record).decode()}
            for step, record in zip(steps, records, strict=True)
        ],
    )


def _read_row(connection: Connection, tables: SessionTables, step: LatchStep) -> Mapping[str, Any]:
    names = [name for name in (*_QUARANTINED, "session") if name in tables.latches]
    columns = [tables.latches[name].label(name) for name in names]
    row = connection.execute(select(*columns).where(tables.is_key(step.key))).one()
    return row._asdict()


def _record(tables: SessionTables, step: LatchStep, row: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the journal says of a change: enough to take it back, and no text."""
    after: dict[str, Any] = {"ref": tables.to_column("ref", step.new_ref)}
    if step.identity is not None:
        after |= {"hash": step.identity.hash, "role": str(step.identity.role), "kind": str(step.identity.kind)}
        after |= {"shown": step.shown} if "shown" in tables.latches else {}
    if step.reason is not None:
        after["reason"] = str(step.reason)
    key = [value if isinstance(value, int | str) else str(value) for value in step.key]
    return {"key": key, "before": {"ref": row["ref"]}, "after": after, "text": _digest(row["text"])}


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _quarantine(connection: Connection, tables: SessionTables, step: LatchStep, row: Mapping[str, Any]) -> int:
    """Move a latch of ours to quarantine, as it is; give the key of its row there."""
    values = {name: row[name] for name in _QUARANTINED}
    made = connection.execute(
        insert(quarantine).values(**values, reason=str(step.reason), dropped_at_s=int(time.time()))
    ).inserted_primary_key
    _expect_one(connection, delete(tables.table).where(tables.is_key(step.key), tables.is_open), step.session)
    found: int = made[0] if made else 0
    return found


def _set(connection: Connection, tables: SessionTables, step: LatchStep, values: Mapping[str, Any]) -> None:
    statement = update(tables.table).where(tables.is_key(step.key), tables.is_open)
    _expect_one(connection, statement.values(_to_columns(tables, values)), step.session)


def _to_columns(tables: SessionTables, values: Mapping[str, Any]) -> dict[Any, Any]:
    return {tables.latches[name]: tables.to_column(name, value) for name, value in values.items()}


def _expect_one(connection: Connection, statement: Any, session: str) -> None:
    if connection.execute(statement).rowcount != 1:
        raise LostRaceError(_where(connection, session), "a latch changed meanwhile")


def undo_sessions(
    connection: Connection, tables: SessionTables, run: str, transaction: Transaction
) -> Iterator[tuple[str, LatchguardError | None]]:
    """Take a run back, session by session; give the name of each, and why it was left where it was.

    Raises:
        RunNotFoundError: the journal knows nothing of this run in this table.
        UndoClosedError: the schema demands identities by now.
    """
    mine = (repair_journal.c.run == run) & (repair_journal.c.target == tables.target)
    with transaction():
        if tables.own and (found := read_revision(connection)) != OPEN:
            raise UndoClosedError(shown_url(connection.engine), run, OPEN, str(found))
    after: str | None = None
    while True:
        later = mine if after is None else mine & (repair_journal.c.session > after)
        with transaction():
            name = connection.execute(select(func.min(repair_journal.c.session)).where(later)).scalar_one()
        if name is None:
            break
        after = name
        try:
            with transaction():
                _undo_session(connection, tables, run, after)
        except StoreFailedError:
            raise
        except LatchguardError as error:
            yield after, error
        else:
            yield after, None
    if after is None:
        raise RunNotFoundError(run, shown_url(connection.engine))


def _undo_session(connection: Connection, tables: SessionTables, run: str, session: str) -> None:
    if tables.own:
        lock_header(connection, session)
    mine = and_(
        repair_journal.c.run == run, repair_journal.c.target == tables.target, repair_journal.c.session == session
    )
    statement = select(repair_journal.c.step).where(mine).order_by(repair_journal.c.id)
    records = [load_json(step) for step in connection.execute(statement).scalars()]
    for record in records:
        record["key"] = [_from_json(column, value) for column, value in zip(tables.key, record["key"], strict=True)]
    try:
        for record in records:
            if "quarantine" not in record:
                _take_back(connection, tables, record, session)
        for record in records:
            if "quarantine" in record:
                _bring_back(connection, tables, record, session)
            elif record["before"]["ref"] is not None:
                values = {tables.latches["ref"]: record["before"]["ref"]}
                _expect_one(
                    connection, update(tables.table).where(tables.is_key(record["key"])).values(values), session
                )
    except IntegrityError as error:
        raise LostRaceError(_where(connection, session), "another latch took its place since") from error
    connection.execute(delete(repair_journal).where(mine))
    connection.execute(delete(repair_progress).where(_is_progress(tables, session)))
    if tables.own:
        _count_write(connection, session)


def _from_json(column: Any, value: Any) -> Any:
    return UUID(value) if column.type.python_type is UUID and isinstance(value, str) else value


def _take_back(connection: Connection, tables: SessionTables, record: Mapping[str, Any], session: str) -> None:
    """Take ref, identity and reason from a row that still is what the run wrote."""
    place = tables.is_key(record["key"])
    text = connection.execute(select(tables.latches["text"]).where(place)).scalar_one_or_none()
    if text is None or _digest(text) != record["text"]:
        raise LostRaceError(_where(connection, session), "a latch changed since it was repaired")
    same = [
        column.is_(None) if value is None else column == value
        for column, value in _to_columns(tables, record["after"]).items()
    ]
    values = {tables.latches[name]: null() for name in record["after"]}
    _expect_one(connection, update(tables.table).where(place, *same).values(values), session)


def _bring_back(connection: Connection, tables: SessionTables, record: Mapping[str, Any], session: str) -> None:
    """Bring a latch of ours back from quarantine, if it is there as the run put it."""
    place = quarantine.c.id == record["quarantine"]
    row = connection.execute(select(quarantine).where(place)).one_or_none()
    expected = (record["before"]["ref"], record["after"]["reason"], record["text"], None)
    if row is None or (row.ref, row.reason, _digest(row.text), row.hash) != expected:
        raise LostRaceError(_where(connection, session), "a dropped latch left the quarantine since")
    values = {name: getattr(row, name) for name in _QUARANTINED}
    connection.execute(insert(tables.table).values(id=record["key"][0], **values))
    connection.execute(delete(quarantine).where(place))


def list_database_runs(connection: Connection) -> list[DatabaseRun]:
    """Give the runs that the journal knows, oldest first; none where the database has no journal."""
    if not inspect(connection).has_table(repair_journal.name):
        return []
    columns = (repair_journal.c.run, repair_journal.c.target)
    statement = select(*columns, func.count(distinct(repair_journal.c.session))).group_by(*columns).order_by(*columns)
    return [DatabaseRun(*row) for row in connection.execute(statement)]


def forget_database_run(connection: Connection, run: str) -> None:
    """Remove what the journal knows of a run: it cannot be undone afterwards."""
    for table in (repair_journal, repair_progress):
        connection.execute(delete(table).where(table.c.run == run))
