import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.errors import InvalidValueError, LatchguardError, MissingPathError
from latchguard.core.jsonspans import Edit, Insert, JsonSpans, Path, Remove, Replace, edit_json, format_path

RAW = b'{ "a" : [1, {"b": "x"} , "]" ] ,\n "c":{} , "d" : null }'


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), RAW),
        (("a",), b'[1, {"b": "x"} , "]" ]'),
        (("a", 0), b"1"),
        (("a", 1), b'{"b": "x"}'),
        (("a", 1, "b"), b'"x"'),
        (("a", 2), b'"]"'),
        (("c",), b"{}"),
        (("d",), b"null"),
    ],
)
def test_span(path: Path, value: bytes) -> None:
    """The bytes of a value, without the white space around it."""
    start, end = JsonSpans(RAW).span(path)
    assert RAW[start:end] == value


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\xef\xbb\xbf [1]\n", b"[1]"),
        (b" -1.5e3 ", b"-1.5e3"),
        (b'"\\"\\\\"', b'"\\"\\\\"'),
        (b'"a\\"]"', b'"a\\"]"'),
        (b"true", b"true"),
    ],
)
def test_span_of_the_document(raw: bytes, value: bytes) -> None:
    """A byte-order mark and white space around it stand outside; scalars are documents too."""
    start, end = JsonSpans(raw).span(())
    assert raw[start:end] == value


def test_last_of_duplicate_keys_counts() -> None:
    """As in `JSON.parse`; keys are compared decoded."""
    raw = b'{"a":1,"\\u0061":2}'
    start, end = JsonSpans(raw).span(("a",))
    assert raw[start:end] == b"2"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("z",), "$.z"),
        (("a", 3), "$.a[3]"),
        (("a", -1), "$.a[-1]"),
        (("a", "0"), '$.a["0"]'),
        (("d", "x"), "$.d.x"),
        (("a", 1, "b", 0), "$.a[1].b[0]"),
        (("c", "x", "y"), "$.c.x"),
    ],
)
def test_paths_that_lead_nowhere(path: Path, where: str) -> None:
    """The first step that fails is named; the error is a KeyError as well."""
    with pytest.raises(MissingPathError) as caught:
        JsonSpans(RAW).span(path)
    assert caught.value.path == where
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, LatchguardError)


def test_members_of_a_scalar() -> None:
    """It has none."""
    assert JsonSpans(b"5").members(0) == ()


@pytest.mark.parametrize("raw", [b"[1", b'{"a":"x', b'"a'])
def test_bytes_that_are_no_json(raw: bytes) -> None:
    """They are judged before; a value without an end is an error all the same."""
    with pytest.raises(InvalidValueError) as caught:
        JsonSpans(raw).span(())
    assert caught.value.path == "byte 0"


def test_object_without_a_key() -> None:
    """Where a key should be the place is named."""
    with pytest.raises(InvalidValueError) as caught:
        JsonSpans(b"{1:2}").span((1,))
    assert (caught.value.path, caught.value.expected) == ("byte 1", "a key")


