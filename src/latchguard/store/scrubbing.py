"""Hash every stored text again, where it lies: only what differs leaves the database."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, LargeBinary, cast, func, literal_column, or_, select

from latchguard.core.identity import hash_fields
from latchguard.store.column_types import digest_type, is_mysql
from latchguard.store.tables import bodies, messages
from latchguard.store.texts import MARK, from_stored

__all__ = ["changed_texts", "may_differ"]

_FIELDS: Final = (bodies.c.tool_name, bodies.c.tool_call_id, bodies.c.text)
_FUNCTION: Final = "latchguard_hash"


def _fields(template: str) -> list[str]:
    return [template.format(f"{bodies.name}.{field.name}") for field in _FIELDS]


# The bytes of an identity (docs/identity.md), put together by the server.
_PREFIX: Final = b"latchguard/1\0"
_NO_NAME: Final = _PREFIX + b"\0"
_SIZED: Final = Struct(">BQ").pack  # a byte 1 and a length
_MARK: Final = MARK.encode()
_POSTGRESQL: Final = "sha256({})".format(
    " || ".join(
        [
            f"'\\x{_PREFIX.hex()}'::bytea",
            *_fields(
                "CASE WHEN {0} IS NULL THEN '\\x00'::bytea ELSE"
                " '\\x01'::bytea || int8send(octet_length({0})) || convert_to({0}, 'UTF8') END"
            ),
        ]
    )
)
_MYSQL: Final = "UNHEX(SHA2(CONCAT({}), 256))".format(
    ", ".join(
        [
            f"X'{_PREFIX.hex()}'",
            *_fields(
                "IF({0} IS NULL, X'00',"
                " CONCAT(X'01', UNHEX(LPAD(HEX(OCTET_LENGTH({0})), 16, '0')), CAST({0} AS BINARY)))"
            ),
        ]
    )
)


def changed_texts(connection: Connection) -> Iterator[tuple[int, str]]:
    """Give (session key, message id) of each message whose text does not hash to its identity."""
    is_exact = connection.dialect.name == "sqlite"
    columns = (messages.c.session_id, messages.c.message_id, messages.c.hash, *(() if is_exact else _FIELDS))
    joined = (bodies.c.session_id == messages.c.session_id) & (bodies.c.body == messages.c.body)
    found = connection.execute(select(*columns).join(bodies, joined).where(may_differ(connection)))
    for session_key, message_id, digest, *fields in found:
        if is_exact or digest != _hash_stored(*fields):
            yield session_key, message_id


def may_differ(connection: Connection) -> ColumnElement[bool]:
    """Say, of a message and its body, that the text does not hash to the identity, as far as the database can tell.

    On SQLite it can tell. A server cannot decode a text after the mark, so there it says so of each of them.
    """
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function(_FUNCTION, 3, _hash_bytes, deterministic=True)
        found: ColumnElement[bytes] = getattr(func, _FUNCTION)(*(cast(field, LargeBinary) for field in _FIELDS))
        return messages.c.hash != found
    digest = literal_column(_MYSQL if is_mysql(connection.dialect) else _POSTGRESQL, digest_type())
    return or_(messages.c.hash != digest, *(func.coalesce(field, "").startswith(MARK) for field in _FIELDS))


def _hash_stored(*fields: str | None) -> bytes:
    name, call_id, text = (None if field is None else from_stored(field) for field in fields)
    return bytes.fromhex(hash_fields(name, call_id, text or ""))


def _hash_bytes(name: bytes | None, call_id: bytes | None, text: bytes) -> bytes:
    """Hash what SQLite hands over undecoded: it is called for every message, and SHA-256 is half of its time."""
    if text[:1] == _MARK or (name and name[:1] == _MARK) or (call_id and call_id[:1] == _MARK):
        return _hash_stored(
            *(None if field is None else field.decode(errors="replace") for field in (name, call_id, text))
        )
    head = _NO_NAME if name is None else _PREFIX + _SIZED(1, len(name)) + name
    head += b"\0" if call_id is None else _SIZED(1, len(call_id)) + call_id
    return sha256(head + _SIZED(1, len(text)) + text).digest()
