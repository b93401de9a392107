"""What the first bytes of an image say: its media type and its size in pixels."""

from __future__ import annotations

import base64
import binascii
from typing import Final

__all__ = ["image_size", "image_type"]

_PREFIX_CHARACTERS: Final = 262_144  # of base64: JPEG sizes stand behind the metadata
_TYPES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def _head(data: str) -> bytes:
    text = data[:_PREFIX_CHARACTERS]
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def image_type(data: str) -> str | None:
    """Give the media type that the base64 *data* begins like; None where it is none of the four that models take."""
    head = _head(data[:64])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _TYPES if head.startswith(magic)), None)


def image_size(data: str) -> tuple[int, int] | None:
    """Give width and height in pixels of the image that the base64 *data* holds; None where the header does not say."""
    head = _head(data)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:  # noqa: PLR2004  # signature, length, IHDR, two sizes
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"GIF8") and len(head) >= 10:  # noqa: PLR2004  # signature and two sizes
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return _jpeg_size(head) if head.startswith(b"\xff\xd8") else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Walk over the segments to the frame header (SOF0 to SOF15 but DHT, JPG, DAC)."""
    place = 2
    while place + 9 < len(head) and head[place] == 0xFF:  # noqa: PLR2004  # the mark of a segment
        kind = head[place + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004  # the frame headers
            return int.from_bytes(head[place + 7 : place + 9], "big"), int.from_bytes(
                head[place + 5 : place + 7], "big"
            )
        place += 2 + int.from_bytes(head[place + 2 : place + 4], "big")
    return None
