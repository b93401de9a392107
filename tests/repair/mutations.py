"""Damage stored bytes at random, in the bytes or in the structure, from a seed."""

import json
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", "m00001", "m00003", "BLOCKED", "m4242", "h_0", "x" * 300, "\ud800", "\x00",
    [], {}, [[]], [None], {"ref": "m00003"}, {"ref": "m00003", "text": "x"}, {"m00003": "x"}, [1, "m00002"],
    {"text": None}, {"hash": "0" * 64, "role": "tool", "kind": "text"}, {"hash": 1},
)  # fmt: skip


def mutate_bytes(raw: bytes, random: Random) -> bytes:
    out = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(out) + 1)
        kind = random.randrange(5)
        if kind == 0:
            out[place : place + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            del out[place : place + random.randint(1, 40)]
        elif kind == 2:
            out[place:place] = random.choice((b'"', b"{", b"]", b",", b"\\", b"\x00", b"\xff", b"\xed\xa0\x80"))
        elif kind == 3:
            del out[place:]
        else:
            start = random.randrange(len(out) + 1)
            out[place:place] = out[start : start + random.randint(1, 200)]
    return bytes(out)


def mutate_structure(raw: bytes, random: Random) -> bytes:
    document = json.loads(raw)
    for _ in range(random.randint(1, 6)):
        holder, key = random.choice(_places(document))
        kind = random.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[random.randrange(len(holder))])))
        elif kind == 1:
            holder[random.choice(list(holder))] = holder[key]
        else:
            holder[key] = json.loads(json.dumps(random.choice(VALUES)))
        if not _places(document):
            break
    return json.dumps(document).encode()


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every place of the document, those of the state three times as likely."""
    found: list[tuple[Any, Any]] = []
    waiting = [(document, 1)]
    while waiting:
        value, weight = waiting.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            heavy = 3 if key == "state" else weight
            found += [(value, key)] * heavy
            waiting.append((value[key], heavy))
    return found
