"""Prove which message an old clip was made for.

A clip that has no identity still holds the head and the tail of its original around a known marker.

1. The text is split at *every* place where a marker occurs: the original may quote one. Of nested clips the head
   is before the first marker and the tail after the last.
2. A split proves a text when head and tail have at least 256 UTF-16 units each, the text is longer than both
   together, and they are its own head and tail.
3. Set aside: half a character next to the cut, on both sides; one leading tag of the kernel's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

__all__ = ["MARKERS", "MIN_UNITS", "TAG_STARTS", "Split", "has_marker", "proves", "split_clip", "strip_tag"]

MIN_UNITS: Final = 256

# What the kernel puts between head and tail; the stray `]` is real. Each is matched as an exact text around a count.
MARKERS: Final[tuple[re.Pattern[str], ...]] = (
    re.compile(r"\n\n\.\.\.\[truncated for context space\] — original ~[0-9]+ tokens\]\.\.\.\n\n", re.ASCII),
    re.compile(r"\[acp: tool-result truncated, original ~[0-9]+ tokens\]", re.ASCII),
)

# The kernel's own tags before a text: a bracketed ref, an <acp ...> element, a message-id element.
_TAG: Final = re.compile(r"\[m[0-9]{5,}\] ?|<acp\b[^<>]*>\n?|<dcp-message-id>[^<>]*</dcp-message-id>\n?", re.ASCII)
TAG_STARTS: Final = frozenset("[<")

# Characters to copy for all splits of one text: beyond it the text proves nothing, since each split is a copy of it
# and a hostile one would be quadratic work. A clip of the kernel's has 4,000 characters.
_MAX_COPIED: Final = 2**24


@frozen
class Split:
    """Head and tail of a clip's original, half characters at the cut already set aside."""

    head: str
    tail: str


def has_marker(text: str, markers: Sequence[re.Pattern[str]] = MARKERS) -> bool:
    """Say whether a known marker occurs in *text*."""
    return any(marker.search(text) for marker in markers)


def split_clip(text: str, markers: Sequence[re.Pattern[str]] = MARKERS) -> tuple[Split, ...]:
    """Give the ways to read *text* as a clip whose head and tail are long enough to prove anything."""
    places = sorted({match.span() for marker in markers for match in marker.finditer(text)})
    if not places or len(places) * len(text) > _MAX_COPIED:
        return ()
    cuts = [*places, (places[0][0], places[-1][1])]
    splits = (_trim(text[:start], text[end:]) for start, end in dict.fromkeys(cuts))
    return tuple(split for split in splits if min(_units(split.head), _units(split.tail)) >= MIN_UNITS)


def proves(splits: Iterable[Split], text: str) -> bool:
    """Say whether one of *splits* proves that the clip was made of *text*."""
    bare = strip_tag(text)
    for split in splits:
        head, tail = strip_tag(split.head), split.tail
        for candidate in (text, bare):
            for start in (split.head, head):
                if (
                    len(candidate) > len(start) + len(tail)
                    and _units(start) >= MIN_UNITS
                    and candidate.startswith(start)
                    and candidate.endswith(tail)
                ):
                    return True
    return False


def strip_tag(text: str) -> str:
    """Take one leading tag of the kernel's own off *text*."""
    tag = _TAG.match(text) if text[:1] in TAG_STARTS else None
    return text[tag.end() :] if tag else text


def _trim(head: str, tail: str) -> Split:
    """Set half a character aside on both sides: a lone half, or the U+FFFD that an encoder made of it."""
    if head and (_is_high(head[-1]) or head[-1] == "\ufffd"):
        head = head[:-1]
    if tail and (_is_low(tail[0]) or tail[0] == "\ufffd"):
        tail = tail[1:]
    return Split(head, tail)


def _is_high(character: str) -> bool:
    return "\ud800" <= character <= "\udbff"


def _is_low(character: str) -> bool:
    return "\udc00" <= character <= "\udfff"


def _units(text: str) -> int:
    """Count UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
