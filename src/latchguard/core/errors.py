"""One base error and a leaf for each thing that a caller can handle differently.

Fields carry the place, the expected and the found; the text is made in `__str__` only. Tests assert `code` and
fields, never text. Data that is merely bad is a *finding*; these errors are for misuse, for input that cannot be
read at all, for lost races and for stores that failed.
"""

from __future__ import annotations

import reprlib
from types import UnionType
from typing import ClassVar, Final

from attrs import define

from latchguard.core.reasons import Reason

__all__ = [
    "ArgumentsError",
    "DuplicateMessageError",
    "InvalidValueError",
    "LatchError",
    "LatchguardError",
    "MissingPathError",
    "NumberingError",
    "ProfileConflictError",
    "StateVersionError",
    "UnknownMessageError",
    "UnknownProfileError",
    "WireUndecidedError",
    "check_type",
    "cut",
]

SHOWN_CHARACTERS = 64


def cut(value: object, limit: int = SHOWN_CHARACTERS) -> str:
    """Give the ASCII `repr` of *value*, cut to *limit* characters: safe for a terminal, a log and an error."""
    if isinstance(value, str | bytes):
        text = ascii(value[: limit + 1])
    else:
        try:
            text = _BOUNDED.repr(value)
        except ValueError:  # an integer with more digits than Python will print
            text = f"<{type(value).__name__}>"
        text = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 3] + "..."


# Looks two levels deep and at a few items each: what was found may be huge, nested without end, or fail in `repr`.
_BOUNDED: Final = reprlib.Repr()
_BOUNDED.maxlevel = 2
_BOUNDED.maxstring = _BOUNDED.maxother = SHOWN_CHARACTERS


def check_type(value: object, wanted: type | UnionType, path: str, expected: str) -> None:
    """Refuse a *value* at a border that is no *wanted*.

    Raises:
        InvalidValueError: it is not; *path* and *expected* go into the error.
    """
    if not isinstance(value, wanted):
        raise InvalidValueError(path, expected, cut(value))


class LatchguardError(Exception):
    """Base of every error that latchguard raises on purpose."""

    code: ClassVar[str] = "error"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


@define(repr=False, str=False, eq=False)
class InvalidValueError(LatchguardError):
    """A value at a border has the wrong type or form."""

    code: ClassVar[str] = "invalid-value"
    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


@define(repr=False, str=False, eq=False)
class MissingPathError(LatchguardError, KeyError):
    """A JSON path that leads nowhere."""

    code: ClassVar[str] = "missing-path"
    path: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found nothing"


@define(repr=False, str=False, eq=False)
class DuplicateMessageError(LatchguardError):
    """Two messages of one history share an id; *first* and *second* are their positions, counted from 0."""

    code: ClassVar[str] = "duplicate-message"
    message_id: str
    first: int
    second: int

    def __str__(self) -> str:
        return (
            f"message ids must be unique in a history: {cut(self.message_id)} is at positions "
            f"{self.first} and {self.second}"
        )


@define(repr=False, str=False, eq=False)
class UnknownMessageError(LatchguardError):
    """A message id that the state or store does not know."""

    code: ClassVar[str] = "unknown-message"
    message_id: str
    expected: str

    def __str__(self) -> str:
        return f"expected {self.expected}, found no message {cut(self.message_id)}"


@define(repr=False, str=False, eq=False)
class LatchError(LatchguardError):
    """A latch may not be made on this message, for *reason*."""

    code: ClassVar[str] = "latch-refused"
    message_id: str
    ref: str | None
    reason: Reason

    def __str__(self) -> str:
        return f"no latch may be made on message {cut(self.message_id)} (ref {self.ref or 'none'}): {self.reason}"


@define(repr=False, str=False, eq=False)
class NumberingError(LatchguardError):
    """A numbering given to a restamp is not injective, or holds something that is no ref."""

    code: ClassVar[str] = "bad-numbering"
    message_id: str
    ref: str
    expected: str

    def __str__(self) -> str:
        return f"numbering[{cut(self.message_id)}]: expected {self.expected}, found {cut(self.ref)}"


@define(repr=False, str=False, eq=False)
class StateVersionError(LatchguardError):
    """A stored state or database is of a newer schema than this release reads."""

    code: ClassVar[str] = "newer-schema"
    where: str
    expected: int | str
    found: int | str

    def __str__(self) -> str:
        return f"{self.where}: this release reads schema {self.expected}, found {self.found}; upgrade latchguard"


@define(repr=False, str=False, eq=False)
class ArgumentsError(LatchguardError):
    """Tool-call arguments that hold no JSON object."""

    code: ClassVar[str] = "arguments-not-object"
    expected: str
    found: str

    def __str__(self) -> str:
        return f"tool-call arguments: expected {self.expected}, found {self.found}"


@define(repr=False, str=False, eq=False)
class WireUndecidedError(LatchguardError):
    """The wire of a body was not named and cannot be told from its shape."""

    code: ClassVar[str] = "wire-undecided"
    found: str
    candidates: tuple[str, ...]

    def __str__(self) -> str:
        return f"expected a body of one wire ({', '.join(self.candidates)}); found {self.found}: name the wire"


@define(repr=False, str=False, eq=False)
class UnknownProfileError(LatchguardError):
    """A profile or trait name that does not exist."""

    code: ClassVar[str] = "unknown-profile"
    found: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"unknown profile {cut(self.found)}; known are {', '.join(self.known)}"


@define(repr=False, str=False, eq=False)
class ProfileConflictError(LatchguardError):
    """Two demands of a composed profile exclude each other."""

    code: ClassVar[str] = "profile-conflict"
    first: str
    second: str
    demand: str

    def __str__(self) -> str:
        return f"profiles {self.first!r} and {self.second!r} exclude each other on {self.demand}"
