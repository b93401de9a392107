import copy
import pickle
from typing import Any, cast

import pytest
from attrs import fields

from latchguard import LatchguardError, Reason
from latchguard.core import errors
from latchguard.core.errors import cut

LONG = "x" * 5000

# A value for each type of field that errors have.
VALUES: dict[str, object] = {
    "str": "a",
    "str | None": "a",
    "int": 1,
    "int | None": 1,
    "int | str": 1,
    "Reason": Reason.GONE,
    "tuple[str, ...]": ("a", "b"),
}
CLASSES = sorted(
    (found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, LatchguardError)),
    key=lambda found: found.__name__,
)
EXAMPLES = [
    found(*(VALUES[str(field.type)] for field in fields(cast("Any", found))))
    for found in CLASSES
    if found is not LatchguardError
]


def test_every_error_is_exported() -> None:
    """The list at the top of the module is whole."""
    assert {found.__name__ for found in CLASSES} <= set(errors.__all__)


# What callers and logs go by: a code does not change.
CODES = {
    "ArgumentsError": "arguments-not-object",
    "DuplicateMessageError": "duplicate-message",
    "HolderAbsentError": "holder-absent",
    "IdentityMismatchError": "identity-mismatch",
    "InvalidValueError": "invalid-value",
    "LatchError": "latch-refused",
    "LatchguardError": "error",
    "MessageConflictError": "message-conflict",
    "MissingPathError": "missing-path",
    "NumberingError": "bad-numbering",
    "ProfileConflictError": "profile-conflict",
    "SchemaOutdatedError": "old-schema",
    "SessionExistsError": "session-exists",
    "SessionNotFoundError": "session-not-found",
    "StaleRefError": "stale-ref",
    "StaleStateError": "stale-state",
    "StateVersionError": "newer-schema",
    "StoreBusyError": "store-busy",
    "StoreFailedError": "store-failed",
    "StoreNotFoundError": "source-not-found",
    "UnknownDropError": "unknown-drop",
    "UnknownMessageError": "unknown-message",
    "UnknownProfileError": "unknown-profile",
    "WireUndecidedError": "wire-undecided",
}


def test_codes_are_stable() -> None:
    """Each error keeps the code it was released with."""
    assert {found.__name__: found.code for found in CLASSES if found.__name__ in CODES} == CODES


def test_codes_are_unique() -> None:
    """A caller can tell the errors apart by their code."""
    codes = [error.code for error in EXAMPLES]
    assert len({*codes, LatchguardError.code}) == len(codes) + 1


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_error_is_a_latchguard_error_that_can_be_copied(error: LatchguardError) -> None:
    """Errors travel between processes with their fields, and both texts name what was expected or found."""
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own bytes
        assert type(twin) is type(error)
        assert str(twin) == str(error)
    assert isinstance(error, LatchguardError)
    assert repr(error) == f"{type(error).__name__}({error})"


@pytest.mark.parametrize(
    "error",
    [
        errors.DuplicateMessageError(LONG, 0, 1),
        errors.UnknownMessageError(LONG, "a known message"),
        errors.LatchError(LONG, "m00001", Reason.BLOCKED_REF),
        errors.NumberingError(LONG, LONG, "a ref"),
        errors.UnknownProfileError(LONG, ("openai",)),
    ],
    ids=lambda error: error.code,
)
def test_long_content_is_cut(error: LatchguardError) -> None:
    """No message of an error repeats a long content."""
    assert len(repr(error)) < 300


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("abc", "'abc'"),
        (b"\0a", "b'\\x00a'"),
        ("\u202e\n\x1b", "'\\u202e\\n\\x1b'"),
        (None, "None"),
        ([1, [2, [3]]], "[1, [2, [...]]]"),
        ({"k\u202e": 1}, "{'k\\u202e': 1}"),
        ("x" * 62, "'" + "x" * 62 + "'"),
        ("x" * 63, "'" + "x" * 60 + "..."),
    ],
)
def test_cut(value: object, expected: str) -> None:
    """ASCII, at most 64 characters, two levels deep, whatever the value is."""
    assert cut(value) == expected


def test_cut_of_hostile_values() -> None:
    """Nesting without end, a long list, an endless number and a broken `repr` give a short text."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    class Rude:
        def __repr__(self) -> str:
            return "\x1b[31m" + "y" * 1000

    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert cut(deep) == "[[[...]]]"
    assert len(cut(list(range(10**6)))) <= 64
    assert cut(10**5000) == "<int>"
    assert cut(Broken()).startswith("<Broken instance")
    assert cut(Rude()).startswith("\\x1b[31my")
    assert len(cut(Rude())) == 64
    assert cut(Rude()).endswith("y...")
    assert cut([" ~\\"]) == r"[' ~\\']"


def test_cut_to_a_limit() -> None:
    """The limit is the length of what comes out."""
    assert cut("x" * 100, 10) == "'xxxxxx..."


def test_check_type() -> None:
    """What has the type passes; what has not is named with its place."""
    errors.check_type("x", str, "text", "a string")
    with pytest.raises(errors.InvalidValueError) as caught:
        errors.check_type(5, str, "text", "a string")
    assert (caught.value.path, caught.value.expected, caught.value.found) == ("text", "a string", "5")
