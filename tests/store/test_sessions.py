"""The store's operations, each on the three databases."""

import json

import pytest
from attrs import evolve

from latchguard import ConversationState, Identity, Kind, Message, Reason, Role, SessionStore, restamp
from latchguard.core.errors import (
    DuplicateMessageError,
    HolderAbsentError,
    IdentityMismatchError,
    InvalidValueError,
    LatchError,
    MessageConflictError,
    NumberingError,
    SessionExistsError,
    SessionNotFoundError,
    StaleRefError,
    StaleStateError,
    UnknownDropError,
    UnknownMessageError,
)


def user(message_id: str, text: str) -> Message:
    return Message(message_id, Role.USER, Kind.TEXT, text)


ONE, TWO, THREE = user("a", "one"), user("b", "two"), user("c", "three")
CALL = Message("call", Role.ASSISTANT, Kind.TOOL_CALL, '{"q": 1}', tool_name="search", tool_call_id="c1")
RESULT = Message("result", Role.TOOL, Kind.TOOL_RESULT, "found", tool_call_id="c1")
ALL = [ONE, CALL, RESULT, TWO]


def test_append_gives_refs_in_order(store: SessionStore) -> None:
    """New messages get the next refs; what was stored comes back as it was."""
    assert store.append("s", ALL) == ["m00001", "m00002", "m00003", "m00004"]
    assert store.messages("s") == ALL
    assert store.state("s") == ConversationState().assign(ALL)


def test_append_of_known_messages_is_a_retry(store: SessionStore) -> None:
    """The same messages again give the same refs, change nothing and bump no version."""
    store.append("s", [ONE, TWO])
    assert store.append("s", [TWO, ONE]) == ["m00002", "m00001"]
    assert store.state("s").version == 1


def test_append_refuses_a_known_id_with_another_identity(store: SessionStore) -> None:
    """The error names what is stored and what came; nothing of the batch is written."""
    store.append("s", [ONE])
    with pytest.raises(MessageConflictError) as caught:
        store.append("s", [TWO, user("a", "other")])
    assert (caught.value.session, caught.value.message_id) == ("s", "a")
    assert store.messages("s") == [ONE]


def test_append_takes_our_own_output_back(store: SessionStore) -> None:
    """A host that stores what the model saw and sends it again is no conflict; the original stays."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    assert store.append("s", [evolve(ONE, text="clip"), TWO]) == ["m00001", "m00002"]
    assert store.messages("s") == [ONE, TWO]


def test_append_takes_an_earlier_output_back(store: SessionStore) -> None:
    """What a superseded latch showed is a form of its message still, sent back or latched."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.latch("s", ONE, "clip 2")
    earlier = evolve(ONE, text="clip")
    assert store.append("s", [earlier]) == ["m00001"]
    assert store.replay("s", [earlier]).messages == [evolve(ONE, text="clip 2")]
    store.latch("s", earlier, "clip 3")
    assert store.state("s").latches[0].identity == Identity.of(ONE)


def test_restamp_finds_a_clip_by_what_it_shows(store: SessionStore) -> None:
    """The host gave new ids to what the model saw: the clip stays with its own output."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    store.restamp("s", [user("new", "clip"), TWO])
    assert [(latch.ref, latch.text) for latch in store.state("s").latches] == [("m00001", "clip")]
    assert [message.text for message in store.replay("s").messages] == ["clip", "two"]


def test_restamp_with_a_changed_message_stores_it(store: SessionStore) -> None:
    """The given history is the truth; the latch of the changed message goes, with what differs."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    changed = user("a", "one, changed")
    assert [drop.reason for drop in store.restamp("s", [changed, TWO]).dropped] == [Reason.HASH_MISMATCH]
    assert store.messages("s") == [changed, TWO]


def test_append_refuses_one_id_twice(store: SessionStore) -> None:
    """The error names both positions."""
    with pytest.raises(DuplicateMessageError) as caught:
        store.append("s", [ONE, TWO, ONE])
    assert (caught.value.first, caught.value.second) == (0, 2)


