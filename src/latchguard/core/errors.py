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
    "HolderAbsentError",
    "IdentityMismatchError",
    "InvalidValueError",
    "LatchError",
    "LatchguardError",
    "MessageConflictError",
    "MissingPathError",
    "NumberingError",
    "ProfileConflictError",
    "SchemaOutdatedError",
    "SessionExistsError",
    "SessionNotFoundError",
    "StaleRefError",
    "StaleStateError",
    "StateVersionError",
    "StoreBusyError",
    "StoreFailedError",
    "StoreNotFoundError",
    "UnknownDropError",
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
        text = ascii(value[:limit])
    else:
        try:
            text = _BOUNDED.repr(value)
        except ValueError:  # an integer with more digits than Python will print
            text = f"<{type(value).__name__}>"
        text = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
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


@define(repr=False, str=False, eq=False)
class SessionNotFoundError(LatchguardError):
    """A session that the store, or every source that was named, does not hold."""

    code: ClassVar[str] = "session-not-found"
    session: str

    def __str__(self) -> str:
        return f"expected session {cut(self.session)}, found none of that name"


@define(repr=False, str=False, eq=False)
class SessionExistsError(LatchguardError):
    """A session that was to be made is there already."""

    code: ClassVar[str] = "session-exists"
    session: str

    def __str__(self) -> str:
        return f"the store holds a session {cut(self.session)} already"


@define(repr=False, str=False, eq=False)
class MessageConflictError(LatchguardError):
    """A known message id came back with another identity; *expected* and *found* are `hash role kind`."""

    code: ClassVar[str] = "message-conflict"
    session: str
    message_id: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"session {cut(self.session)}, message {cut(self.message_id)}: stored is {self.expected}, "
            f"found {self.found}; `edit` changes a stored message"
        )


@define(repr=False, str=False, eq=False)
class IdentityMismatchError(LatchguardError):
    """The stored message is not the one that the caller means; *expected* and *found* are `hash role kind`."""

    code: ClassVar[str] = "identity-mismatch"
    session: str
    message_id: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"session {cut(self.session)}, message {cut(self.message_id)}: the caller means {self.expected}, "
            f"stored is {self.found}"
        )


@define(repr=False, str=False, eq=False)
class StaleStateError(LatchguardError):
    """Somebody else wrote the session meanwhile; nothing was written."""

    code: ClassVar[str] = "stale-state"
    session: str
    expected: int
    found: int

    def __str__(self) -> str:
        return f"session {cut(self.session)}: expected version {self.expected}, found {self.found}"


@define(repr=False, str=False, eq=False)
class StaleRefError(LatchguardError):
    """A ref of another epoch, or one that no message holds; *epoch* is the caller's, None where not given."""

    code: ClassVar[str] = "stale-ref"
    session: str
    ref: str
    epoch: int | None
    found_epoch: int

    def __str__(self) -> str:
        why = "no message holds it" if self.epoch in (None, self.found_epoch) else f"it is of epoch {self.epoch}"
        return f"session {cut(self.session)}, ref {cut(self.ref)}: {why}; the epoch is {self.found_epoch}"


@define(repr=False, str=False, eq=False)
class UnknownDropError(LatchguardError):
    """A drop id that is not in quarantine."""

    code: ClassVar[str] = "unknown-drop"
    drop_id: int

    def __str__(self) -> str:
        return f"no drop {self.drop_id} is in quarantine"


@define(repr=False, str=False, eq=False)
class HolderAbsentError(LatchguardError):
    """Not exactly one message may take a drop back; *found* counts those that have its identity."""

    code: ClassVar[str] = "holder-absent"
    session: str
    drop_id: int
    found: int

    def __str__(self) -> str:
        return (
            f"session {cut(self.session)}: drop {self.drop_id} needs exactly one message with its identity, "
            f"found {self.found}"
        )


@define(repr=False, str=False, eq=False)
class SchemaOutdatedError(LatchguardError):
    """A database whose schema is older than this release needs, or that has none; *where* hides the password."""

    code: ClassVar[str] = "old-schema"
    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: expected schema {self.expected}, found {self.found}; run `upgrade`"


@define(repr=False, str=False, eq=False)
class StoreNotFoundError(LatchguardError):
    """A database file that is not there, where only reading was asked for."""

    code: ClassVar[str] = "source-not-found"
    where: str

    def __str__(self) -> str:
        return f"{self.where}: expected a database, found nothing there"


@define(repr=False, str=False, eq=False)
class StoreFailedError(LatchguardError):
    """The database refused or was lost; the transaction was rolled back. The driver's error is the cause."""

    code: ClassVar[str] = "store-failed"
    where: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: {' '.join(self.found.split())}"  # drivers write several lines


@define(repr=False, str=False, eq=False)
class StoreBusyError(StoreFailedError):
    """Somebody else holds a lock, or the database chose this transaction to break a deadlock: try again."""

    code: ClassVar[str] = "store-busy"
