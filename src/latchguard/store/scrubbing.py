"""Hash every stored text again, where it lies: only what differs leaves the database."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, LargeBinary, cast, func, literal_column, not_, or_, select

from latchguard.core.identity import hash_fields
from latchguard.store.column_types import digest_type, is_mysql
from latchguard.store.tables import bodies, messages
from latchguard.store.texts import MARK, from_stored

__all__ = ["changed_texts"]

_FIELDS: Final = (bodies.c.tool_name, bodies.c.tool_call_id, bodies.c.text)
_FUNCTION: Final = "latchguard_hash"


def _fields(template: str) -> list[str]:
    return [template.format(f"{bodies.name}.{field.name}") for field in _FIELDS]


# The bytes of an identity (docs/identity.md), put together by the server.
_PREFIX: Final = b"latchguard/1\0"
_NO_NAMES: Final = _PREFIX + b"\0\0"
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
    joined = (bodies.c.session_id == messages.c.session_id) & (bodies.c.body == messages.c.body)
    statement = select(messages.c.session_id, messages.c.message_id, messages.c.hash, *_FIELDS).join(bodies, joined)
    if connection.dialect.name == "sqlite":
        _driver(connection).create_function(_FUNCTION, 3, _hash_bytes, deterministic=True)
        differs = messages.c.hash != getattr(func, _FUNCTION)(*(cast(field, LargeBinary) for field in _FIELDS))
        found = connection.execute(statement.where(differs))
        yield from ((row.session_id, row.message_id) for row in found)
        return
    # Texts after the mark are decoded here; they are few.
    marked = or_(*(func.coalesce(field, "").startswith(MARK) for field in _FIELDS))
    digest = literal_column(_MYSQL if is_mysql(connection.dialect) else _POSTGRESQL, digest_type())
    for row in connection.execute(statement.where(not_(marked), messages.c.hash != digest)):
        yield row.session_id, row.message_id
    for row in connection.execute(statement.where(marked)):
        if row.hash != _hash_stored(*row[3:]):
            yield row.session_id, row.message_id


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _hash_stored(*fields: str | None) -> bytes:
    name, call_id, text = (None if field is None else from_stored(field) for field in fields)
    return bytes.fromhex(hash_fields(name, call_id, text or ""))


def _hash_bytes(name: bytes | None, call_id: bytes | None, text: bytes) -> bytes:
    """Hash what SQLite hands over undecoded: half the time, and it is called for every message."""
    if text[:1] == _MARK or (name and name[:1] == _MARK) or (call_id and call_id[:1] == _MARK):
        return _hash_stored(*(None if field is None else field.decode() for field in (name, call_id, text)))
    head = _NO_NAMES
    if name is not None or call_id is not None:
        head = _PREFIX + b"".join(
            b"\0" if field is None else b"\1" + len(field).to_bytes(8, "big") + field for field in (name, call_id)
        )
    return sha256(head + b"\1" + len(text).to_bytes(8, "big") + text).digest()
