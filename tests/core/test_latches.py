from typing import Any

import pytest
from attrs import evolve

from latchguard import EmergencyTruncateLatch, Identity, Kind, Message, Reason, Role, ViewLatch
from latchguard.core.errors import InvalidValueError
from latchguard.core.latches import (
    LATCHABLE,
    NO_IDENTITY,
    Latch,
    forms,
    latch_order,
    make_latch,
    misfit,
    mismatch,
    refusal,
    with_text,
)
from tests.support.messages import call, note, result

X = Identity("1" * 64, Role.USER, Kind.TEXT)
SHOWN = "2" * 64


def clip_of(message: Message, text: str, ref: str = "m00001") -> Latch:
    return make_latch(message, ref, Identity.of(message), text, None)


def test_kinds_that_may_be_latched() -> None:
    """Texts and tool results, nothing else; each kind is decided."""
    assert {kind for kind in Kind if LATCHABLE[kind]} == {Kind.TEXT, Kind.TOOL_RESULT}


def test_make_latch() -> None:
    """Without a view it is a clip, with one a view of that name; `shown` is what the message then is."""
    message = result("a", "long text")
    shown = Identity.of(evolve(message, text="cut")).hash
    identity = Identity.of(message)
    assert make_latch(message, "m00001", identity, "cut", None) == EmergencyTruncateLatch(
        "m00001", identity, shown, "cut"
    )
    assert make_latch(message, "m00001", identity, "cut", "v") == ViewLatch("m00001", identity, shown, "cut", "v")


def test_halves_of_a_pair_are_joined_in_a_latch() -> None:
    """Two halves side by side are one character, as in JSON; lone ones stay."""
    latch = ViewLatch("m00001", X, SHOWN, "\ud83d\ude00\ud83d", "\ud83d\ude00")
    assert (latch.text, latch.view) == ("\U0001f600\ud83d", "\U0001f600")


@pytest.mark.parametrize("latch_class", [EmergencyTruncateLatch, ViewLatch])
@pytest.mark.parametrize(
    ("field", "wrong", "path"),
    [
        ("ref", "m1", "ref"),
        ("ref", None, "ref"),
        ("ref", 5, "ref"),
        ("identity", None, "identity"),
        ("identity", "1" * 64, "identity"),
        ("identity", Identity("1" * 63, Role.USER, Kind.TEXT), "identity.hash"),
        ("identity", Identity("A" * 64, Role.USER, Kind.TEXT), "identity.hash"),
        ("shown", "", "shown"),
        ("shown", "2" * 64 + "\n", "shown"),
        ("shown", None, "shown"),
        ("text", None, "text"),
        ("text", b"x", "text"),
    ],
)
def test_latches_check_themselves(latch_class: Any, field: str, wrong: Any, path: str) -> None:
    """Each field of the wrong type or form is named."""
    valid: dict[str, Any] = {"ref": "m00001", "identity": X, "shown": SHOWN, "text": "t"}
    if latch_class is ViewLatch:
        valid["view"] = "v"
    with pytest.raises(InvalidValueError) as caught:
        latch_class(**{**valid, field: wrong})
    assert caught.value.path == path


def test_view_is_a_string() -> None:
    """A view latch has a name."""
    with pytest.raises(InvalidValueError):
        ViewLatch("m00001", X, SHOWN, "t", None)


def test_blocked_is_a_ref_that_a_latch_may_name() -> None:
    """Old states hold latches on the sentinel; they are refused in replay, not when read."""
    assert EmergencyTruncateLatch("BLOCKED", X, SHOWN, "t").ref == "BLOCKED"


def test_stored_order() -> None:
    """By the number of the ref, not by its text; the clip before the view; the sentinel first."""
    refs = ["m100000", "m00002", "m99999", "BLOCKED"]
    latches: list[Latch] = [ViewLatch(ref, X, SHOWN, "t", "v") for ref in refs]
    latches += [EmergencyTruncateLatch(ref, X, SHOWN, "t") for ref in refs]
    assert [(latch.ref, type(latch)) for latch in sorted(latches, key=latch_order)] == [
        (ref, latch_class)
        for ref in ("BLOCKED", "m00002", "m99999", "m100000")
        for latch_class in (EmergencyTruncateLatch, ViewLatch)
    ]


