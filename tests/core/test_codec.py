import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from latchguard import ConversationState, EmergencyTruncateLatch, Identity, Reason, dump_state, load_state
from latchguard.core.codec import structure
from latchguard.core.errors import InvalidValueError, StateVersionError
from latchguard.core.latches import NO_IDENTITY, Drop
from latchguard.core.refs import BLOCKED
from latchguard.core.restamping import restamp
from tests.support.messages import call, note, result

ONE, TWO, CALL = note("a", "one"), result("b", "two"), call("k")


def rich_state() -> ConversationState:
    """Give a state with all there is: refs, a protected message, both latches, quarantine."""
    state = ConversationState().assign([ONE, TWO, CALL, note("p", "x")], protected=["p"])
    state = state.latch(ONE, "cut").latch(ONE, "cut\ud800 more").latch(ONE, "seen", view="v").latch(TWO, "2")
    return restamp(state, [CALL, ONE]).state


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(dump_state(rich_state()))
    return loaded


def refused(changed: Any) -> InvalidValueError:
    with pytest.raises(InvalidValueError) as caught:
        load_state(json.dumps(changed))
    return caught.value


def test_stored_form() -> None:
    """The exact bytes of a small state: they are a format."""
    state = ConversationState().assign([note("a", "one"), note("p", "x")], protected=["p"])
    state = state.latch(note("a", "one"), "cut").latch(note("a", "one"), "seen", view="v").unlatch(note("a", "one"))
    one, x = Identity.of(note("a", "one")).hash, Identity.of(note("p", "x")).hash
    cut, seen = Identity.of(note("a", "cut")).hash, Identity.of(note("a", "seen")).hash
    assert dump_state(state).decode() == (
        '{"format":"latchguard-state","schema":1,"version":4,"epoch":0,"cursor":2,"messages":['
        f'{{"id":"a","ref":"m00001","identity":{{"hash":"{one}","role":"user","kind":"text"}}}},'
        f'{{"id":"p","ref":"BLOCKED","identity":{{"hash":"{x}","role":"user","kind":"text"}}}}],"latches":['
        f'{{"class":"view","ref":"m00001","identity":{{"hash":"{one}","role":"user","kind":"text"}},'
        f'"shown":"{seen}","text":"seen","view":"v"}}],"quarantine":[{{"latch":{{"class":"emergency-truncate",'
        f'"ref":"m00001","identity":{{"hash":"{one}","role":"user","kind":"text"}},"shown":"{cut}","text":"cut"}},'
        '"reason":"cleared"}]}'
    )


def test_there_and_back() -> None:
    """A loaded state equals the dumped one, and gives the same bytes; from bytes and from a string."""
    state = rich_state()
    raw = dump_state(state)
    assert load_state(raw) == state
    assert load_state(raw.decode()) == state
    assert dump_state(load_state(raw)) == raw


def test_empty_state_there_and_back() -> None:
    """The empty state is a state."""
    assert load_state(dump_state(ConversationState())) == ConversationState()


def test_latch_without_identity_there_and_back() -> None:
    """A state of old that was loaded into memory can be dumped."""
    old = EmergencyTruncateLatch("m00001", NO_IDENTITY, "", "clip")
    state = evolve(ConversationState().assign([ONE]), latches=(old,), identities={})
    assert load_state(dump_state(state)) == state


TEXTS = st.text(st.characters(exclude_categories=()), max_size=6)


@given(st.lists(st.tuples(st.sampled_from("abc"), TEXTS, st.none() | TEXTS), max_size=5), st.permutations("abc"))
def test_every_state_comes_back(cuts: list[tuple[str, str, str | None]], order: list[str]) -> None:
    """`load(dump(x)) == x` whatever the texts hold: NULs, lone halves, halves of pairs, line separators."""
    messages = {name: note(name, f"text of {name}") for name in "abc"}
    state = ConversationState().assign(messages.values())
    for name, text, view in cuts:
        state = state.latch(messages[name], text, view=view)
    state = restamp(state, [messages[name] for name in order[:2]]).state
    assert load_state(dump_state(state)) == state


def at(path: tuple[str | int, ...], value: Any) -> Any:
    for key in path:
        value = value[key]
    return value


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the path of every value of a document, containers included."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))


