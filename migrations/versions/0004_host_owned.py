"""A session says whether its texts are kept here. All that were there before are kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from latchguard.store.revising import is_missing

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if is_missing(op, "latchguard_sessions", column="keeps_texts"):
        keeps_texts = sa.Column("keeps_texts", sa.Boolean, nullable=False, server_default=sa.true())
        op.add_column("latchguard_sessions", keeps_texts)
