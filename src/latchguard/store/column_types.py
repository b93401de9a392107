"""Column types that mean the same on every database; `migrations/` uses them too: what one means is final."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, LargeBinary, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

from latchguard.store.texts import MAX_ID_BYTES, from_stored, to_stored

__all__ = ["KeyText", "digest_type", "is_mysql", "long_text", "number_type"]


class KeyText(TypeDecorator[str]):
    """A session name or message id: compared byte for byte, ordered by code point, on every database.

    MySQL's collations pad with spaces, even the binary ones, so there the bytes are stored; PostgreSQL orders by
    the collation "C".
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Give the column type on *dialect*."""
        if is_mysql(dialect):
            return dialect.type_descriptor(mysql.VARBINARY(MAX_ID_BYTES))
        return dialect.type_descriptor(Text(collation="C" if dialect.name == "postgresql" else None))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Give what the driver takes."""
        if value is None:
            return None
        return to_stored(value).encode() if is_mysql(dialect) else to_stored(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Give the key back."""
        if value is None:
            return None
        return from_stored(value.decode() if isinstance(value, bytes) else value)


def is_mysql(dialect: Dialect) -> bool:
    """Say whether the database is MySQL or MariaDB."""
    return dialect.name in {"mysql", "mariadb"}


def number_type() -> TypeEngine[int]:
    """64 bits; on SQLite the type that a rowid wants."""
    return BigInteger().with_variant(Integer(), "sqlite")


def long_text() -> TypeEngine[str]:
    """Text of any length: the TEXT of MySQL ends at 64 KiB."""
    return Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def digest_type() -> TypeEngine[bytes]:
    """32 bytes."""
    return LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
