import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from latchguard import Identity, Kind, Message, Role
from latchguard.core.errors import InvalidValueError
from latchguard.core.identity import hash_fields, join_halves, to_wtf8
from tests.support.messages import call, note
from tests.support.node import run_node
from tests.vectors import make_identity

VECTORS = Path(__file__).parent.parent / "vectors"
LOADED: list[dict[str, Any]] = json.loads((VECTORS / "identity.json").read_text())
TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
FIELDS = st.none() | TEXTS


def joined(parts: list[Any] | None) -> str | None:
    if parts is None:
        return None
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


@pytest.mark.parametrize("vector", LOADED, ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    """Each vector's fields hash to its hash, halves of pairs given apart included."""
    fields = (joined(vector[name]) for name in ("tool_name", "tool_call_id", "text"))
    assert hash_fields(*fields) == vector["hash"]  # type: ignore[arg-type]


def test_there_are_40_vectors_with_names_of_their_own() -> None:
    """The file holds 40 vectors; none is there twice."""
    assert len({vector["name"] for vector in LOADED}) == len(LOADED) == 40


def test_vectors_are_what_their_generator_writes() -> None:
    """The stored file is the output of the program that shares no code with the library."""
    assert (VECTORS / "identity.json").read_text() == make_identity.render()


def test_javascript_gets_the_same_hashes() -> None:
    """Node, whose strings are UTF-16, recomputes every vector."""
    assert json.loads(run_node(VECTORS / "identity.js")) == [[vector["name"], vector["hash"]] for vector in LOADED]


def test_worked_example_of_the_specification() -> None:
    """The hash that docs/identity.md arrives at by hand."""
    message = Message("x", "assistant", "tool-call", '{"n":"é\ud83d"}', "read", "c1")  # type: ignore[arg-type]
    expected = "13ca916d9412d5b03770f0a0f5f8acaa65db1aa0ce46ef55f2470ebb03f98147"
    assert Identity.of(message) == Identity(expected, Role.ASSISTANT, Kind.TOOL_CALL)
    assert expected in (VECTORS.parent.parent / "docs" / "identity.md").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u00e9", b"a\xc3\xa9"),
        ("\ud83d\ude00", b"\xf0\x9f\x98\x80"),
        ("\ud83d", b"\xed\xa0\xbd"),
        ("\ude00\ud83d", b"\xed\xb8\x80\xed\xa0\xbd"),
    ],
)
def test_wtf8(text: str, expected: bytes) -> None:
    """Pairs are one character of four bytes, lone halves three bytes each."""
    assert to_wtf8(text) == expected


@given(TEXTS)
def test_joining_halves_changes_no_byte(text: str) -> None:
    """A text and its joined form have the same bytes, and joining twice is joining once."""
    assert to_wtf8(join_halves(text)) == to_wtf8(text)
    assert join_halves(join_halves(text)) == join_halves(text)


@given(FIELDS, FIELDS, TEXTS, FIELDS, FIELDS, TEXTS)
def test_hashes_are_equal_where_the_bytes_of_all_fields_are(
    name: str | None, call_id: str | None, text: str, name2: str | None, call_id2: str | None, text2: str
) -> None:
    """Fields never run together: two triples share a hash only where each field has the same bytes."""

    def encoded(*fields: str | None) -> list[bytes | None]:
        return [None if value is None else to_wtf8(value) for value in fields]

    same = encoded(name, call_id, text) == encoded(name2, call_id2, text2)
    assert (hash_fields(name, call_id, text) == hash_fields(name2, call_id2, text2)) == same


def test_id_is_no_part_of_the_identity() -> None:
    """Two messages that differ in their id alone are twins."""
    assert Identity.of(note("a", "x")) == Identity.of(note("b", "x"))


@pytest.mark.parametrize("field", ["tool_name", "tool_call_id", "text"])
def test_each_hashed_field_counts(field: str) -> None:
    """A change of one of the three fields changes the hash."""
    message = call("a")
    change: dict[str, Any] = {field: "other"}
    assert Identity.of(evolve(message, **change)).hash != Identity.of(message).hash


def test_role_and_kind_stand_beside_the_hash() -> None:
    """Messages that differ in role and kind alone share the hash but not the identity."""
    one = Identity.of(Message("a", Role.USER, Kind.TEXT, "x"))
    other = Identity.of(Message("a", Role.ASSISTANT, Kind.REASONING, "x"))
    assert (one.hash == other.hash, one == other) == (True, False)


def test_identity_is_computed_once() -> None:
    """The same message object gives the same identity object."""
    message = note("a", "x")
    assert Identity.of(message) is Identity.of(message)


def test_a_copy_with_another_text_has_its_own_identity() -> None:
    """The identity kept on a message does not follow into a changed copy."""
    message = note("a", "x")
    Identity.of(message)
    assert Identity.of(evolve(message, text="y")) == Identity.of(note("a", "y"))


def test_identity_of_no_message() -> None:
    """What is no message gets an error that says so."""
    with pytest.raises(InvalidValueError) as caught:
        Identity.of({"id": "a"})  # type: ignore[arg-type]
    assert (caught.value.path, caught.value.expected) == ("message", "a Message")
    assert caught.value.__cause__ is None


def test_exact_strings_become_members() -> None:
    """Role and kind may be given as their exact strings."""
    identity = Identity("0" * 64, "user", "text")  # type: ignore[arg-type]
    assert identity.role is Role.USER
    assert identity.kind is Kind.TEXT


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ((1, Role.USER, Kind.TEXT), "identity.hash"),
        (("0" * 64, "nobody", Kind.TEXT), "identity.role"),
        (("0" * 64, Role.USER, "TEXT"), "identity.kind"),
    ],
)
def test_wrong_types_are_refused(fields: tuple[Any, Any, Any], path: str) -> None:
    """Each field of the wrong type or value is named."""
    with pytest.raises(InvalidValueError) as caught:
        Identity(*fields)
    assert caught.value.path == path
