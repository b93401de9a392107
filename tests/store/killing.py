"""Run a piece of work in a child that dies at a chosen moment."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from latchguard import SessionStore

FINISHED, FAILED = 0, 1
INSTRUCTIONS = 20  # of SQLite, between two looks


def run_and_kill(work: Callable[[], object]) -> int:
    """Run *work* in a forked child; give its exit status, negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must not return into the test runner
            traceback.print_exc()
            os._exit(FAILED)
        os._exit(FINISHED)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    """End as a power cut ends a process: nothing runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying_store(path: Path, step: int) -> SessionStore:
    """Give a store whose process dies at moment *step*: before a statement, which is after the last, or a commit."""
    store = open_store(path)
    left = [step]

    def count(*_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    for moment in ("before_cursor_execute", "commit"):
        event.listen(store.engine, moment, count)
    return store


def open_store(path: Path) -> SessionStore:
    """Open a SQLite file; what a killed process leaves behind is in the system's cache, so none is flushed."""
    store = SessionStore(f"sqlite:///{path}")
    event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return store


def spill(connection: Any, _: object) -> None:
    """Let SQLite write pages to the file in the middle of a transaction, so that a kill there leaves a half file."""
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=1")


def die_at_instruction(number: int) -> None:
    """Let this process, a child, be killed about when SQLite has run *number* instructions."""
    left = [number // INSTRUCTIONS]

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            die()

    event.listen(Engine, "connect", watched_by(count))


def count_instructions(work: Callable[[], object]) -> int:
    """Give how many instructions *work* takes."""
    calls: list[None] = []
    watch = watched_by(lambda: calls.append(None))
    event.listen(Engine, "connect", watch)
    try:
        work()
    finally:
        event.remove(Engine, "connect", watch)
    return len(calls) * INSTRUCTIONS


def watched_by(count: Callable[[], None]) -> Callable[[Any, object], None]:
    def prepare(connection: Any, record: object) -> None:
        spill(connection, record)
        connection.set_progress_handler(count, INSTRUCTIONS)

    return prepare


def die_beyond(size_bytes: int) -> None:
    """Let this process, a child, be ended by the first write behind *size_bytes* of any file, its part before done.

    SQLite rolls back and checkpoints in one call, where no hook of Python's reaches.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
    event.listen(Engine, "connect", spill)


def dump(path: Path) -> list[str]:
    """Give all that a SQLite file holds."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()