def spelled(path: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


WRONG: list[Any] = [None, True, 5, -1, 1.5, "text", [], {}, [1], {"a": 1}]


def fits(old: Any, new: Any) -> bool:
    """Say whether *new* may stand where *old* stands as far as types go; an identity may be missing or null."""
    if isinstance(old, dict):
        return new is None and "hash" in old
    return type(old) is type(new) and new != [1]


def mutations() -> Iterator[Any]:
    base = document()
    for path in leaves(base):
        for wrong in WRONG:
            if not fits(at(path, base), wrong):
                yield pytest.param(path, wrong, id=f"{spelled(path)}={json.dumps(wrong)}")


@pytest.mark.parametrize(("path", "wrong"), list(mutations()))
def test_wrong_types_are_refused_with_their_path(path: tuple[str | int, ...], wrong: Any) -> None:
    """Every value of the document in turn replaced by every other type: nothing is coerced, the place is named."""
    changed = {"": document()}
    holder = at(("", *path)[:-1], changed)
    holder[("", *path)[-1]] = wrong
    error = refused(changed[""])
    place = spelled(path)
    below = isinstance(wrong, list) and error.path == f"{place}[0]"  # a list of the wrong items
    inside = isinstance(wrong, dict) and error.path.startswith(place)  # an object with the wrong fields
    count = error.path == place or (path[-1:] == ("cursor",) and error.path == "$.cursor")
    assert below or inside or count


def test_there_are_hundreds_of_wrong_types() -> None:
    """The cases above reach what they are meant for."""
    assert len(list(mutations())) > 500


@pytest.mark.parametrize(
    "path", [path for path in leaves(document()) if path and isinstance(path[-1], str) and path[-1] != "identity"]
)
def test_missing_fields_are_named(path: tuple[str | int, ...]) -> None:
    """Every field but the identity of a message has to be there; the place is where it would be."""
    changed = document()
    del at(path[:-1], changed)[path[-1]]
    error = refused(changed)
    assert error.path == spelled(path)
    assert error.expected in (f"the field {path[-1]!r}", "one of emergency-truncate, view")


def test_identity_of_a_message_may_be_missing() -> None:
    """A message that was never seen has none, and keeps none."""
    changed = document()
    del changed["messages"][0]["identity"]
    state = load_state(json.dumps(changed))
    assert "k" not in state.identities
    assert dump_state(state) == json.dumps(changed, separators=(",", ":")).encode()


def change(path: tuple[str | int, ...], value: Any) -> Callable[[Any], None]:
    def do(changed: Any) -> None:
        at(path[:-1], changed)[path[-1]] = value

    return do


REF = "a ref (m00001, ...) or BLOCKED"
HEX = "64 lower-case hex digits"


@pytest.mark.parametrize(
    ("do", "path", "expected"),
    [
        (change(("format",), "other"), "$.format", "latchguard-state"),
        (change(("schema",), 0), "$.schema", "a number from 1 on"),
        (change(("version",), -1), "$.version", "a number from 0 on"),
        (change(("epoch",), -1), "$.epoch", "a number from 0 on"),
        (change(("cursor",), 0), "$.cursor", "a number from 1 on"),
        (change(("cursor",), 2), "$.cursor", "more than the number of $.messages[1].ref (2)"),
        (change(("messages", 1, "ref"), "m2"), "$.messages[1].ref", REF),
        (change(("messages", 1, "ref"), "m00001"), "$.messages[1].ref", "a ref of its own, not that of $.messages[0]"),
        (change(("messages", 1, "id"), "k"), "$.messages[1].id", "a message id of its own"),
        (change(("messages", 2, "id"), "\ud800"), "$.messages[2].id", "an id without surrogates"),
        (change(("messages", 0, "identity", "hash"), "F" * 64), "$.messages[0].identity.hash", HEX),
        (change(("latches", 1, "identity", "hash"), "0" * 63), "$.latches[1].identity.hash", HEX),
        (change(("latches", 0, "shown"), "0" * 65), "$.latches[0].shown", HEX),
        (change(("latches", 0, "ref"), "m00000"), "$.latches[0].ref", REF),
        (change(("latches", 0, "class"), "clip"), "$.latches[0].class", "one of emergency-truncate, view"),
        (change(("quarantine", 1, "latch", "shown"), ""), "$.quarantine[1].latch.shown", HEX),
        (change(("quarantine", 1, "reason"), "because"), "$.quarantine[1].reason", f"one of {', '.join(Reason)}"),
        (change(("latches", 0, "identity", "new"), 1), "$.latches[0].identity", "known fields"),
    ],
)
def test_values_that_no_state_has(do: Callable[[Any], None], path: str, expected: str) -> None:
    """What types cannot say is checked too, with path and expectation."""
    changed = document()
    do(changed)
    error = refused(changed)
    assert (error.path, error.expected) == (path, expected)


def test_two_latches_of_a_class_on_one_ref() -> None:
    """The second is named; on the sentinel, which is no key, they may share."""
    changed = document()
    changed["latches"].append({**changed["latches"][0], "text": "other"})
    error = refused(changed)
    assert (error.path, error.found) == ("$.latches[2].ref", "m00002")
    for latch in changed["latches"]:
        latch["ref"] = BLOCKED
    assert len(load_state(json.dumps(changed)).latches) == 3


def test_latches_are_sorted_when_they_are_read() -> None:
    """Another program may have written them in another order."""
    changed = document()
    changed["latches"].reverse()
    assert load_state(json.dumps(changed)) == rich_state()


def test_newer_schema() -> None:
    """A higher schema is refused with both numbers, whatever else the document holds."""
    with pytest.raises(StateVersionError) as caught:
        load_state('{"format":"latchguard-state","schema":2,"latches":"new form"}')
    assert (caught.value.where, caught.value.expected, caught.value.found) == ("$.schema", 1, 2)


@pytest.mark.parametrize("schema", ["2", None, True, 2.0])
def test_schema_that_is_no_number(schema: Any) -> None:
    """It is a wrong type, not a newer release."""
    assert refused({**document(), "schema": schema}).path == "$.schema"


def test_high_schema_of_another_format() -> None:
    """Somebody else's document is no newer state of ours."""
    assert refused({**document(), "format": "other", "schema": 9}).path == "$.format"


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"", "$"),
        (b"{", "$"),
        (b"[]", "$"),
        (b"null", "$"),
        (b'{"a":NaN}', "$"),
        (b"\xef\xbb\xbf{}", "$"),
        ("[" * 5000, "$"),
        (b"\xff{}", "byte 0"),
        (b'{"a":"\xed\xa0\x80"}', "byte 6"),
        (None, "$"),
        (5, "$"),
        (bytearray(b"{}"), "$"),
    ],
)
def test_no_json_object(raw: Any, path: str) -> None:
    """What is no UTF-8, no JSON, no object or nothing to read at all is one error with its place."""
    with pytest.raises(InvalidValueError) as caught:
        load_state(raw)
    assert caught.value.path == path


