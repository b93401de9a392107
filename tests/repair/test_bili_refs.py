"""What else a session keys by ref, held against the ref map."""

import json
from typing import Any

import pytest

from latchguard.repair.planning import apply_plan, plan_bytes
from tests.repair.sessions import long_text, ref, result, session, state_of, user

MESSAGES = [{**user("a"), "id": "a"}, {**user("b"), "id": "b"}, {**result(long_text(1)), "id": "c"}]


def found(**state: Any) -> list[tuple[str, str, Any, Any]]:
    """Give path below the state, cost, before and after of every finding; the repair must be the last one."""
    raw = session(MESSAGES, state=state, protected=state.pop("protected", ()))
    plan = plan_bytes(raw)
    repaired = apply_plan(raw, plan)
    assert plan_bytes(repaired).steps == ()
    assert {finding.rule for finding in plan.findings} <= {"stale-ref"}
    assert all(finding.applied == (str(finding.repair) != "detect") for finding in plan.findings)
    return [
        (finding.path.removeprefix("$.payload.state."), str(finding.repair), finding.before, finding.after)
        for finding in plan.findings
    ]


@pytest.mark.parametrize("name", ["tokenSnapshot", "imageFullRestored", "hiddenOrphanRefs", "deadRefs"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_ref_that_the_map_does_not_know_is_removed(name: str, keyed: bool) -> None:
    """Lists and maps lose the unknown ref and keep the known ones in their order."""
    refs = [ref(2), ref(4242), ref(1)]
    stored = dict.fromkeys(refs, 7) if keyed else refs
    place = f"{name}.m04242" if keyed else f"{name}[1]"
    assert found(**{name: stored}) == [(place, "lossless", ref(4242), None)]
    raw = session(MESSAGES, state={name: stored})
    kept = state_of(apply_plan(raw, plan_bytes(raw)))[name]
    assert list(kept) == [ref(2), ref(1)]


def test_what_the_map_knows_by_design_is_no_finding() -> None:
    """The floor, protected messages and messages that were edited away have no row in the inverse map."""
    refs = {
        "byRaw": {"a": ref(1), "b": "BLOCKED", "c": ref(3), "h_gone": ref(9), "bili:ref-floor": ref(12)},
        "byRef": {ref(1): "a", ref(3): "c"},
    }
    assert found(messageRefs=refs, tokenSnapshot={ref(1): 1, ref(9): 2, "BLOCKED": 3}, deadRefs=[ref(9)]) == []


def test_the_floor_is_no_messages_ref() -> None:
    """The floor says how far refs were issued; a record under it names no message."""
    refs = {"byRaw": {"a": ref(1), "bili:ref-floor": ref(12)}, "byRef": {ref(1): "a"}}
    assert found(messageRefs=refs, deadRefs=[ref(12)]) == [("deadRefs[0]", "lossless", ref(12), None)]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"ref": ref(1), "rawMessageId": "a"}, []),
        ({"ref": ref(2), "rawMessageId": "a"}, [("imageShrinks[0].ref", "lossless", ref(2), ref(1))]),
        ({"ref": ref(77), "rawMessageId": "a"}, [("imageShrinks[0].ref", "lossless", ref(77), ref(1))]),
        ({"ref": ref(77), "rawMessageId": "gone"}, [("imageShrinks[0]", "lossless", ref(77), None)]),
        ({"ref": ref(77)}, [("imageShrinks[0]", "lossless", ref(77), None)]),
        ({"ref": ref(1), "rawMessageId": "gone"}, [("imageShrinks[0]", "detect", ref(1), None)]),
        ({"ref": ref(1)}, []),
        ({"rawMessageId": "a"}, [("imageShrinks[0]", "detect", "{'rawMessageId': 'a'}", None)]),
        (5, [("imageShrinks[0]", "detect", "5", None)]),
    ],
)
def test_an_image_record_follows_its_message(record: Any, expected: Any) -> None:
    """A record moves to its message's ref; one whose ref and message are both unknown goes."""
    assert found(imageShrinks=[record]) == expected


