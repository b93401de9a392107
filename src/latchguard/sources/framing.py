"""The frame around a session file of the proxy: none, compressed, or encrypted.

1. `BILIZSTD1`: 9 bytes of magic, 1 byte format version (0x01), 1 byte body mode (0x00 plain, 0x01 zstd), the body.
2. `BILIENC1`: 8 bytes of magic, then ciphertext: reported and left alone.
3. Decompression is streamed and stops at a limit, whatever size the frame promises.
"""

from __future__ import annotations

import sys
from typing import Final

from attrs import frozen

from latchguard.core.errors import cut
from latchguard.sources.errors import BadFrameError, EncryptedSourceError, HalfWrittenError, TooLargeError
from latchguard.sources.limits import Limits

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["ENCRYPTED", "FRAMED", "Framed", "frame", "unframe"]

FRAMED: Final = b"BILIZSTD1"
ENCRYPTED: Final = b"BILIENC1"
_HEADER_BYTES: Final = len(FRAMED) + 2
_VERSION: Final = 1
_PLAIN: Final = 0
_ZSTD: Final = 1
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER_BYTES: Final = 18  # at most


@frozen
class Framed:
    """A session's JSON and the header it came with; the header is empty where there was no frame."""

    header: bytes
    body: bytes


def unframe(raw: bytes, limits: Limits) -> Framed:
    """Take the frame off *raw*.

    Raises:
        TooLargeError: *raw* or the decompressed body is larger than *limits* allow.
        EncryptedSourceError: the session is encrypted.
        HalfWrittenError: the header or the compressed stream is cut off.
        BadFrameError: an unknown version or mode, or a damaged stream.
    """
    if len(raw) > limits.file_bytes:
        raise TooLargeError("file", f"at most {limits.file_bytes} bytes", f"{len(raw)}")
    if raw.startswith(ENCRYPTED):
        raise EncryptedSourceError("byte 0", "a readable session", ENCRYPTED.decode())
    if not raw.startswith(FRAMED):
        return Framed(b"", raw)
    header, body = raw[:_HEADER_BYTES], raw[_HEADER_BYTES:]
    if len(header) < _HEADER_BYTES:
        raise HalfWrittenError(f"byte {len(raw)}", "the rest of the header", "the end")
    version, mode = header[-2], header[-1]
    if version != _VERSION or mode not in (_PLAIN, _ZSTD):
        expected = f"format version {_VERSION} and body mode {_PLAIN} or {_ZSTD}"
        raise BadFrameError(f"byte {len(FRAMED)}", expected, f"version {version}, mode {mode}")
    return Framed(header, body if mode == _PLAIN else _decompress(body, limits.frame_bytes))


def _decompress(body: bytes, limit: int) -> bytes:
    stream = zstd.ZstdDecompressor()
    try:
        promised = zstd.get_frame_info(body).decompressed_size or 0
        if promised > limit:
            raise TooLargeError("frame", f"at most {limit} bytes when decompressed", str(promised))
        plain = stream.decompress(body, max_length=limit + 1)
    except zstd.ZstdError as error:
        if len(body) < _ZSTD_HEADER_BYTES and _ZSTD_MAGIC.startswith(body[: len(_ZSTD_MAGIC)]):
            raise HalfWrittenError("frame", "the rest of the zstd header", "the end of the file") from error
        raise BadFrameError(f"byte {_HEADER_BYTES}", "a zstd stream", cut(str(error))) from error
    if len(plain) > limit:
        raise TooLargeError("frame", f"at most {limit} bytes when decompressed", "more")
    if not stream.eof:
        raise HalfWrittenError("frame", "the end of the zstd stream", "the end of the file")
    if stream.unused_data:
        raise BadFrameError("frame", "nothing after the zstd stream", f"{len(stream.unused_data)} bytes")
    return plain


def frame(framed: Framed) -> bytes:
    """Put the frame back: the same header, the body compressed at zstd's default level where its mode says so."""
    if framed.header and framed.header[-1] == _ZSTD:
        return framed.header + zstd.compress(framed.body)
    return framed.header + framed.body
