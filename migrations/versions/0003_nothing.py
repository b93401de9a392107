"""Nothing: that every latch has an identity, which was demanded here, is demanded last (0005).

So a database in which latches of old wait gets all that comes before.
"""

from __future__ import annotations

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
