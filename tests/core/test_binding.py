"""The binding cases of a restamp, each by name; identities are told by their texts, one letter each."""

import pytest
from attrs import evolve

from latchguard import ConversationState, EmergencyTruncateLatch, Identity, Message, Reason, ViewLatch, replay, restamp
from latchguard.core.latches import Latch, make_latch
from latchguard.core.restamping import Restamp
from tests.support.messages import call, note, result

PAD = note("pad", "nothing")


def state_of(messages: list[Message], latches: dict[str, str]) -> ConversationState:
    """Number *messages* and clip each message id of *latches* with its text."""
    state = ConversationState().assign(messages)
    for message in messages:
        if message.id in latches:
            state = state.latch(message, latches[message.id])
    return state


def homes(outcome: Restamp) -> dict[str | None, str]:
    return {outcome.state.refs.holder(latch.ref): latch.text for latch in outcome.state.latches}


def drops(outcome: Restamp) -> list[tuple[str, Reason]]:
    return [(drop.latch.text, drop.reason) for drop in outcome.dropped]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (note("a", "y"), Reason.HASH_MISMATCH),
        (result("a", "x"), Reason.ROLE_MISMATCH),
        (evolve(call("a"), role=PAD.role), Reason.KIND_MISMATCH),
        (call("a"), Reason.ROLE_MISMATCH),
    ],
)
def test_case_0_id_lives_on_as_something_else(after: Message, reason: Reason) -> None:
    """No message has the identity and the id has another: what differs first is the reason."""
    outcome = restamp(state_of([note("a", "x"), PAD], {"a": "cut"}), [after, PAD])
    assert (homes(outcome), drops(outcome)) == ({}, [("cut", reason)])


def test_case_1_exactly_one_message_has_the_identity() -> None:
    """The latch goes there, though the id is another and the old id lives on as something else."""
    outcome = restamp(state_of([note("a", "x"), PAD], {"a": "cut"}), [note("a", "y"), PAD, note("b", "x")])
    assert (homes(outcome), drops(outcome)) == ({"b": "cut"}, [])


def test_case_1_though_an_unlatched_twin_is_gone_too() -> None:
    """Two twins become one message: the one latch among them goes there."""
    outcome = restamp(state_of([note("a", "x"), note("b", "x")], {"a": "cut"}), [note("c", "x")])
    assert homes(outcome) == {"c": "cut"}


def test_case_1_yields_to_a_twin_that_lives_on() -> None:
    """The one message with the identity showed its own text before, so it goes on showing it (I6)."""
    outcome = restamp(state_of([note("a", "x"), note("b", "x")], {"a": "cut"}), [note("b", "x"), PAD])
    assert (homes(outcome), drops(outcome)) == ({}, [("cut", Reason.GONE)])


def test_case_2_id_lives_on() -> None:
    """Among twins in another order each latch stays with its own message."""
    a, b, c = (note(name, "x") for name in "abc")
    outcome = restamp(state_of([a, b, c], {"a": "1", "b": "2"}), [c, note("d", "x"), b, a])
    assert (homes(outcome), drops(outcome)) == ({"a": "1", "b": "2"}, [])


def test_case_2_when_an_edit_was_taken_back() -> None:
    """The message is again what its latch was made for: the latch stays there, not with a new twin before it."""
    a = note("a", "x")
    state = state_of([a], {"a": "cut"}).assign([note("a", "y")])
    outcome = restamp(state, [note("n", "x"), a])
    assert homes(outcome) == {"a": "cut"}


def test_case_3_twins_that_showed_the_same() -> None:
    """Any pairing is right; what is over is gone."""
    old = [note(name, "x") for name in "abc"]
    outcome = restamp(state_of(old, dict.fromkeys("abc", "cut")), [note("d", "x"), note("e", "x")])
    assert (homes(outcome), drops(outcome)) == ({"d": "cut", "e": "cut"}, [("cut", Reason.GONE)])


def test_case_3_with_more_twins_than_before() -> None:
    """One latch, two candidates: it goes to the first; there was no unlatched twin that could be meant."""
    outcome = restamp(state_of([note("a", "x")], {"a": "cut"}), [note("b", "x"), note("c", "x")])
    assert (homes(outcome), drops(outcome)) == ({"b": "cut"}, [])


def test_case_4_by_rank() -> None:
    """As many as before, none of the old ids: the order decides, and unlatched twins take their place in it."""
    old = [note(name, "x") for name in "abc"]
    outcome = restamp(state_of(old, {"a": "1", "c": "3"}), [note(name, "x") for name in "fed"])
    assert (homes(outcome), drops(outcome)) == ({"f": "1", "d": "3"}, [])


