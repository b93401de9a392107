"""The session files written by a real kernel: what is expected of each, as exact values."""

import json
from pathlib import Path
from typing import Any

import pytest

from latchguard import replay
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import Plan
from latchguard.sources.bili import load_bili

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bili"
NAMES = sorted(path.name.removesuffix(".expect.json") for path in FIXTURES.glob("*.expect.json"))


def read(name: str) -> tuple[bytes, dict[str, Any]]:
    expected = json.loads((FIXTURES / f"{name}.expect.json").read_bytes())
    assert isinstance(expected, dict)
    return (FIXTURES / f"{name}.json").read_bytes(), expected


def bound(plan: Plan) -> list[tuple[str, str]]:
    return sorted((found.after["message"], found.after["ref"]) for found in latched(plan) if "message" in found.after)


def latched(plan: Plan) -> list[Any]:
    return [found for found in plan.findings if isinstance(found.after, dict)]


def test_fixtures_are_there() -> None:
    """Thirteen sessions, each with its expectation."""
    assert len(NAMES) == 13


@pytest.mark.parametrize("name", NAMES)
def test_latches_go_where_they_belong(name: str) -> None:
    """Each latch is bound to the expected message and ref, or quarantined with the expected reason."""
    raw, expected = read(name)
    plan = plan_bytes(raw)
    assert bound(plan) == sorted((entry["id"], entry["ref"]) for entry in expected["bound"])
    dropped = [found for found in latched(plan) if "reason" in found.after]
    assert [found.before["ref"] for found in dropped] == expected["quarantined"]
    if "reason" in expected:
        assert [found.after["reason"] for found in dropped] == [expected["reason"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_repaired_file_has_nothing_left_to_repair(name: str) -> None:
    """A second plan has no step and no finding, and every latch that is left replays."""
    raw, expected = read(name)
    repaired = apply_plan(raw, plan_bytes(raw))
    again = plan_bytes(repaired)
    assert (again.steps, again.findings) == ((), ())
    assert apply_plan(repaired, again) is repaired
    session = load_bili(repaired)
    shown = replay(session.messages, session.state)
    assert shown.refused == ()
    assert len(shown.applied) == len(expected["bound"])