def test_protected_messages_share_the_sentinel(store: SessionStore) -> None:
    """They get BLOCKED, their latch goes to quarantine, and a restamp does not lift it."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    assert store.append("s", [THREE], protected=["a", "c"]) == ["BLOCKED"]
    assert [stored.drop.reason for stored in store.quarantine("s")] == [Reason.BLOCKED_REF]
    store.restamp("s")
    assert dict(store.state("s").refs) == {"a": "BLOCKED", "b": "m00001", "c": "BLOCKED"}


def test_protecting_an_unknown_message_is_refused(store: SessionStore) -> None:
    """An id that is neither stored nor given cannot be protected."""
    with pytest.raises(UnknownMessageError) as caught:
        store.append("s", [ONE], protected=["nobody"])
    assert caught.value.message_id == "nobody"


def test_latch_shows_in_replay(store: SessionStore) -> None:
    """The model sees the latched text; the stored message keeps its own."""
    store.append("s", ALL)
    store.latch("s", RESULT, "short")
    store.latch("s", TWO, "crushed", view="json")
    replayed = store.replay("s")
    assert [message.text for message in replayed.messages] == ["one", '{"q": 1}', "short", "crushed"]
    assert [outcome.latch.text for outcome in replayed.applied] == ["short", "crushed"]
    assert store.messages("s") == ALL


def test_replay_of_given_messages(store: SessionStore) -> None:
    """A part of the history, as the host has it: latches whose message is absent are refused and stay."""
    store.append("s", ALL)
    store.latch("s", ONE, "clip")
    store.latch("s", TWO, "clip 2")
    replayed = store.replay("s", [CALL, RESULT, TWO])
    assert [message.text for message in replayed.messages] == ['{"q": 1}', "found", "clip 2"]
    assert [outcome.reason for outcome in replayed.refused] == [Reason.HOLDER_ABSENT]
    assert len(store.state("s").latches) == 2


def test_latch_needs_the_stored_message(store: SessionStore) -> None:
    """Somebody else's text under a known id gets no latch."""
    store.append("s", [ONE])
    with pytest.raises(IdentityMismatchError) as caught:
        store.latch("s", user("a", "other"), "clip")
    assert (caught.value.session, caught.value.message_id) == ("s", "a")
    with pytest.raises(UnknownMessageError):
        store.latch("s", TWO, "clip")
    with pytest.raises(SessionNotFoundError):
        store.latch("nowhere", ONE, "clip")


def test_latch_never_on_arguments(store: SessionStore) -> None:
    """A tool call takes no latch."""
    store.append("s", ALL)
    with pytest.raises(LatchError) as caught:
        store.latch("s", CALL, "clip")
    assert caught.value.reason is Reason.FORBIDDEN_KIND


def test_no_clip_of_a_clip(store: SessionStore) -> None:
    """A latch on a message that shows its clip keeps the identity of the original."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.latch("s", evolve(ONE, text="clip"), "shorter")
    state = ConversationState().assign([ONE]).latch(ONE, "clip").latch(ONE, "shorter")
    assert store.state("s") == state


def test_unlatch_clears(store: SessionStore) -> None:
    """The message shows its own text again; the latch is kept with its reason."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.unlatch("s", ONE)
    assert store.replay("s").messages == [ONE]
    assert [stored.drop.reason for stored in store.quarantine("s")] == [Reason.CLEARED]


def test_edit_changes_the_stored_message(store: SessionStore) -> None:
    """Its latch is refused from then on, and dropped by a restamp with what differs."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    edited = user("a", "one, edited")
    store.edit("s", edited)
    assert store.messages("s") == [edited, TWO]
    assert [outcome.reason for outcome in store.replay("s").refused] == [Reason.HASH_MISMATCH]
    assert [drop.reason for drop in store.restamp("s").dropped] == [Reason.HASH_MISMATCH]
    with pytest.raises(UnknownMessageError):
        store.edit("s", THREE)


def test_clip_stays_on_its_message_when_refs_are_renumbered(store: SessionStore) -> None:
    """The report's case: a restamp gives the clip's old ref to a tool call, whose arguments stay as they are."""
    store.append("s", [ONE, RESULT, CALL])
    store.latch("s", ONE, "clip")
    result = store.restamp("s", [CALL, RESULT, ONE])
    assert result.moved == {"m00001": "m00003", "m00002": "m00002", "m00003": "m00001"}
    assert store.replay("s").messages == [CALL, RESULT, evolve(ONE, text="clip")]
    assert result.state == store.state("s")


def test_restamp_keeps_the_rows_of_absent_messages(store: SessionStore) -> None:
    """An absent message loses its ref; appended again it gets a new one, and its clip is back."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    store.restamp("s", [TWO])
    assert store.messages("s") == [TWO]
    assert [stored.drop.reason for stored in store.quarantine("s")] == [Reason.GONE]
    assert store.append("s", [TWO, ONE]) == ["m00001", "m00002"]
    assert store.replay("s").messages == [TWO, evolve(ONE, text="clip")]
    assert store.quarantine("s") == []


