"""Latches from before identities were kept."""

from attrs import evolve

from latchguard import ConversationState, EmergencyTruncateLatch, Kind, Message, Reason, Role, replay, restamp
from latchguard.core.latches import NO_IDENTITY

ONE = Message("a", Role.USER, Kind.TEXT, "one")
TWO = Message("b", Role.USER, Kind.TEXT, "two")
OLD = EmergencyTruncateLatch("m00002", NO_IDENTITY, "", "clip")


def state_with_old_latch() -> ConversationState:
    return evolve(ConversationState().assign([ONE, TWO]), latches=(OLD,))


def test_replay_refuses_a_latch_without_identity() -> None:
    """Its text lands on no message; the outcome names the reason and the holder."""
    outcome = replay([ONE, TWO], state_with_old_latch())
    assert outcome.messages == [ONE, TWO]
    assert [(refused.reason, refused.holder) for refused in outcome.refused] == [(Reason.NO_IDENTITY, TWO)]


def test_restamp_moves_a_latch_without_identity_with_its_message_id() -> None:
    """The claim "this text was made for that message" survives a renumbering, to be proven later."""
    after = restamp(state_with_old_latch(), [TWO, ONE]).state
    assert after.latches == (evolve(OLD, ref="m00001"),)


def test_restamp_drops_a_latch_without_identity_whose_message_is_gone() -> None:
    """With its message id nothing is left to prove it by."""
    after = restamp(state_with_old_latch(), [ONE]).state
    assert [(drop.latch, drop.reason) for drop in after.quarantine] == [(OLD, Reason.NO_IDENTITY)]


def test_protection_drops_a_latch_without_identity() -> None:
    """A numbering that protects the message takes its latch out of service."""
    after = restamp(state_with_old_latch(), [ONE, TWO], numbering={"b": "BLOCKED"}).state
    assert [drop.reason for drop in after.quarantine] == [Reason.BLOCKED_REF]


def test_a_new_latch_supersedes_one_without_identity() -> None:
    """The old one goes to quarantine with the reason that kept it out of service."""
    after = state_with_old_latch().latch(TWO, "new clip")
    assert [latch.text for latch in after.latches] == ["new clip"]
    assert [drop.reason for drop in after.quarantine] == [Reason.NO_IDENTITY]
