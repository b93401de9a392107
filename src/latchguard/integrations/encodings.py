"""Content encodings of request bodies: decoded within a limit, encoded again after a repair."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

__all__ = ["UndecodableError", "decode_body", "encode_body"]

_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15


class UndecodableError(Exception):
    """A body that is not decoded; *unguarded* is its class: `encoding-unknown`, `encoding-broken` or `too-large`."""

    def __init__(self, unguarded: str) -> None:
        super().__init__(unguarded)
        self.unguarded = unguarded


@frozen
class _Encoding:
    decode: Callable[[bytes, int], bytes]
    encode: Callable[[bytes], bytes]


def decode_body(raw: bytes, encodings: str, limit_bytes: int) -> bytes:
    """Undo the encodings that a `content-encoding` header names, the last one first.

    Raises:
        UndecodableError: an encoding has no decoder here, *raw* is damaged or cut, or the result, at any stage, has
            more than *limit_bytes*; that result is never built.
    """
    for name in reversed(_names(encodings)):
        raw = _find(name).decode(raw, limit_bytes)
    return raw


def encode_body(body: bytes, encodings: str) -> bytes:
    """Apply the encodings that a `content-encoding` header names, in order. Same input, same bytes."""
    for name in _names(encodings):
        body = _find(name).encode(body)
    return body


def _names(encodings: str) -> list[str]:
    names = (name.strip().lower() for name in encodings.split(","))
    return [name for name in names if name not in ("", "identity")]


def _find(name: str) -> _Encoding:
    encoding = _ENCODINGS.get(name)
    if encoding is None:
        raise UndecodableError("encoding-unknown")
    return encoding


def _inflate(bits: int) -> Callable[[bytes, int], bytes]:
    def decode(raw: bytes, limit_bytes: int) -> bytes:
        parts: list[bytes] = []
        room = limit_bytes
        while raw:
            stream = zlib.decompressobj(bits)
            try:
                part = stream.decompress(raw, room + 1)
            except zlib.error as error:
                raise UndecodableError("encoding-broken") from error
            room -= len(part)
            if room < 0:
                raise UndecodableError("too-large")
            if not stream.eof:
                raise UndecodableError("encoding-broken")
            parts.append(part)
            raw = stream.unused_data  # gzip members may follow one another
        return b"".join(parts)

    return decode


def _decode_deflate(raw: bytes, limit_bytes: int) -> bytes:
    """RFC 9110 says zlib; some clients send it raw."""
    try:
        return _inflate(_ZLIB_BITS)(raw, limit_bytes)
    except UndecodableError as error:
        if error.unguarded == "too-large":
            raise
        return _inflate(_RAW_BITS)(raw, limit_bytes)


def _deflate(bits: int) -> Callable[[bytes], bytes]:
    def encode(body: bytes) -> bytes:
        stream = zlib.compressobj(wbits=bits)
        return stream.compress(body) + stream.flush()

    return encode


def _zstd() -> Any:
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _decode_zstd(raw: bytes, limit_bytes: int) -> bytes:
    zstd = _zstd()
    parts: list[bytes] = []
    room = limit_bytes
    while raw:
        stream = zstd.ZstdDecompressor()
        try:
            part = stream.decompress(raw, room + 1)
        except zstd.ZstdError as error:
            raise UndecodableError("encoding-broken") from error
        room -= len(part)
        if room < 0:
            raise UndecodableError("too-large")
        if not stream.eof:
            raise UndecodableError("encoding-broken")
        parts.append(part)
        raw = stream.unused_data
    return b"".join(parts)


def _encode_zstd(body: bytes) -> bytes:
    compressed: bytes = _zstd().compress(body)
    return compressed


def _brotli() -> Any:
    for name in ("brotli", "brotlicffi"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise UndecodableError("encoding-unknown")


def _decode_brotli(raw: bytes, limit_bytes: int) -> bytes:
    brotli = _brotli()
    stream = brotli.Decompressor()
    parts: list[bytes] = []
    room = limit_bytes
    try:
        part = stream.process(raw, output_buffer_limit=room + 1)
        while part or not stream.can_accept_more_data():
            room -= len(part)
            if room < 0:
                raise UndecodableError("too-large")
            parts.append(part)
            part = stream.process(b"", output_buffer_limit=room + 1)
    except brotli.error as error:
        raise UndecodableError("encoding-broken") from error
    if not stream.is_finished():
        raise UndecodableError("encoding-broken")
    return b"".join(parts)


def _encode_brotli(body: bytes) -> bytes:
    compressed: bytes = _brotli().compress(body, quality=5)
    return compressed


_ENCODINGS: Final = {
    "gzip": _Encoding(_inflate(_GZIP_BITS), _deflate(_GZIP_BITS)),
    "x-gzip": _Encoding(_inflate(_GZIP_BITS), _deflate(_GZIP_BITS)),
    "deflate": _Encoding(_decode_deflate, _deflate(_ZLIB_BITS)),
    "br": _Encoding(_decode_brotli, _encode_brotli),
    "zstd": _Encoding(_decode_zstd, _encode_zstd),
}
