import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard import PLACEHOLDER_ARGUMENTS, decode_arguments
from latchguard.core.errors import ArgumentsError

OBJECT = {"path": "a"}


def encoded(value: Any, times: int) -> Any:
    for _ in range(times):
        value = json.dumps(value)
    return value


def test_placeholder_is_a_constant_json_object_that_is_not_a_legal_empty_call() -> None:
    """Its bytes are fixed: the provider's prefix cache depends on them."""
    assert PLACEHOLDER_ARGUMENTS == (
        '{"_latchguard":"the arguments of this call were not valid JSON and have been removed"}'
    )
    assert json.loads(PLACEHOLDER_ARGUMENTS).keys() == {"_latchguard"}


@pytest.mark.parametrize("times", [0, 1, 2, 3, 4])
def test_object_is_found_however_often_it_was_encoded(times: int) -> None:
    """Up to four parses, the first included."""
    assert decode_arguments(encoded(OBJECT, times)) == OBJECT


def test_a_fifth_level_stays() -> None:
    """What is still a string after four parses is a value like any other."""
    assert decode_arguments(encoded(OBJECT, 5)) == {"value": json.dumps(OBJECT)}


@pytest.mark.parametrize(("max_depth", "result"), [(1, {"value": json.dumps(OBJECT)}), (2, OBJECT)])
def test_max_depth_counts_parses(max_depth: int, result: Any) -> None:
    """An object encoded twice needs two."""
    assert decode_arguments(encoded(OBJECT, 2), max_depth=max_depth) == result


def test_dict_is_the_very_object() -> None:
    """What is decoded already is untouched (I10)."""
    assert decode_arguments(OBJECT) is OBJECT


@pytest.mark.parametrize("raw", [None, ""])
@pytest.mark.parametrize("non_object", ["wrap", "raise"])
def test_absent_arguments(raw: Any, non_object: Any) -> None:
    """None and the empty string give None, in either mode."""
    assert decode_arguments(raw, non_object=non_object) is None


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("[1]", [1]),
        ([1], [1]),
        ("42", 42),
        (42, 42),
        ("null", None),
        ("true", True),
        ('"hello"', "hello"),
        ('""', ""),
        ('"5"', 5),
        ("no JSON", "no JSON"),
        ('{"a":', '{"a":'),
        (" ", " "),
        ("NaN", "NaN"),
        ("[" * 5000, "[" * 5000),
        (b"{}", b"{}"),
    ],
)
def test_non_object_is_wrapped_or_refused(raw: Any, value: Any) -> None:
    """Under the key `value`, as far as it could be decoded; text that is no JSON as it is."""
    assert decode_arguments(raw) == {"value": value}
    with pytest.raises(ArgumentsError) as caught:
        decode_arguments(raw, non_object="raise")
    assert caught.value.expected == "a JSON object"


@pytest.mark.parametrize(
    "options",
    [{"max_depth": 0}, {"max_depth": -1}, {"max_depth": None}, {"max_depth": "4"}, {"non_object": "drop"}],
)
def test_invalid_options(options: Any) -> None:
    """Refused even where the arguments are absent."""
    with pytest.raises(ArgumentsError) as caught:
        decode_arguments(None, **options)
    assert caught.value.expected == "max_depth >= 1 and non_object 'wrap' or 'raise'"


class Contrary:
    """Compares with nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError(other)


def test_an_object_that_compares_with_nothing_is_a_value() -> None:
    """Looking for the empty string asks nothing of what is no string."""
    raw = Contrary()
    decoded = decode_arguments(raw)
    assert decoded is not None
    assert decoded["value"] is raw


@given(st.text() | st.binary() | st.none() | st.lists(st.text()) | st.floats() | st.dictionaries(st.text(), st.text()))
def test_an_object_or_nothing_comes_out(raw: Any) -> None:
    """Whatever comes in; decoding what came out changes nothing (I9)."""
    once = decode_arguments(raw)
    assert once is None or type(once) is dict
    assert decode_arguments(once) is once
