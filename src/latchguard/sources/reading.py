"""Read a JSON document from somewhere else, within limits, and say what it is when it is none.

1. UTF-8, with a byte-order mark or not; valid as `JSON.parse` judges it (`core.jsontext`).
2. Limits are checked before anything is built: nesting and the number of values are counted on the bytes.
3. A text whose strings and brackets are still open at its end is half written; anything else is no JSON.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from latchguard.core.errors import cut
from latchguard.core.jsontext import MAX_DEPTH, Verdict, load_json
from latchguard.sources.errors import (
    EmptySourceError,
    HalfWrittenError,
    NoJsonError,
    TooDeepError,
    TooLargeError,
)
from latchguard.sources.limits import Limits

__all__ = ["BOM", "read_json"]

BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = re.compile(rb"[ \t\n\r]*+")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?P<end>"?)|[\[{]|[\]}]|,', re.DOTALL)


def read_json(body: bytes, limits: Limits) -> Any:
    """Parse *body*; of duplicate keys the last wins.

    Raises:
        EmptySourceError: nothing, or white space only.
        TooLargeError: more values than *limits* allow.
        TooDeepError: nested deeper than *limits* allow.
        HalfWrittenError: the text stops in the middle.
        NoJsonError: anything else that is no JSON.

    Guarantees:
        Pure; no text can exhaust the stack, and none is built before its size is known.
    """
    text = body.removeprefix(BOM)
    if _BLANK.fullmatch(text):
        raise EmptySourceError("byte 0", "a JSON document", f"{len(body)} bytes without content")
    opened = 2 * len(text) - len(text.replace(b"[", b"")) - len(text.replace(b"{", b""))  # 8 times as fast as `count`
    many = len(text) >= limits.nodes and opened + text.count(b",") >= limits.nodes
    if many or opened > min(limits.depth, MAX_DEPTH):
        _check_limits(text, limits)
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, ValueError):
        return _read_slowly(text)


def _check_limits(text: bytes, limits: Limits) -> None:
    depth, nodes, allowed = 0, 1, min(limits.depth, MAX_DEPTH)
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            nodes += 1
            if depth > allowed:
                raise TooDeepError(f"byte {token.start()}", f"at most {allowed} levels", f"level {depth}")
        elif mark == b",":
            nodes += 1
        elif mark in (b"]", b"}"):
            depth -= 1
        if nodes > limits.nodes:
            raise TooLargeError(f"byte {token.start()}", f"at most {limits.nodes} JSON values", "more")


def _read_slowly(text: bytes) -> Any:
    """Parse what orjson does not take: lone surrogates, huge numbers; else say what is wrong."""
    try:
        return load_json(text.decode())
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            raise HalfWrittenError(f"byte {len(text)}", "the rest of the document", "the end") from error
        found = cut(text[error.start : error.start + 4])
        raise NoJsonError(f"byte {error.start}", "UTF-8", found) from error
    except ValueError as error:
        if error.args == (Verdict.TOO_DEEP,):
            raise TooDeepError("$", "nesting that can be read here", "deeper") from error
        if _is_open(text):
            raise HalfWrittenError(f"byte {len(text)}", "the rest of the document", "the end") from error
        raise NoJsonError("byte 0", "one JSON document", cut(text[:40])) from error


def _is_open(text: bytes) -> bool:
    """Say whether a document begins in *text* and a string or bracket of it is open at the end."""
    if text.lstrip(b" \t\n\r")[:1] not in (b"{", b"["):
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
        elif token[0] in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                return False
        elif token[0].startswith(b'"') and not token["end"]:
            return True
    return depth > 0