def test_with_text() -> None:
    """The message with another text and all else kept; the same object where the text is the same."""
    message = call("a", "{}")
    assert with_text(message, "{}") is message
    assert with_text(message, "x") == evolve(message, text="x")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (X, None),
        (Identity("3" * 64, Role.TOOL, Kind.OTHER), Reason.ROLE_MISMATCH),
        (Identity("1" * 64, Role.TOOL, Kind.TEXT), Reason.ROLE_MISMATCH),
        (Identity("3" * 64, Role.USER, Kind.OTHER), Reason.KIND_MISMATCH),
        (Identity("1" * 64, Role.USER, Kind.OTHER), Reason.KIND_MISMATCH),
        (Identity("3" * 64, Role.USER, Kind.TEXT), Reason.HASH_MISMATCH),
    ],
)
def test_first_of_role_kind_and_hash_is_named(found: Identity, reason: Reason | None) -> None:
    """Where several differ the role goes before the kind and the kind before the hash."""
    assert mismatch(found, X) is reason


def test_forms() -> None:
    """Its own hash and what latches of the same identity show; not what others show."""
    mine = EmergencyTruncateLatch("m00001", X, "4" * 64, "t")
    other = EmergencyTruncateLatch("m00001", Identity("9" * 64, Role.USER, Kind.TEXT), "5" * 64, "t")
    assert forms(X, [mine, other]) == {"1" * 64, "4" * 64}


def test_what_a_latch_shows_fits_it() -> None:
    """A message that shows the text of a latch made for it is that message still; with another role it is not."""
    latch = EmergencyTruncateLatch("m00001", X, SHOWN, "t")
    assert misfit(Identity(SHOWN, Role.USER, Kind.TEXT), X, [latch]) is None
    assert misfit(Identity(SHOWN, Role.USER, Kind.TEXT), X, []) is Reason.HASH_MISMATCH
    assert misfit(Identity(SHOWN, Role.TOOL, Kind.TEXT), X, [latch]) is Reason.ROLE_MISMATCH


@pytest.mark.parametrize("kind", [Kind.TOOL_CALL, Kind.REASONING, Kind.OTHER])
def test_forbidden_kinds_are_refused_on_their_own_message(kind: Kind) -> None:
    """A latch that should never have been made is refused though all else fits (I2)."""
    message = Message("a", Role.ASSISTANT, kind, "{}")
    assert refusal(clip_of(message, "cut"), [], Identity.of(message)) is Reason.FORBIDDEN_KIND


def test_refusal() -> None:
    """None on its message and on its own output, else what differs."""
    message = note("a", "long text")
    clip, view = clip_of(message, "cut"), make_latch(message, "m00001", Identity.of(message), "seen", "v")
    assert refusal(clip, [], Identity.of(message)) is None
    assert refusal(clip, [clip, view], Identity.of(note("a", "seen"))) is None
    assert refusal(clip, [clip], Identity.of(note("a", "seen"))) is Reason.HASH_MISMATCH
    assert refusal(clip, [clip], Identity.of(result("a", "long text"))) is Reason.ROLE_MISMATCH


def test_latch_without_identity_is_refused_on_every_message() -> None:
    """`no-identity` goes before the kind that stands in its place."""
    assert NO_IDENTITY.hash == ""
    latch = EmergencyTruncateLatch("m00001", NO_IDENTITY, "", "clip")
    assert refusal(latch, [latch], Identity.of(note("a", "clip"))) is Reason.NO_IDENTITY


def test_extra_is_part_of_the_value_but_not_of_the_hash() -> None:
    """Unknown fields count in a comparison and may hold what has no hash."""
    latch = EmergencyTruncateLatch("m00001", X, SHOWN, "t", extra={"new": [1]})
    assert latch != evolve(latch, extra={})
    assert hash(latch) == hash(evolve(latch, extra={}))
