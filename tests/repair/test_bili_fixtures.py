"""The session files written by a real kernel: what is expected of each, as exact values."""

import json
from typing import Any

import pytest

from latchguard import PLACEHOLDER_ARGUMENTS, Finding, replay
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import Plan
from latchguard.sources.bili import load_bili
from tests.repair.sessions import NAMES, messages_of, read_fixture, state_of


def latched(plan: Plan) -> list[Finding]:
    return [found for found in plan.findings if isinstance(found.after, dict)]


def dropped(plan: Plan) -> list[Finding]:
    return [found for found in latched(plan) if "reason" in found.after]


def repair(name: str) -> bytes:
    raw, _ = read_fixture(name)
    return apply_plan(raw, plan_bytes(raw))


def stored_latches(state: Any) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name in ("emergencyTruncateLatch", "viewLatch"):
        stored = state.get(name, [])
        entries = stored.items() if isinstance(stored, dict) else [(entry["ref"], entry) for entry in stored]
        found += [(ref, entry) for ref, entry in entries]
    return found


def test_fixtures_are_there() -> None:
    """Thirteen sessions, each with its expectation."""
    assert len(NAMES) == 13


@pytest.mark.parametrize("name", NAMES)
def test_latches_are_bound_as_expected(name: str) -> None:
    """The repaired file holds each expected latch under its ref, with the identity of the expected message."""
    _, expected = read_fixture(name)
    repaired = repair(name)
    by_ref = state_of(repaired)["messageRefs"]["byRef"]
    found = sorted((by_ref[ref], ref) for ref, _ in stored_latches(state_of(repaired)))
    assert found == sorted((entry["id"], entry["ref"]) for entry in expected["bound"])
    roles = {message["id"]: (message["role"], message["contentType"]) for message in messages_of(repaired)}
    for ref, entry in stored_latches(state_of(repaired)):
        assert (entry["identity"]["role"], entry["identity"]["kind"]) == roles[by_ref[ref]]


@pytest.mark.parametrize("name", NAMES)
def test_latches_are_quarantined_as_expected(name: str) -> None:
    """The repaired file's quarantine holds the expected refs, with the expected reason where one is named."""
    raw, expected = read_fixture(name)
    quarantine = state_of(repair(name)).get("latchguardQuarantine", [])
    assert [record["ref"] for record in quarantine] == expected["quarantined"]
    if "reason" in expected:
        assert [record["reason"] for record in quarantine] == [expected["reason"]]
    texts = {entry["text"] for entry in state_of(raw)["emergencyTruncateLatch"]}
    assert {(record["latch"], record["text"] in texts) for record in quarantine} <= {("emergencyTruncateLatch", True)}


@pytest.mark.parametrize("name", NAMES)
def test_poisoned_tool_calls_are_named(name: str) -> None:
    """The findings name the tool calls that a latch lands on before the repair, and no other."""
    raw, expected = read_fixture(name)
    found = [finding.before["ref"] for finding in latched(plan_bytes(raw)) if finding.before["kind"] == "tool-call"]
    assert found == expected.get("poisoned_tool_calls", {"unicode": ["m00002"]}.get(name, []))


@pytest.mark.parametrize("name", [name for name in NAMES if "lands_on" in read_fixture(name)[1]])
def test_findings_say_where_latches_land(name: str) -> None:
    """Each finding names the kind of the message that its latch lands on."""
    raw, expected = read_fixture(name)
    found = [[finding.before["ref"], finding.before["kind"]] for finding in latched(plan_bytes(raw))]
    assert found == expected["lands_on"]


@pytest.mark.parametrize("name", [name for name in NAMES if "rules" in read_fixture(name)[1]])
def test_rules_fire_as_expected(name: str) -> None:
    """Exactly the expected rules fire."""
    raw, expected = read_fixture(name)
    assert sorted({finding.rule for finding in plan_bytes(raw).findings}) == expected["rules"]


@pytest.mark.parametrize("name", NAMES)
def test_a_repaired_file_has_nothing_left_to_repair(name: str) -> None:
    """A second plan has no step and no finding, and applying it gives the very same object."""
    repaired = repair(name)
    again = plan_bytes(repaired)
    assert (again.steps, again.findings) == ((), ())
    assert apply_plan(repaired, again) is repaired


