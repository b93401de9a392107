"""Formats told apart; undecided is an answer."""

import sqlite3
from pathlib import Path

import pytest

from latchguard.sources.detect import FORMATS, detect_format
from tests.repair.sessions import NAMES, read_fixture, session

CODEX = b'{"timestamp":"2026-11-01T00:00:00Z","type":"session_meta","payload":{"id":"1"}}\n'
CODEX_ITEM = b'{"timestamp":"2026-11-01T00:00:01Z","type":"response_item","payload":{"type":"message","role":"user"}}\n'
CLAUDE = b'{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1","message":{"role":"user","content":"hi"}}\n'
SUMMARY = b'{"type":"summary","summary":"Fix","leafUuid":"u9"}\n'
CHAT = b'{"model":"gpt-5","messages":[{"role":"assistant","tool_calls":[]},{"role":"tool","content":"x"}]}'


@pytest.mark.parametrize("name", NAMES)
def test_sessions_of_the_proxy_are_known(name: str) -> None:
    """Every session file of the kernel is one."""
    assert detect_format(read_fixture(name)[0]) == "bili"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"BILIZSTD1\x01\x01xx", "bili"),
        (b"BILIENC1xx", "bili"),
        (session([], flat=True), "bili"),
        (b"\xef\xbb\xbf" + session([]), "bili"),
        (CHAT, "openai-chat"),
        (CHAT + b"\n" + CHAT + b"\n", "openai-chat"),
        (b'{"input":[{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}]}', "openai-responses"),
        (b'{"contents":[{"role":"user","parts":[{"text":"x"}]}]}', "gemini"),
        (b'{"system":"s","messages":[{"role":"user","content":"x"}]}', "anthropic"),
        (b'[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]', "anthropic"),
        (b'{"id":"s","state":1.5,"messages":[{"id":"1","role":"tool","contentType":"text","text":"x"}]}', None),
        (CODEX + CODEX_ITEM, "codex-jsonl"),
        (CODEX, "codex-jsonl"),
        (CLAUDE, "claude-jsonl"),
        (SUMMARY + CLAUDE, "claude-jsonl"),
        (CLAUDE + CLAUDE[:30], "claude-jsonl"),
        (CLAUDE + CODEX, None),
        (b"", None),
        (b"hello", None),
        (b"{}", None),
        (b"[]", None),
        (b"5", None),
        (b'{"payload":{}}', None),
        (b'{"type":{}}', None),
        (b'{"input":"main.py"}', None),
        (b'{"items":[{"type":"book"},5]}', None),
        (b'{"version":1,"byHash":{},"byRef":{}}', None),
        (b'{"messages":[{"role":"user","content":"x"}]}', None),
        (b"\x00\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_bytes_are_told_apart(raw: bytes, expected: str | None) -> None:
    """Each shape is one format of the list, or undecided."""
    assert detect_format(raw) == expected
    assert expected is None or expected in FORMATS


def test_a_line_separator_inside_a_record_is_no_line_end() -> None:
    """Lines end at newline bytes only."""
    assert detect_format(CLAUDE.replace(b"hi", "a\u2028b".encode())) == "claude-jsonl"


def test_the_name_makes_one_line_a_file_of_records() -> None:
    """A single message record is read as a line of its file."""
    line = b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]}'
    assert detect_format(line, "history.jsonl") == "openai-chat"


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (["latchguard_session", "other"], "latchguard"),
        (["agent_sessions", "agent_messages"], "agents-sqlite"),
        (["agent_sessions"], None),
        (["latchguard_session", "agent_sessions", "agent_messages"], None),
        (["other"], None),
    ],
)
def test_databases_are_told_by_their_tables(tmp_path: Path, tables: list[str], expected: str | None) -> None:
    """The tables in the schema decide; two libraries in one file do not."""
    path = tmp_path / "db.sqlite"
    connection = sqlite3.connect(path)
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    assert detect_format(path.read_bytes()) == expected
