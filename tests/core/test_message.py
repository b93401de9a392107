from typing import Any

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from latchguard import Kind, LatchguardError, Message, Role
from latchguard.core.errors import InvalidValueError
from tests.support.messages import note


def test_defaults() -> None:
    """A message needs an id, a role and a kind; the rest is empty."""
    message = Message("a", Role.USER, Kind.TEXT)
    assert (message.text, message.tool_name, message.tool_call_id) == ("", None, None)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("kind", list(Kind))
def test_exact_strings_are_taken(role: Role, kind: Kind) -> None:
    """The exact string of each role and kind becomes the member."""
    message = Message("a", str(role), str(kind))  # type: ignore[arg-type]
    assert message.role is role
    assert message.kind is kind


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"id": 5}, "message.id", "a string"),
        ({"id": None}, "message.id", "a string"),
        ({"role": None}, "message.role", "one of system, developer, user, assistant, tool"),
        ({"role": "USER"}, "message.role", "one of system, developer, user, assistant, tool"),
        ({"role": " user"}, "message.role", "one of system, developer, user, assistant, tool"),
        ({"role": 1}, "message.role", "one of system, developer, user, assistant, tool"),
        ({"kind": "tool_call"}, "message.kind", "one of text, tool-call, tool-result, reasoning, other"),
        ({"kind": ["text"]}, "message.kind", "one of text, tool-call, tool-result, reasoning, other"),
        ({"text": None}, "message.text", "a string"),
        ({"text": b"x"}, "message.text", "a string"),
        ({"tool_name": 1}, "message.tool_name", "a string or None"),
        ({"tool_call_id": ["c"]}, "message.tool_call_id", "a string or None"),
    ],
)
def test_wrong_types_are_refused(fields: dict[str, Any], path: str, expected: str) -> None:
    """Nothing is coerced: each field of the wrong type or value is named with what it should be."""
    valid: dict[str, Any] = {"id": "a", "role": Role.USER, "kind": Kind.TEXT}
    with pytest.raises(InvalidValueError) as caught:
        Message(**{**valid, **fields})
    assert (caught.value.path, caught.value.expected) == (path, expected)
    assert isinstance(caught.value, LatchguardError)


def test_subclass_of_str_is_a_string() -> None:
    """A member of a string enumeration passes for a text, an id, a name."""
    message = Message(Role.USER, Role.USER, Kind.TEXT, Role.TOOL, Role.TOOL, Role.TOOL)
    assert (message.id, message.text, message.tool_name, message.tool_call_id) == ("user", "tool", "tool", "tool")


def test_messages_are_values() -> None:
    """Equal fields make equal messages, in sets too; no field can be assigned."""
    assert len({note("a", "x"), note("a", "x"), evolve(note("a", "x"), text="y")}) == 2
    with pytest.raises(FrozenInstanceError):
        note("a", "x").text = "y"  # type: ignore[misc]


def test_halves_and_nul_are_kept() -> None:
    """Lone surrogates and NULs stand in a text as they came."""
    assert note("a", "\0\ud83d").text == "\0\ud83d"
