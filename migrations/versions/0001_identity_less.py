"""The schema of old: latches that say which ref, and nothing about which message."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from latchguard.store.column_types import KeyText, digest_type, long_text, number_type

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "latchguard_sessions",
        sa.Column("id", number_type(), autoincrement=True),
        sa.Column("name", KeyText, nullable=False),
        sa.Column("version", number_type(), nullable=False),
        sa.Column("epoch", number_type(), nullable=False),
        sa.Column("ref_cursor", number_type(), nullable=False),
        sa.Column("next_number", number_type(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_latchguard_sessions"),
        sa.UniqueConstraint("name", name="uq_latchguard_sessions_name"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_table(
        "latchguard_messages",
        sa.Column("session_id", number_type(), nullable=False),
        sa.Column("position", number_type(), nullable=False, autoincrement=False),
        sa.Column("message_id", KeyText, nullable=False),
        sa.Column("ref", number_type()),
        sa.Column("present", sa.Boolean, nullable=False),
        sa.Column("protected", sa.Boolean, nullable=False),
        sa.Column("hash", digest_type(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("body", number_type(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "position", name="pk_latchguard_messages"),
        sa.UniqueConstraint("session_id", "message_id", name="uq_latchguard_messages_session_id_message_id"),
        sa.UniqueConstraint("session_id", "ref", name="uq_latchguard_messages_session_id_ref"),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    op.create_table(
        "latchguard_bodies",
        sa.Column("session_id", number_type(), nullable=False),
        sa.Column("body", number_type(), nullable=False, autoincrement=False),
        sa.Column("tool_name", long_text()),
        sa.Column("tool_call_id", long_text()),
        sa.Column("text", long_text(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "body", name="pk_latchguard_bodies"),
        if_not_exists=True,
    )
    op.create_table(
        "latchguard_latches",
        sa.Column("id", number_type(), autoincrement=True),
        sa.Column("session_id", number_type(), nullable=False),
        sa.Column("ref", number_type()),
        sa.Column("is_view", sa.Boolean, nullable=False),
        sa.Column("view", long_text()),
        sa.Column("text", long_text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_latchguard_latches"),
        sa.UniqueConstraint("session_id", "ref", "is_view", name="uq_latchguard_latches_session_id_ref_is_view"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