def test_case_4_ranks_by_the_order_of_the_history() -> None:
    """The order after an earlier restamp counts, not the one in which messages became known."""
    a, b = note("a", "x"), note("b", "x")
    state = restamp(state_of([a, b], {"a": "1"}), [b, a]).state
    outcome = restamp(state, [note("c", "x"), note("d", "x")])
    assert homes(outcome) == {"d": "1"}


def test_case_4_among_those_that_did_not_live_on() -> None:
    """A twin whose id lives on keeps what it showed; the others are ranked among themselves."""
    old = [note(name, "x") for name in "abc"]
    new = [note("d", "x"), note("b", "x"), note("e", "x")]
    outcome = restamp(state_of(old, {"a": "1", "b": "2", "c": "3"}), new)
    assert homes(outcome) == {"d": "1", "b": "2", "e": "3"}


@pytest.mark.parametrize("count", [1, 3])
def test_case_5_ambiguous(count: int) -> None:
    """Other texts and another number of twins: which is which cannot be told, for any of them."""
    old = [note("a", "x"), note("b", "x")]
    outcome = restamp(state_of(old, {"a": "1", "b": "2"}), [note(f"n{number}", "x") for number in range(count)])
    assert (homes(outcome), drops(outcome)) == ({}, [("1", Reason.AMBIGUOUS), ("2", Reason.AMBIGUOUS)])


def test_case_5_a_latched_and_an_unlatched_twin() -> None:
    """To show its own text is to show something else: with three new twins the place is unknown."""
    old = [note("a", "x"), note("b", "x")]
    outcome = restamp(state_of(old, {"a": "1"}), [note(name, "x") for name in "cde"])
    assert drops(outcome) == [("1", Reason.AMBIGUOUS)]


def test_twins_that_differ_in_the_name_of_a_view_are_not_alike() -> None:
    """The same text under another view's name is another latch."""
    a, b = note("a", "x"), note("b", "x")
    state = ConversationState().assign([a, b]).latch(a, "t", view="v").latch(b, "t", view="w")
    assert drops(restamp(state, [note("c", "x")])) == [("t", Reason.AMBIGUOUS)] * 2


def test_gone() -> None:
    """Neither the identity nor the id is there."""
    outcome = restamp(state_of([note("a", "x"), PAD], {"a": "cut"}), [PAD])
    assert drops(outcome) == [("cut", Reason.GONE)]


def test_gone_is_undone_by_a_restamp() -> None:
    """A message that was not known and has the identity takes the latch back; it is in `rebound`, not in quarantine."""
    a = note("a", "x")
    state = restamp(state_of([a, PAD], {"a": "cut"}), [PAD]).state
    outcome = restamp(state, [PAD, a])
    assert (homes(outcome), outcome.state.quarantine) == ({"a": "cut"}, ())
    assert [(pair.old.ref, pair.new.ref) for pair in outcome.rebound] == [("m00001", "m00002")]


def test_gone_is_not_undone_by_an_edit_of_a_known_message() -> None:
    """A known message that becomes what the latch was made for is not the message come back."""
    state = restamp(state_of([note("a", "x"), PAD], {"a": "cut"}), [PAD]).state
    assert homes(restamp(state, [note("pad", "x")])) == {}


def test_gone_does_not_displace_a_latch_that_moved() -> None:
    """A new message that takes over a living latch has no room for a gone one of its class."""
    a, b = note("a", "x"), note("b", "x")
    state = restamp(state_of([a, b, PAD], {"a": "old", "b": "new"}), [b, PAD]).state
    outcome = restamp(state, [note("c", "x"), PAD])
    assert homes(outcome) == {"c": "new"}
    assert [(drop.latch.text, drop.reason) for drop in outcome.state.quarantine] == [("old", Reason.GONE)]


def test_gone_view_comes_back_beside_a_clip_that_moved() -> None:
    """One of each class fits."""
    a, b = note("a", "x"), note("b", "x")
    state = ConversationState().assign([a, b, PAD]).latch(a, "seen", view="v").latch(b, "cut")
    state = restamp(state, [b, PAD]).state
    outcome = restamp(state, [note("c", "x"), PAD])
    assert [(type(latch), latch.ref) for latch in outcome.state.latches] == [
        (EmergencyTruncateLatch, "m00001"),
        (ViewLatch, "m00001"),
    ]


@pytest.mark.parametrize("ids", ["ac", "bc"])
def test_protected_message_takes_no_latch(ids: str) -> None:
    """Whether its own id lives on or the identity is found under another one."""
    outcome = restamp(
        state_of([note("a", "x"), PAD], {"a": "cut"}), [note(ids[0], "x"), PAD], numbering={ids[0]: "BLOCKED"}
    )
    assert (homes(outcome), drops(outcome)) == ({}, [("cut", Reason.BLOCKED_REF)])


