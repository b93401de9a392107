"""A host's own tables, whose latches have no identity: names of its own, poisoned sessions among healthy ones."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, Text, insert, select
from sqlalchemy.dialects import mysql

from latchguard import Kind, Message, Role
from latchguard.sources.bili import VIEWS, view_session
from latchguard.sources.framing import unframe
from latchguard.sources.limits import Limits
from latchguard.sources.reading import read_json
from tests.repair.sessions import clip, long_text

Mark: TypeAlias = tuple[str, str | None, str]  # ref, view, text
LONG: Final = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")

metadata = MetaData()
lines = Table(
    "talk_lines",
    metadata,
    Column("talk", String(64), primary_key=True),
    Column("line", String(64), primary_key=True),
    Column("place", String(32)),
    Column("speaker", String(32), nullable=False),
    Column("sort", String(32), nullable=False),
    Column("words", LONG, nullable=False),
    Column("tool", String(64)),
    Column("call_no", String(64)),
)
clips = Table(
    "talk_clips",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("talk", String(64), nullable=False),
    Column("place", String(32)),
    Column("words", LONG, nullable=False),
    Column("look", String(32)),
    Column("made_hash", String(64)),
    Column("made_role", String(16)),
    Column("made_kind", String(16)),
    Column("why", String(32)),
)
COLUMNS: Final = {
    "session": "talk",
    "ref": "place",
    "text": "words",
    "messages.id": "line",
    "messages.role": "speaker",
    "messages.kind": "sort",
    "tool_name": "tool",
    "tool_call_id": "call_no",
    "latches.hash": "made_hash",
    "latches.role": "made_role",
    "latches.kind": "made_kind",
    "latches.reason": "why",
    "latches.view": "look",
}


@frozen
class OldSession:
    """A session of old: its messages with what they hold, and its latches."""

    name: str
    messages: Sequence[tuple[Message, str | None]]
    latches: Sequence[Mark]


def of_fixture(name: str, raw: bytes) -> OldSession:
    """Give a session file of the kernel as rows."""
    view = view_session(read_json(unframe(raw, Limits()).body, Limits()))
    messages = [(entry.message, view.refs.held_ref(entry.message.id)) for entry in view.messages]
    latches = [(latch.ref, "view" if latch.container == VIEWS else None, latch.text) for latch in view.latches]
    return OldSession(name, messages, latches)


def many_sessions(count: int) -> Iterator[OldSession]:
    """Give sessions in a cycle of four: healthy, moved onto a tool call, one clip of a lost message, no latch."""
    for number in range(count):
        name, seed = f"s{number:06d}", number * 10
        question = Message(f"{name}-a", Role.USER, Kind.TEXT, long_text(seed, 900))
        call = Message(f"{name}-b", Role.ASSISTANT, Kind.TOOL_CALL, '{"q":1}', "bash", "c1")
        result = Message(f"{name}-c", Role.TOOL, Kind.TOOL_RESULT, long_text(seed + 1, 900), None, "c1")
        lost = long_text(seed + 2, 900)
        sets: list[list[Mark]] = [
            [("m00001", None, short_clip(question.text)), ("m00003", "crushed", short_clip(result.text))],
            [("m00002", None, short_clip(result.text)), ("m00003", "crushed", short_clip(question.text))],
            [("m00001", None, short_clip(lost)), ("m00003", None, short_clip(result.text))],
            [],
        ]
        latches = sets[number % 4]
        yield OldSession(name, [(question, "m00001"), (call, "m00002"), (result, "m00003")], latches)


def short_clip(text: str) -> str:
    return clip(text, head=300, tail=300)


def make_tables(connection: Connection, sessions: Iterable[OldSession]) -> None:
    """Make the host's tables, with *sessions* in them."""
    metadata.create_all(connection)
    for old in sessions:
        rows = [
            {
                "talk": old.name,
                "line": message.id,
                "place": ref,
                "speaker": str(message.role),
                "sort": str(message.kind),
                "words": message.text,
                "tool": message.tool_name,
                "call_no": message.tool_call_id,
            }
            for message, ref in old.messages
        ]
        connection.execute(insert(lines), rows)
        marks = [{"talk": old.name, "place": ref, "look": view, "words": text} for ref, view, text in old.latches]
        if marks:
            connection.execute(insert(clips), marks)


def rows_of(connection: Connection, *tables: Table) -> dict[str, list[tuple[Any, ...]]]:
    """Give every row of *tables*, by the primary key."""
    return {
        table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
        for table in tables
    }
