import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.proof import MIN_UNITS, Split, has_marker, proves, split_clip, strip_tag

MARKER = "\n\n...[truncated for context space] — original ~1234 tokens]...\n\n"
ACP = "[acp: tool-result truncated, original ~88 tokens]"
HEAD = "".join(f"line {number} of the head\n" for number in range(20))
TAIL = "".join(f"line {number} of the tail\n" for number in range(20))
HIGH, LOW = "\ud83d", "\ude00"
ORIGINAL = HEAD + "what was cut out" + TAIL


def proven(clip: str, original: str) -> bool:
    return proves(split_clip(clip), original)


@pytest.mark.parametrize("marker", [MARKER, ACP])
def test_clip_is_proven_by_its_original(marker: str) -> None:
    """Head and tail around either known marker."""
    assert proven(HEAD + marker + TAIL, ORIGINAL)


@pytest.mark.parametrize(
    "marker",
    [
        MARKER.replace("]...", "..."),
        MARKER.replace("1234", ""),
        MARKER.replace("1234", "\u0661"),
        MARKER.replace("\u2014", "-"),
        MARKER.strip(),
        ACP.replace("88", "eighty"),
    ],
)
def test_other_markers_prove_nothing(marker: str) -> None:
    """The stray bracket is real, the count is ASCII digits, the line breaks belong to it."""
    assert not has_marker(HEAD + marker + TAIL)
    assert split_clip(HEAD + marker + TAIL) == ()


def test_has_marker() -> None:
    """Anywhere in a text."""
    assert has_marker("a" + MARKER)
    assert has_marker(ACP)
    assert not has_marker(HEAD)


@pytest.mark.parametrize(
    "other",
    [
        HEAD + TAIL,
        HEAD + "x" + TAIL[:-1],
        HEAD[:-1] + "x" + TAIL,
        "x" + ORIGINAL,
        ORIGINAL + "x",
        HEAD + MARKER + TAIL[1:],
        "",
    ],
)
def test_what_is_not_its_own_head_and_tail(other: str) -> None:
    """Longer than both together, beginning with the head and ending with the tail: nothing less."""
    assert not proven(HEAD + MARKER + TAIL, other)


def test_head_and_tail_may_not_overlap() -> None:
    """A text that is shorter than head and tail was not clipped into them."""
    text = "ab" * 200
    assert not proven(text + MARKER + text, text)
    assert not proven(text + MARKER + text, text + text)
    assert proven(text + MARKER + text, text + "c" + text)


@pytest.mark.parametrize(("head", "tail", "enough"), [(256, 256, True), (255, 300, False), (300, 255, False)])
def test_head_and_tail_need_256_units(head: int, tail: int, enough: bool) -> None:
    """Less could be anybody's."""
    assert MIN_UNITS == 256
    assert proven("h" * head + MARKER + "t" * tail, "h" * head + "x" + "t" * tail) == enough


def test_units_are_those_of_utf_16() -> None:
    """128 characters of two units each are enough, 127 and a lone half are not."""
    face = "\U0001f600"
    assert proven(face * 128 + MARKER + face * 128, face * 300)
    assert split_clip(face * 127 + "\ud83d" + MARKER + face * 200) == ()


def test_marker_quoted_in_the_original() -> None:
    """The text is split at every place: that before, in, and behind the quotation."""
    quoting = HEAD + ACP + HEAD + "cut" + TAIL + ACP + TAIL
    assert proven(HEAD + ACP + HEAD + MARKER + TAIL + ACP + TAIL, quoting)


def test_nested_clips() -> None:
    """A clip of a clip: the head is before the first marker, the tail after the last."""
    assert proven(HEAD + MARKER + "rest" + MARKER + TAIL, ORIGINAL)


def test_a_split_for_each_place_and_the_outermost_one() -> None:
    """Three markers give three splits and that of first and last; one marker gives one."""
    assert split_clip(HEAD + MARKER + TAIL) == (Split(HEAD, TAIL),)
    splits = split_clip(HEAD + ACP + HEAD + MARKER + TAIL + ACP + TAIL)
    assert [(split.head, split.tail) for split in splits] == [
        (HEAD, HEAD + MARKER + TAIL + ACP + TAIL),
        (HEAD + ACP + HEAD, TAIL + ACP + TAIL),
        (HEAD + ACP + HEAD + MARKER + TAIL, TAIL),
        (HEAD, TAIL),
    ]


@pytest.mark.parametrize("half", [HIGH, "\ufffd"])
@pytest.mark.parametrize("low", [LOW, "\ufffd", ""])
def test_half_a_character_at_the_cut(half: str, low: str) -> None:
    """Whether it stands alone or an encoder replaced it, half a character next to the cut is set aside."""
    clip = HEAD + half + MARKER + low + TAIL
    assert split_clip(clip) == (Split(HEAD, TAIL),)
    assert proven(clip, HEAD + "\U0001f600 cut \U0001f600" + TAIL)


