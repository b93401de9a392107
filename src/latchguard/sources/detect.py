r"""Tell the format of stored bytes; undecided is an answer.

1. Magic bytes first (a frame, SQLite), then one JSON document, then the records of JSON lines.
2. A SQLite file is told by the tables its schema names; one with tables of both libraries is undecided.
3. Lines are split at `\n` bytes only. The first records that parse decide, a torn one among them does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import orjson

from latchguard.sources.bili import is_session
from latchguard.sources.framing import ENCRYPTED, FRAMED
from latchguard.sources.reading import BOM

__all__ = ["FORMATS", "detect_format", "detect_value"]

FORMATS: Final = (
    "latchguard",
    "bili",
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "codex-jsonl",
    "claude-jsonl",
    "agents-sqlite",
)
_SQLITE: Final = b"SQLite format 3\0"
_SCHEMA_BYTES: Final = 2**16  # the schema's tables stand on the first pages
_TABLES: Final = {"latchguard": (b"latchguard_",), "agents-sqlite": (b"agent_sessions", b"agent_messages")}
_HISTORIES: Final = ("messages", "contents", "input", "items")  # the keys under which a body keeps its history
_RECORDS_LOOKED_AT: Final = 20
_CODEX_TYPES: Final = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
)


def detect_format(raw: bytes, name: str = "") -> str | None:
    """Say of which format of `FORMATS` the bytes are, or None where they do not decide.

    Args:
        raw: the whole file.
        name: its file name, where there is one; `.jsonl` makes one line a file of one record.

    Guarantees:
        Pure; never raises. The bytes are parsed once, nothing is decompressed.
    """
    if raw.startswith((FRAMED, ENCRYPTED)):
        return "bili"
    if raw.startswith(_SQLITE):
        schema = raw[:_SCHEMA_BYTES]
        found = [name for name, tables in _TABLES.items() if all(table in schema for table in tables)]
        return found[0] if len(found) == 1 else None
    if name.endswith(".jsonl"):
        return _detect_lines(raw)
    try:
        value = orjson.loads(raw.removeprefix(BOM))
    except (orjson.JSONDecodeError, ValueError):
        return _detect_lines(raw)
    return detect_value(value)


def detect_value(value: Any) -> str | None:
    """Say of which format a JSON document is, or None. A single record of JSON lines counts as its file."""
    if isinstance(value, dict):
        return "bili" if is_session(value) else _detect_record(value) or _wire(value)
    return _wire(value)


def _detect_lines(raw: bytes) -> str | None:
    found = {_detect_record(record) or _wire(record) or _wire([record]) for record in _records(raw)} - {None}
    return found.pop() if len(found) == 1 else None


def _records(raw: bytes) -> Iterator[Any]:
    position = 0
    for _ in range(_RECORDS_LOOKED_AT):
        if position >= len(raw):
            return
        end = raw.find(b"\n", position)
        end = len(raw) if end < 0 else end
        with suppress(orjson.JSONDecodeError, ValueError):
            yield orjson.loads(raw[position:end])
        position = end + 1


def _detect_record(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    kind = record.get("type")
    if isinstance(kind, str) and kind in _CODEX_TYPES and isinstance(record.get("payload"), dict):
        return "codex-jsonl"
    if "sessionId" in record and ("uuid" in record or "leafUuid" in record or "message" in record):
        return "claude-jsonl"
    return "claude-jsonl" if record.get("type") == "summary" and "leafUuid" in record else None


def _wire(value: Any) -> str | None:
    from latchguard.wire.detect import detect_wire  # noqa: PLC0415  # the wires: a third of the start, for few sources

    wire = detect_wire(value)
    if wire is None:
        return None
    stored = value if isinstance(value, list) else next((value[key] for key in _HISTORIES if key in value), None)
    entries = [entry for entry in stored if isinstance(entry, dict)] if isinstance(stored, list) else []
    if any("contentType" in entry for entry in entries):
        return None  # messages of a `bili` session whose state is damaged: no provider's, whatever their roles
    speaks = detect_wire(entries) is not None or any(isinstance(entry.get("role"), str) for entry in entries)
    return str(wire) if speaks else None  # a key `items` or `input` alone is no history
