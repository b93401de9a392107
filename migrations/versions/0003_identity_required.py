"""Every latch in force says what its message is. Refused while one does not: the repair job is not through."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from latchguard.store.column_types import digest_type, long_text, number_type
from latchguard.store.revising import refuse_open_sessions

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if not context.is_offline_mode():
        refuse_open_sessions(op.get_bind())
    with op.batch_alter_table("latchguard_latches", copy_from=latches_of_0002()) as batch:
        batch.alter_column("hash", existing_type=digest_type(), nullable=False)
        batch.alter_column("role", existing_type=sa.String(16), nullable=False)
        batch.alter_column("kind", existing_type=sa.String(16), nullable=False)
        batch.alter_column("shown", existing_type=digest_type(), nullable=False)


def latches_of_0002() -> sa.Table:
    # SQLite changes a column by copying the table; offline there is none to ask what it looks like.
    return sa.Table(
        "latchguard_latches",
        sa.MetaData(),
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
        sa.PrimaryKeyConstraint("id", name="pk_latchguard_latches"),
        sa.UniqueConstraint("session_id", "ref", "is_view", name="uq_latchguard_latches_session_id_ref_is_view"),
        sqlite_autoincrement=True,
    )
