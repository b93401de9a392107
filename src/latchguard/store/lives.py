"""The life of the latches of one message: in force, refused, or out of service, with the reason."""

from __future__ import annotations

from attrs import frozen
from sqlalchemy import Connection

from latchguard.core.errors import UnknownMessageError
from latchguard.core.latches import Latch
from latchguard.core.reasons import Reason
from latchguard.store.parts import read_drops, read_holder, read_latches, read_rows
from latchguard.store.rows import Header, MessageRow, StoredDrop
from latchguard.store.tables import quarantine
from latchguard.store.views import replay_holders

__all__ = ["Life", "read_life"]


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
    found = read_latches(connection, header.key)
    mine = [stored.latch for stored in found if stored.latch.ref == ref]
    outcome, _ = replay_holders(connection, header)
    reasons = {refused.latch: refused.reason for refused in outcome.refused}
    identities = {latch.identity.hash for latch in mine} | ({row.identity.hash} if row else set())
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    dropped = tuple(
        stored
        for stored in drops
        if stored.drop.latch.identity.hash in identities or (row is None and stored.drop.latch.ref == ref)
    )
    if row is None and not mine and not dropped:
        raise UnknownMessageError(target, f"a message id or ref of session {header.name!a}")
    shown = next((applied.latch for applied in outcome.applied if applied.latch in mine), None)
    return Life(row, tuple((latch, reasons.get(latch)) for latch in mine), shown, dropped)
