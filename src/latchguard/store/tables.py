"""The tables, as they are at the newest schema; `migrations/` builds them.

1. All names begin with `latchguard_`: the tables live in the host's database.
2. `messages` is narrow: one row per message that a session has ever had, in the order of `position`, with ref and
   identity. A restamp rewrites rows here and touches no text.
3. `bodies` is wide: the texts, keyed by a number that never changes. It has no row of a session whose texts are not
   kept (`sessions.keeps_texts`): the host owns that history.
4. A message that a restamp left out keeps its row, with `present` false and no ref. A protected message has no ref
   either: refs are unique in a session.
5. There are no foreign keys: every write holds the lock of its session's row, SQLite would not check them, and
   `latchguard db check` finds dangling rows.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Boolean, Column, Index, MetaData, PrimaryKeyConstraint, String, Table, UniqueConstraint, true

from latchguard.store.column_types import KeyText, digest_type, long_text, number_type

__all__ = [
    "PREFIX",
    "VERSION_TABLE",
    "bodies",
    "include_name",
    "latches",
    "messages",
    "metadata",
    "quarantine",
    "repair_journal",
    "repair_progress",
    "sessions",
]

PREFIX: Final = "latchguard_"
VERSION_TABLE: Final = "latchguard_alembic_version"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _identity_columns(*, nullable: bool) -> list[Column[Any]]:
    return [
        Column("hash", digest_type(), nullable=nullable),
        Column("role", String(16), nullable=nullable),
        Column("kind", String(16), nullable=nullable),
    ]


def _latch_columns(*, nullable: bool) -> list[Column[Any]]:
    """*ref* is NULL where a latch of a foreign state sits on `BLOCKED`; *view* is NULL for a clip."""
    return [
        Column("id", number_type(), primary_key=True, autoincrement=True),
        Column("session_id", number_type(), nullable=False),
        Column("ref", number_type()),
        Column("is_view", Boolean, nullable=False),
        Column("view", long_text()),
        Column("text", long_text(), nullable=False),
        *_identity_columns(nullable=nullable),
        Column("shown", digest_type(), nullable=nullable),
        Column("extra", long_text()),
    ]


sessions = Table(
    f"{PREFIX}sessions",
    metadata,
    Column("id", number_type(), primary_key=True, autoincrement=True),
    Column("name", KeyText, nullable=False),
    Column("version", number_type(), nullable=False),
    Column("epoch", number_type(), nullable=False),
    Column("ref_cursor", number_type(), nullable=False),  # the number of the next ref
    Column("next_number", number_type(), nullable=False),  # of the next position or body
    Column(
        "purged", number_type(), nullable=False, server_default="0"
    ),  # drops that an operator took out of quarantine for good
    Column("extra", long_text()),
    Column("keeps_texts", Boolean, nullable=False, server_default=true()),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

messages = Table(
    f"{PREFIX}messages",
    metadata,
    Column("session_id", number_type(), nullable=False),
    Column("position", number_type(), nullable=False),
    Column("message_id", KeyText, nullable=False),
    Column("ref", number_type()),
    Column("present", Boolean, nullable=False),
    Column("protected", Boolean, nullable=False),
    *_identity_columns(nullable=False),
    Column("body", number_type(), nullable=False),
    PrimaryKeyConstraint("session_id", "position"),
    UniqueConstraint("session_id", "message_id"),
    UniqueConstraint("session_id", "ref"),
    sqlite_with_rowid=False,
)

bodies = Table(
    f"{PREFIX}bodies",
    metadata,
    Column("session_id", number_type(), nullable=False),
    Column("body", number_type(), nullable=False),
    Column("tool_name", long_text()),
    Column("tool_call_id", long_text()),
    Column("text", long_text(), nullable=False),
    PrimaryKeyConstraint("session_id", "body"),
)

latches = Table(
    f"{PREFIX}latches",
    metadata,
    *_latch_columns(nullable=False),
    UniqueConstraint("session_id", "ref", "is_view"),
    sqlite_autoincrement=True,
)

quarantine = Table(
    f"{PREFIX}quarantine",
    metadata,
    *_latch_columns(nullable=True),
    Column("reason", String(32), nullable=False),
    Column("drop_extra", long_text()),
    Column("dropped_at_s", number_type(), nullable=False),  # Unix time
    Index(None, "session_id", "reason", "hash"),
    sqlite_autoincrement=True,
)


repair_progress = Table(
    f"{PREFIX}repair_progress",
    metadata,
    Column("target", String(128), nullable=False),  # the name of the table of latches
    Column("session", KeyText, nullable=False),
    Column("run", String(32), nullable=False),
    PrimaryKeyConstraint("target", "session"),
)

repair_journal = Table(
    f"{PREFIX}repair_journal",
    metadata,
    Column("id", number_type(), primary_key=True, autoincrement=True),
    Column("run", String(32), nullable=False),
    Column("target", String(128), nullable=False),
    Column("session", KeyText, nullable=False),
    Column("step", long_text(), nullable=False),  # JSON: the latch before, and what became of it
    Index(None, "run"),
    Index(None, "target", "session"),
    sqlite_autoincrement=True,
)


def include_name(name: str | None, kind: str, parents: Any = None) -> bool:  # noqa: ARG001  # Alembic gives three
    """Keep latchguard's tables out of a host's autogenerate: pass it to `context.configure(include_name=...)`.

    Args:
        name: of the table, index or column.
        kind: what it names, as Alembic says it (`table`, ...).
        parents: the names above it.

    Returns:
        False for latchguard's own tables; True for all else.
    """
    return not (kind == "table" and name is not None and name.startswith(PREFIX))
