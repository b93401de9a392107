"""The store against raw SQL on the same rows, on SQLite and on each server that answers.

Every row is one run of both, in turns, through the same driver. SQLite runs in this process, whose processor time is
taken; a server's answer is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import text

from benchmarks.core import make_history
from benchmarks.databases import Database, each_database
from benchmarks.table import Row, best_ms, print_table
from latchguard import Identity, Kind, Message, Role, SessionStore
from latchguard.core.identity import hash_fields
from latchguard.store.checking import check_latches
from latchguard.store.connections import reading
from latchguard.store.scrubbing import changed_texts

LATCHES = 1_000
BATCH = 1_000
# How many messages, and in how long a session one more turn is taken.
SIZES = {"sqlite": (100_000, 1_000_000), "postgresql": (50_000, 100_000), "mysql": (50_000, 100_000)}

SELECT_LATCHED = """
    SELECT b.tool_name, b.tool_call_id, b.text, l.hash FROM latchguard_latches l
    CROSS JOIN latchguard_messages m CROSS JOIN latchguard_bodies b
    WHERE l.session_id = 1 AND m.session_id = l.session_id AND m.ref = l.ref
    AND b.session_id = m.session_id AND b.body = m.body
"""
SELECT_RAW = "SELECT id, role, kind, tool_name, tool_call_id, text FROM raw WHERE session = 1 ORDER BY position"
INSERT_RAW = "INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
UPDATE_REFS = "UPDATE latchguard_messages SET ref = ? WHERE session_id = 1 AND message_id = ?"

# What an id, a text and a digest are.
TYPES = {
    "sqlite": ("TEXT", "TEXT", "BLOB"),
    "postgresql": ('TEXT COLLATE "C"', "TEXT", "BYTEA"),
    "mysql": ("VARBINARY(2048)", "LONGTEXT", "BINARY(32)"),
}


@frozen
class Raw:
    """The driver's own connection to the database of a store."""

    driver: Any
    database: str

    def create(self) -> None:
        """Make a table of plain rows."""
        key, long, digest = TYPES[self.database]
        self.run("DROP TABLE IF EXISTS raw")
        self.run(
            f"CREATE TABLE raw (session BIGINT, position BIGINT, id {key}, role VARCHAR(16), kind VARCHAR(16),"
            f" tool_name {long}, tool_call_id {long}, text {long}, hash {digest}, ref BIGINT,"
            " PRIMARY KEY (session, position), UNIQUE (session, id))"
        )

    def run(self, statement: str) -> Any:
        """Run one statement; give what it found."""
        cursor = self.driver.cursor()
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def run_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run one statement for each of *rows*, and commit."""
        cursor = self.driver.cursor()
        cursor.executemany(statement if self.database == "sqlite" else statement.replace("?", "%s"), rows)
        self.driver.commit()


@contextmanager
def open_raw(store: SessionStore) -> Iterator[Raw]:
    """Give the driver's connection, out of the store's engine."""
    found = store.engine.raw_connection()
    yield Raw(found.driver_connection, store.engine.dialect.name)
    found.close()


def texts(size: int) -> list[Message]:
    """Give messages of 650 bytes, half of them calls and results."""
    made = make_history(size)
    filler = "x" * 650
    return [
        Message(one.id, one.role, one.kind, (one.text + filler)[:650], one.tool_name, one.tool_call_id) for one in made
    ]


def raw_rows(messages: Sequence[Message], first: int) -> list[tuple[Any, ...]]:
    """Give what a table of plain rows holds of *messages*, the hash among it."""
    return [
        (
            *(1, n, m.id, m.role.value, m.kind.value, m.tool_name, m.tool_call_id, m.text),
            *(bytes.fromhex(Identity.of(m).hash), n),
        )
        for n, m in enumerate(messages, first)
    ]


def fresh(messages: Sequence[Message]) -> list[Message]:
    """Give equal messages whose identities are not known yet."""
    return [Message(m.id, m.role, m.kind, m.text, m.tool_name, m.tool_call_id) for m in messages]


def append_row(database: Database, messages: list[Message]) -> Row:
    """Append in batches, each a transaction, against executemany of plain rows, hashed too."""
    times = [append_both_ms(database, messages) for _ in range(3)]
    took, base = (min(found) for found in zip(*times, strict=True))
    return Row("append in batches of 1,000", f"{len(messages):,}", took, "raw executemany", base, 2.0)


def append_both_ms(database: Database, messages: list[Message]) -> tuple[float, float]:
    """Append messages that were never hashed, to a new store and to a new table."""
    with database.store() as store, open_raw(store) as raw:
        raw.create()

        def ours(given: list[Message]) -> None:
            for start in range(0, len(given), BATCH):
                store.append("s", given[start : start + BATCH])

        def theirs(given: list[Message]) -> None:
            for start in range(0, len(given), BATCH):
                raw.run_many(INSERT_RAW, raw_rows(given[start : start + BATCH], start))

        clock = clock_of(database.name)
        return best_ms(partial(ours, fresh(messages)), 1, clock), best_ms(partial(theirs, fresh(messages)), 1, clock)


def clock_of(database: str) -> Callable[[], float]:
    """Give the clock that says what work on *database* took, and not what else the machine did."""
    return time.process_time if database == "sqlite" else time.perf_counter


def make_session(store: SessionStore, messages: list[Message], latches: int) -> None:
    """Store *messages* as session `s` with *latches* clips spread over it."""
    for start in range(0, len(messages), 10_000):
        store.append("s", messages[start : start + 10_000])
    results = [message for message in messages if message.kind is Kind.TOOL_RESULT]
    chosen = results[:: max(len(results) // latches, 1)][:latches]
    with store.turn("s", chosen) as turn:
        for message in chosen:
            turn.latch(message, message.text[:100] + " ... " + message.text[-100:])
    if store.engine.dialect.name != "sqlite":  # a server does so by itself, some time later
        with store.engine.begin() as connection:
            for name in ("messages", "bodies", "latches"):
                table = "TABLE " if connection.dialect.name == "mysql" else ""
                connection.execute(text(f"ANALYZE {table}latchguard_{name}"))


def read_rows(store: SessionStore, raw: Raw, size: str) -> Iterator[Row]:
    """Check latches, load and replay, hash every text again."""

    def check() -> None:
        with reading(store.engine, None) as connection:
            assert list(check_latches(connection)) == []

    def join_and_hash() -> None:
        for name, call_id, body, digest in raw.run(SELECT_LATCHED):
            assert hash_fields(name, call_id, body) == digest.hex()

    def scrub() -> None:
        with reading(store.engine, None) as connection:
            assert list(changed_texts(connection)) == []

    def fetch() -> None:
        raw.run(SELECT_RAW)

    def row(work: str, ours: Callable[[], object], against: str, theirs: Callable[[], object], budget: Any) -> Row:
        took, base = compare_ms(raw.database, ours, theirs)
        return Row(work, size, took, against, base, budget)

    yield row("check all latches", check, "one join + re-hash", join_and_hash, 2.0)
    yield row("load, verify the latched, replay", lambda: store.replay("s"), "raw fetchall", fetch, 2.0)
    yield row("and every message built", lambda: list(store.replay("s").messages), "raw fetchall", fetch, None)
    yield row("hash every text again", scrub, "raw fetchall", fetch, 1.2)


def compare_ms(
    database: str, work: Callable[[], object], base: Callable[[], object], repeats: int = 7
) -> tuple[float, float]:
    """Give the best times of *work* and of *base*, taken in turns: a busy machine is busy for both."""
    clock = clock_of(database)
    times = [(best_ms(work, 1, clock), best_ms(base, 1, clock)) for _ in range(repeats)]
    return min(took for took, _ in times), min(took for _, took in times)


def restamp_row(store: SessionStore, raw: Raw, messages: list[Message], size: str) -> Row:
    """Renumber all refs, back and forth, against the same UPDATE in raw SQL."""
    ledgers = [{m.id: f"m{n + shift:05d}" for n, m in enumerate(messages, 1)} for shift in (7, 0)]
    keys = [row[0] for row in raw.run("SELECT message_id FROM latchguard_messages ORDER BY position DESC")]
    raw.driver.commit()
    times: list[tuple[float, float]] = []
    clock = clock_of(raw.database)

    def update(shift: int) -> None:
        raw.run_many(UPDATE_REFS, [(shift + number, key) for number, key in enumerate(keys)])

    for turn in range(4):
        took = best_ms(partial(store.restamp, "s", numbering=ledgers[turn % 2]), 1, clock)
        refs = raw.run("SELECT ref, message_id FROM latchguard_messages")
        times.append((took, best_ms(partial(update, 10**6 * (turn + 1)), 1, clock)))
        raw.run("UPDATE latchguard_messages SET ref = NULL")
        raw.run_many(UPDATE_REFS, refs)  # as the session has it
    took, base = (min(found) for found in zip(*times, strict=True))
    return Row("restamp", size, took, "the same UPDATE in raw SQL", base, 2.0)


def turn_row(database: Database) -> Row:
    """Take one more turn of three messages and a latch on a huge session, against the same on a small one."""
    huge = SIZES[database.name][1]
    numbers = iter(range(10**6))

    def turn(store: SessionStore) -> None:
        new = [Message(f"new{next(numbers)}", Role.USER, Kind.TEXT, "x" * 650) for _ in range(3)]
        with store.turn("s", new) as taken:
            taken.latch(new[0], "clip")

    with database.store() as long, database.store() as short:
        for store, size in ((long, huge), (short, 1_000)):
            make_session(store, [Message(f"h{n}", Role.TOOL, Kind.TOOL_RESULT, f"text {n}") for n in range(size)], 100)
            turn(store)
        took, base = compare_ms(database.name, lambda: turn(long), lambda: turn(short), repeats=25)
    return Row("one more turn", f"{huge:,}", took, "the same on 1,000", base, 2.0)


def rows() -> Iterator[Row]:
    """Give one row per budget and database."""
    for database in each_database():
        for row in rows_of(database, texts(SIZES[database.name][0])):
            yield evolve(row, work=f"{database.name}: {row.work}")


def rows_of(database: Database, messages: list[Message]) -> Iterator[Row]:
    """Give one row per budget."""
    yield append_row(database, messages)
    with database.store() as store, open_raw(store) as raw:
        size = f"{len(messages):,}/{LATCHES:,}"
        make_session(store, messages, LATCHES)
        raw.create()
        raw.run_many(INSERT_RAW, raw_rows(messages, 1))
        yield from read_rows(store, raw, size)
        yield restamp_row(store, raw, messages, size)
    yield turn_row(database)


if __name__ == "__main__":
    print_table(rows())
