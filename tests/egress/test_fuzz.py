"""Bodies of the cases, mutated: only documented errors, the input untouched, a second pass changes nothing."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from latchguard import LatchguardError, harden, harden_json
from latchguard.core.findings import Wire
from latchguard.egress.profiles import PROFILES
from tests.egress.test_cases import BODIES, body_of

SEED = 20261130
SCALARS: list[Any] = [None, True, 0, -1.5, "", " ", "prose", "{", "\ud800", "c1", "a.b"]
JUNK: list[Any] = [*SCALARS, [], {}, [None], {"type": "text"}, {"type": []}]
BYTES = (b"", b"\\", b'"', b"{", b"]", b",", b"\xff", b"0", b"null")
ERRORS = (
    None,
    "Invalid `signature` in `thinking` block",
    "The block is bound to a different conversation.",
    "Corrupted thought signature.",
    "invalid_encrypted_content",
)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """The log of a campaign is nobody's."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def containers(body: Any) -> list[Any]:
    found = [body]
    for node in found:
        found += [
            child for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, dict | list)
        ]
    return found


def mutate(rng: random.Random, body: Any) -> None:
    node = rng.choice(containers(body))
    if not node:
        return
    key: Any = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
    kind = rng.randrange(5)
    if kind == 0:
        node[key] = deepcopy(rng.choice(JUNK))
    elif kind == 1:
        del node[key]
    elif isinstance(node, dict):
        node[rng.choice(["type", "role", "content", "id", "call_id", "tool_calls", key])] = deepcopy(node[key])
    else:
        item = deepcopy(node[key]) if kind == 2 else node.pop(key)
        node.insert(rng.randrange(len(node) + 1), item)


def check_mutants(count: int) -> int:
    """Harden *count* mutants; give how many had a finding."""
    rng = random.Random(SEED)  # noqa: S311  # repeatable
    names, profiles = sorted(BODIES), [None, *PROFILES]
    found = 0
    for _ in range(count):
        case = BODIES[rng.choice(names)]
        body = deepcopy(body_of(case["request"]))
        for _ in range(rng.randint(1, 4)):
            mutate(rng, body)
        options: dict[str, Any] = {
            "profile": rng.choice(profiles),
            "allow": rng.choice(["lossless", "placeholder", "lossy"]),
            "error": rng.choice(ERRORS),
        }
        before = deepcopy(body)
        first = harden(body, case["wire"], **options)
        assert first.failed == ()
        assert body == before
        second = harden(first.body, case["wire"], **options)
        assert second.body is first.body, (SEED, body, options)
        assert (first.body is body) == (not first.changed)
        found += bool(first.findings)
    return found


def check_mutated_bytes(count: int) -> int:
    """Harden *count* byte mutants; give how many were bodies still."""
    rng = random.Random(SEED)  # noqa: S311  # repeatable
    raws = [json.dumps(body_of(BODIES[name]["request"])).encode() for name in sorted(BODIES)]
    wires = [BODIES[name]["wire"] for name in sorted(BODIES)]
    bodies = 0
    for _ in range(count):
        number = rng.randrange(len(raws))
        raw = bytearray(raws[number])
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(raw))
            raw[place : place + rng.randrange(3)] = rng.choice(
                [b"", b"\\", b'"', b"{", b"]", b",", b"\xff", b"0", b"null"]
            )
        try:
            result = harden_json(bytes(raw), rng.choice([None, wires[number], *Wire]))
        except LatchguardError:
            continue
        json.loads(result.raw)
        bodies += 1
    return bodies


def test_mutated_bodies() -> None:
    """A small sample in every run; most mutants have something to find."""
    assert check_mutants(1_500) > 750


def test_mutated_bytes() -> None:
    """A small sample in every run; some mutants are bodies still."""
    assert check_mutated_bytes(1_500) > 150


@pytest.mark.long
def test_many_mutated_bodies() -> None:
    """250,000 mutants."""
    assert check_mutants(250_000) > 125_000


@pytest.mark.long
def test_many_mutated_bytes() -> None:
    """100,000 byte mutants."""
    assert check_mutated_bytes(100_000) > 10_000
