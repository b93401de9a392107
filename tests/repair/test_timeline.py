from pathlib import Path

import pytest

from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import digest
from latchguard.repair.timeline import first_change, read_old_bytes, read_timeline
from latchguard.sources.limits import Limits

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bili"


def test_a_latch_sits_where_its_ref_is_and_lands_on_its_message() -> None:
    """Of the stale session: the clip of m00002 sat on m00003, whose own text is shown again."""
    raw = (FIXTURES / "stale.json").read_bytes()
    rows = read_timeline(raw, plan_bytes(raw), Limits())
    marked = [(row.ref, row.kind, row.sat, row.landed) for row in rows if row.sat or row.landed]
    assert marked[:2] == [
        ("m00002", "tool-result", (), ("clip m00002",)),
        ("m00003", "text", ("clip m00003",), ()),
    ]
    assert rows[1].after == rows[2].before
    assert rows[2].after.startswith("Module 1 policy check")


@pytest.mark.parametrize(
    ("name", "expected"), [("stale", 1), ("spread", 2), ("spread-recoverable", 2), ("healthy", None)]
)
def test_the_cache_is_lost_from_the_first_message_that_is_shown_otherwise(name: str, expected: int | None) -> None:
    """A session whose latches only gain their identity keeps its cache."""
    raw = (FIXTURES / f"{name}.json").read_bytes()
    assert first_change(read_timeline(raw, plan_bytes(raw), Limits())) == expected


def test_a_session_that_cannot_be_replayed_has_no_timeline() -> None:
    """Two messages of one id: the findings stand in the report all the same."""
    raw = (FIXTURES / "stale.json").read_bytes()
    twice = raw.replace(b'"h_015a21960c0eed66","role"', b'"h_7e3e3dfa004eac01","role"').replace(
        b'"h_015a21960c0eed66", "role"', b'"h_7e3e3dfa004eac01", "role"'
    )
    assert twice != raw
    assert read_timeline(twice, plan_bytes(twice), Limits()) == ()


def test_the_old_bytes_are_those_of_the_file_or_of_the_runs_copy(tmp_path: Path) -> None:
    """By digest; where neither has them any more there are none."""
    raw = (FIXTURES / "stale.json").read_bytes()
    path = tmp_path / "a.json"
    path.write_bytes(raw)
    assert read_old_bytes(str(path), None, digest(raw)) == raw
    run = "20261130-120000-0123abcd"
    path.rename(f"{path}.latchguard-{run}")
    path.write_bytes(apply_plan(raw, plan_bytes(raw)))
    assert read_old_bytes(str(path), run, digest(raw)) == raw
    assert read_old_bytes(str(path), None, digest(raw)) is None
