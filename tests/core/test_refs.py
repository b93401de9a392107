import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.refs import BLOCKED, RefMap, format_ref, ref_number


@pytest.mark.parametrize(
    ("number", "ref"), [(1, "m00001"), (99_999, "m99999"), (100_000, "m100000"), (1_234_567, "m1234567")]
)
def test_spelling(number: int, ref: str) -> None:
    """`m`, digits padded to five, growing beyond; the way back gives the number."""
    assert format_ref(number) == ref
    assert ref_number(ref) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m1",
        "m0001",
        "m00000",
        "m000000",
        "m012345",
        "M00001",
        "00001",
        "m00001 ",
        " m00001",
        "m00001\n",
        "m-0001",
        "m+0001",
        "m0000a",
        "m\u0660\u0660\u0660\u0660\u0661",
        BLOCKED,
        "m" + "9" * 5000,
    ],
)
def test_other_spellings_are_no_refs(text: str) -> None:
    """There is one spelling per number; the sentinel and numbers without end are no refs."""
    assert ref_number(text) is None


def test_longest_ref() -> None:
    """Numbers are read as far as Python converts digits without a special setting."""
    assert ref_number("m" + "9" * 4298) == 10**4298 - 1
    assert ref_number("m" + "9" * 4299) is None


@given(st.integers(1, 10**12))
def test_format_and_number_are_inverse(number: int) -> None:
    """Every number from 1 on survives the way there and back."""
    assert ref_number(format_ref(number)) == number


def test_empty_map() -> None:
    """An empty map holds nothing and begins at 1."""
    refs = RefMap()
    assert (len(refs), list(refs), refs.cursor, refs.holder("m00001")) == (0, [], 1, None)


def test_with_new_issues_refs_from_the_cursor() -> None:
    """New ids get the next numbers, though lower ones are free."""
    refs = RefMap.of({"a": "m00002"}, 7).with_new(["b", "c"], frozenset())
    assert dict(refs) == {"a": "m00002", "b": "m00007", "c": "m00008"}
    assert (refs.cursor, refs.holder("m00007"), refs.holder("m00002")) == (9, "b", "a")


def test_blocked_is_shared_and_never_a_key() -> None:
    """Many ids hold the sentinel, a known one loses its ref, nobody is its holder, no number is used up."""
    refs = RefMap().with_new(["a", "b"], frozenset()).with_new(["c", "d"], frozenset({"b", "c"}))
    assert dict(refs) == {"a": "m00001", "b": BLOCKED, "c": BLOCKED, "d": "m00003"}
    assert (refs.holder(BLOCKED), refs.holder("m00002"), refs.cursor) == (None, None, 4)


def test_blocked_ids_that_are_not_in_the_map_stay_out() -> None:
    """Protection of an id that is neither known nor new issues nothing."""
    assert dict(RefMap().with_new([], frozenset({"x"}))) == {}


def test_blocking_twice_changes_nothing() -> None:
    """A protected id may be protected again."""
    refs = RefMap().with_new(["a"], frozenset({"a"}))
    assert refs.with_new([], frozenset({"a"})) == refs


def test_of_keeps_blocked_out_of_the_inverse() -> None:
    """The sentinel has no holder in a map that was built from pairs."""
    assert RefMap.of({"a": BLOCKED, "b": "m00001"}, 2).holder(BLOCKED) is None


def test_maps_do_not_change() -> None:
    """A map with more ids is another map; neither the old one nor the pairs it was made of are touched."""
    pairs = {"a": "m00001"}
    old = RefMap.of(pairs, 2)
    old.with_new(["b"], frozenset({"a"}))
    pairs["z"] = "m00009"
    assert (dict(old), old.holder("m00001")) == ({"a": "m00001"}, "a")


def test_equality() -> None:
    """Ref maps are equal in entries, order and cursor; other mappings in entries alone."""
    pairs = {"a": "m00001", "b": "m00002"}
    refs = RefMap.of(pairs, 3)
    assert refs == RefMap.of(pairs, 3)
    assert refs != RefMap.of(pairs, 4)
    assert refs != RefMap.of({"b": "m00002", "a": "m00001"}, 3)
    assert refs != RefMap.of({"a": "m00001"}, 3)
    assert refs == pairs
    assert refs != {"a": "m00001"}


def test_equal_maps_have_equal_hashes() -> None:
    """A ref map may stand in a set; the cursor and the entries count."""
    refs = RefMap.of({"a": "m00001"}, 2)
    assert len({refs, RefMap.of({"a": "m00001"}, 2), RefMap.of({"a": "m00001"}, 3), RefMap.of({}, 2)}) == 3


def test_sentinel_is_part_of_the_format() -> None:
    """Its spelling stands in stored states."""
    assert BLOCKED == "BLOCKED"


def test_unknown_id() -> None:
    """As a mapping it raises KeyError for what it does not hold, and `get` gives None."""
    with pytest.raises(KeyError):
        RefMap()["a"]
    assert RefMap().get("a") is None
