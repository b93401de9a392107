"""Shrink a run that breaks a law, as long as a law as grave is broken: first its turns, then its steps.

1. A turn is its bytes: turns are deleted, then bytes lowered. What a turn means hangs on the history that it finds, so
   this gets stuck where a message may not go without another one taking its place.
2. A step is an op with its history: messages are taken out of the whole run, and steps that a host may leave out.
   Every run that is tried is one that a host could have made.

The same run gives the same result; a few hundred re-runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from attrs import define, evolve, field, frozen

from latchguard.testing.laws import Violation, gravity
from latchguard.testing.protocol import Json
from latchguard.testing.run import Step

__all__ = ["Broken", "shrink_run", "shrink_steps"]

_MOST_TRIES: Final = 1_000
# Ops that leave the history as it is: without one of them the rest is still a run.
_LEAVES_HISTORY: Final = frozenset(("latch", "unlatch", "resend", "reload", "release", "adopt"))


@frozen
class Broken:
    """A run that breaks a law: its turns, in the bytes that were used of them, and the violation."""

    turns: tuple[bytes, ...]
    violation: Violation


def shrink_run(broken: Broken, run: Callable[[Sequence[bytes]], Broken | None]) -> Broken:
    """Give the smallest run that is found to break a law as grave as *broken* does.

    Args:
        broken: the run as it was found.
        run: makes the turns and gives what broke, with the turns as they were used, or None.
    """
    search = _Search(broken, run)
    before = None
    while before != search.best.turns and search.tries < _MOST_TRIES:
        before = search.best.turns
        search.delete_turns()
        search.shorten_turns()
        search.lower_bytes()
    return search.best


@define
class _Search:
    best: Broken
    run: Callable[[Sequence[bytes]], Broken | None]
    tries: int = 0
    seen: set[tuple[bytes, ...]] = field(factory=set)

    def accept(self, *parts: Sequence[bytes]) -> bool:
        """Try the turns of *parts*; keep them where they are smaller and break a law as grave."""
        turns = tuple(turn for part in parts for turn in part)
        if turns in self.seen or self.tries >= _MOST_TRIES:
            return False
        self.seen.add(turns)
        self.tries += 1
        found = self.run(turns)
        if found is None or _key(found) >= _key(self.best):
            return False
        self.best = found
        return True

    def delete_turns(self) -> None:
        size = max(1, len(self.best.turns) // 2)
        while size:
            start = len(self.best.turns) - size
            while start >= 0:
                turns = self.best.turns
                self.accept(turns[:start], turns[start + size :])
                start = min(start, len(self.best.turns)) - size
            size //= 2

    def shorten_turns(self) -> None:
        for index in range(len(self.best.turns)):
            for length in range(len(self.best.turns[index]) if index < len(self.best.turns) else 0):
                turns = self.best.turns
                if index < len(turns) and self.accept(turns[:index], (turns[index][:length],), turns[index + 1 :]):
                    break

    def lower_bytes(self) -> None:
        for index in range(len(self.best.turns)):
            position = 0
            while index < len(self.best.turns) and position < len(self.best.turns[index]):
                turns, turn = self.best.turns, self.best.turns[index]
                value = turn[position]
                lower = [bytes((other,)) for other in dict.fromkeys((0, value // 2, value - 1)) if 0 <= other < value]
                for changed in (b"", *lower):
                    new = turn[:position] + changed + turn[position + 1 :]
                    if self.accept(turns[:index], (new,), turns[index + 1 :]):
                        break
                else:
                    position += 1


def _key(broken: Broken) -> tuple[int, int, int, Sequence[bytes]]:
    turns = broken.turns
    return gravity(broken.violation), len(turns), sum(map(len, turns)), turns


# --- steps ---


def shrink_steps(
    steps: Sequence[Step],
    violation: Violation,
    run: Callable[[Sequence[Step]], tuple[Sequence[Step], Violation] | None],
) -> tuple[Sequence[Step], Violation]:
    """Give the fewest steps, on the fewest messages, that are found to break a law as grave as *violation*.

    Args:
        steps: the run as it was found; the last step breaks the law.
        violation: what they break.
        run: makes steps and gives those that were made, the last of which broke a law, and the law; or None.
    """
    best, tries, improved = (steps, violation), 0, True
    while improved:
        improved = False
        for candidate in _smaller(best[0]):
            if tries >= _MOST_TRIES:
                break
            tries += 1
            found = run(candidate)
            if found is not None and _size(*found) < _size(*best) and _is_a_hosts(found[0]):
                best, improved = found, True
                break
    return best


def _size(steps: Sequence[Step], violation: Violation) -> tuple[int, int, int, int]:
    messages = sum(len(step.history) for step in steps)
    return gravity(violation), len(steps), messages, sum(len(step.op) for step in steps)


def _is_a_hosts(steps: Sequence[Step]) -> bool:
    """Whether every message stays as it is, but where an op brings it, or as it was shown."""
    held: dict[str, Json] = {}
    forms: dict[str, list[str]] = {}
    for step in steps:
        op = step.op.get("op")
        brought = {*(step.op.get("ids") or ()), *([step.op.get("id")] if op == "edit" else [])}
        for message in step.history:
            key = message["id"]
            if key not in held or (message != held[key] and (op == "restamp" or key in brought)):
                forms[key] = [message["text"]]
            elif message != {**held[key], "text": message["text"]} or message["text"] not in forms[key]:
                return False
            held[key] = message
        for entry in (step.reply or {}).get("view", ()):
            forms[entry["id"]].append(entry["text"])
    return True


def _smaller(steps: Sequence[Step]) -> Iterator[list[Step]]:
    for message_id in dict.fromkeys(message["id"] for step in reversed(steps) for message in step.history):
        if without := _without_message(steps, message_id):
            yield without
    for index in range(len(steps) - 1):
        if (shorter := _without_step(steps, index)) is not None:
            yield shorter
            if shorter[-1].op.get("op") == "restamp":  # what refs the step gave may have to be had by another order
                history = shorter[-1].history
                yield [*shorter[:-1], evolve(shorter[-1], history=[*history[1:], *history[:1]])]
    for index, step in enumerate(steps):
        if step.op.get("op") == "edit":  # the same change, found by a restamp
            yield [*steps[:index], evolve(step, op={"op": "restamp"}), *steps[index + 1 :]]
        for name in ("numbering", "protected", "crash"):
            if step.op.get(name) and step.op.get("op") in ("restamp", "append"):
                plain = {key: value for key, value in step.op.items() if key != name}
                yield [*steps[:index], evolve(step, op=plain), *steps[index + 1 :]]


def _without_message(steps: Sequence[Step], message_id: str) -> list[Step]:
    """Give the run of a host that never had the message."""
    left = []
    for step in steps:
        history = [message for message in step.history if message["id"] != message_id]
        op = _op_without(step.op, message_id, len(history))
        if history and op is not None:
            left.append(evolve(step, history=history, op=op))
    return left


def _op_without(op: Json, message_id: str, count: int) -> Json | None:
    """Give *op* without what names the message; None where nothing is left to do."""
    if op.get("id") == message_id:
        return None
    op = dict(op)
    for name in ("ids", "protected"):
        if isinstance(op.get(name), list):
            op[name] = [key for key in op[name] if key != message_id]
    if isinstance(op.get("numbering"), dict):
        op["numbering"] = {key: ref for key, ref in op["numbering"].items() if key != message_id}
    if op.get("op") == "fork":
        op["upto"] = count
    return op if op.get("op") != "append" or op.get("ids") or op.get("protected") else None


def _without_step(steps: Sequence[Step], index: int) -> list[Step] | None:
    """Leave a step out: what it brought comes with the next one, if that is an append or a restamp that is made."""
    step, following = steps[index], steps[index + 1]
    if not _was_made(step) or step.op["op"] in _LEAVES_HISTORY or (index and step.history == steps[index - 1].history):
        return [*steps[:index], *steps[index + 1 :]]
    if step.op["op"] == following.op.get("op") == "append":
        return [*steps[:index], _joined(step, following), *steps[index + 2 :]]
    if following.op.get("op") != "restamp" or not _was_made(following):
        return None
    if not index:  # a run begins with an append
        op = {"op": "append", "ids": [message["id"] for message in following.history]}
        following = evolve(following, op=op)
    return [*steps[:index], following, *steps[index + 2 :]]


def _joined(step: Step, following: Step) -> Step:
    ids, protected = (
        list(dict.fromkeys((*(step.op.get(name) or ()), *(following.op.get(name) or ()))))
        for name in ("ids", "protected")
    )
    return evolve(following, op={"op": "append", "ids": ids, **({"protected": protected} if protected else {})})


def _was_made(step: Step) -> bool:
    """Whether the host went on with the history of *step*."""
    refused = any(event["event"] == "refused" for event in (step.reply or {}).get("events", ()))
    return not refused and not step.op.get("crash")
