"""docs/migrate.md is true: its revision runs in a host's own Alembic, its reader tells right from wrong."""

import re
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, inspect, select

from latchguard import Message
from tests.migrate.talks import LONG, many_sessions

PAGE = (Path(__file__).parent.parent.parent / "docs" / "migrate.md").read_text()
REVISION, READER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TYPES = {"tool-call": "tool_use", "tool-result": "tool_result", "text": "message"}
ENV = """
from alembic import context
from latchguard.store.tables import include_name

connection = context.config.attributes["connection"]
context.configure(connection=connection, include_name=include_name)
with context.begin_transaction():
    context.run_migrations()
"""
FIRST = "revision = '0001'\ndown_revision = None\ndef upgrade():\n    pass\n"

metadata = MetaData()
chat_messages = Table(
    "chat_messages",
    metadata,
    Column("message_id", String(64), primary_key=True),
    Column("chat_id", String(64), nullable=False),
    Column("ref", String(16)),
    Column("role", String(16), nullable=False),
    Column("type", String(16), nullable=False),
    Column("content", LONG, nullable=False),
    Column("tool_name", String(64)),
    Column("tool_call_id", String(64)),
)
chat_clips = Table(
    "chat_clips",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("chat_id", String(64), nullable=False),
    Column("ref", String(16), nullable=False),
    Column("content", LONG, nullable=False),
)


def make_chats(engine: Engine) -> dict[str, Message]:
    """Make the tables of the page with eight chats; give their messages."""
    known: dict[str, Message] = {}
    with engine.begin() as connection:
        metadata.create_all(connection)
        for old in many_sessions(8):
            for message, ref in old.messages:
                known[message.id] = message
                connection.execute(
                    chat_messages.insert().values(
                        message_id=message.id,
                        chat_id=old.name,
                        ref=ref,
                        role=str(message.role),
                        type=TYPES[message.kind],
                        content=message.text,
                        tool_name=message.tool_name,
                        tool_call_id=message.tool_call_id,
                    )
                )
            for ref, _, text in old.latches:
                connection.execute(chat_clips.insert().values(chat_id=old.name, ref=ref, content=text))
    return known


def run_alembic(engine: Engine, root: Path, *argv: str) -> None:
    versions = root / "host" / "versions"
    versions.mkdir(parents=True, exist_ok=True)
    (versions / "first.py").write_text(FIRST)
    (versions / "second.py").write_text(REVISION)
    (root / "host" / "env.py").write_text(ENV)
    config = Config()
    config.set_main_option("script_location", str(root / "host"))
    config.set_main_option("path_separator", "os")
    name, *rest = argv
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        getattr(command, name)(config, *rest)


def rows(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = connection.execute(select(chat_clips).order_by(chat_clips.c.id))
        return [tuple(row) for row in found]


def test_the_revision_of_the_page_repairs_and_takes_back(engine: Engine, tmp_path: Path) -> None:
    """Upgraded, each clip shows on its own message alone; downgraded, rows and columns are those of before."""
    known = make_chats(engine)
    before = rows(engine)
    run_alembic(engine, tmp_path, "upgrade", "head")
    with engine.connect() as connection:
        clips = connection.execute(select(Table("chat_clips", MetaData(), autoload_with=engine))).all()
        held = {(row.chat_id, row.ref): known[row.message_id] for row in connection.execute(select(chat_messages))}
    reader: dict[str, Any] = {}
    exec(READER, reader)  # noqa: S102  # that is the point
    shown = [[message.id for message in known.values() if reader["may_show"](clip, message)] for clip in clips]
    dropped = [[] if clip.reason else [held[clip.chat_id, clip.ref].id] for clip in clips]
    assert shown == dropped
    assert [clip.reason for clip in clips if clip.ref is None] == ["unproven"] * 2
    assert sum(map(len, shown)) == 10
    run_alembic(engine, tmp_path, "downgrade", "0001")
    assert rows(engine) == before
    assert {column["name"] for column in inspect(engine).get_columns("chat_clips")} == set(chat_clips.c.keys())
