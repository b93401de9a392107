"""Converted bodies before a strict provider: the SDKs' own request types, `JSON.parse`, the pairing of calls."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latchguard.core.findings import Wire
from latchguard.core.jsontext import dump_json
from latchguard.testing.bodies import legal_bodies
from latchguard.wire import convert, parse
from tests.integrations.judge import Node, judge

SHAPES = {
    Wire.OPENAI_CHAT: "chat",
    Wire.OPENAI_RESPONSES: "responses",
    Wire.ANTHROPIC: "messages",
    Wire.GEMINI: "gemini",
}
PAIRS = st.sampled_from(list(permutations(Wire, 2)))
CONVERSIONS = PAIRS.flatmap(lambda pair: st.tuples(st.just(pair), legal_bodies(pair[0])))


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node() as started:
        yield started


@given(CONVERSIONS)
@settings(max_examples=60, deadline=None)
def test_a_legal_body_is_legal_on_every_wire(node: Node, case: tuple[tuple[Wire, Wire], Any]) -> None:
    """What a provider takes on one wire, converted, the target's provider takes; it only lacks what no source says."""
    (source, target), body = case
    converted = convert(parse(body, source), target).body
    demanded = {Wire.GEMINI: {}, Wire.ANTHROPIC: {"model": "m", "max_tokens": 9}}.get(target, {"model": "m"})
    assert judge(node, SHAPES[target], dump_json({**demanded, **converted})) == []
