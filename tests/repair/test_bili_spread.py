"""Stored tool calls that carry a clip as their arguments."""

import json
from typing import Any

import pytest

from latchguard import PLACEHOLDER_ARGUMENTS
from latchguard.core.findings import Repair
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import PlanOptions
from tests.repair.sessions import ARGUMENTS, MARKER, call, clip, kernel_id, long_text, messages_of, result, session

CLIP = clip(long_text(1))
ID = kernel_id(call())
OTHER = '{"command":"rm -rf build"}'


def spread(raw: bytes) -> list[tuple[str, str]]:
    """Give cost and repaired text of every poisoned call; the repair must be the last one."""
    plan = plan_bytes(raw)
    assert plan_bytes(apply_plan(raw, plan)).findings == ()
    return [(str(finding.repair), finding.after) for finding in plan.findings if finding.rule == "args-invalid-json"]


def poisoned(*copies: dict[str, Any], text: str = CLIP, message_id: str = ID, **record: Any) -> bytes:
    """A session whose one call carries *text*, with *copies* of it in the plugin's snapshot."""
    named = [{"id": f"copy{position}", **copy} for position, copy in enumerate(copies)]
    return session([{**call(text), "id": message_id}], record={"pluginSnapshot": named, **record})


PLACEHOLDER = [("placeholder", PLACEHOLDER_ARGUMENTS)]
RECOVERED = [("lossless", ARGUMENTS)]


def test_the_original_comes_back_from_a_copy() -> None:
    """One copy with the same call id and name, whose text hashes to the id."""
    assert spread(poisoned(call())) == RECOVERED
    assert spread(poisoned(call(), call(), result("x"), call(OTHER, "call_2"))) == RECOVERED


@pytest.mark.parametrize(
    "copies",
    [
        (),
        (call(OTHER),),  # does not hash to the id
        (call(), call(OTHER)),  # the copies disagree in text
        (call(), call(name="sh")),  # the copies disagree in name
        (call(name="sh"),),
        (call(call_id="call_2"),),
        (call("not json"),),
        (result(ARGUMENTS),),  # no call
        (call(CLIP),),  # poisoned too
    ],
)
def test_without_a_copy_that_is_vouched_for_the_placeholder_stands(copies: tuple[dict[str, Any], ...]) -> None:
    """No guess: what does not agree, or does not hash to the id, is not the original."""
    raw = poisoned(*copies)
    first = [(str(finding.repair), finding.after) for finding in plan_bytes(raw).findings][:1]
    assert first == PLACEHOLDER


def test_a_poisoned_copy_does_not_hide_the_original() -> None:
    """A copy that carries the clip too is no witness; it is repaired like the other."""
    assert spread(poisoned(call(CLIP), call())) == RECOVERED * 2


def test_an_id_of_another_form_is_no_witness() -> None:
    """Where the id does not derive from content the copies alone vouch."""
    assert spread(poisoned(call(), message_id="host-1")) == RECOVERED
    assert spread(poisoned(call(OTHER), message_id="host-1")) == [("lossless", OTHER)]


def test_a_twins_suffix_is_set_aside() -> None:
    """The id of a twin is the hash and a number."""
    assert spread(poisoned(call(), message_id=f"{ID}_1")) == RECOVERED


def test_a_folded_block_vouches_by_the_hash() -> None:
    """Without a copy, JSON in the text of a folded block that hashes to the id is the original."""
    text = f"[assistant] bash {OTHER} then {{odd bash {ARGUMENTS}\n[tool] ok"
    blocks = {"b1": {"one": {"text": "x", "count": 1}, "full": {"text": text, "count": 2}}, "b2": 5, "b3": {"one": 1}}
    assert spread(poisoned(blockContents=blocks)) == RECOVERED
    assert spread(poisoned(blockContents={"b1": {"full": {"text": OTHER}}})) == PLACEHOLDER


def test_a_call_without_a_call_id_has_no_copies() -> None:
    """Two calls without a call id are not copies of one another."""
    broken = {key: value for key, value in call(CLIP).items() if key != "toolCallId"}
    whole = {key: value for key, value in call().items() if key != "toolCallId"}
    raw = session([{**broken, "id": "a"}, {**whole, "id": "b"}])
    assert spread(raw) == PLACEHOLDER


def test_a_latch_without_a_marker_that_spread_is_known_by_its_text() -> None:
    """The text of a latch, in force or in quarantine, is no call's arguments."""
    entry = {"latch": "viewLatch", "ref": "m00001", "text": "crushed", "reason": "forbidden-kind"}
    raw = session([{**call("crushed"), "id": ID}], state={"latchguardQuarantine": [entry, 5, {"text": 5}]})
    assert spread(raw) == PLACEHOLDER


def test_json_of_a_view_that_spread_is_known_by_the_id() -> None:
    """Valid JSON is another message's view only where it is a latch's text and does not hash to the id."""
    state = {"latchguardQuarantine": [{"text": OTHER}]}
    assert spread(session([{**call(OTHER), "id": ID}], state=state)) == PLACEHOLDER
    assert spread(session([call(OTHER)], state=state)) == []
    assert spread(session([{**call(OTHER), "id": "host-1"}], state=state)) == []


def test_prose_that_is_not_what_the_id_was_made_of_is_suspect() -> None:
    """It is reported, and repaired where the original is in the file."""
    prose = "<acp kind=summary> The checkpoint: all is fine."
    assert spread(poisoned(call(), text=prose)) == RECOVERED
    (found,) = plan_bytes(poisoned(text=prose)).findings
    assert (found.rule, str(found.repair), found.applied, found.after) == ("args-invalid-json", "detect", False, None)
    assert plan_bytes(poisoned(text=prose, message_id="host-1")).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        ARGUMENTS,
        "",
        "null",
        "free-form input",
        json.dumps({"patch": CLIP}),
        f"*** Begin Patch\n+{MARKER}\n*** End Patch",
    ],
)
def test_what_the_model_wrote_stays(text: str) -> None:
    """Arguments that hash to their id are what the model wrote, markers in them or not."""
    assert plan_bytes(session([call(text)])).findings == ()


def test_only_text_of_the_call_changes() -> None:
    """Ids, names, call ids and unknown fields of a repaired call stay."""
    raw = session([{**call(CLIP), "id": ID, "thinkingTokens": 7}])
    (message,) = messages_of(apply_plan(raw, plan_bytes(raw)))
    assert message == {**call(PLACEHOLDER_ARGUMENTS), "id": ID, "thinkingTokens": 7}


def test_a_placeholder_is_not_put_in_where_it_may_not_be() -> None:
    """With lossless repairs only, lost arguments are reported and stay, recovered ones come back."""
    options = PlanOptions(allow=Repair.LOSSLESS)
    assert plan_bytes(poisoned(), options=options).steps == ()
    (recovered,) = plan_bytes(poisoned(call()), options=options).findings
    assert (recovered.applied, recovered.after) == (True, ARGUMENTS)
