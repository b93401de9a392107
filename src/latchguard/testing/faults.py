"""What the harness does to a kernel or store beyond asking nicely: bad ops, and failures at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from latchguard.testing.protocol import LATCHABLE_KINDS, Json

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["MALFORMED", "InjectedFault", "Malformed", "fail_at_statement"]

# From a history and the refs in force to a history and an op that make no sense together.
Malformed: TypeAlias = Callable[[Sequence[Json], Mapping[str, str]], tuple[Sequence[Json], Json]]


class InjectedFault(Exception):  # noqa: N818  # no error of ours: what a disk or a connection does
    """What an injected failure raises; a store may wrap it, never swallow it."""


def _op(**op: Any) -> Malformed:
    return lambda history, _: (history, op)


def _twice(history: Sequence[Json], _: Mapping[str, str]) -> tuple[Sequence[Json], Json]:
    return ([*history, history[0]] if history else history), {"op": "restamp" if history else "none"}


def _append_twice(history: Sequence[Json], _: Mapping[str, str]) -> tuple[Sequence[Json], Json]:
    ids = [history[0]["id"]] * 2 if history else ["none"]
    return [*history, *history[:1]], {"op": "append", "ids": ids}


def _same_ref(history: Sequence[Json], _: Mapping[str, str]) -> tuple[Sequence[Json], Json]:
    numbering = {message["id"]: f"m{index // 2 + 1:05d}" for index, message in enumerate(reversed(history))}
    return history, {"op": "restamp", "numbering": {"nobody": "m00001", **numbering}}


def _late_bad_ref(history: Sequence[Json], _: Mapping[str, str]) -> tuple[Sequence[Json], Json]:
    """Good refs, in another order, and a bad one at the very end: what has moved by then must move back."""
    numbering = {message["id"]: f"m{index + 1:05d}" for index, message in enumerate(reversed(history))}
    return history, {"op": "restamp", "numbering": {**numbering, "last": "m1"}}


def _latch(**fields: Any) -> Malformed:
    """Latch a message that may carry one, with other *fields*."""

    def make(history: Sequence[Json], _: Mapping[str, str]) -> tuple[Sequence[Json], Json]:
        able = [message["id"] for message in history if message["kind"] in LATCHABLE_KINDS]
        return history, {"op": "latch", "id": (able or ["none"])[-1], **fields}

    return make


MALFORMED: Final[Mapping[str, Malformed]] = {
    "unknown op": _op(op="explode"),
    "no op": _op(),
    "op is a number": _op(op=7),
    "latch on nobody": _op(op="latch", id="nobody", text="x"),
    "latch without text": _latch(),
    "latch with a number for text": _latch(text=5),
    "latch with a number for view": _latch(text="x", view=5),
    "append of nobody": _op(op="append", ids=["nobody"]),
    "append of no list": _op(op="append", ids="h1"),
    "a message twice": _twice,
    "two messages on one ref": _same_ref,
    "a bad ref, last": _late_bad_ref,
    "numbering is a list": _op(op="restamp", numbering=["m00001"]),
    "append of a message twice": _append_twice,
    "protect nobody": _op(op="append", ids=[], protected=["nobody"]),
    "protect no list": _op(op="append", ids=[], protected="nobody"),
    "edit of nobody": _op(op="edit", id="nobody"),
    "unknown field": _op(op="reload", force=True),
    "fork beyond the end": lambda history, _: (history, {"op": "fork", "upto": len(history) + 1}),
}


@contextmanager
def fail_at_statement(engine: Engine, count: int) -> Iterator[None]:
    """Make the *count*-th SQL statement on *engine* fail, counted from 1, commits included."""
    from sqlalchemy import event  # noqa: PLC0415  # the harness works without a database

    left = count

    def tick(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise InjectedFault(f"statement {count}")

    hooks = [(engine, "before_cursor_execute"), (engine, "commit")]
    for target, name in hooks:
        event.listen(target, name, tick)
    try:
        yield
    finally:
        for target, name in hooks:
            event.remove(target, name, tick)
