"""Images in the spellings of the four wires: data with its media type, or a URL."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["HOLDERS", "READ_KEYS", "read_media"]

# The keys of a block that hold an image: chat and Responses, Anthropic, Gemini in both spellings.
HOLDERS: Final = ("image_url", "source", "inlineData", "inline_data", "fileData", "file_data")
_URLS: Final = ("url", "fileUri", "file_uri")
_TYPES: Final = ("media_type", "mimeType", "mime_type")
# What is read of such a holder.
READ_KEYS: Final = frozenset({*_URLS, *_TYPES, "data", "type"})

_DATA_URL: Final = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)


def read_media(block: Any) -> tuple[str | None, str] | None:
    """Give media type and base64 data of an image, or None and its URL; None where *block* is no image.

    A URL without a media type is taken for an image's, unless its block is a document.
    """
    if not isinstance(block, dict) or block.get("type") == "document":
        return None
    held = next((block[key] for key in HOLDERS if key in block), None)
    held = {"url": held} if isinstance(held, str) else held
    if not isinstance(held, dict):
        return None
    url, media_type, data = (_first_text(held, keys) for keys in (_URLS, _TYPES, ("data",)))
    if data is None and url and (inline := _DATA_URL.fullmatch(url)):
        media_type, data = inline[1], inline[2]
    is_image = media_type is None or media_type.startswith("image/")
    if data is not None:
        return (media_type, data) if media_type and is_image else None
    return (None, url) if url is not None and is_image else None


def _first_text(held: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((held[key] for key in keys if isinstance(held.get(key), str)), None)
