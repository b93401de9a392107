"""Writes identity.json from docs/identity.md alone: `python -m tests.vectors.make_identity`, to standard output.

Shares no code with the library: texts are lists of UTF-16 units here, as in JavaScript.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

Part = str | tuple[str, int]  # a text, or a text and how often it is repeated
Field = list[Part] | None

NO_CALL: tuple[Field, Field] = (None, None)

# name, tool_name, tool_call_id, text. A field is a list of parts, so that the halves of a pair can be given apart.
VECTORS: list[tuple[str, Field, Field, Field]] = [
    ("empty text", *NO_CALL, []),
    ("ascii", *NO_CALL, ["hello"]),
    ("one character", *NO_CALL, ["a"]),
    ("upper case is another text", *NO_CALL, ["A"]),
    ("leading space kept", *NO_CALL, [" hello"]),
    ("trailing newline kept", *NO_CALL, ["hello\n"]),
    ("carriage return kept", *NO_CALL, ["hello\r\n"]),
    ("tab and quotes", *NO_CALL, ['\t"\\/']),
    ("nul", *NO_CALL, ["\0"]),
    ("nul inside", *NO_CALL, ["a\0b"]),
    ("delete and c1 control", *NO_CALL, ["\x7f\x85"]),
    ("two bytes", *NO_CALL, ["\xe9"]),
    ("decomposed is another text", *NO_CALL, ["e\u0301"]),
    ("three bytes", *NO_CALL, ["\u20ac"]),
    ("line separators", *NO_CALL, ["\u2028\u2029"]),
    ("byte-order mark kept", *NO_CALL, ["\ufeffx"]),
    ("last before the surrogates", *NO_CALL, ["\ud7ff"]),
    ("first after the surrogates", *NO_CALL, ["\ue000"]),
    ("last of the basic plane", *NO_CALL, ["\uffff"]),
    ("first astral", *NO_CALL, ["\U00010000"]),
    ("emoji", *NO_CALL, ["\U0001f600"]),
    ("emoji from two halves", *NO_CALL, ["\ud83d", "\ude00"]),
    ("last astral", *NO_CALL, ["\U0010ffff"]),
    ("high half alone", *NO_CALL, ["\ud83d"]),
    ("low half alone", *NO_CALL, ["\ude00"]),
    ("halves in the wrong order", *NO_CALL, ["\ude00", "\ud83d"]),
    ("high half, text, low half", *NO_CALL, ["\ud83d", "x", "\ude00"]),
    ("two high halves and a low one", *NO_CALL, ["\ud83d", "\ud83d", "\ude00"]),
    ("half at the end of a clip", *NO_CALL, ["head", "\ud83d"]),
    ("long", *NO_CALL, [("0123456789", 10_000)]),
    ("long, three bytes each", *NO_CALL, [("\u20ac", 70_000)]),
    ("tool name", ["read_file"], None, ["{}"]),
    ("tool call id", None, ["call_1"], ["done"]),
    ("all three", ["read_file"], ["call_1"], ['{"path":"a"}']),
    ("empty tool name is not None", [], None, ["{}"]),
    ("empty call id is not None", None, [], ["{}"]),
    ("all three empty", [], [], []),
    ("fields do not run together", ["ab"], ["c"], []),
    ("fields do not run together, cut elsewhere", ["a"], ["bc"], []),
    ("halves in every field", ["\ud83d", "\ude00"], ["\ud83d"], ["\ude00", "\0"]),
]


def units(field: list[Part]) -> list[int]:
    """Give the UTF-16 units of a field."""
    found: list[int] = []
    for part in field:
        text, times = part if isinstance(part, tuple) else (part, 1)
        one: list[int] = []
        for point in map(ord, text):
            if point > 0xFFFF:
                one += [0xD800 + ((point - 0x10000) >> 10), 0xDC00 + ((point - 0x10000) & 0x3FF)]
            else:
                one.append(point)
        found += one * times
    return found


def points(found: list[int]) -> Iterator[int]:
    """Join the pairs of surrogates in UTF-16 units; lone halves stay."""
    position = 0
    while position < len(found):
        unit = found[position]
        follower = found[position + 1] if position + 1 < len(found) else 0
        position += 1
        if 0xD800 <= unit <= 0xDBFF and 0xDC00 <= follower <= 0xDFFF:
            yield 0x10000 + ((unit - 0xD800) << 10) + (follower - 0xDC00)
            position += 1
        else:
            yield unit


def wtf8(found: list[int]) -> bytes:
    """Encode UTF-16 units as WTF-8."""
    out = bytearray()
    for point in points(found):
        if point < 0x80:
            out.append(point)
        elif point < 0x800:
            out += bytes((0xC0 | point >> 6, 0x80 | point & 0x3F))
        elif point < 0x10000:
            out += bytes((0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F))
        else:
            out += bytes((0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F))
    return bytes(out)


def digest(*fields: Field) -> str:
    """Hash the three fields as docs/identity.md says."""
    out = bytearray(b"latchguard/1\0")
    for field in fields:
        if field is None:
            out.append(0)
        else:
            encoded = wtf8(units(field))
            out.append(1)
            out += bytes(len(encoded) >> shift & 0xFF for shift in range(56, -8, -8))
            out += encoded
    return hashlib.sha256(out).hexdigest()


def render() -> str:
    """Give identity.json, one vector a line, ASCII."""
    lines = []
    for name, tool_name, tool_call_id, text in VECTORS:
        vector: dict[str, Any] = {"name": name, "tool_name": tool_name, "tool_call_id": tool_call_id, "text": text}
        lines.append(json.dumps(vector | {"hash": digest(tool_name, tool_call_id, text)}))
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    sys.stdout.write(render())