@pytest.mark.parametrize("name", NAMES)
def test_replay_of_a_repaired_file_is_clean(name: str) -> None:
    """The public replay applies every bound latch of the repaired file to its message, and refuses none."""
    _, expected = read_fixture(name)
    session = load_bili(repair(name))
    shown = replay(session.messages, session.state)
    assert shown.refused == ()
    applied = sorted((outcome.holder.id, outcome.latch.ref) for outcome in shown.applied if outcome.holder)
    assert applied == sorted((entry["id"], entry["ref"]) for entry in expected["bound"])


@pytest.mark.parametrize("name", NAMES)
def test_replay_of_a_broken_file_applies_nothing(name: str) -> None:
    """Before the repair every latch is refused: it does not say what it was made for."""
    raw, _ = read_fixture(name)
    session = load_bili(raw)
    shown = replay(session.messages, session.state)
    assert shown.applied == ()
    assert len(shown.refused) == len(stored_latches(state_of(raw)))


def test_spread_arguments_are_recovered() -> None:
    """The original arguments come back from the copy with the same call id, and cost nothing."""
    raw, expected = read_fixture("spread-recoverable")
    (spread,) = expected["spread"]
    found = [finding for finding in plan_bytes(raw).findings if finding.rule == "args-invalid-json"]
    assert [(str(finding.repair), finding.after, finding.tool_name) for finding in found] == [
        ("lossless", spread["arguments"], "bash")
    ]
    assert {m["id"]: m["text"] for m in messages_of(repair("spread-recoverable"))}[spread["id"]] == spread["arguments"]


def test_lost_arguments_become_the_placeholder() -> None:
    """Where no copy is left the constant placeholder stands in the call."""
    raw, expected = read_fixture("spread")
    (spread,) = expected["spread"]
    found = [finding for finding in plan_bytes(raw).findings if finding.rule == "args-invalid-json"]
    assert [str(finding.repair) for finding in found] == ["placeholder"]
    assert {m["id"]: m["text"] for m in messages_of(repair("spread"))}[spread["id"]] == PLACEHOLDER_ARGUMENTS


def test_what_is_keyed_by_ref_follows_the_ref_map() -> None:
    """The image record moves to its message's ref; the ref that the map does not know is gone."""
    raw, expected = read_fixture("ref-keyed")
    before, state = state_of(raw), state_of(repair("ref-keyed"))
    assert before["imageFullRestored"] == [expected["dangling"]]
    assert state["imageShrinks"] == [{**before["imageShrinks"][0], "ref": expected["image_ref"]}]
    assert state["imageFullRestored"] == []


def test_a_healthy_file_gains_identities_and_nothing_else() -> None:
    """The repaired bytes without their identities are the bytes that were there."""
    raw, _ = read_fixture("healthy")
    repaired = repair("healthy")
    found = [entry["identity"] for _, entry in stored_latches(state_of(repaired))]
    without = repaired
    for identity in found:
        stamp = b',"identity":' + json.dumps(identity, separators=(",", ":")).encode()
        assert stamp in without
        without = without.replace(stamp, b"")
    assert len(found) == 3
    assert without == raw


@pytest.mark.parametrize("name", NAMES)
def test_other_values_stay_as_they_are(name: str) -> None:
    """Outside of latches, quarantine, refs and spread arguments the repaired document equals the old one."""
    raw, expected = read_fixture(name)
    spread = {entry["id"] for entry in expected.get("spread", ())}
    assert untouched(raw, spread) == untouched(repair(name), spread)


def untouched(raw: bytes, spread: set[str]) -> Any:
    document = json.loads(raw)
    record = document.get("payload", document)
    for key in (
        "emergencyTruncateLatch", "viewLatch", "latchguardQuarantine", "imageShrinks", "imageFullRestored",
    ):  # fmt: skip
        record["state"].pop(key, None)
    for message in record["messages"]:
        if message["id"] in spread:
            message.pop("text")
    return document
