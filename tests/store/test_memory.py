"""A stream of a long history takes no more memory than one of a short history."""

import tracemalloc

from latchguard import Kind, Message, Role, SessionStore

SIZES = (2_000, 20_000)


def peak_bytes(store: SessionStore, session: str) -> int:
    tracemalloc.start()
    for _ in store.stream(session):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_stream_takes_flat_memory(sqlite_store: SessionStore) -> None:
    """Ten times the messages, at most a tenth more memory."""
    for size in SIZES:
        history = [Message(str(number), Role.USER, Kind.TEXT, "x" * 500) for number in range(size)]
        sqlite_store.append(f"of {size}", history)
    peak_bytes(sqlite_store, "of 2000")  # what the first run caches
    short, long = (peak_bytes(sqlite_store, f"of {size}") for size in SIZES)
    assert long <= 1.1 * short
