"""What a history that the host owns costs here, against one whose texts are kept here too, on SQLite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from benchmarks.databases import open_store
from benchmarks.store import BATCH, fresh, texts
from benchmarks.table import Row, best_ms
from latchguard import Message

SIZE = 10_000


def append(path: Path, given: Sequence[Message], *, keep_texts: bool) -> int:
    """Append in batches to a new file; give its size in bytes."""
    store = open_store(path)
    store.keep_texts = keep_texts
    for start in range(0, len(given), BATCH):
        store.append("s", given[start : start + BATCH])
    store.close()
    return path.stat().st_size


def rows() -> Iterator[Row]:
    """Give the time of appending, then the size of the file."""
    messages, numbers = texts(SIZE), count()
    took: dict[bool, float] = {}
    size_bytes: dict[bool, int] = {}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(5):
            for keep in (True, False):
                path, given = Path(name) / f"{next(numbers)}.db", fresh(messages)

                def work(path: Path = path, given: Sequence[Message] = given, *, keep: bool = keep) -> None:
                    size_bytes[keep] = append(path, given, keep_texts=keep)

                took[keep] = min(took.get(keep, 1e9), best_ms(work, repeats=1))
    size = f"{SIZE:,}"
    yield Row("append without texts", size, took[False], "the same with texts", took[True])
    yield Row("that file, in KiB", size, size_bytes[False] / 1024, "the same with texts", size_bytes[True] / 1024)
