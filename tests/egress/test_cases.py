"""Every case whose rules are there: what is found, what comes out, in objects and in bytes."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from latchguard import PLACEHOLDER_ARGUMENTS, harden, harden_json
from latchguard.core.findings import Wire

CASES = {path.stem: json.loads(path.read_bytes()) for path in (Path(__file__).parent.parent / "cases").glob("*.json")}


def slugs(case: dict[str, Any]) -> list[set[str]]:
    """The violations a case expects, each with the names that are right for it."""
    return [set(entry.split("|")) for entry in case["expect"]["violations"]]


BODIES = {name: case for name, case in CASES.items() if case["wire"] in tuple(Wire)}
NEGATIVES = sorted(name for name in BODIES if not slugs(BODIES[name]))
POSITIVES = sorted(name for name in BODIES if slugs(BODIES[name]))


def options(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"profile": case.get("profile")}
    if "trigger_error" in case:
        found["error"] = case["trigger_error"]["message"]
    if "stored" in case["request"]:
        found["recorded"] = case["request"]["stored"]
    return found


def body_of(value: Any) -> Any:
    return value.get("body", value) if isinstance(value, dict) else value


def expected(case: dict[str, Any]) -> list[Any]:
    """Every right answer, placeholders filled in."""
    repaired = case["expect"].get("repaired")
    answers = [case["request"] if repaired is None else repaired, *case["expect"].get("alternatives", ())]
    text = json.dumps(answers).replace("$PLACEHOLDER", PLACEHOLDER_ARGUMENTS.replace('"', '\\"'))
    return [body_of(answer) for answer in json.loads(text)]


def loosened(body: Any, match: str) -> str:
    """Give *body* as text, without what the kind of match leaves free."""
    text = json.dumps(body, sort_keys=match == "json")
    if "placeholder" in match:
        text = re.sub(r'"description": "[^"]*", "input_schema"', '"description": "[placeholder]", "input_schema"', text)
        text = re.sub(r"\[no result recorded[^\]]*\]|\[image omitted[^\]]*\]|\[continue\]", "[placeholder]", text)
    return text


def test_cases_are_read() -> None:
    """The folder of cases holds positives and negatives of every wire that has rules."""
    assert {BODIES[name]["wire"] for name in NEGATIVES} == set(Wire)
    assert (len(POSITIVES), len(NEGATIVES)) == (57, 13)


@pytest.mark.parametrize("name", POSITIVES)
def test_case_is_found_and_repaired(name: str) -> None:
    """The rules of the case fire, and no other; the body that comes out is the expected one; the input stays."""
    case = BODIES[name]
    body = body_of(case["request"])
    before = copy.deepcopy(body)
    result = harden(body, case["wire"], **options(case))
    assert {finding.rule for finding in result.findings} <= set().union(*slugs(case))
    assert all(any(finding.rule in entry for finding in result.findings) for entry in slugs(case))
    match = case["expect"]["match"]
    assert loosened(result.body, match) in [loosened(answer, match) for answer in expected(case)]
    assert body == before


@pytest.mark.parametrize("name", POSITIVES)
def test_case_repaired_in_bytes_is_the_repaired_object(name: str) -> None:
    """`harden_json` of the serialised body gives what `harden` gives, and a second pass finds nothing new."""
    case = BODIES[name]
    body = body_of(case["request"])
    result = harden_json(json.dumps(body).encode(), case["wire"], **options(case))
    assert json.loads(result.raw) == harden(body, case["wire"], **options(case)).body
    again = harden_json(result.raw, case["wire"], **options(case))
    assert again.raw is result.raw
    assert [finding for finding in again.findings if finding.applied] == []


@pytest.mark.parametrize("name", NEGATIVES)
def test_negative_passes_untouched(name: str) -> None:
    """A legal body comes back as the same object and the same bytes, without a finding."""
    case = BODIES[name]
    raw = case["request_raw"].encode() if "request_raw" in case else orjson.dumps(case["request"])
    result = harden_json(raw, case["wire"], **options(case))
    assert result.findings == ()
    assert result.raw is raw
    assert harden(case["request"], case["wire"], **options(case)).body is case["request"]