def test_dump_needs_a_state() -> None:
    """Anything else is refused by name."""
    with pytest.raises(InvalidValueError) as caught:
        dump_state({})  # type: ignore[arg-type]
    assert caught.value.path == "state"


def test_unknown_fields_are_carried_through() -> None:
    """Fields of a newer release in the state, its messages, latches and drops survive loading, work and dumping."""
    changed = document()
    changed |= {"extra": {"z": [1, {"y": None}]}, "new": "n"}
    changed["messages"][1]["new"] = {"pinned": True}
    changed["latches"][0] |= {"new": 1, "view": "a view of a clip"}
    changed["quarantine"][0]["new"] = 2
    changed["quarantine"][0]["latch"]["new"] = [3]
    state = load_state(json.dumps(changed))
    assert state.extra == {"extra": {"z": [1, {"y": None}]}, "new": "n"}
    assert state.entry_extra == {"a": {"new": {"pinned": True}}}
    assert load_state(dump_state(state)) == state
    assert json.loads(dump_state(state)) == changed
    worked = json.loads(dump_state(restamp(state, [ONE, CALL, TWO]).state))
    assert worked["new"] == "n"
    assert worked["messages"][0]["new"] == {"pinned": True}
    assert [latch["new"] for latch in worked["latches"] if "new" in latch] == [1]
    assert worked["quarantine"][0]["new"] == 2


