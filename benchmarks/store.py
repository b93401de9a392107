"""The store on SQLite against raw `sqlite3` on the same rows.

Every row is one run of both, with the same pragmas; SQLite does not flush, so that the disk is not what is measured.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event

from benchmarks.core import make_history
from benchmarks.table import Row, best_ms, print_table
from latchguard import Identity, Kind, Message, Role, SessionStore
from latchguard.core.identity import hash_fields
from latchguard.store.connections import reading
from latchguard.store.scrubbing import changed_texts
from latchguard.store.views import find_header, replay_holders

SIZE = 100_000
LATCHES = 1_000
BATCH = 1_000
HUGE = 1_000_000

SELECT_LATCHED = """
    SELECT b.tool_name, b.tool_call_id, b.text, l.shown, l.text FROM latchguard_latches l
    CROSS JOIN latchguard_messages m ON m.session_id = l.session_id AND m.ref = l.ref
    CROSS JOIN latchguard_bodies b ON b.session_id = m.session_id AND b.body = m.body WHERE l.session_id = 1
"""
CREATE_RAW = """
    CREATE TABLE raw (session INTEGER, position INTEGER, id TEXT, role TEXT, kind TEXT, tool_name TEXT,
    tool_call_id TEXT, text TEXT, hash BLOB, ref INTEGER, PRIMARY KEY (session, position), UNIQUE (session, id))
