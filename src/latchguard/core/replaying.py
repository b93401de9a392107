"""Replay: apply the latches to a history, or a part of one. What comes out is what the model sees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter

from attrs import frozen

from latchguard.core.errors import check_type
from latchguard.core.history import positions_of
from latchguard.core.identity import Identity
from latchguard.core.latches import Latch, refusal, with_text
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED
from latchguard.core.state import ConversationState

__all__ = ["LatchOutcome", "Replay", "replay"]


@frozen
class LatchOutcome:
    """What became of one latch in a replay.

    Args:
        latch: the latch.
        reason: why it was refused; None where it was applied.
        holder: the message that holds the latch's ref now; None where there is none.
    """

    latch: Latch
    reason: Reason | None
    holder: Message | None


@frozen
class Replay:
    """The result of a replay.

    Args:
        messages: what the model sees; the very sequence that was given where no text changes.
        applied: the latches whose text shows, in order of their refs.
        refused: the latches that were skipped, each with its reason and holder. They stay in the state.
    """

    messages: Sequence[Message]
    applied: tuple[LatchOutcome, ...]
    refused: tuple[LatchOutcome, ...]


def replay(messages: Sequence[Message], state: ConversationState) -> Replay:
    """Apply the latches of *state* to *messages*.

    Args:
        messages: the history or any part of it, oldest first; a `History` is not indexed again.
        state: refs and latches. Its version does not change: replay never writes.

    Returns:
        The messages as the model sees them, the latches that were applied and those that were refused.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: *messages* is no sequence of messages, or *state* no state.

    Guarantees:
        Pure, idempotent, order kept. A message's text changes only by a latch that was made for what the message
        is (I1); every other message comes back as the same object. A clip that hides a view of the same message is
        applied, the view is neither applied nor refused.
    """
    positions = positions_of(messages)
    check_type(state, ConversationState, "state", "a ConversationState")
    applied: list[LatchOutcome] = []
    refused: list[LatchOutcome] = []
    changes: list[tuple[int, Message]] = []
    for ref, group in groupby(state.latches, attrgetter("ref")):
        latches = tuple(group)
        message_id = state.refs.holder(ref)
        position = None if message_id is None else positions.get(message_id)
        if position is None:
            reason = _absence(ref, message_id)
            refused += (LatchOutcome(latch, reason, None) for latch in latches)
            continue
        holder = messages[position]
        found = Identity.of(holder)
        outcomes = [
            LatchOutcome(latch, refusal(latch, chain(latches, state.superseded()), found), holder) for latch in latches
        ]
        refused += (outcome for outcome in outcomes if outcome.reason)
        shown = next((outcome for outcome in outcomes if not outcome.reason), None)  # the clip stands before the view
        if shown:
            applied.append(shown)
            if holder.text != shown.latch.text:
                changes.append((position, with_text(holder, shown.latch.text)))
    return Replay(_replace(messages, changes), tuple(applied), tuple(refused))


def _absence(ref: str, message_id: str | None) -> Reason:
    if ref == BLOCKED:
        return Reason.BLOCKED_REF
    return Reason.UNASSIGNED_REF if message_id is None else Reason.HOLDER_ABSENT


def _replace(messages: Sequence[Message], changes: list[tuple[int, Message]]) -> Sequence[Message]:
    if not changes:
        return messages
    replaced = list(messages)
    for position, message in changes:
        replaced[position] = message
    return replaced
