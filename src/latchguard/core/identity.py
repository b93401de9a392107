"""Identity: what a message *is*, whatever its id or ref.

The bytes, so that any language gets the same (docs/identity.md, tests/vectors/identity.json):

1. SHA-256 over the ASCII bytes `latchguard/1`, a zero byte, then three fields: `tool_name`, `tool_call_id`, `text`.
2. A field that is None is a zero byte; else a byte 1, the length in bytes as 8 bytes big-endian, the bytes.
3. The bytes of a text are WTF-8: pairs of surrogates are joined first, a lone half becomes three bytes.
4. Nothing is trimmed, folded or normalised.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import frozen

from latchguard.core.errors import InvalidValueError, check_type, cut
from latchguard.core.message import Kind, Message, Role, to_member

__all__ = ["Identity", "hash_fields", "join_halves", "to_wtf8"]

_PREFIX = b"latchguard/1\0"


@frozen
class Identity:
    """What a message is: (hash, role, kind).

    Args:
        hash: 64 lower-case hex digits, the SHA-256 of the three hashed fields.
        role: the message's role.
        kind: the message's kind.

    Raises:
        InvalidValueError: a field has the wrong type. Exact strings of a `Role` and a `Kind` are taken.
    """

    hash: str
    role: Role
    kind: Kind

    def __attrs_post_init__(self) -> None:
        if type(self.hash) is not str or type(self.role) is not Role or type(self.kind) is not Kind:
            check_type(self.hash, str, "identity.hash", "a string")
            object.__setattr__(self, "role", to_member(Role, self.role, "identity.role"))
            object.__setattr__(self, "kind", to_member(Kind, self.kind, "identity.kind"))

    @classmethod
    def of(cls, message: Message) -> Identity:
        """Give the identity of *message*. Pure; computed once per message object and kept on it.

        Raises:
            InvalidValueError: *message* is no `Message`.
        """
        try:
            known = message._identity  # noqa: SLF001  # the slot is kept for this
        except AttributeError:
            raise InvalidValueError("message", "a Message", cut(message)) from None
        if known is None:
            digest = hash_fields(message.tool_name, message.tool_call_id, message.text)
            known = cls(digest, message.role, message.kind)
            object.__setattr__(message, "_identity", known)
        return known  # type: ignore[return-value]  # the slot holds None or an Identity


def hash_fields(tool_name: str | None, tool_call_id: str | None, text: str) -> str:
    """Give the identity hash of three fields as 64 lower-case hex digits."""
    parts = [_PREFIX]
    for value in (tool_name, tool_call_id, text):
        if value is None:
            parts.append(b"\0")
        else:
            encoded = to_wtf8(value)
            parts += (b"\1", len(encoded).to_bytes(8, "big"), encoded)
    return sha256(b"".join(parts)).hexdigest()


def to_wtf8(text: str) -> bytes:
    """Encode *text* as WTF-8: UTF-8 where pairs of surrogates are one code point and lone halves are three bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return join_halves(text).encode("utf-8", "surrogatepass")


def join_halves(text: str) -> str:
    """Make one character of each pair of surrogates in *text*, as JSON and UTF-16 read it; lone halves stay."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