def test_unprotected_twin_is_found_beside_a_protected_one() -> None:
    """The protected one does not count as a candidate."""
    outcome = restamp(
        state_of([note("a", "x")], {"a": "cut"}), [note("p", "x"), note("b", "x")], numbering={"p": "BLOCKED"}
    )
    assert homes(outcome) == {"b": "cut"}


def test_stored_output_with_its_id() -> None:
    """The host keeps the id and stores what we showed: the latch stays, applied already."""
    outcome = restamp(state_of([note("a", "x"), PAD], {"a": "cut"}), [PAD, note("a", "cut")])
    assert (homes(outcome), drops(outcome)) == ({"a": "cut"}, [])


def test_stored_output_of_an_earlier_latch() -> None:
    """What a superseded latch showed is a form of the message too."""
    state = state_of([note("a", "x"), PAD], {"a": "cut"}).latch(note("a", "x"), "cut more")
    outcome = restamp(state, [PAD, note("a", "cut")])
    assert homes(outcome) == {"a": "cut more"}
    assert replay([note("a", "cut")], outcome.state).messages[0].text == "cut more"


def test_stored_output_under_a_new_id() -> None:
    """Nothing has the identity, but a new message shows just what the latch shows: it goes there and stays."""
    state = state_of([note("a", "x"), PAD], {"a": "cut"})
    outcome = restamp(state, [PAD, note("b", "cut")])
    assert (homes(outcome), drops(outcome)) == ({"b": "cut"}, [])
    assert restamp(outcome.state, [PAD, note("b", "cut")]).state is outcome.state


def test_stored_output_of_each_twin_is_found_by_its_text() -> None:
    """Twins with different clips come back in another order: each latch goes to its own output."""
    state = state_of([note("a", "x"), note("b", "x")], {"a": "1", "b": "2"})
    outcome = restamp(state, [note("c", "2"), note("d", "1")])
    assert homes(outcome) == {"c": "2", "d": "1"}


def test_stored_output_that_was_there_before_is_another_message() -> None:
    """A message that always had the clip's text is not our output."""
    state = state_of([note("a", "x"), note("b", "cut")], {"a": "cut"})
    assert drops(restamp(state, [note("b", "cut")])) == [("cut", Reason.GONE)]


def test_stored_output_that_is_protected() -> None:
    """It takes no latch."""
    outcome = restamp(state_of([note("a", "x")], {"a": "cut"}), [note("b", "cut")], numbering={"b": "BLOCKED"})
    assert drops(outcome) == [("cut", Reason.BLOCKED_REF)]


def test_stored_output_is_taken_once() -> None:
    """Two clips with one text and one output: the second latch is gone, no message carries two."""
    outcome = restamp(state_of([note("a", "x"), note("b", "y")], {"a": "cut", "b": "cut"}), [note("c", "cut")])
    assert (homes(outcome), drops(outcome)) == ({"c": "cut"}, [("cut", Reason.GONE)])


def test_stored_output_is_found_beside_a_twin_that_lives_on() -> None:
    """One twin is there as it was; the other comes back under a new id as it was shown."""
    state = state_of([note("a", "x"), note("b", "x")], {"a": "cut", "b": "cut too"})
    outcome = restamp(state, [note("a", "x"), note("c", "cut too")])
    assert homes(outcome) == {"a": "cut", "c": "cut too"}


def test_stored_output_is_no_home_where_it_is_what_another_latch_was_made_for() -> None:
    """A message that is what one latch was made for goes to it, though another, made first, showed just that."""
    state = state_of([note("a", "x"), note("b", "cut")], {"a": "cut", "b": "cut again"})
    outcome = restamp(state, [note("c", "cut")])
    assert (homes(outcome), drops(outcome)) == ({"c": "cut again"}, [("cut", Reason.GONE)])


@pytest.mark.parametrize(("known", "held"), [("x", "cut"), ("cut", "x")])
def test_message_held_in_another_form_of_what_was_cleared_is_no_other(known: str, held: str) -> None:
    """Its clip is cleared, and the host may hold it as it was shown or as it is: it takes no latch of a twin."""
    twin = note("b", held)
    state = state_of([note("a", "x")], {"a": "cut"}).assign([note("a", known)]).unlatch(note("a", known))
    state = state.assign([twin]).latch(twin, "cut again")
    outcome = restamp(state, [note("a", held)])
    assert (homes(outcome), drops(outcome)) == ({}, [("cut again", Reason.GONE)])


