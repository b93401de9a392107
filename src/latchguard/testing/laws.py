"""The laws of a context kernel, gravest first: each with its name, the invariant it guards, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from attrs import frozen

__all__ = ["LAWS", "Law", "Violation", "gravity", "violation"]


_SHOWN: Final = 300


@frozen
class Law:
    """One law.

    Args:
        name: kebab-case, stable.
        invariant: the invariant that it guards, `I1` to `I13`, or `-`.
        sentence: what holds.
    """

    name: str
    invariant: str
    sentence: str


LAWS: Final[Mapping[str, Law]] = {
    law.name: law
    for law in (
        Law("answers", "-", "Every op is answered, a bad one by a refusal: the kernel never raises."),
        Law("pure", "I8", "The same step gives the same bytes: twice in a process, and in a new process."),
        Law("input-untouched", "I10", "A step changes neither the state, the history nor the op that it is given."),
        Law("not-into-arguments", "I2", "Tool calls, reasoning and media are shown as they are, whatever is latched."),
        Law("right-message", "I1", "Another text than its own shows only on a message that a latch was made for."),
        Law("twins-stay-two", "I1", "Of two equal messages only the latched one shows the latch."),
        Law("view-survives", "I6", "A message that is there before and after a restamp shows the same text."),
        Law("survives-reload", "I6", "A reload changes nothing that is shown."),
        Law("prefix-stable", "I13", "What is appended changes nothing that was shown before."),
        Law("latch-shows", "I6", "A latch in force shows its text on every later turn; a clip hides a view."),
        Law("atomic", "I5", "A restamp that is cut short leaves the state as before or as after."),
        Law("malformed-refused", "I5", "An op that makes no sense is refused and changes nothing."),
        Law("nothing-vanishes", "I3", "Every latch ever made is in force or in quarantine, once."),
        Law("nothing-from-nothing", "I3", "No latch is in force or in quarantine that was never made."),
        Law("right-reason", "I3", "What is dropped or refused has the reason, of the closed list, that applies."),
        Law("replay-told", "I3", "A replay tells of each latch that it shows, or why not, and what holds its ref."),
        Law("right-home", "I1", "A restamp binds a latch where its message is, and guesses between no two."),
        Law("only-gone-returns", "I3", "Only what is `gone` comes back by itself, and it does; a release by no force."),
        Law("one-latch-per-class", "I3", "A message has at most one clip and at most one view."),
        Law("refs", "I4", "A ref is `m` and five or more digits; ids and refs are one to one; a ref does not change."),
        Law("refs-renumbered", "I4", "After a restamp the refs are the numbering, or 1..n over unprotected messages."),
        Law("ref-issued-once", "I4", "Between restamps no ref is issued twice."),
        Law("protection", "I4", "A protected message has the ref BLOCKED for good and carries no latch."),
        Law("refs-move", "I12", "What is keyed by ref moves with a restamp, and `moved` is the whole map."),
        Law("idempotent", "I9", "A write made twice changes nothing the second time; a replay never writes."),
        Law("versions", "I9", "The version counts the writes that change something, and no other; the epoch restamps."),
        Law("unknown-fields-kept", "-", "A field of the state that the kernel does not know stays in it."),
        Law("view-is-history", "-", "The view has the messages of the history, in order, but for their texts."),
        Law("capabilities", "-", "What a kernel declares it does; an op that it does not declare it refuses."),
    )
}


class Violation(AssertionError):  # noqa: N818  # a failed assertion, named for what it is
    """A law that a kernel broke.

    Args:
        law: the law.
        expected: what had to be, in words.
        found: what was.
        where: the message id, latch or field that it was found at.

    Attributes:
        position: of a purity check, which of the steps it was.
    """

    def __init__(self, law: Law, expected: str, found: str, where: str) -> None:
        super().__init__(law, expected, found, where)
        self.law, self.expected, self.found, self.where = law, expected, found, where
        self.position = 0

    def __str__(self) -> str:
        return f"{self.law.name} ({self.law.invariant}): {self.where}: expected {self.expected}, found {self.found}"


_GRAVITY: Final = {name: rank for rank, name in enumerate(LAWS)}


def gravity(broken: Violation) -> int:
    """Give the rank of the law that is broken, 0 the gravest."""
    return _GRAVITY[broken.law.name]


@cache
def _class_of(name: str) -> type[Violation]:
    return type(f"Violation_{name.replace('-', '_')}", (Violation,), {})


def violation(name: str, where: str, expected: object, found: object) -> Violation:
    """Give the error for a broken law. Each law has a class of its own: Hypothesis shrinks each class apart."""
    return _class_of(name)(LAWS[name], _cut(expected), _cut(found), where)


def _cut(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
