"""Progress on a terminal, and nothing in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import click

__all__ = ["clear_progress", "show_progress"]

_INTERVAL_S: Final = 0.1
_CLEAR: Final = "\r\x1b[K"

T = TypeVar("T")


def show_progress(items: Iterable[T], noun: str) -> Iterator[T]:
    """Hand *items* on, and count them on the terminal that stderr is, ten times a second at most."""
    if not sys.stderr.isatty():
        yield from items
        return
    shown_at = time.monotonic()
    for count, item in enumerate(items, 1):
        if time.monotonic() - shown_at >= _INTERVAL_S:
            shown_at = time.monotonic()
            click.echo(f"{_CLEAR}{count:,} {noun}", err=True, nl=False)
        yield item
    clear_progress()


def clear_progress() -> None:
    """Take the count off the terminal before something else is written there."""
    if sys.stderr.isatty():
        click.echo(_CLEAR, err=True, nl=False)
