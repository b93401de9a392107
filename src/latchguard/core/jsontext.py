"""JSON text as JavaScript's `JSON.parse` takes it (RFC 8259), judged exactly.

1. `NaN`, `Infinity`, raw control characters, a BOM, trailing commas and a second document are invalid; `1e400`,
   integers of any length, duplicate keys and lone-surrogate escapes are valid.
2. orjson is the fast path, not the judge: it never accepts what is invalid, and rejects some of what is valid.
   Integers beyond 64 bits are read as doubles by both.
3. Nesting beyond 1,000 levels counts as invalid; "too deep" is a verdict of its own.
4. All walks are iterative: no text can exhaust the stack.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final

import orjson

from latchguard.core.errors import InvalidValueError, cut

__all__ = ["MAX_DEPTH", "Verdict", "check_json", "dump_json", "escape_controls", "load_exact", "load_json"]

MAX_DEPTH: Final = 1000
_INT64_DIGITS: Final = 20


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
_MAX_DIGITS: Final = 4300  # where int() refuses to convert
_WIDE_INTEGER = re.compile(r"[0-9]{19}")

# The grammar as data: in each state, what a token does. "value" stands for a string or scalar.
_NEXT: Final[dict[tuple[str, str | None], str]] = {
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
    return _judge(text)[0]


def _judge(text: str) -> tuple[Verdict, Any]:
    """Give the verdict, and the value where orjson could build it, else `_UNREAD`."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _check_tokens(text), _UNREAD
    if text.count("[") + text.count("{") <= MAX_DEPTH or _is_shallow(text):
        return Verdict.VALID, value
    return _check_tokens(text), value


_UNREAD: Final = object()
_ORJSON_DEPTH: Final = 1024
_SHIFT: Final = _ORJSON_DEPTH - MAX_DEPTH


def _is_shallow(text: str) -> bool:
    """Say whether orjson can nest *text*, valid JSON, further by what lies between its limit and ours."""
    try:
        orjson.loads("[" * _SHIFT + text + "]" * _SHIFT)
    except orjson.JSONDecodeError:
        return False
    return True


def _check_tokens(text: str) -> Verdict:
    stack: list[str] = []
    state, position, end = "value", 0, len(text)
    while state != "after" or stack:
        token = _TOKEN.match(text, position)
        if token is None:
            return Verdict.INVALID
        position = token.end()
        kind = token.lastgroup
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

    Integers beyond 64 bits may become floats; `load_exact` keeps them.

    Raises:
        ValueError: *text* is not valid (the `Verdict` is not `VALID`), or Python cannot nest that deep here.
    """
    verdict, value = _judge(text)
    if verdict is not Verdict.VALID:
        raise ValueError(verdict)
    if value is not _UNREAD:
        return value
    try:
        return json.loads(text, parse_int=_parse_int)
    except RecursionError as error:
        raise ValueError(Verdict.TOO_DEEP) from error


def load_exact(text: str) -> Any:
    """Parse as `load_json`, but integers beyond 64 bits keep their digits, up to the 4,300 that Python converts.

    Raises:
        ValueError: as `load_json`.
    """
    value = load_json(text)
    if not _WIDE_INTEGER.search(text):
        return value
    try:
        return json.loads(text, parse_int=_exact_int)
    except RecursionError as error:
        raise ValueError(Verdict.TOO_DEEP) from error


def _parse_int(digits: str) -> int | float:
    if len(digits) <= _INT64_DIGITS and -(2**63) <= (number := int(digits)) < 2**64:
        return number
    return float(digits)


def _exact_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def dump_json(value: Any) -> bytes:
    """Serialise *value* compactly, keys in their order. Lone surrogates become escapes; same input, same bytes.

    Raises:
        InvalidValueError: *value* is nested too deeply to be written, or holds what JSON has no form for.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # a surrogate, an integer beyond 64 bits, nesting beyond 254
        pass
    try:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError("$", "a value that JSON can hold", cut(value)) from error


_LOOSE_STRING = re.compile(r'"(?:[^"\\]++|\\[\s\S])*+"')
_CONTROL = re.compile(r"\\[\s\S]|[\x00-\x1f]")
_SHORT: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str | None:
    """Escape raw control characters inside strings; give the text where that makes it valid, else None.

    This is the one repair of invalid JSON that loses nothing: every other byte stays.
    """
    repaired = _LOOSE_STRING.sub(lambda string: _CONTROL.sub(_escape, string[0]), text)
    return repaired if repaired != text and check_json(repaired) is Verdict.VALID else None


def _escape(found: re.Match[str]) -> str:
    if found[0].startswith("\\"):  # a control character behind a backslash has no meaning that could be kept
        return found[0]
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"