@pytest.mark.parametrize(
    ("head", "tail"), [("\ude00", ""), ("", "\ud83d"), ("\ud7ff", ""), ("", "\ue000"), ("\ue000", "")]
)
def test_only_the_half_that_a_cut_leaves_is_set_aside(head: str, tail: str) -> None:
    """A low half before the cut, or a high one behind it, was in the text; so were the neighbours of the halves."""
    assert split_clip(HEAD + head + MARKER + tail + TAIL) == (Split(HEAD + head, tail + TAIL),)


@pytest.mark.parametrize(("half", "kept"), [(0xD800, False), (0xDBFF, False), (0xDC00, True), (0xDFFF, True)])
def test_range_of_high_halves(half: int, kept: bool) -> None:
    """At the end of a head."""
    assert (split_clip(HEAD + chr(half) + MARKER + TAIL)[0].head == HEAD + chr(half)) == kept


@pytest.mark.parametrize(("half", "kept"), [(0xD800, True), (0xDBFF, True), (0xDC00, False), (0xDFFF, False)])
def test_range_of_low_halves(half: int, kept: bool) -> None:
    """At the beginning of a tail."""
    assert (split_clip(HEAD + MARKER + chr(half) + TAIL)[0].tail == chr(half) + TAIL) == kept


TAGS = ["[m00012] ", "[m00012]", '<acp ref="m00012">\n', "<acp>", "<dcp-message-id>m1</dcp-message-id>\n"]


@pytest.mark.parametrize("tag", TAGS)
def test_leading_tag(tag: str) -> None:
    """One tag of the kernel's own is set aside on either side."""
    assert strip_tag(tag + "text") == "text"
    assert proven(tag + HEAD + MARKER + TAIL, ORIGINAL)
    assert proven(HEAD + MARKER + TAIL, tag + ORIGINAL)
    assert proven(tag + HEAD + MARKER + TAIL, tag + ORIGINAL)
    assert proven(tag + HEAD + MARKER + TAIL, "[m00099] " + ORIGINAL)


@pytest.mark.parametrize(
    "text", ["", "text", " [m00012] x", "[m12] x", "<acpx>", "<acp <", "[M00012] x", "<dcp-message-id>x"]
)
def test_no_tag(text: str) -> None:
    """Only at the beginning, only those spellings."""
    assert strip_tag(text) == text


def test_one_tag_only() -> None:
    """A second one is content."""
    assert strip_tag("[m00012] [m00013] x") == "[m00013] x"


def test_head_needs_256_units_without_its_tag() -> None:
    """A tag is no evidence."""
    head = "h" * 250
    assert not proven("[m00012] " + head + MARKER + TAIL, head + "x" + TAIL)
    assert proven("[m00012] " + head + MARKER + TAIL, "[m00012] " + head + "x" + TAIL)


def test_any_split_may_prove() -> None:
    """The second as well as the first."""
    good, bad = Split(HEAD, TAIL), Split("x" * 300, "y" * 300)
    assert proves([bad, good], ORIGINAL)
    assert not proves([bad], ORIGINAL)
    assert not proves([], ORIGINAL)


def test_text_made_of_markers_proves_nothing() -> None:
    """Where the splits together would copy more than 16 Mi characters it is no clip but quadratic work."""
    assert len(split_clip(HEAD + ACP * 500 + TAIL)) == 501
    assert split_clip(HEAD + ACP * 1000 + TAIL) == ()
    whole = HEAD + ACP + "x" * (2**24 - len(HEAD) - len(ACP) - len(TAIL)) + TAIL
    assert len(split_clip(whole)) == 1
    assert split_clip("x" + whole) == ()


@given(
    st.text(st.sampled_from("ab\n\U0001f600"), min_size=260, max_size=300),
    st.text(st.sampled_from("ab\U0001f600"), min_size=3, max_size=9),
    st.text(st.sampled_from("ab\n\U0001f600"), min_size=260, max_size=300),
    st.integers(0, 1),
)
def test_every_clip_is_proven_by_the_text_it_was_made_of(head: str, middle: str, tail: str, shift: int) -> None:
    """Cut at UTF-16 units, as JavaScript cuts, in the middle of a character too."""
    original = head + middle + tail
    units = original.encode("utf-16-le")
    cut_head, cut_tail = 2 * (258 + shift), 2 * (258 + 1 - shift)
    clip = b"".join((units[:cut_head], MARKER.encode("utf-16-le"), units[-cut_tail:])).decode(
        "utf-16-le", "surrogatepass"
    )
    assert proven(clip, original)
