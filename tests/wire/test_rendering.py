"""Rendering: changes stay in their place."""

import json
from typing import Any

import pytest
from attrs import evolve

from latchguard.core.jsonspans import JsonSpans, Path
from latchguard.core.message import Kind
from latchguard.wire import parse, render
from tests.wire.cases import CASES

CHANGES = [(case, number) for case, (wire, body) in CASES.items() for number in range(len(parse(body, wire).messages))]


def dump(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def with_member(raw: bytes, path: Path, old: bytes) -> bytes:
    """Put *old* in place of the value at *path* of *raw*."""
    start, end = JsonSpans(raw).span(path)
    return raw[:start] + old + raw[end:]


@pytest.mark.parametrize("case", CASES)
def test_an_untouched_body_is_the_same_object(case: str) -> None:
    """Rendering what was parsed gives the body itself."""
    wire, body = CASES[case]
    parsed = parse(body, wire)
    assert render(parsed.messages, parsed.frame) is body


@pytest.mark.parametrize(("case", "number"), CHANGES)
def test_a_change_stays_inside_its_span(case: str, number: int) -> None:
    """Every byte outside the changed message's span is the byte that came; inside it the new text is read back."""
    wire, body = CASES[case]
    before = dump(body)
    parsed = parse(body, wire)
    message = parsed.messages[number]
    text = '{"changed":1}' if message.kind is Kind.TOOL_CALL else "changed"
    messages = [*parsed.messages]
    messages[number] = evolve(message, text=text)
    after = render(messages, parsed.frame)
    path = parsed.frame.path(message.id)
    start, end = JsonSpans(before).span(path)
    assert with_member(dump(after), path, before[start:end]) == before
    assert parse(after, wire).messages[number].text == text
    assert dump(body) == before
