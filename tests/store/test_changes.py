"""What a restamp writes: refs that move past each other while no two rows may share one."""

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from latchguard import Kind, Message, Role, SessionStore
from tests.store.conftest import clear

IDS = [f"id{number}" for number in range(12)]
HISTORY = [Message(message_id, Role.USER, Kind.TEXT, "x") for message_id in IDS]


@st.composite
def numberings(draw: st.DrawFn) -> dict[str, str]:
    """Give refs to the messages: runs of numbers, in any order, with gaps."""
    cuts = draw(st.sets(st.integers(1, len(IDS) - 1), max_size=4))
    runs = draw(st.permutations(list(pairwise([0, *sorted(cuts), len(IDS)]))))
    numbers: dict[int, int] = {}
    last = 0
    for first, end in runs:
        last += draw(st.integers(0, 5))
        for place in range(first, end):
            numbers[place] = last = last + 1
    return {message_id: f"m{numbers[place]:05d}" for place, message_id in enumerate(IDS)}


def shifted(by: int) -> dict[str, str]:
    return {message_id: f"m{number + by:05d}" for number, message_id in enumerate(IDS, 1)}


SWAPPED = shifted(0) | {"id3": "m00008", "id7": "m00004"}


@given(numberings(), numberings())
@example(shifted(5), shifted(0))
@example(shifted(0), shifted(5))
@example(shifted(0), SWAPPED)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_numbering_can_follow_any_other(
    store: SessionStore, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Runs of refs move down, up and past each other, and every message ends on its own."""
    clear(store)
    store.append("s", HISTORY)
    store.restamp("s", numbering=before)
    store.restamp("s", numbering=after)
    assert store.state("s").refs == after


def test_refs_move_down_on_a_sqlite_that_goes_through_rows_backwards(sqlite_store: SessionStore) -> None:
    """The order in which a statement takes its rows is the database's own."""
    event.listen(
        sqlite_store.engine, "begin", lambda found: found.exec_driver_sql("PRAGMA reverse_unordered_selects=ON")
    )
    sqlite_store.append("s", HISTORY)
    sqlite_store.restamp("s", numbering=shifted(5))
    sqlite_store.restamp("s", numbering=shifted(0))
    assert sqlite_store.state("s").refs == shifted(0)
