"""JSON text as JavaScript's `JSON.parse` takes it (RFC 8259), judged exactly.

1. `NaN`, `Infinity`, raw control characters, a BOM, trailing commas and a second document are invalid; `1e400`,
   integers of any length, duplicate keys and lone-surrogate escapes are valid.
2. orjson is the fast path, not the judge: it never accepts what is invalid, and rejects some of what is valid.
3. Nesting beyond 1,000 levels counts as invalid; "too deep" is a verdict of its own.
4. All walks are iterative: no text can exhaust the stack.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final

import orjson

__all__ = ["MAX_DEPTH", "Verdict", "check_json", "dump_json", "escape_controls", "load_json"]

MAX_DEPTH: Final = 1000
_MAX_DIGITS: Final = 4300  # where int() refuses to convert


class Verdict(StrEnum):
    """What a text is: valid JSON, no JSON, or JSON-like but nested beyond `MAX_DEPTH`."""

    VALID = "valid"
    INVALID = "invalid"
    TOO_DEEP = "too-deep"


_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:(?P<string>" + _STRING + r")"
    r"|(?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
    r"|(?P<mark>[\[\]{},:]))",
    re.ASCII,
)
_BLANK = re.compile(r"[ \t\n\r]*+")

# The grammar as data: in each state, what a token does. "value" stands for a string or scalar.
_NEXT: Final[dict[tuple[str, str], str]] = {
    ("value", "scalar"): "after", ("value", "string"): "after",
    ("value", "["): "push-array", ("value", "{"): "push-object",
    ("first-item", "scalar"): "after", ("first-item", "string"): "after",
    ("first-item", "["): "push-array", ("first-item", "{"): "push-object", ("first-item", "]"): "pop-array",
    ("first-key", "string"): "colon", ("first-key", "}"): "pop-object",
    ("key", "string"): "colon", ("colon", ":"): "value",
    ("after", ","): "comma", ("after", "]"): "pop-array", ("after", "}"): "pop-object",
}  # fmt: skip


def check_json(text: str) -> Verdict:
    """Judge *text*. Pure; linear in its length.

    A text that would be invalid anyway is `INVALID`, unless the fault lies deeper than `MAX_DEPTH`.
    """
    try:
        orjson.loads(text)
    except (orjson.JSONDecodeError, ValueError):
        return _check_tokens(text)
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return Verdict.VALID
    return _check_tokens(text)


def _check_tokens(text: str) -> Verdict:
    stack: list[str] = []
    state, position, end = "value", 0, len(text)
    while state != "after" or stack:
        token = _TOKEN.match(text, position)
        if token is None:
            return Verdict.INVALID
        position = token.end()
        kind = token.lastgroup or ""
        move = _NEXT.get((state, token["mark"] if kind == "mark" else kind))
        if move is None:
            return Verdict.INVALID
        if move.startswith("push-"):
            stack.append(move[5:])
            if len(stack) > MAX_DEPTH:
                return Verdict.TOO_DEEP
            state = "first-item" if move == "push-array" else "first-key"
        elif move.startswith("pop-"):
            if not stack or stack.pop() != move[4:]:
                return Verdict.INVALID
            state = "after"
        elif move == "comma":
            state = "key" if stack[-1] == "object" else "value"
        else:
            state = move
    blank = _BLANK.match(text, position)
    return Verdict.VALID if blank and blank.end() == end else Verdict.INVALID


def load_json(text: str) -> Any:
    """Parse valid JSON. Numbers beyond a double become infinite, as in JavaScript; the last of duplicate keys wins.

    Raises:
        ValueError: *text* is not valid (the `Verdict` is not `VALID`), or Python cannot nest that deep here.
    """
    if (verdict := check_json(text)) is not Verdict.VALID:
        raise ValueError(verdict)
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, ValueError):
        pass
    try:
        return json.loads(text, parse_int=_parse_int)
    except RecursionError as error:
        raise ValueError(Verdict.TOO_DEEP) from error


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def dump_json(value: Any) -> bytes:
    """Serialise *value* compactly, keys in their order. Lone surrogates become escapes; same input, same bytes."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a surrogate, or an integer beyond 64 bits
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


_LOOSE_STRING = re.compile(r'"(?:[^"\\]++|\\[\s\S])*+"')
_CONTROL = re.compile(r"[\x00-\x1f]")
_SHORT: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str | None:
    """Escape raw control characters inside strings; give the text where that makes it valid, else None.

    This is the one repair of invalid JSON that loses nothing: every other byte stays.
    """
    repaired = _LOOSE_STRING.sub(lambda string: _CONTROL.sub(_escape, string[0]), text)
    return repaired if repaired != text and check_json(repaired) is Verdict.VALID else None


def _escape(control: re.Match[str]) -> str:
    return _SHORT.get(control[0]) or f"\\u{ord(control[0]):04x}"