@pytest.mark.parametrize(
    ("edits", "result"),
    [
        ([], RAW),
        ([Replace(("a", 0), b"2")], b'{ "a" : [2, {"b": "x"} , "]" ] ,\n "c":{} , "d" : null }'),
        ([Replace((), b"[]")], b"[]"),
        ([Remove(("a",))], b'{ "c":{} , "d" : null }'),
        ([Remove(("c",))], b'{ "a" : [1, {"b": "x"} , "]" ] , "d" : null }'),
        ([Remove(("d",))], b'{ "a" : [1, {"b": "x"} , "]" ] ,\n "c":{} }'),
        ([Remove(("a",)), Remove(("c",)), Remove(("d",))], b"{  }"),
        ([Remove(("a",)), Remove(("d",))], b'{ "c":{} }'),
        ([Remove(("a", 0)), Remove(("a", 2))], b'{ "a" : [{"b": "x"} ] ,\n "c":{} , "d" : null }'),
        ([Insert(("c",), b"1", "k")], b'{ "a" : [1, {"b": "x"} , "]" ] ,\n "c":{"k":1} , "d" : null }'),
        ([Insert(("a",), b"3")], b'{ "a" : [1, {"b": "x"} , "]",3 ] ,\n "c":{} , "d" : null }'),
        ([Insert(("a",), b"3"), Insert(("a",), b"3")], b'{ "a" : [1, {"b": "x"} , "]",3,3 ] ,\n "c":{} , "d" : null }'),
        ([Insert((), b"1", "\u00e9")], RAW[:-2] + b',"\\u00e9":1 }'),
        (
            [Remove(("a", 0)), Remove(("a", 1)), Remove(("a", 2)), Insert(("a",), b"9")],
            b'{ "a" : [9 ] ,\n "c":{} , "d" : null }',
        ),
        ([Remove(("a", 2)), Insert(("a",), b"9")], b'{ "a" : [1, {"b": "x"},9 ] ,\n "c":{} , "d" : null }'),
        ([Replace(("a", 2), b"8"), Insert(("a",), b"9")], b'{ "a" : [1, {"b": "x"} , 8,9 ] ,\n "c":{} , "d" : null }'),
        ([Replace(("a",), b"0"), Replace(("a", 0), b"7"), Insert(("a",), b"9"), Remove(("a", 1, "b"))],
         b'{ "a" : 0 ,\n "c":{} , "d" : null }'),
        ([Remove(("c",)), Insert(("c",), b"1", "k")], b'{ "a" : [1, {"b": "x"} , "]" ] , "d" : null }'),
        ([Replace(("a",), b"0"), Replace(("a", 0), b"7"), Replace(("d",), b"9")], b'{ "a" : 0 ,\n "c":{} , "d" : 9 }'),
        ([Replace(("d",), b"1"), Replace(("d",), b"2")], b'{ "a" : [1, {"b": "x"} , "]" ] ,\n "c":{} , "d" : 1 }'),
        ([Remove(("d",)), Remove(("d",))], b'{ "a" : [1, {"b": "x"} , "]" ] ,\n "c":{} }'),
    ],
)  # fmt: skip
def test_edits(edits: list[Edit], result: bytes) -> None:
    """Only what an edit names changes, with one comma; what lies inside a replaced or removed value goes with it."""
    assert edit_json(RAW, edits) == result
    assert edit_json(RAW, iter(edits)) == result
    json.loads(result)


def test_no_edits_give_the_bytes_that_came() -> None:
    """The very object (I10)."""
    assert edit_json(RAW, ()) is RAW


def test_duplicates_are_removed_together() -> None:
    """A removed key does not come back as its earlier twin."""
    assert edit_json(b'{"a":1,"b":2,"a":3}', [Remove(("a",))]) == b'{"b":2}'


@pytest.mark.parametrize(
    ("edit", "path", "expected"),
    [
        (Remove(()), "$", "a member or item to remove"),
        (Insert(("a",), b"1", "k"), "$.a", "an object"),
        (Insert(("c",), b"1"), "$.c", "an array"),
        (Insert(("d",), b"1"), "$.d", "an array"),
        (Insert(("d",), b"1", "k"), "$.d", "an object"),
    ],
)
def test_edits_that_would_break_the_document(edit: Edit, path: str, expected: str) -> None:
    """The document stays valid JSON: what cannot hold an insertion is named."""
    with pytest.raises(InvalidValueError) as caught:
        edit_json(RAW, [edit])
    assert (caught.value.path, caught.value.expected) == (path, expected)


@pytest.mark.parametrize("edit", [Replace(("z",), b"1"), Remove(("a", 3)), Insert(("c", "x"), b"1")])
def test_edits_of_what_is_not_there(edit: Edit) -> None:
    """Each kind of edit needs its place."""
    with pytest.raises(MissingPathError):
        edit_json(RAW, [edit])


def test_deep_documents_need_no_stack() -> None:
    """Walks are iterative."""
    raw = b"[" * 50_000 + b"1" + b"]" * 50_000
    assert edit_json(raw, [Replace((0,) * 20, b"2")]) == b"[" * 20 + b"2" + b"]" * 20


def test_many_edits_of_one_container_are_linear() -> None:
    """20,000 items, each replaced, and as many keys: looked up, not searched, or this would take minutes."""
    keys = [f"k{number}" for number in range(20_000)]
    raw = json.dumps({"list": [0] * 20_000, **dict.fromkeys(keys, 0)}).encode()
    edits: list[Edit] = [Replace(("list", number), b"1") for number in range(20_000)]
    edits += [Replace((key,), b"1") for key in keys]
    assert json.loads(edit_json(raw, edits)) == {"list": [1] * 20_000, **dict.fromkeys(keys, 1)}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "$"),
        (("messages", 3, "tool_calls", 0), "$.messages[3].tool_calls[0]"),
        (("a b", "c-d", "_x", "9"), '$["a b"].c-d._x["9"]'),
        (("\u00e9", '"', "a\nb", ""), '$["\\u00e9"]["\\""]["a\\nb"][""]'),
    ],
)
def test_format_path(path: Path, text: str) -> None:
    """Plain names with dots, positions and all else in brackets."""
    assert format_path(path) == text


SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.text(st.sampled_from('a"\\]}{[,:\n\u00e9'), max_size=4)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c", '"', "]"]), inner),
    max_leaves=14,
)


def paths_of(value: Any, path: Path = ()) -> list[Path]:
    found = [path]
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += paths_of(value[key], (*path, key))
    return found


def value_at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def edited(value: Any, edit: Edit) -> Any:
    """Make one edit on the parsed value."""
    changed = {"": copy.deepcopy(value)}
    path = ("", *edit.path)
    if isinstance(edit, Insert):
        holder = value_at(changed, path)
        if edit.key is None:
            holder.append(json.loads(edit.value))
        else:
            holder[edit.key] = json.loads(edit.value)
        return changed[""]
    holder = value_at(changed, path[:-1])
    if isinstance(edit, Replace):
        holder[path[-1]] = json.loads(edit.value)
    else:
        del holder[path[-1]]
    return changed[""]


@st.composite
def documents_and_edits(draw: st.DrawFn) -> tuple[Any, bytes, list[Edit]]:
    """Give a value, its bytes in some spelling, and edits none of which lies inside another."""
    value = draw(DOCUMENTS)
    raw = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2])),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ":\t")])),
    ).encode()
    edits: list[Edit] = []
    taken: list[Path] = []
    for path in draw(st.permutations(paths_of(value)))[:4]:
        if any(path[: len(other)] == other or other[: len(path)] == path for other in taken):
            continue
        taken.append(path)
        choices: list[Edit] = [Replace(path, b'{"new":[1]}')]
        choices += [Remove(path)] if path else []
        target = value_at(value, path)
        choices += [Insert(path, b'"new"')] if isinstance(target, list) else []
        choices += [Insert(path, b'"new"', "z")] if isinstance(target, dict) else []
        edits.append(draw(st.sampled_from(choices)))
    return value, raw, edits


@given(documents_and_edits())
def test_edited_bytes_parse_to_the_edited_value(case: tuple[Any, bytes, list[Edit]]) -> None:
    """The model: the same edits made on the parsed value, removals from behind so that positions hold."""
    value, raw, edits = case
    result = edit_json(raw, edits)
    order = sorted(edits, key=lambda edit: [(isinstance(key, int), key) for key in edit.path if isinstance(key, int)])
    expected = value
    for edit in reversed(order):
        expected = edited(expected, edit)
    assert json.loads(result) == expected


@given(documents_and_edits(), DOCUMENTS, DOCUMENTS)
def test_values_beside_the_edits_keep_their_bytes(case: tuple[Any, bytes, list[Edit]], before: Any, after: Any) -> None:
    """Whatever stands around the edited value is copied, spelling and white space (I10)."""
    _, raw, edits = case
    head = b'\xef\xbb\xbf{"h": ' + json.dumps(before, indent=1).encode() + b' ,"e":\t'
    tail = b' ,  "t":' + json.dumps(after, ensure_ascii=False).encode() + b"}\n"
    moved: list[Edit] = []
    for edit in edits:
        path = ("e", *edit.path)
        if isinstance(edit, Replace):
            moved.append(Replace(path, edit.value))
        elif isinstance(edit, Remove):
            moved.append(Remove(path))
        else:
            moved.append(Insert(path, edit.value, edit.key))
    assert edit_json(head + raw + tail, moved) == head + edit_json(raw, edits) + tail


@given(DOCUMENTS, st.sampled_from([None, 1]))
def test_spans_of_every_value(value: Any, indent: int | None) -> None:
    """Each path's bytes parse to the value that stands there."""
    raw = json.dumps(value, indent=indent).encode()
    spans = JsonSpans(raw)
    for path in paths_of(value):
        start, end = spans.span(path)
        assert json.loads(raw[start:end]) == value_at(value, path)
        assert raw[start:end].strip() == raw[start:end]
