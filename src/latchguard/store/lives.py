"""The life of the latches of one message: in force, refused, or out of service, with the reason."""

from __future__ import annotations

from itertools import chain, groupby
from operator import attrgetter

from attrs import frozen
from sqlalchemy import Connection

from latchguard.core.errors import UnknownMessageError
from latchguard.core.identity import Identity
from latchguard.core.latches import Latch, refusal
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED
from latchguard.store.parts import read_drops, read_holder, read_messages, read_rows
from latchguard.store.rows import Header, MessageRow, StoredDrop
from latchguard.store.tables import quarantine
from latchguard.store.views import cut_for_replay

__all__ = ["Judgement", "Life", "judge_latches", "read_life"]


@frozen
class Life:
    """What became of every latch that was made for one message, or sat on its ref.

    Args:
        row: the message; None where the ref has no holder.
        in_force: each latch on its ref, with the reason why a replay refuses it, None where it does not.
        shown: the latch whose text the model sees.
        dropped: the latches out of service, oldest first.
    """

    row: MessageRow | None
    in_force: tuple[tuple[Latch, Reason | None], ...]
    shown: Latch | None
    dropped: tuple[StoredDrop, ...]


@frozen
class Judgement:
    """Whether one latch in force holds.

    Args:
        latch: the latch.
        reason: why a replay of the stored history refuses it; None where it does not.
        holder: the id of the message that holds its ref; None where there is none.
    """

    latch: Latch
    reason: Reason | None
    holder: str | None


def judge_latches(connection: Connection, header: Header) -> list[Judgement]:
    """Hold each latch in force against its message: its text, or its identity where that is all that is stored."""
    part = cut_for_replay(connection, header)
    if header.keeps_texts:
        texts = read_messages(connection, header.key, list(part.rows.values()))
        found = {message_id: Identity.of(message) for message_id, message in texts.items()}
    else:
        found = {message_id: row.identity for message_id, row in part.rows.items()}
    judged: list[Judgement] = []
    for ref, group in groupby(part.state.latches, attrgetter("ref")):
        latches, holder = tuple(group), part.state.refs.holder(ref)
        for latch in latches:
            if holder is None:
                reason: Reason | None = Reason.BLOCKED_REF if ref == BLOCKED else Reason.UNASSIGNED_REF
            else:
                reason = refusal(latch, chain(latches, part.state.superseded()), found[holder])
            judged.append(Judgement(latch, reason, holder))
    return judged


def read_life(connection: Connection, header: Header, target: str) -> Life:
    """Tell the life of the latches of a message.

    Args:
        connection: to read from.
        header: of the session.
        target: a message id, or a ref.

    Raises:
        UnknownMessageError: no message has this id or ref, and no latch ever had this ref.
    """
    rows = read_rows(connection, header.key, [target]) or read_holder(connection, header.key, target)
    row = rows[0] if rows else None
    ref = row.ref_text if row else target
    mine = [judged for judged in judge_latches(connection, header) if judged.latch.ref == ref]
    identities = {judged.latch.identity.hash for judged in mine} | ({row.identity.hash} if row else set())
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    dropped = tuple(
        stored
        for stored in drops
        if stored.drop.latch.identity.hash in identities or (row is None and stored.drop.latch.ref == ref)
    )
    if row is None and not mine and not dropped:
        raise UnknownMessageError(target, f"a message id or ref of session {header.name!a}")
    shown = next((judged.latch for judged in mine if judged.reason is None), None)  # the clip stands before the view
    return Life(row, tuple((judged.latch, judged.reason) for judged in mine), shown, dropped)
