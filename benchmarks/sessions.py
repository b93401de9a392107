"""A database of a million sessions, and a session of a million messages: do a turn, a page and a stream notice?

The rows are copies of one real session's, made inside the database. Turns are taken on sessions far apart, so that
each finds its pages cold in SQLite's cache. Both sides in turns; the median counts, since no two turns are the same.
"""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from attrs import evolve
from sqlalchemy import Table, text, update

from benchmarks.databases import Database, each_database
from benchmarks.store import clock_of
from benchmarks.table import Row, best_ms, print_table
from latchguard import Kind, Message, Role, SessionStore
from latchguard.store.tables import bodies, latches, messages, sessions

# How many sessions, and how many messages in a long one.
SIZES = {"sqlite": 1_000_000, "postgresql": 1_000_000, "mysql": 100_000}
FEW = 1_000
CLIPS = 100
TURNS = 101
PAGE = 1_000
STRIDE = 617_339  # shares no divisor with a power of ten: each turn another session, far from the last
BASE = 10_000_000  # so that all names have as many digits
NAME = f"CAST({BASE} + n AS CHAR(8))"
TEN = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
NUMBERS = f"SELECT {' + '.join(f'd{p}.d * {10**p}' for p in range(6))} AS n FROM " + " CROSS JOIN ".join(  # noqa: S608
    f"({TEN}) AS d{p}" for p in range(6)
)
HISTORY = [
    Message("q", Role.USER, Kind.TEXT, "a question " * 10),
    Message("c", Role.ASSISTANT, Kind.TOOL_CALL, '{"q": 1}', "search", "c"),
    Message("r", Role.TOOL, Kind.TOOL_RESULT, "a result " * 20, None, "c"),
]


def copy_rows(store: SessionStore, table: Table, size: int, **changed: str) -> None:
    """Make *size* rows of each in *table*; *changed* gives the columns that differ, from the number `n` of a copy."""
    names = [column.name for column in table.c if column.name != "id" or "id" in changed]
    values = ", ".join(changed.get(name, name) for name in names)
    with store.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {values}"  # noqa: S608  # names of our own tables
                f" FROM {table.name} CROSS JOIN ({NUMBERS}) AS made WHERE n BETWEEN 1 AND {size - 1}"
            )
        )


def fill_sessions(store: SessionStore, size: int) -> None:
    """Store *size* sessions of three messages and a clip."""
    store.append(str(BASE), HISTORY)
    store.latch(str(BASE), HISTORY[2], "clip")
    for table in (messages, bodies, latches):
        copy_rows(store, table, size, session_id="1 + n")
    copy_rows(store, sessions, size, id="1 + n", name=NAME)
    analyze(store)


def fill_messages(store: SessionStore, size: int) -> None:
    """Store one session of *size* messages and a hundred clips."""
    store.append("s", HISTORY[:1])
    store.latch("s", HISTORY[0], "clip")
    copy_rows(store, messages, size, position="1 + n", ref="1 + n", body="1 + n", message_id=NAME)
    copy_rows(store, bodies, size, body="1 + n")
    copy_rows(store, latches, CLIPS, ref=f"n * {size // CLIPS}")
    with store.engine.begin() as connection:
        connection.execute(update(sessions).values(ref_cursor=size + 1, next_number=size + 1))
    analyze(store)


def analyze(store: SessionStore) -> None:
    """Let a server count its rows now; it does so by itself, some time later."""
    if (name := store.engine.dialect.name) != "sqlite":
        with store.engine.begin() as connection:
            for table in (sessions, messages, bodies, latches):
                connection.execute(text(f"ANALYZE {'TABLE ' if name == 'mysql' else ''}{table.name}"))


def compare_ms(database: Database, work: Callable[[], object], base: Callable[[], object]) -> tuple[float, float]:
    """Give the median times of *work* and of *base*, taken in turns."""
    clock = clock_of(database.name)
    times = [(best_ms(work, 1, clock), best_ms(base, 1, clock)) for _ in range(TURNS)]
    return statistics.median(took for took, _ in times), statistics.median(took for _, took in times)


def session_rows(database: Database) -> Iterator[Row]:
    """Take a turn with one new message and a clip, and read a page of names, among many sessions and among few."""

    def turns(store: SessionStore, size: int) -> Callable[[], None]:
        numbers = count(1)

        def turn() -> None:
            session = str(BASE + next(numbers) * STRIDE % size)
            with store.turn(session, [*HISTORY, Message("new", Role.USER, Kind.TEXT, "x" * 200)]) as taken:
                taken.latch(HISTORY[0], "another clip")

        return turn

    def pages(store: SessionStore, size: int) -> Callable[[], None]:
        numbers = count(1)

        def page() -> None:
            after = str(BASE + next(numbers) * STRIDE % (size - PAGE)) if size > PAGE else None
            assert len(store.sessions(after=after, limit=PAGE)) == PAGE

        return page

    size = SIZES[database.name]
    with database.store() as many, database.store() as few:
        fill_sessions(many, size)
        fill_sessions(few, FEW)
        for name, work, budget in (("one more turn", turns, 1.2), ("a page of 1,000 names", pages, None)):
            took = compare_ms(database, work(many, size), work(few, FEW))
            yield Row(name, f"{size:,}", took[0], f"among {FEW:,} sessions", took[1], budget)


def stream_rows(database: Database) -> Iterator[Row]:
    """Stream what the model sees of a long session and of a shorter one: time per message, and peak memory."""
    long, short = SIZES[database.name], SIZES[database.name] // 10
    each_us: list[float] = []
    peak_kib: list[float] = []
    for size in (long, short):
        with database.store() as store:
            fill_messages(store, size)
            read = partial(read_stream, store, size)
            each_us.append(best_ms(read, 3, clock_of(database.name)) * 1000 / size)
            peak_kib.append(peak_bytes(read) / 1024)
    yield Row("stream, 1,000 messages of", f"{long:,}", each_us[0], f"of {short:,}", each_us[1])
    yield Row("peak memory of it, in KiB", f"{long:,}", peak_kib[0], f"of {short:,}", peak_kib[1], 1.1)


def read_stream(store: SessionStore, size: int) -> None:
    """Read a stream to its end."""
    read = clips = 0
    for message in store.stream("s"):
        read += 1
        clips += message.text == "clip"
    assert (read, clips) == (size, CLIPS)


def peak_bytes(work: Callable[[], None]) -> int:
    """Give the most that *work* holds at a time."""
    gc.collect()  # what Python keeps to use again is not traced: it must be empty for both
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def rows() -> Iterator[Row]:
    """Give what a million costs, per database."""
    for database in each_database():
        for found in (session_rows, stream_rows):
            for row in found(database):
                yield evolve(row, work=f"{database.name}: {row.work}")


if __name__ == "__main__":
    print_table(rows())
