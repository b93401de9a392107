"""What a source may cost before it is left alone."""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["Limits"]

MEBIBYTE: Final = 2**20


@frozen
class Limits:
    """What a source may cost; over it a source is `too-large` or `too-deep` and left alone.

    Args:
        file_bytes: of one file as it lies on the disk.
        frame_bytes: of one decompressed frame.
        depth: of JSON nesting, in levels; beyond 1,000 a text counts as too deep anyway.
        nodes: JSON values in one document.
    """

    file_bytes: int = 256 * MEBIBYTE
    frame_bytes: int = 512 * MEBIBYTE
    depth: int = 1000
    nodes: int = 20_000_000