def test_an_image_record_of_a_protected_message_goes() -> None:
    """The sentinel is no key: nothing can stand under a protected message's ref."""
    record = {"ref": ref(2), "rawMessageId": "a"}
    assert found(imageShrinks=[record], protected=[0]) == [("imageShrinks[0]", "lossless", ref(2), None)]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"startRef": ref(1), "endRef": ref(2)}, []),
        ({"startRef": ref(2), "endRef": ref(3)}, [("startRef", ref(2), ref(1)), ("endRef", ref(3), ref(2))]),
        ({"startRef": ref(77), "endRef": ref(2)}, [("startRef", ref(77), ref(1))]),
        ({"startRef": "b3", "endRef": ref(2)}, []),
        ({"endRef": 5}, []),
        ({}, []),
        ({"startRef": ref(77), "effectiveMessageIds": []}, [("startRef", ref(77), None)]),
        ({"startRef": ref(3), "effectiveMessageIds": ["a", "gone"]}, []),
        ({"startRef": ref(77), "effectiveMessageIds": ["a", "gone"]}, [("startRef", ref(77), None)]),
        ({"startRef": ref(3), "effectiveMessageIds": [], "directMessageIds": ["a"]}, [("startRef", ref(3), ref(1))]),
        ({"startRef": ref(77), "effectiveMessageIds": 5}, [("startRef", ref(77), None)]),
    ],
)
def test_a_blocks_span_follows_its_messages(block: dict[str, Any], expected: Any) -> None:
    """A span that leaves the block's messages is set to the first and last of them; an unknown end goes."""
    stored = {"effectiveMessageIds": ["b", "a"], **block}
    assert found(blocks=[stored]) == [(f"blocks[0].{name}", "lossless", *rest) for name, *rest in expected]


@pytest.mark.parametrize("name", ["tokenSnapshot", "imageFullRestored", "imageShrinks"])
def test_what_is_no_container_is_reported(name: str) -> None:
    """A value of the wrong type is a finding and stays."""
    assert found(**{name: "odd"}) == [(name, "detect", "'odd'", None)]


def test_an_entry_that_is_no_ref_is_reported() -> None:
    """A number in a list of refs is a finding and stays."""
    assert found(deadRefs=[ref(1), 7]) == [("deadRefs[1]", "detect", "7", None)]


@pytest.mark.parametrize("refs", [None, 5, {}, {"byRaw": {}}, {"byRaw": {}, "byRef": []}])
def test_without_a_ref_map_nothing_is_removed(refs: Any) -> None:
    """Where the map itself cannot be read it is the finding, and nothing is judged by it."""
    (one,) = found(messageRefs=refs, deadRefs=[ref(1)])
    assert one[:2] == ("messageRefs", "detect")


@pytest.mark.parametrize(
    ("by_raw", "by_ref", "places"),
    [
        ({"a": ref(1), "b": ref(1)}, {ref(1): "a"}, ["byRaw.b"]),
        ({"a": ref(1), "b": ref(2)}, {ref(1): "a", ref(2): "b", ref(3): "a"}, ["byRef.m00003"]),
        ({"a": ref(1)}, {ref(1): "a", ref(2): "b"}, ["byRef.m00002"]),
        ({"a": "BLOCKED"}, {"BLOCKED": "a"}, ["byRef.BLOCKED"]),
        ({"a": 5}, {ref(1): "a"}, ["byRaw.a", "byRef.m00001"]),
    ],
)
def test_a_map_that_contradicts_itself_is_reported(by_raw: Any, by_ref: Any, places: list[str]) -> None:
    """Refs are one to one but for the sentinel: what is not is named and left."""
    result_ = found(messageRefs={"byRaw": by_raw, "byRef": by_ref})
    assert [(place, cost) for place, cost, *_ in result_] == [(f"messageRefs.{place}", "detect") for place in places]


def test_an_old_session_without_refs_is_healthy() -> None:
    """Without latches and anything else keyed by ref there is no need of a ref map."""
    raw = json.dumps({"id": "s", "state": {"blocks": []}, "messages": []}).encode()
    assert plan_bytes(raw).findings == ()