"""


def texts(size: int) -> list[Message]:
    """Give messages of 650 bytes, a fifth of them calls."""
    made = make_history(size)
    filler = "x" * 650
    return [
        Message(one.id, one.role, one.kind, (one.text + filler)[:650], one.tool_name, one.tool_call_id) for one in made
    ]


def open_store(path: Path) -> SessionStore:
    """Open a store that does not flush."""
    store = SessionStore(f"sqlite:///{path}")
    event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    store.upgrade()
    return store


def open_raw(path: Path) -> sqlite3.Connection:
    """Open a file of plain rows that does not flush."""
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA synchronous=OFF")
    raw.execute(CREATE_RAW)
    return raw


def raw_rows(messages: Sequence[Message], first: int) -> list[tuple[Any, ...]]:
    """Give what a table of plain rows holds of *messages*, the hash among it."""
    return [
        (1, n, m.id, m.role, m.kind, m.tool_name, m.tool_call_id, m.text, bytes.fromhex(Identity.of(m).hash), n)
        for n, m in enumerate(messages, first)
    ]


def fresh(messages: Sequence[Message]) -> list[Message]:
    """Give equal messages whose identities are not known yet."""
    return [Message(m.id, m.role, m.kind, m.text, m.tool_name, m.tool_call_id) for m in messages]


def append_rows(folder: Path, messages: list[Message]) -> Row:
    """Append in batches, each a transaction, against executemany of plain rows, hashed too."""
    places = iter(range(100))

    def ours(given: list[Message]) -> None:
        store = open_store(folder / f"ours{next(places)}.db")
        for start in range(0, len(given), BATCH):
            store.append("s", given[start : start + BATCH])
        store.close()

    def theirs(given: list[Message]) -> None:
        raw = open_raw(folder / f"raw{next(places)}.db")
        for start in range(0, len(given), BATCH):
            rows = raw_rows(given[start : start + BATCH], start)
            raw.executemany("INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            raw.commit()
        raw.close()

    took, base = best_of_fresh(ours, messages), best_of_fresh(theirs, messages)
    return Row("append in batches of 1,000", f"{SIZE:,}", took, "raw executemany", base, 2.0)


def best_of_fresh(work: Callable[[list[Message]], None], messages: list[Message]) -> float:
    """Give the best of three runs, each on messages that were never hashed."""
    return min(best_ms(partial(work, fresh(messages)), repeats=1) for _ in range(3))


def make_session(store: SessionStore, messages: list[Message], latches: int) -> None:
    """Store *messages* as session `s` with *latches* clips spread over it."""
    for start in range(0, len(messages), 10_000):
        store.append("s", messages[start : start + 10_000])
    results = [message for message in messages if message.kind is Kind.TOOL_RESULT]
    chosen = results[:: max(len(results) // latches, 1)][:latches]
    with store.turn("s", chosen) as turn:
        for message in chosen:
            turn.latch(message, message.text[:100] + " ... " + message.text[-100:])


def read_rows(store: SessionStore, raw: sqlite3.Connection) -> Iterator[Row]:
    """Check latches, load and replay, hash every text again."""

    def check() -> None:
        with reading(store.engine, None) as connection:
            outcome, _ = replay_holders(connection, find_header(connection, "s"))
            assert len(outcome.applied) == LATCHES

    def join_and_hash() -> None:
        for name, call_id, text, _, latched in file.execute(SELECT_LATCHED).fetchall():
            hash_fields(name, call_id, text)
            hash_fields(name, call_id, latched)

    def scrub() -> None:
        with reading(store.engine, None) as connection:
            assert list(changed_texts(connection)) == []

    def fetch() -> None:
        columns = "id, role, kind, tool_name, tool_call_id, text"
        raw.execute(f"SELECT {columns} FROM raw WHERE session = 1 ORDER BY position").fetchall()  # noqa: S608

    file = sqlite3.connect(str(store.engine.url.database))
    size = f"{SIZE:,}/{LATCHES:,}"
    yield Row("check all latches", size, best_ms(check), "one join + re-hash", best_ms(join_and_hash), 2.0)
    base = best_ms(fetch)
    yield Row("load, verify the latched, replay", size, best_ms(lambda: store.replay("s")), "raw fetchall", base, 2.0)
    yield Row("and every message built", size, best_ms(lambda: list(store.replay("s").messages)), "raw fetchall", base)
    yield Row("hash every text again", f"{SIZE:,}", best_ms(scrub), "raw fetchall", base, 1.2)
    file.close()


def restamp_row(store: SessionStore, messages: list[Message]) -> Row:
    """Renumber all refs, back and forth, against the same UPDATE in raw SQL."""
    ledgers = [{m.id: f"m{n + shift:05d}" for n, m in enumerate(messages, 1)} for shift in (7, 0, 7, 0, 7, 0)]
    left = iter(ledgers)
    took = best_ms(lambda: store.restamp("s", numbering=next(left)), repeats=4)
    file = sqlite3.connect(str(store.engine.url.database))
    file.execute("PRAGMA synchronous=OFF")
    keys = [row[0] for row in file.execute("SELECT message_id FROM latchguard_messages ORDER BY position DESC")]
    shifts = iter((10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6))

    def update() -> None:
        shift = next(shifts)
        rows = [(shift + number, key) for number, key in enumerate(keys)]
        file.executemany("UPDATE latchguard_messages SET ref = ? WHERE session_id = 1 AND message_id = ?", rows)
        file.commit()

    base = best_ms(update, repeats=4)
    file.close()
    return Row("restamp", f"{SIZE:,}/{LATCHES:,}", took, "the same UPDATE in raw SQL", base, 2.0)


def turn_row(folder: Path) -> Row:
    """Take one more turn of three messages and a latch on a huge session, against the same on a small one."""
    times = {}
    for size in (1_000, HUGE):
        store = open_store(folder / f"turn{size}.db")
        make_session(store, [Message(f"h{n}", Role.TOOL, Kind.TOOL_RESULT, f"text {n}") for n in range(size)], 100)
        numbers = iter(range(10**6))

        def turn(store: SessionStore = store, numbers: Iterator[int] = numbers) -> None:
            new = [Message(f"new{next(numbers)}", Role.USER, Kind.TEXT, "x" * 650) for _ in range(3)]
            with store.turn("s", new) as taken:
                taken.latch(new[0], "clip")

        turn()
        times[size] = best_ms(turn, repeats=15)
        store.close()
    return Row("one more turn", f"{HUGE:,}", times[HUGE], "the same on 1,000", times[1_000], 2.0)


def rows() -> Iterator[Row]:
    """Give one row per budget."""
    messages = texts(SIZE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield append_rows(folder, messages)
        store, raw = open_store(folder / "store.db"), open_raw(folder / "raw.db")
        make_session(store, messages, LATCHES)
        raw.executemany("INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", raw_rows(messages, 1))
        raw.commit()
        yield from read_rows(store, raw)
        yield restamp_row(store, messages)
        store.close()
        raw.close()
        yield turn_row(folder)


if __name__ == "__main__":
    print_table(rows())