def test_a_protected_message_that_is_back_stands_at_the_end(store: SessionStore) -> None:
    """One that a restamp left out and an append brings again has its place where it came."""
    store.append("s", [ONE, TWO, THREE], protected=["b"])
    store.restamp("s", [ONE, THREE])
    store.append("s", [TWO])
    assert store.messages("s") == [ONE, THREE, TWO]


def test_a_protected_message_that_leaves_or_is_back_is_a_write(store: SessionStore) -> None:
    """Its ref stays what it is, but the history is another one: whoever saw the old one is told so."""
    store.append("s", [ONE, TWO], protected=["b"])
    store.restamp("s", [ONE])
    assert (store.state("s").version, store.state("s").epoch) == (2, 1)
    store.append("s", [TWO])
    assert (store.state("s").version, store.state("s").epoch) == (3, 1)
    store.append("s", [TWO])
    store.restamp("s", [ONE, TWO])
    assert (store.state("s").version, store.state("s").epoch) == (3, 1)


def test_restamp_takes_new_messages_between_old_ones(store: SessionStore) -> None:
    """The history is the given one, in its order."""
    store.append("s", [ONE, TWO])
    store.restamp("s", [ONE, THREE, TWO])
    assert store.messages("s") == [ONE, THREE, TWO]
    assert list(store.state("s").refs.items()) == [("a", "m00001"), ("c", "m00002"), ("b", "m00003")]


def test_restamp_by_a_ledger_that_swaps_refs(store: SessionStore) -> None:
    """Two messages change places in the numbering, though refs are unique in the table at every moment."""
    store.append("s", [ONE, TWO, THREE])
    store.latch("s", ONE, "clip")
    store.restamp("s", numbering={"a": "m00002", "b": "m00001", "c": "m00009"})
    assert dict(store.state("s").refs) == {"a": "m00002", "b": "m00001", "c": "m00009"}
    assert [latch.ref for latch in store.state("s").latches] == ["m00002"]


def test_restamp_refuses_a_ref_that_no_column_holds(store: SessionStore) -> None:
    """A number of 20 digits is refused before anything is written."""
    store.append("s", [ONE])
    before = store.state("s")
    with pytest.raises(NumberingError):
        store.restamp("s", numbering={"a": "m" + "9" * 20})
    assert store.state("s") == before


def test_restamp_twice_changes_nothing(store: SessionStore) -> None:
    """The second bumps neither version nor epoch."""
    store.append("s", ALL)
    store.restamp("s", ALL[1:])
    before = store.state("s")
    store.restamp("s", ALL[1:])
    store.restamp("s")
    assert store.state("s") == before


def test_a_restamp_that_protects_takes_what_was_shown_for_the_messages_own(store: SessionStore) -> None:
    """The latch goes, the text that it showed stays; twice is once, and the core says the same."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    held, numbering = [evolve(ONE, text="clip"), TWO], {"a": "BLOCKED"}
    wanted = restamp(store.state("s"), held, numbering=numbering)
    assert store.restamp("s", held, numbering=numbering) == wanted
    assert [drop.reason for drop in wanted.dropped] == [Reason.BLOCKED_REF]
    assert store.messages("s") == store.replay("s").messages == held
    store.restamp("s", held, numbering=numbering)
    assert store.state("s") == wanted.state


def test_an_append_that_protects_takes_what_was_shown_for_the_messages_own(store: SessionStore) -> None:
    """A retry of it is no conflict, and changes nothing."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    held = [evolve(ONE, text="clip"), TWO]
    store.append("s", held, protected=["a"])
    before = store.state("s")
    assert store.append("s", held, protected=["a"]) == ["BLOCKED", "m00002"]
    assert store.state("s") == before
    assert store.messages("s") == store.replay("s").messages == held


def test_restamp_refuses_a_numbering_that_is_no_mapping(store: SessionStore) -> None:
    """As the core does."""
    store.append("s", [ONE])
    with pytest.raises(InvalidValueError):
        store.restamp("s", [ONE], numbering=["m00001"])  # type: ignore[arg-type]


def test_resolve_goes_through_the_epoch(store: SessionStore) -> None:
    """A ref that a model was shown before a restamp is refused after it, never read as another message."""
    store.append("s", [ONE, TWO])
    assert store.resolve("s", "m00002", epoch=0) == TWO
    store.restamp("s", [TWO])
    with pytest.raises(StaleRefError) as caught:
        store.resolve("s", "m00002", epoch=0)
    assert (caught.value.epoch, caught.value.found_epoch) == (0, 1)
    assert store.resolve("s", "m00001", epoch=1) == TWO
    for nothing in ("m00002", "BLOCKED", "m1", "m" + "9" * 20):
        with pytest.raises(StaleRefError):
            store.resolve("s", nothing)


