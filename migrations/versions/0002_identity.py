"""DDL only: a latch may say what its message is; what goes out of service is kept; so is whether texts are here.

The repair itself is a job.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from latchguard.store.column_types import KeyText, digest_type, long_text, number_type
from latchguard.store.revising import is_missing

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # MySQL commits at each DDL statement: every step asks whether an earlier, interrupted run has done it.
    add_columns("latchguard_sessions", purged_column(), sa.Column("extra", long_text()), keeps_texts_column())
    add_columns(
        "latchguard_latches",
        sa.Column("hash", digest_type()),
        sa.Column("role", sa.String(16)),
        sa.Column("kind", sa.String(16)),
        sa.Column("shown", digest_type()),
        sa.Column("extra", long_text()),
    )
    create_quarantine()
    create_repair_tables()


def purged_column() -> sa.Column[int]:
    # The default serves the rows that are there; the store always says the value.
    return sa.Column("purged", number_type(), nullable=False, server_default="0")


def keeps_texts_column() -> sa.Column[bool]:
    # All that were there before are kept.
    return sa.Column("keeps_texts", sa.Boolean, nullable=False, server_default=sa.true())


def add_columns(table: str, *columns: sa.Column) -> None:
    for column in columns:
        if is_missing(op, table, column=column.name):
            op.add_column(table, column)


def create_quarantine() -> None:
    op.create_table(
        "latchguard_quarantine",
        sa.Column("id", number_type(), autoincrement=True),
        sa.Column("session_id", number_type(), nullable=False),
        sa.Column("ref", number_type()),
        sa.Column("is_view", sa.Boolean, nullable=False),
        sa.Column("view", long_text()),
        sa.Column("text", long_text(), nullable=False),
        sa.Column("hash", digest_type()),
        sa.Column("role", sa.String(16)),
        sa.Column("kind", sa.String(16)),
        sa.Column("shown", digest_type()),
        sa.Column("extra", long_text()),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("drop_extra", long_text()),
        sa.Column("dropped_at_s", number_type(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_latchguard_quarantine"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    create_index("latchguard_quarantine", "session_id", "reason", "hash")


def create_repair_tables() -> None:
    op.create_table(
        "latchguard_repair_progress",
        sa.Column("target", sa.String(128), nullable=False),
        sa.Column("session", KeyText, nullable=False),
        sa.Column("run", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("target", "session", name="pk_latchguard_repair_progress"),
        if_not_exists=True,
    )
    op.create_table(
        "latchguard_repair_journal",
        sa.Column("id", number_type(), autoincrement=True),
        sa.Column("run", sa.String(32), nullable=False),
        sa.Column("target", sa.String(128), nullable=False),
        sa.Column("session", KeyText, nullable=False),
        sa.Column("step", long_text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_latchguard_repair_journal"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    create_index("latchguard_repair_journal", "run")
    create_index("latchguard_repair_journal", "target", "session")


def create_index(table: str, *columns: str) -> None:
    name = f"ix_{table}_{'_'.join(columns)}"
    if is_missing(op, table, index=name):
        op.create_index(name, table, list(columns))
