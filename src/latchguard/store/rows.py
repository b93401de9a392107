"""Rows of the tables as values of the core, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from attrs import frozen

from latchguard.core.identity import Identity
from latchguard.core.jsontext import dump_json, load_json
from latchguard.core.latches import NO_IDENTITY, Drop, EmergencyTruncateLatch, Latch, ViewLatch
from latchguard.core.message import Kind, Message, Role
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, format_ref, ref_number
from latchguard.core.state import ConversationState
from latchguard.store.texts import from_stored, to_stored

__all__ = [
    "LATCH_COLUMNS",
    "Header",
    "MessageRow",
    "StoredDrop",
    "body_values",
    "describe",
    "drop_values",
    "dump_extra",
    "latch_values",
    "load_extra",
    "state_extra",
    "to_drop",
    "to_latch",
    "to_message",
]

_ROLES: Final[Mapping[str, Role]] = {str(role): role for role in Role}
_KINDS: Final[Mapping[str, Kind]] = {str(kind): kind for kind in Kind}

LATCH_COLUMNS: Final = ("ref", "is_view", "view", "text", "hash", "role", "kind", "shown", "extra")


@frozen
class Header:
    """The row of a session.

    Args:
        key: the number under which the other tables know the session.
        name: the session.
        version: counts committed changes.
        epoch: counts restamps.
        cursor: the number of the next ref.
        next_number: of the next position or body.
        purged: how many drops an operator took out of quarantine for good.
        extra: JSON of the fields of a newer release, of the state and by message; None where there are none.
        keeps_texts: whether the texts of the messages are stored; else the host owns the history.
    """

    key: int
    name: str
    version: int
    epoch: int
    cursor: int
    next_number: int
    purged: int
    extra: str | None
    keeps_texts: bool = True


class MessageRow(NamedTuple):
    """One row of `messages`."""

    position: int
    message_id: str
    ref: int | None
    present: bool
    protected: bool
    hash: bytes
    role: str
    kind: str
    body: int

    @property
    def in_refs(self) -> bool:
        """Whether the state's ref map has the message."""
        return bool(self.present or self.protected)

    @property
    def ref_text(self) -> str:
        """The ref as the state has it."""
        return BLOCKED if self.protected or self.ref is None else format_ref(self.ref)

    @property
    def identity(self) -> Identity:
        """What the message is."""
        return Identity(self.hash.hex(), _ROLES[self.role], _KINDS[self.kind])

    def is_a(self, identity: Identity) -> bool:
        """Whether the message is *identity*; a third of the time of making its own and comparing."""
        return self.hash.hex() == identity.hash and self.role == identity.role and self.kind == identity.kind


@frozen
class StoredDrop:
    """A latch in quarantine.

    Args:
        id: names it for `release`.
        drop: the latch and its reason.
        dropped_at_s: when it was dropped, Unix time in seconds.
    """

    id: int
    drop: Drop
    dropped_at_s: int


def to_message(message_id: str, role: str, kind: str, body: tuple[str | None, str | None, str]) -> Message:
    """Build a message from its keys and its (tool_name, tool_call_id, text) as stored."""
    name, call_id, text = body
    return Message(
        message_id,
        _ROLES[role],
        _KINDS[kind],
        from_stored(text),
        None if name is None else from_stored(name),
        None if call_id is None else from_stored(call_id),
    )


def body_values(message: Message) -> tuple[str | None, str | None, str]:
    """Give (tool_name, tool_call_id, text) as stored."""
    name, call_id = message.tool_name, message.tool_call_id
    return (
        None if name is None else to_stored(name),
        None if call_id is None else to_stored(call_id),
        to_stored(message.text),
    )


def to_latch(row: Any) -> Latch:
    """Build a latch from a row with `LATCH_COLUMNS`."""
    ref = BLOCKED if row.ref is None else format_ref(row.ref)
    known = row.hash is not None
    identity = Identity(row.hash.hex(), _ROLES[row.role], _KINDS[row.kind]) if known else NO_IDENTITY
    shown = row.shown.hex() if known else ""
    extra = load_extra(row.extra)
    if row.is_view:
        return ViewLatch(ref, identity, shown, from_stored(row.text), from_stored(row.view or ""), extra=extra)
    return EmergencyTruncateLatch(ref, identity, shown, from_stored(row.text), extra=extra)


def latch_values(latch: Latch) -> tuple[Any, ...]:
    """Give the values of `LATCH_COLUMNS`."""
    identity = latch.identity
    known = identity != NO_IDENTITY
    return (
        ref_number(latch.ref),
        isinstance(latch, ViewLatch),
        to_stored(latch.view) if isinstance(latch, ViewLatch) else None,
        to_stored(latch.text),
        bytes.fromhex(identity.hash) if known else None,
        str(identity.role) if known else None,
        str(identity.kind) if known else None,
        bytes.fromhex(latch.shown) if known else None,
        dump_extra(latch.extra),
    )


def to_drop(row: Any) -> StoredDrop:
    """Build a drop from a row of `quarantine`."""
    drop = Drop(to_latch(row), Reason(row.reason), extra=load_extra(row.drop_extra))
    return StoredDrop(row.id, drop, row.dropped_at_s)


def drop_values(drop: Drop) -> tuple[Any, ...]:
    """Give the values of `LATCH_COLUMNS`, the reason and the extra fields."""
    return (*latch_values(drop.latch), str(drop.reason), dump_extra(drop.extra))


def load_extra(stored: str | None) -> Mapping[str, Any]:
    """Read the fields of a newer release."""
    return {} if stored is None else load_json(stored)


def dump_extra(extra: Mapping[str, Any]) -> str | None:
    """Give the fields of a newer release as JSON, None where there are none."""
    return dump_json(dict(extra)).decode() if extra else None


def state_extra(state: ConversationState) -> str | None:
    """Give `Header.extra` of *state*."""
    by_place = {"state": dict(state.extra), "messages": {key: dict(one) for key, one in state.entry_extra.items()}}
    return dump_extra({place: extra for place, extra in by_place.items() if extra})


def describe(identity: Identity) -> str:
    """Give an identity for an error: the head of its hash, role, kind."""
    return f"{identity.hash[:12]} {identity.role} {identity.kind}"
