"""Wires: request bodies of the providers as messages, and back."""

from latchguard.wire.carrying import Lost
from latchguard.wire.converting import Converted, convert
from latchguard.wire.detect import detect_wire, require_wire
from latchguard.wire.parsing import Frame, Parsed, parse
from latchguard.wire.rendering import Rendered, render, render_checked

__all__ = [
    "Converted",
    "Frame",
    "Lost",
    "Parsed",
    "Rendered",
    "convert",
    "detect_wire",
    "parse",
    "render",
    "render_checked",
    "require_wire",
]
