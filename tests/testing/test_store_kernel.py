from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from latchguard import SessionStore
from latchguard.testing import NonConformanceError, check_store
from latchguard.testing.machine import EVENTS
from tests.testing.fake_stores import LatchesByCachedRef, MemoryStore, ReplayDrops, TwoTransactions


def sqlite_store(folder: Path) -> SessionStore:
    """Give the real store on a file; durability is not what these tests are about."""
    store = SessionStore(f"sqlite:///{folder}/store.db")
    event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    store.upgrade()
    return store


def test_the_store_conforms(tmp_path: Path) -> None:
    """The real store keeps the same laws as the core, with each of its statements made to fail in a restamp."""
    result = check_store(lambda: sqlite_store(tmp_path), runs=4, steps=15, seed=1)
    assert result.steps > 4 * 15


@pytest.mark.long
def test_the_store_conforms_for_long(tmp_path: Path) -> None:
    """300 runs of 40 steps on the real store, and they get there."""
    result = check_store(lambda: sqlite_store(tmp_path), runs=300, steps=40, seed=2)
    assert result.events[EVENTS[0]] >= 0.5 * result.runs


def test_a_store_in_memory_conforms() -> None:
    """The laws ask for the methods, not for a database."""
    assert check_store(MemoryStore, runs=15, steps=25, seed=3, fail_at=MemoryStore.fail_at).runs >= 15


@pytest.mark.parametrize(
    ("factory", "laws"),
    [
        (
            LatchesByCachedRef,
            {"not-into-arguments", "right-message", "latch-shows", "twins-stay-two", "right-reason"},
        ),
        (ReplayDrops, {"idempotent", "latch-shows", "survives-reload", "nothing-vanishes", "right-reason"}),
        (TwoTransactions, {"atomic"}),
    ],
)
def test_a_broken_store_is_found(factory: Callable[[], MemoryStore], laws: set[str]) -> None:
    """A latch by a ref of before a restamp, a replay that writes, and a restamp in two transactions."""
    with pytest.raises(NonConformanceError) as caught:
        check_store(factory, runs=200, steps=30, seed=1, fail_at=MemoryStore.fail_at)
    assert caught.value.violation.law.name in laws
    assert len(caught.value.steps) <= 10