@pytest.mark.parametrize("value", ["1e400", "[" * 990 + "]" * 990])
def test_unknown_fields_that_cannot_be_written_back(value: str) -> None:
    """Rather than lose a value that Python cannot write, the state is refused, with the place."""
    raw = dump_state(ConversationState().assign([ONE]).latch(ONE, "cut")).decode()
    with pytest.raises(InvalidValueError) as caught:
        load_state(raw.replace('"latches":[{', f'"latches":[{{"new":{value},'))
    assert caught.value.path == "$.latches[0]"
    assert caught.value.expected == "unknown fields that JSON can carry on"


def test_halves_of_pairs_in_unescaped_strings_are_joined() -> None:
    """A Python string may hold the halves of a pair apart; JSON cannot."""
    raw = json.dumps({**document(), "new": "?"}).replace('"?"', '"\ud83d\ude00"')
    assert load_state(raw).extra == {"new": "\U0001f600"}


def test_states_are_values() -> None:
    """A dump leaves the state as it was; a state can be copied and sent to another process."""
    state = rich_state()
    before = copy.deepcopy(state)
    dump_state(state)
    assert state == before
    assert pickle.loads(pickle.dumps(state)) == state  # noqa: S301  # our own bytes


@frozen
class Options:
    ratio: float
    strict: bool
    names: list[str]


def test_structure_is_strict_for_every_json_type() -> None:
    """Numbers, booleans and lists of other classes are as strict; an integer is a number."""
    assert structure({"ratio": 1, "strict": True, "names": ["a"]}, Options) == Options(1, strict=True, names=["a"])


@pytest.mark.parametrize(
    ("field", "wrong", "path", "expected"),
    [
        ("ratio", "1.5", "$.ratio", "a number"),
        ("ratio", True, "$.ratio", "a number"),
        ("strict", 1, "$.strict", "true or false"),
        ("strict", "true", "$.strict", "true or false"),
        ("names", "ab", "$.names", "a list"),
        ("names", [1], "$.names[0]", "a string"),
        ("more", 1, "$", "known fields"),
    ],
)
def test_structure_refuses(field: str, wrong: Any, path: str, expected: str) -> None:
    """A class without a place for unknown fields refuses them; nothing is coerced."""
    with pytest.raises(InvalidValueError) as caught:
        structure({"ratio": 1.5, "strict": True, "names": [], field: wrong}, Options)
    assert (caught.value.path, caught.value.expected) == (path, expected)


def test_structure_of_no_object() -> None:
    """The document itself is the place."""
    with pytest.raises(InvalidValueError) as caught:
        structure([], Options)
    assert (caught.value.path, caught.value.expected, caught.value.found) == ("$", "an object", "[]")


def test_drops_are_values() -> None:
    """Equal drops are equal after a load."""
    latch = rich_state().latches[0]
    assert Drop(latch, Reason.GONE) == Drop(latch, Reason.GONE)


STABLE = """
import sys
from latchguard import *
from tests.core.test_codec import rich_state
state = rich_state()
messages = [Message(f"n{i}", Role.USER, Kind.TEXT, "x") for i in range(20)]
state = state.assign(messages, protected={"n3", "n7", "n11", "n15"})
for message in messages[:3]:
    state = state.latch(message, f"cut {message.id}")
after = restamp(state, [*messages[:2], *messages[4:]], numbering={"n5": "m00040", "n6": "m00041"})
shown = replay(messages, after.state)
sys.stdout.write(repr((dump_state(after.state), after.moved, after.dropped, shown.messages, shown.refused)))
"""


def test_same_bytes_in_every_process() -> None:
    """Dump, restamp and replay give the same bytes under two hash seeds, each in its own process (I8)."""
    root = Path(__file__).parent.parent.parent
    outputs = {
        subprocess.check_output(
            [sys.executable, "-c", STABLE],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root / 'src'}:{root}"},
        )
        for seed in ("1", "2", "1")
    }
    assert len(outputs) == 1
    assert b"latchguard-state" in outputs.pop()


@pytest.mark.long
@given(st.binary(max_size=60), st.integers(0, 2000), st.integers(0, 40))
def test_mutated_bytes_give_documented_errors_only(insert: bytes, place: int, length: int) -> None:
    """Whatever is cut out and put in, a state is read or one of two errors says why not."""
    raw = dump_state(rich_state())
    mutated = raw[:place] + insert + raw[place + length :]
    try:
        state = load_state(mutated)
    except (InvalidValueError, StateVersionError):
        return
    assert load_state(dump_state(state)) == state
