"""Scan, repair and undo latchguard's own tables at a URL: sessions in, outcomes out, as for files.

1. A scan and a dry run read one snapshot on a connection that cannot write.
2. A run is noted with the others, by its URL without the password, before the first session changes; what it did to
   which row stands in the database's own journal.
3. A database that fails ends its part of the run: one error, not one per session.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from sqlalchemy import URL, Connection, exists, select
from sqlalchemy.engine import make_url

from latchguard.core.errors import LatchguardError, StoreFailedError
from latchguard.core.jsonspans import Replace
from latchguard.core.jsontext import dump_json
from latchguard.repair.database_tables import OWN, SessionKey
from latchguard.repair.databases import (
    DatabaseRun,
    Transaction,
    forget_database_run,
    list_database_runs,
    plan_session,
    repair_session,
    transactions,
    undo_sessions,
)
from latchguard.repair.errors import BugError
from latchguard.repair.latch_plans import LatchPlan
from latchguard.repair.looking import Outcome
from latchguard.repair.plans import Plan, PlanOptions, Step, digest
from latchguard.repair.repairing import RepairRun
from latchguard.repair.undo import Undone
from latchguard.store.checking import check_database
from latchguard.store.column_types import is_mysql
from latchguard.store.connections import make_engine, make_reader, reading, store_errors
from latchguard.store.schema import check_schema
from latchguard.store.tables import sessions

__all__ = [
    "database_runs",
    "forget_in_database",
    "look_at_database",
    "open_reader",
    "recorded_url",
    "repair_database",
    "undo_database",
]

FORMAT: Final = "latchguard"
_PAGE: Final = 500


def look_at_database(url: str, *, session: str | None, options: PlanOptions, verify: bool = False) -> Iterator[Outcome]:
    """Plan the repair of every session, or of one. Reads only; what is wrong with the database is an outcome too.

    Args:
        url: of the database.
        session: the name of the one that is wanted; None for all.
        options: what a plan may do.
        verify: whether a database without an open latch is verified from outside as well (`store.checking`).
    """
    shown = _shown(url)
    try:
        with open_reader(url) as connection:
            waiting = False
            for key, is_open in _sessions(connection, session):
                waiting = waiting or is_open
                plan = plan_session(connection, OWN, key, options) if is_open else LatchPlan(key.name)
                yield Outcome(shown, named=True, plan=_to_plan(plan))
            if verify and not waiting and session is None:
                yield from _verify(connection, shown, options)
    except LatchguardError as error:
        yield Outcome(shown, named=True, error=error)


def _verify(connection: Connection, shown: str, options: PlanOptions) -> Iterator[Outcome]:
    found = tuple(finding for finding in check_database(connection) if options.looks_at(finding.rule))
    if found:
        yield Outcome(shown, named=True, plan=Plan(FORMAT, None, "", (), found))


def repair_database(url: str, run: RepairRun, *, session: str | None, options: PlanOptions) -> Iterator[Outcome]:
    """Repair every session, or one: a transaction each. What goes wrong is an outcome's error; it is then as it was."""
    shown = _shown(url)
    noted = False
    try:
        with _open_writer(url) as connection:
            transaction = transactions(connection)
            for key, is_open in _sessions(connection, session, transaction):
                if not is_open:
                    yield Outcome(shown, named=True, plan=_to_plan(LatchPlan(key.name)))
                    continue
                if not noted:
                    run.note_database(recorded_url(url))
                    noted = True
                yield _repair(connection, key, options, run, shown)
    except LatchguardError as error:
        yield Outcome(shown, named=True, error=error)


def _repair(connection: Connection, key: SessionKey, options: PlanOptions, run: RepairRun, shown: str) -> Outcome:
    try:
        with transactions(connection)():
            plan = repair_session(connection, OWN, key, options, run.name)
    except StoreFailedError:
        raise
    except LatchguardError as error:
        return Outcome(shown, named=True, error=error)
    except Exception:  # noqa: BLE001  # one session must not keep the others from being repaired
        return Outcome(shown, named=True, error=BugError(shown, traceback.format_exc()))
    run.replaced += bool(plan.steps)
    return Outcome(shown, named=True, plan=_to_plan(plan), repaired=bool(plan.steps), left=plan.left)


def undo_database(url: str, run: str) -> Iterator[Undone]:
    """Take a run back, session by session.

    Raises:
        RunNotFoundError: the database knows nothing of it.
        UndoClosedError: the schema demands identities by now.
        StoreFailedError: the database failed.
    """
    with _open_writer(url) as connection:
        for name, error in undo_sessions(connection, OWN, run, transactions(connection)):
            yield Undone(f"{_shown(url)}, session {name}", error)


def database_runs(url: str) -> list[DatabaseRun]:
    """Give the runs that the database at *url* can undo, oldest first. Reads only."""
    with open_reader(url) as connection:
        return list_database_runs(connection)


def forget_in_database(url: str, run: str) -> None:
    """Remove what the database at *url* keeps of a run."""
    with _open_writer(url) as connection, connection.begin():
        forget_database_run(connection, run)


def recorded_url(url: str) -> str:
    """Give *url* as a run keeps it: the file's whole path, and no password."""
    parsed: URL = make_url(url)
    path = parsed.database
    if parsed.get_backend_name() == "sqlite" and path and not path.startswith(("file:", ":memory:")):
        parsed = parsed.set(database=os.path.abspath(path))
    return parsed._replace(password=None).render_as_string(hide_password=False)


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except Exception:  # noqa: BLE001  # no URL: opening it says why
        return url


@contextmanager
def open_reader(url: str) -> Iterator[Connection]:
    """Give a connection to a store's database that cannot write, in one snapshot.

    Raises:
        InvalidValueError: *url* is none, or its driver is not installed.
        StoreNotFoundError: there is no such file.
        SchemaOutdatedError, StateVersionError: the schema is not one that this release reads.
        StoreFailedError: the database failed.
    """
    engine = make_reader(url)
    try:
        with reading(engine, None) as connection:
            if is_mysql(connection.dialect):
                connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            elif connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            check_schema(connection)
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _open_writer(url: str) -> Iterator[Connection]:
    make_reader(url).dispose()  # a file that is not there is not made
    engine = make_engine(url)
    try:
        with store_errors(engine), engine.connect() as connection:
            with connection.begin():
                check_schema(connection)
            yield connection
    finally:
        engine.dispose()


def _sessions(
    connection: Connection, wanted: str | None, transaction: Transaction = nullcontext
) -> Iterator[tuple[SessionKey, bool]]:
    """Give the sessions and whether a latch of theirs is open, page by page, each read in a *transaction*."""
    is_open = exists().where(OWN.latches["session"] == sessions.c.id, OWN.is_open)
    statement = select(sessions.c.id, sessions.c.name, is_open).order_by(sessions.c.id).limit(_PAGE)
    if wanted is not None:
        statement = statement.where(sessions.c.name == wanted)
    page = [(0, "", False)]
    while page:
        with transaction():
            later = statement.where(sessions.c.id > page[-1][0])
            page = [(key, name, bool(waits)) for key, name, waits in connection.execute(later)]
        for key, name, waits in page:
            yield SessionKey(key, name), waits


def _to_plan(plan: LatchPlan) -> Plan:
    """Give a session's plan as reports take it: a step is an edit of the session seen as a document."""
    steps = tuple(
        Step(Replace(("latches", *step.key), dump_json(finding.after)), digest(dump_json(finding.before)), finding)
        for step, finding in zip(plan.steps, (found for found in plan.findings if found.applied), strict=True)
    )
    return Plan(FORMAT, plan.session, "", steps, plan.findings)