@pytest.mark.parametrize("shown", ["cut", "x"])
def test_stored_output_is_no_other_form_of_what_was_cleared(shown: str) -> None:
    """A message that goes back to what it showed once is not taken for the output of another one."""
    state = state_of([note("a", "x")], {"a": "cut"}).unlatch(note("a", "x"))
    state = state.assign([note("b", "y")]).latch(note("b", "y"), shown)
    outcome = restamp(state, [note("a", shown)])
    assert (homes(outcome), drops(outcome)) == ({}, [(shown, Reason.GONE)])


def test_twin_that_is_stored_as_its_output_keeps_its_rank() -> None:
    """The first of three twins is held as it was shown: by rank its latch goes to the first of three."""
    state = state_of([note("a", "x"), note("b", "x"), note("c", "x")], {"a": "cut"})
    state = restamp(state, [note("a", "cut"), note("b", "x"), note("c", "x")]).state
    outcome = restamp(state, [note("d", "x"), note("e", "x"), note("f", "x")])
    assert homes(outcome) == {"d": "cut"}


def test_twin_that_is_stored_as_an_earlier_output_keeps_its_rank() -> None:
    """The same where what is held was superseded since."""
    state = state_of([note("a", "x"), note("b", "x"), note("c", "x")], {"a": "cut"})
    state = restamp(state.latch(note("a", "x"), "cut more"), [note("a", "cut"), note("b", "x"), note("c", "x")]).state
    outcome = restamp(state, [note("d", "x"), note("e", "x"), note("f", "x")])
    assert homes(outcome) == {"d": "cut more"}


def test_rank_is_among_those_that_did_not_live_on() -> None:
    """An unlatched twin that is there as before takes no place."""
    state = state_of([note("a", "x"), note("b", "x"), note("c", "x")], {"b": "cut", "c": "cut too"})
    outcome = restamp(state, [note("a", "x"), note("d", "x"), note("e", "x")])
    assert homes(outcome) == {"d": "cut", "e": "cut too"}


def test_message_with_a_latch_of_its_own_takes_no_second() -> None:
    """Where a message shows one latch's text and has the identity of another, what stayed there goes first."""
    state = state_of([note("a", "x"), note("b", "cut")], {"a": "cut", "b": "other"})
    outcome = restamp(state, [note("a", "cut"), PAD])
    assert (homes(outcome), drops(outcome)) == ({"a": "cut"}, [("other", Reason.GONE)])


def test_edited_away_twin_of_one_that_lives_on() -> None:
    """Others have the identity, but none newly: the id that lives on says what it is now."""
    state = state_of([note("a", "x"), note("b", "x")], {"a": "cut"})
    assert drops(restamp(state, [note("a", "y"), note("b", "x")])) == [("cut", Reason.HASH_MISMATCH)]


def test_latch_whose_ref_nobody_held() -> None:
    """It looks for its identity like any other, each for itself, behind those that had a message."""
    a = note("a", "x")
    stray: list[Latch] = [make_latch(a, ref, Identity.of(a), "cut", None) for ref in ("m00008", "m00009")]
    state = evolve(ConversationState().assign([PAD]), latches=tuple(stray))
    outcome = restamp(state, [PAD, a])
    assert (homes(outcome), drops(outcome)) == ({"a": "cut"}, [("cut", Reason.GONE)])


def test_stray_latches_with_other_texts_are_ambiguous() -> None:
    """One message, two latches of one class: neither is bound."""
    a = note("a", "x")
    stray: list[Latch] = [make_latch(a, f"m0000{text}", Identity.of(a), text, None) for text in ("8", "9")]
    state = evolve(ConversationState().assign([PAD]), latches=tuple(stray))
    assert drops(restamp(state, [PAD, a])) == [("8", Reason.AMBIGUOUS), ("9", Reason.AMBIGUOUS)]


def test_stray_latch_without_a_message() -> None:
    """Nothing has its identity: gone."""
    stray = make_latch(note("a", "x"), "m00009", Identity.of(note("a", "x")), "cut", None)
    outcome = restamp(evolve(ConversationState().assign([PAD]), latches=(stray,)), [PAD])
    assert drops(outcome) == [("cut", Reason.GONE)]


def test_message_without_a_recorded_identity() -> None:
    """A state of old knows ids alone: a latch whose id lives on with its identity stays there."""
    state = evolve(state_of([note("a", "x"), note("b", "x")], {"a": "cut"}), identities={})
    outcome = restamp(state, [note("b", "x"), note("a", "x")])
    assert homes(outcome) == {"a": "cut"}


def test_clip_and_view_move_together() -> None:
    """The latches of one message are one thing to bind."""
    a = note("a", "x")
    state = ConversationState().assign([a]).latch(a, "cut").latch(a, "seen", view="v")
    outcome = restamp(state, [PAD, note("b", "x")])
    assert [(latch.ref, latch.text) for latch in outcome.state.latches] == [("m00002", "cut"), ("m00002", "seen")]