def test_a_write_that_lost_the_race_writes_nothing(store: SessionStore) -> None:
    """The error names the version that was expected and the one that was found."""
    store.append("s", [ONE])
    store.append("s", [TWO], expect_version=1)
    with pytest.raises(StaleStateError) as caught:
        store.latch("s", ONE, "clip", expect_version=1)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert store.state("s").latches == ()


def test_a_protected_message_that_is_back_stands_after_what_is_new_before_it(store: SessionStore) -> None:
    """An append that brings it after a new message keeps that order."""
    store.append("s", [ONE, TWO], protected=["a"])
    store.restamp("s", [TWO])
    assert store.append("s", [THREE, ONE]) == ["m00002", "BLOCKED"]
    assert store.messages("s") == [TWO, THREE, ONE]


def test_release_puts_a_drop_back(store: SessionStore) -> None:
    """On the one message that has its identity; the latch that is there then is superseded."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.latch("s", ONE, "clip 2")
    [superseded] = store.quarantine("s")
    store.release(superseded.id)
    assert store.replay("s").messages == [evolve(ONE, text="clip")]
    assert [stored.drop.latch.text for stored in store.quarantine("s")] == ["clip 2"]
    with pytest.raises(UnknownDropError):
        store.release(superseded.id)


def test_release_never_by_force(store: SessionStore) -> None:
    """No message with its identity, or two, and the drop stays where it is."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.unlatch("s", ONE)
    [drop] = store.quarantine("s")
    store.edit("s", user("a", "changed"))
    with pytest.raises(HolderAbsentError) as caught:
        store.release(drop.id)
    assert caught.value.found == 0
    store.append("s", [user("t1", "one"), user("t2", "one")])
    with pytest.raises(HolderAbsentError) as caught:
        store.release(drop.id)
    assert caught.value.found == 2


def test_fork_copies_a_part(store: SessionStore) -> None:
    """Refs and latches up to a message, an epoch of its own, and no ref that the first session had issued."""
    store.append("s", ALL, protected=["a"])
    store.latch("s", RESULT, "short")
    store.latch("s", TWO, "clip")
    store.restamp("s", [ALL[0], *ALL[2:]])
    store.fork("s", "new", "result")
    state = store.state("new")
    assert (dict(state.refs), state.epoch) == ({"a": "BLOCKED", "result": "m00001"}, 0)
    assert store.replay("new").messages == [ONE, evolve(RESULT, text="short")]
    assert store.append("new", [THREE]) == ["m00003"]
    assert store.messages("s") == [ONE, RESULT, TWO]
    with pytest.raises(SessionExistsError):
        store.fork("s", "new")
    with pytest.raises(UnknownMessageError):
        store.fork("s", "other", "call")


def test_a_fork_knows_an_earlier_output(store: SessionStore) -> None:
    """What a latch showed that a later one superseded is its message still; nothing else of the quarantine comes."""
    store.append("s", [ONE, TWO])
    store.latch("s", ONE, "clip")
    store.latch("s", ONE, "clip 2")
    store.latch("s", TWO, "gone")
    store.latch("s", TWO, "gone 2")
    store.unlatch("s", TWO)
    store.fork("s", "new")
    assert store.append("new", [evolve(ONE, text="clip"), TWO]) == ["m00001", "m00002"]
    assert store.state("new").version == 1
    assert [stored.drop.latch.text for stored in store.quarantine("new")] == ["clip"]


def test_delete_leaves_nothing(store: SessionStore) -> None:
    """Every read and write of the session then says that there is none."""
    store.append("s", ALL)
    store.append("t", [ONE])
    store.delete("s")
    assert store.sessions() == ["t"]
    with pytest.raises(SessionNotFoundError) as caught:
        store.state("s")
    assert caught.value.session == "s"
    assert store.append("s", [TWO]) == ["m00001"]


def test_export_and_load_are_exact(store: SessionStore) -> None:
    """Whatever a session holds: absent and protected messages, quarantine, times, odd texts."""
    odd = user("o\0dd", "nul \0 half \ud800 \\ \x1f \U0001f600")
    store.append("s", [*ALL, odd, THREE], protected=["b"])
    store.latch("s", ONE, "clip")
    store.latch("s", odd, "vi\0ew", view="na\0me")
    store.restamp("s", [TWO, odd, ONE, CALL])
    store.unlatch("s", ONE)
    raw = store.export("s")
    assert store.load(raw, session="copy") == "copy"
    assert store.state("copy") == store.state("s")
    assert store.messages("copy") == store.messages("s") == [TWO, odd, ONE, CALL]
    assert store.export("copy").split(b"\n")[1:] == raw.split(b"\n")[1:]
    assert store.append("copy", [THREE]) == store.append("s", [THREE])
    with pytest.raises(SessionExistsError):
        store.load(raw)


