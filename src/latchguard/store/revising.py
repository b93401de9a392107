"""What the revisions in `migrations/` ask of a database before they change it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, inspect, select

from latchguard.core.errors import SchemaOutdatedError
from latchguard.store.connections import shown_url
from latchguard.store.tables import latches

__all__ = ["count_open_latches", "is_missing", "refuse_open_sessions"]


def is_missing(op: Any, table: str, *, column: str | None = None, index: str | None = None) -> bool:
    """Say whether *table* lacks a column or an index; True offline, where nothing can be asked.

    Args:
        op: Alembic's operations.
        table: the table's name.
        column: the name of a column, or
        index: the name of an index.
    """
    if op.get_context().as_sql:
        return True
    found = inspect(op.get_bind())
    if column is not None:
        return column not in {known["name"] for known in found.get_columns(table)}
    return index not in {known["name"] for known in found.get_indexes(table)}


def count_open_latches(connection: Connection) -> int:
    """Count the latches that have no identity: those that the repair job has not looked at."""
    return connection.execute(select(func.count()).where(latches.c.hash.is_(None))).scalar_one()


def refuse_open_sessions(connection: Connection) -> None:
    """Refuse to demand identities while a latch has none.

    Raises:
        SchemaOutdatedError: there is one; `latchguard repair URL --apply` comes first.
    """
    if count := count_open_latches(connection):
        raise SchemaOutdatedError(
            shown_url(connection.engine), "no latch without an identity (run the repair first)", f"{count} of them"
        )
