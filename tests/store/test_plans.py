"""What the hot statements cost the database: they read what a turn concerns, never the history."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from latchguard import Kind, Message, Role, SessionStore
from tests.store.conftest import clear, make_database

SIZE = 5000
LATCHES = 10
BOUND = 100  # rows of messages or bodies that one statement may touch
HISTORY = [Message(f"id{number}", Role.USER, Kind.TEXT, f"text {number}") for number in range(SIZE)]
NEXT = Message("next", Role.USER, Kind.TEXT, "next")
BIG = re.compile("latchguard_(messages|bodies)")


def take_turn(store: SessionStore) -> None:
    with store.turn("s", [*HISTORY[-3:], NEXT]) as turn:
        turn.latch(NEXT, "clip")


HOT: dict[str, Callable[[SessionStore], object]] = {
    "turn": take_turn,
    "append": lambda store: store.append("s", [HISTORY[0], NEXT], protected=["id3"]),
    "latch": lambda store: store.latch("s", HISTORY[17], "clip", view="v"),
    "unlatch": lambda store: store.unlatch("s", HISTORY[0]),
    "edit": lambda store: store.edit("s", Message("id9", Role.USER, Kind.TEXT, "edited")),
    "replay": lambda store: store.replay("s", HISTORY[:1]),
    "resolve": lambda store: store.resolve("s", "m00077"),
    "stream": lambda store: next(store.stream("s")),
}


@pytest.fixture(scope="module")
def filled(shared_store: SessionStore) -> SessionStore:
    """A session of many messages and few latches, known to the planner."""
    store = shared_store
    clear(store)
    store.append("s", HISTORY)
    for message in HISTORY[:: SIZE // LATCHES]:
        store.latch("s", message, "clip")
    # SQLite keeps no statistics by itself: its plans must be right without.
    statements = {"sqlite": [], "postgresql": ["ANALYZE"]}.get(
        store.engine.dialect.name, [f"ANALYZE TABLE latchguard_{name}" for name in ("messages", "bodies", "latches")]
    )
    with store.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    return store


def big_statements(store: SessionStore, use: Callable[[SessionStore], object]) -> list[tuple[str, Any]]:
    """Give the statements on the big tables that *use* runs, with their parameters; of many alike the first."""
    found: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        if not statement.startswith("INSERT") and BIG.search(statement):
            found.append((statement, parameters[0] if many else parameters))

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        use(store)
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
    return found


def rows_touched(connection: Connection, statement: str, parameters: Any) -> int:
    """Give how many rows of a big table a statement reads, as the database counts them."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
        return max(postgresql_rows(plan[0]["Plan"]), default=0)
    if dialect == "mysql":
        plan = json.loads(connection.exec_driver_sql(f"ANALYZE FORMAT=JSON {statement}", parameters).scalar_one())
        return max(mariadb_rows(plan), default=0)
    steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    return max((sqlite_rows(step[-1]) for step in steps), default=0)


def postgresql_rows(node: dict[str, Any]) -> Iterator[int]:
    if BIG.fullmatch(node.get("Relation Name", "")):
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        yield int((node["Actual Rows"] + removed) * node["Actual Loops"])
    for inner in node.get("Plans", []):
        yield from postgresql_rows(inner)


def mariadb_rows(node: Any) -> Iterator[int]:
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, dict | list):
            yield from mariadb_rows(value)
    if isinstance(node, dict) and BIG.fullmatch(str(node.get("table_name", ""))):
        yield int((node.get("r_rows") or 0) * (node.get("r_loops") or 1))


def sqlite_rows(step: str) -> int:
    """A scan reads all; a search is narrow where it is by session and one more column."""
    if not BIG.search(step):
        return 0
    return 1 if step.startswith("SEARCH") and re.search(r"session_id=\? AND \w+[=>]\?", step) else SIZE


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_what_it_concerns(filled: SessionStore, name: str) -> None:
    """None of its statements touches more than a hundred rows of a session of five thousand messages."""
    bound = 1001 if name == "stream" else BOUND  # a stream reads a thousand at a time
    found = big_statements(filled, HOT[name])
    assert found
    with filled.engine.connect() as connection:
        for statement, parameters in found:
            assert rows_touched(connection, statement, parameters) <= bound, statement
        connection.rollback()


def test_a_scan_would_be_seen(filled: SessionStore) -> None:
    """The positive control: reading the whole history does count its rows."""
    found = big_statements(filled, lambda store: store.state("s"))
    with filled.engine.connect() as connection:
        assert max(rows_touched(connection, *one) for one in found) >= SIZE


@pytest.fixture
def new_database() -> Iterator[str]:
    """The URL of a database of PostgreSQL that knows nothing of its tables yet."""
    yield from make_database("postgresql")


def test_a_plan_made_while_the_table_was_small_reads_what_it_concerns(new_database: str) -> None:
    """PostgreSQL keeps the plan of a statement that came often; a look-up in a long history still reads few rows."""
    store = SessionStore(new_database)
    store.upgrade()
    for start in range(0, 14_000, 1_000):
        new = [Message(f"id{number}", Role.USER, Kind.TEXT, "x") for number in range(start, start + 1_000)]
        with store.engine.begin() as connection:
            store.append("s", new, connection=connection)
            counted = text(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
                " WHERE relname = 'latchguard_messages'"
            )
            read = connection.execute(counted).scalar_one()
    store.close()
    assert read <= BOUND
