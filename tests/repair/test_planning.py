"""Plans and their application: options, digests, frames, errors."""

import json
import re
import tracemalloc
from typing import Any

import pytest
from attrs import evolve
from backports import zstd

from latchguard import LatchguardError
from latchguard.core.findings import Repair
from latchguard.core.jsonspans import JsonSpans
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import Limits, PlanOptions, SourceChangedError, Step, digest
from latchguard.repair.state_rules import RULES
from latchguard.sources.errors import SourceError
from tests.repair.sessions import NAMES, clip, long_text, read_fixture, ref, result, session, user

FRAME = b"BILIZSTD1\x01"
RAW = session(
    [user("x"), result(long_text(1))],
    clips=[{"ref": ref(1), "text": clip(long_text(1))}, {"ref": ref(1), "text": "cut"}],
)


@pytest.mark.parametrize("name", NAMES)
def test_steps_hold_the_digests_of_what_they_change(name: str) -> None:
    """Each step names the digest of the value at its path, and the plan that of the whole file."""
    raw, _ = read_fixture(name)
    plan = plan_bytes(raw)
    assert (plan.format, plan.session, plan.before) == ("bili", json.loads(raw)["id"], digest(raw))
    spans = JsonSpans(raw)
    for step in plan.steps:
        start, end = spans.span(step.edit.path)
        assert step.before == digest(raw[start:end])
        assert step.finding in plan.findings


def test_plans_are_values() -> None:
    """The same bytes give equal plans."""
    assert plan_bytes(RAW) == plan_bytes(RAW)


@pytest.mark.parametrize("other", [RAW + b" ", RAW[:-1], b"", RAW.replace(b"ses_test", b"ses_tesT")])
def test_a_plan_fits_its_own_bytes_only(other: bytes) -> None:
    """Bytes that changed since the plan was made are refused, with both digests."""
    with pytest.raises(SourceChangedError) as caught:
        apply_plan(other, plan_bytes(RAW))
    assert (caught.value.code, caught.value.expected, caught.value.found) == (
        "source-changed",
        digest(RAW),
        digest(other),
    )


def test_a_step_that_does_not_fit_is_refused() -> None:
    """A step whose digest is not that of the value at its path makes nothing."""
    plan = plan_bytes(RAW)
    first: Step = evolve(plan.steps[0], before="0" * 64)
    with pytest.raises(SourceChangedError):
        apply_plan(RAW, evolve(plan, steps=(first,)))


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({}, ["stale-latch", "stale-latch"]),
        ({"only": frozenset({"stale-ref"})}, []),
        ({"skip": frozenset({"stale-latch"})}, []),
        ({"only": frozenset({"stale-latch"}), "skip": frozenset({"stale-latch"})}, []),
    ],
)
def test_rules_are_chosen(options: dict[str, Any], rules: list[str]) -> None:
    """`only` and `skip` say which rules are looked at; the others have no finding and no step."""
    plan = plan_bytes(RAW, options=PlanOptions(**options))
    assert [finding.rule for finding in plan.findings] == rules
    assert bool(plan.steps) == bool(rules)


def test_markers_are_an_option() -> None:
    """A marker that is not known proves nothing; a new one does."""
    raw = session([user("x"), result(long_text(1))], clips=[{"ref": ref(1), "text": clip(long_text(1), "<<cut>>")}])
    assert [str(finding.repair) for finding in plan_bytes(raw).findings] == ["placeholder"]
    options = PlanOptions(markers=(re.compile("<<cut>>"),))
    assert [str(finding.repair) for finding in plan_bytes(raw, options=options).findings] == ["lossless"]


