"""The repair of latches in a host's own tables, to be called from the host's own migration.

docs/migrate.md tells how; `latchguard repair URL` does the same for latchguard's tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import field, frozen
from sqlalchemy import Connection, Table
from sqlalchemy.sql import FromClause

from latchguard.core.errors import LatchguardError
from latchguard.repair.database_tables import SessionTables, host_tables
from latchguard.repair.databases import (
    list_database_runs,
    make_journal,
    plan_session,
    repair_session,
    session_pages,
    transactions,
    undo_sessions,
)
from latchguard.repair.errors import RunNotFoundError
from latchguard.repair.latch_plans import LatchPlan, LatchStep
from latchguard.repair.plans import PlanOptions
from latchguard.repair.runs import new_run_name

__all__ = ["LatchStep", "RepairPlan", "repair_latches", "undo_latches"]

MAX_LISTED: Final = 1000  # steps of each outcome; the others are counted


@frozen
class RepairPlan:
    """What a repair does, or would do.

    Args:
        sessions: how many sessions it changes.
        counts: outcome (`bound`, `rebound`, or a reason) -> number of latches, in the order of the names.
        steps: what becomes of each latch, at most 1,000 of an outcome, session by session.
        run: names the repair for `undo_latches`; None for a dry run, or where nothing was to be done.
    """

    sessions: int
    counts: Mapping[str, int]
    steps: tuple[LatchStep, ...]
    run: str | None = field(default=None, eq=False)


def repair_latches(
    connection: Connection,
    *,
    messages: FromClause,
    latches: Table,
    columns: Mapping[str, str],
    apply: bool = False,
) -> RepairPlan:
    """Give every latch without an identity the message it was made for, or a reason why it has none.

    A latch that its text proves to be its holder's gains the identity; one that is proven to be another message's
    moves to that message's ref; any other stays in its row with a reason and without a ref.

    Args:
        connection: in a transaction, which is joined, and committed by the caller; or in none: then every session is
            a transaction of its own.
        messages: all messages of the sessions that have latches: a table, or a query of several.
        latches: the latches, with a primary key. What a repair sets may be NULL: ref, hash, role, kind, reason.
        columns: our names -> theirs, `messages.id` or, where both tables call it so, `session`. Of messages:
            session, id, ref, role, kind, text, and if they have them tool_name, tool_call_id, protected; of latches:
            session, ref, text, hash, role, kind, reason, and if they have them shown, view (its name; NULL is a clip).
        apply: whether to do it. Else nothing is written.

    Returns:
        What is done, or would be: the same value either way, and for the same rows in every process.

    Raises:
        InvalidValueError: *columns* has a name that is not ours; a message has a role or kind that is none.
        ColumnError: a column is missing, or cannot serve.
        LostRaceError: somebody else wrote a latch meanwhile; what its transaction did must be rolled back.
        StoreFailedError: the database failed.

    Guarantees:
        Idempotent: a second run finds nothing. Killed between two sessions, it goes on where it was. Messages are
        never written, no row is deleted. The memory does not grow with the number of sessions.
    """
    tables = host_tables(messages, latches, columns)
    run = new_run_name()
    counts: Counter[str] = Counter()
    steps: list[LatchStep] = []
    changed = 0
    for plan in _plans(connection, tables, run if apply else None):
        changed += bool(plan.steps)
        for step in plan.steps:
            counts[step.outcome] += 1
            if counts[step.outcome] <= MAX_LISTED:
                steps.append(step)
    return RepairPlan(changed, dict(sorted(counts.items())), tuple(steps), run if apply and changed else None)


def _plans(connection: Connection, tables: SessionTables, run: str | None) -> Iterator[LatchPlan]:
    transaction = transactions(connection)
    options = PlanOptions()
    if run is not None:
        with transaction():
            make_journal(connection)
    for session in session_pages(connection, tables, transaction):
        with transaction():
            if run is None:
                plan = plan_session(connection, tables, session, options)
            else:
                plan = repair_session(connection, tables, session, options, run)
        yield plan


def undo_latches(
    connection: Connection, *, latches: Table, columns: Mapping[str, str], run: str | None = None
) -> tuple[LatchguardError, ...]:
    """Take repairs back, session by session: every row of the latches is again what it was.

    Args:
        connection: as in `repair_latches`.
        latches: as in `repair_latches`.
        columns: as in `repair_latches`.
        run: `RepairPlan.run`; None for every repair of this table, the newest first, as a downgrade wants it.

    Returns:
        One error for each session that was left as it is, since somebody has written its latches after the repair.

    Raises:
        RunNotFoundError: the journal knows nothing of *run* in this table.
        ColumnError: a column is missing, or cannot serve.
        StoreFailedError: the database failed.
    """
    tables = host_tables(None, latches, columns)
    transaction = transactions(connection, nested=True)
    with transaction():
        known = [found.name for found in list_database_runs(connection) if found.target == tables.target]
    if run is not None and run not in known:
        raise RunNotFoundError(run, tables.target)
    undone = (
        error
        for name in ([run] if run is not None else reversed(known))
        for _, error in undo_sessions(connection, tables, name, transaction)
    )
    return tuple(error for error in undone if error is not None)
