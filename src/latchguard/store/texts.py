"""How a text is stored, the same on every database.

1. A text stands in its column as it is, readable to any client.
2. PostgreSQL takes no NUL and no database takes a lone surrogate. A text with one of them is stored after a mark
   (U+001F), each NUL, surrogate and backslash as a backslash and four hex digits. So is a text that begins with the
   mark itself.
3. `from_stored(to_stored(text)) == text`, code point for code point; a pair of surrogates is not joined.
"""

from __future__ import annotations

import re
from typing import Final

from latchguard.core.errors import InvalidValueError, cut

__all__ = ["MARK", "MAX_ID_BYTES", "check_key", "from_stored", "to_stored"]

MARK: Final = "\x1f"
MAX_ID_BYTES: Final = 2048  # 512 characters of four bytes; an index of InnoDB takes 3,072 bytes
SAFE_CHARACTERS: Final = 409  # all of them escaped, with the mark, still fit

_UNSTORABLE = re.compile("[\0\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\([0-9a-f]{4})")


def to_stored(text: str) -> str:
    """Give the stored form of *text*."""
    if "\0" not in text and not text.startswith(MARK):
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return MARK + _UNSTORABLE.sub(lambda found: f"\\{ord(found[0]):04x}", text)


def from_stored(stored: str) -> str:
    """Give the text whose stored form is *stored*."""
    if not stored.startswith(MARK):
        return stored
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored[1:])


def check_key(key: str, path: str) -> None:
    """Refuse a session name or message id that no index could hold, before anything is written.

    Raises:
        InvalidValueError: *key* is no string, holds a surrogate, or is longer than `MAX_ID_BYTES` as stored.
    """
    if not isinstance(key, str):
        raise InvalidValueError(path, "a string", cut(key))
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(path, "an id without surrogates", cut(key)) from error
    if len(key) > SAFE_CHARACTERS and (size_bytes := len(to_stored(key).encode())) > MAX_ID_BYTES:
        raise InvalidValueError(path, f"at most {MAX_ID_BYTES} bytes as stored", f"{size_bytes} bytes: {cut(key)}")