@pytest.mark.parametrize("mode", [0, 1])
def test_a_frame_is_kept(mode: int) -> None:
    """Version and mode stay; the body is repaired as it would be without a frame."""
    body = zstd.compress(RAW) if mode else RAW
    framed = FRAME + bytes([mode]) + body
    repaired = apply_plan(framed, plan_bytes(framed))
    assert repaired[:11] == FRAME + bytes([mode])
    inner = zstd.decompress(repaired[11:]) if mode else repaired[11:]
    assert inner == apply_plan(RAW, plan_bytes(RAW))
    again = plan_bytes(repaired)
    assert (again.steps, apply_plan(repaired, again) is repaired) == ((), True)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"hello", "no-json"),
        (RAW + b"x", "no-json"),
        (RAW + b"\x00", "no-json"),
        (RAW + RAW, "no-json"),
        (b"\xff\xfe{}", "no-json"),
        (b'{"a":"\xff"}', "no-json"),
        (b"}", "no-json"),
        (RAW.replace(b"ses_test", b"ses\x00test"), "no-json"),
        (RAW.replace(b'"version":3', b'"version":NaN'), "no-json"),
        (RAW[:-1], "half-written"),
        (RAW[: len(RAW) // 2], "half-written"),
        (b"{", "half-written"),
        (b'{"a":"\xe2\x82', "half-written"),
        (b"{}", "format-undecided"),
        (b"[]", "format-undecided"),
        (b"5", "format-undecided"),
        (b'{"version":1,"byHash":{},"byRef":{}}', "format-undecided"),
        (b'{"state":{}}', "no-session"),
        (b'{"state":5}', "no-session"),
        (b'{"payload":{"state":[]}}', "no-session"),
        (b'{"payload":5}', "no-session"),
        (b'{"model":"gpt-5","input":"x"}', "format-undecided"),
        (b'{"items":[{"type":"book"}]}', "format-undecided"),
        (b'{"type":"summary","leafUuid":"u"}\n{"type":"user","uuid":"u","sessionId":"s"}\n', "format-unsupported"),
        (b"SQLite format 3\0" + b"CREATE TABLE latchguard_session", "format-unsupported"),
        (b"SQLite format 3\0" + bytes(100), "no-json"),
        (b"BILIENC1" + bytes(40), "encrypted"),
        (b"BILIZSTD1", "half-written"),
        (b"BILIZSTD1\x01", "half-written"),
        (b"BILIZSTD1\x01\x00", "empty"),
        (b"BILIZSTD1\x02\x01" + zstd.compress(RAW), "bad-frame"),
        (b"BILIZSTD1\x01\x02" + zstd.compress(RAW), "bad-frame"),
        (b"BILIZSTD1\x01\x01", "half-written"),
        (b"BILIZSTD1\x01\x01not zstd at all", "bad-frame"),
        (b"BILIZSTD1\x01\x01" + zstd.compress(RAW)[:-9], "half-written"),
        (b"BILIZSTD1\x01\x01" + zstd.compress(RAW) + b"x", "bad-frame"),
        (b"BILIZSTD1\x01\x01" + zstd.compress(b"{}"), "no-session"),
        (b'{"state":' + b"[" * 1001 + b"]" * 1001 + b"}", "too-deep"),
        (b"[" * 2_000_000, "too-deep"),
    ],
)
def test_what_cannot_be_read_is_told_apart(raw: bytes, code: str) -> None:
    """Each kind of bad input has an error of its own, with the place, the expected and the found."""
    with pytest.raises(SourceError) as caught:
        plan_bytes(raw)
    assert caught.value.code == code
    assert caught.value.where
    assert caught.value.expected
    assert caught.value.found
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("limits", "raw", "code"),
    [
        ({"file_bytes": len(RAW) - 1}, RAW, "too-large"),
        ({"nodes": 10}, RAW, "too-large"),
        ({"depth": 3}, RAW, "too-deep"),
        ({"frame_bytes": len(RAW) - 1}, FRAME + b"\x01" + zstd.compress(RAW), "too-large"),
    ],
)
def test_limits_hold(limits: dict[str, int], raw: bytes, code: str) -> None:
    """Over a limit a source is left alone; at the limit it is read."""
    with pytest.raises(LatchguardError) as caught:
        plan_bytes(raw, options=PlanOptions(limits=Limits(**limits)))
    assert caught.value.code == code


def test_at_the_limit_a_source_is_read() -> None:
    """The limits are inclusive."""
    limits = Limits(file_bytes=len(RAW), frame_bytes=len(RAW), depth=5)
    assert plan_bytes(RAW, options=PlanOptions(limits=limits)).session == "ses_test"
    framed = FRAME + b"\x01" + zstd.compress(RAW)
    assert plan_bytes(framed, options=PlanOptions(limits=limits)).session == "ses_test"


@pytest.mark.parametrize("promised", [True, False])
def test_a_bomb_is_not_unpacked(promised: bool) -> None:
    """A frame that decompresses to far more than the limit stops there, whatever size it promises."""
    bomb = zstd.compress(bytes(50_000_000))
    if not promised:
        packer = zstd.ZstdCompressor()
        bomb = packer.compress(bytes(50_000_000)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(LatchguardError) as caught:
            plan_bytes(FRAME + b"\x01" + bomb, options=PlanOptions(limits=Limits(frame_bytes=1_000_000)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "too-large"
    assert peak < 5_000_000


def test_a_wanted_format_is_not_detected() -> None:
    """A format that is named is taken at its word; one that is not planned here is refused."""
    assert plan_bytes(RAW, format="bili").format == "bili"
    with pytest.raises(LatchguardError) as caught:
        plan_bytes(RAW, format="codex-jsonl")
    assert caught.value.code == "format-unsupported"


def test_an_empty_session_is_healthy() -> None:
    """A session without messages and latches has no finding."""
    assert plan_bytes(session([])).findings == ()
    assert plan_bytes(session([], flat=True)).findings == ()


def test_rules_of_the_area_are_declared() -> None:
    """Each rule has its slug, the dearest repair it makes and a text that says when it fires."""
    assert [(rule.slug, rule.repair) for rule in RULES] == [
        ("stale-latch", Repair.PLACEHOLDER),
        ("latch-without-identity", Repair.LOSSLESS),
        ("stale-ref", Repair.LOSSLESS),
    ]
    assert all("\nFires on: " in rule.doc and "\nRepair: " in rule.doc and rule.area == "state" for rule in RULES)