def test_fields_of_a_newer_release_are_carried_through(store: SessionStore) -> None:
    """In the state, its messages, latches and drops: loaded, through a restamp and a fork, and out again."""
    store.append("s", [ONE, TWO, THREE])
    store.latch("s", ONE, "clip")
    store.latch("s", TWO, "gone")
    store.unlatch("s", TWO)
    head, rest = store.export("s").split(b"\n", 1)
    document = json.loads(head)
    state = document["state"]
    for place in (state, state["messages"][0], state["messages"][2], state["latches"][0], state["quarantine"][0]):
        place["newer"] = [1]
    store.load(json.dumps(document).encode() + b"\n" + rest, session="copy")
    assert store.export("copy").count(b'"newer":[1]') == 5
    store.restamp("copy", [TWO, ONE])
    store.fork("copy", "fork")
    for name in ("copy", "fork"):
        assert store.state(name).extra == {"newer": [1]}
        assert store.state(name).entry_extra == {"a": {"newer": [1]}}
        assert [latch.extra for latch in store.state(name).latches] == [{"newer": [1]}]


def test_release_of_the_equal_of_what_is_in_force(store: SessionStore) -> None:
    """The two change places: the drop is gone, and the one that was in force is a drop of its own."""
    store.append("s", [ONE])
    for text in ("clip", "clip 2", "clip"):
        store.latch("s", ONE, text)
    first, second = store.quarantine("s")
    store.release(first.id)
    left, new = store.quarantine("s")
    assert (left, new.drop) == (second, first.drop)
    assert new.id != first.id
    assert [latch.text for latch in store.state("s").latches] == ["clip"]


def test_purge_counts(store: SessionStore) -> None:
    """Only drops that are old enough go, and their number is kept."""
    store.append("s", [ONE])
    store.latch("s", ONE, "clip")
    store.unlatch("s", ONE)
    assert store.purge(older_than_s=3600) == 0
    assert store.purge(older_than_s=-10, session="other") == 0
    assert store.purge(older_than_s=-10) == 1
    assert store.quarantine("s") == []
    assert b'"purged":1' in store.export("s")


def test_purge_leaves_what_an_earlier_output_is_known_by(store: SessionStore) -> None:
    """As long as the latch that superseded it is in force; a host that holds the earlier text meets no conflict."""
    store.append("s", [ONE])
    for text in ("clip", "clip 2"):
        store.latch("s", ONE, text)
    assert store.purge(older_than_s=-10) == 0
    assert store.append("s", [evolve(ONE, text="clip")]) == ["m00001"]
    store.unlatch("s", ONE)
    assert store.purge(older_than_s=-10) == 2


def test_sessions_are_paged_by_code_point(store: SessionStore) -> None:
    """The order is the same on every database: no collation folds or pads."""
    names = ["A", "B", "a", "a ", "aa", "\u00e4", "\U0001f600"]
    for name in reversed(names):
        store.append(name, [])
    assert store.sessions() == names
    assert store.sessions(after="a", limit=2) == ["a ", "aa"]


def test_stream_gives_what_replay_gives(store: SessionStore) -> None:
    """Message by message, across the border of two reads."""
    many = [user(f"m{number}", f"text {number}") for number in range(2300)]
    store.append("s", many)
    store.latch("s", many[1500], "clip")
    assert list(store.stream("s")) == list(store.replay("s").messages)


def test_stored_messages_read_like_a_list(store: SessionStore) -> None:
    """Length, index, slice, iteration and comparison."""
    store.append("s", ALL)
    found = store.messages("s")
    assert (len(found), found[1], list(found[1:3]), found == ALL[:3]) == (4, CALL, [CALL, RESULT], False)
    assert repr(found) == "StoredMessages(4 messages)"


def test_host_rows_and_ours_commit_together(store: SessionStore) -> None:
    """On the host's connection nothing is there until the host commits, and nothing stays when it does not."""
    with store.engine.connect() as connection:
        store.append("s", [ONE], connection=connection)
        store.latch("s", ONE, "clip", connection=connection)
        assert store.replay("s", connection=connection).messages == [evolve(ONE, text="clip")]
        connection.rollback()
    assert store.sessions() == []
    with store.engine.begin() as connection:
        store.append("s", [ONE], connection=connection)
    assert store.sessions() == ["s"]
