"""Latches: decisions that must hold on every later turn, bound to the identity of their message.

1. At most one latch of each class sits on a message; a later one supersedes it.
2. With one of each class, the clip shows, until it is cleared.
3. A latch keeps `shown`, the hash its message has when it shows the text: a host that stores our output and sends
   it back has an already applied latch. The forms of a message are its original and what the latches made for it
   show, the superseded ones too: the host may have stored an earlier output.
4. Latches on tool calls, reasoning and other are refused, when made and when replayed.
5. A latch from before identities were kept has `NO_IDENTITY`: no message is that, so it is refused until it is
   proven. It stays with the message that holds its ref.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from latchguard.core.errors import InvalidValueError, check_type, cut
from latchguard.core.identity import Identity, hash_fields, join_halves
from latchguard.core.message import Kind, Message, Role
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, ref_number

__all__ = [
    "LATCHABLE",
    "NO_IDENTITY",
    "Drop",
    "EmergencyTruncateLatch",
    "Latch",
    "ViewLatch",
    "check_hash",
    "forms",
    "latch_order",
    "make_latch",
    "misfit",
    "mismatch",
    "refusal",
    "with_text",
]

# Which kinds may carry a latch: the text of the others is structure (JSON arguments, signatures, media).
LATCHABLE: Final[Mapping[Kind, bool]] = MappingProxyType(
    {Kind.TEXT: True, Kind.TOOL_RESULT: True, Kind.TOOL_CALL: False, Kind.REASONING: False, Kind.OTHER: False}
)

NO_IDENTITY: Final = Identity("", Role.USER, Kind.OTHER)


_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


def check_hash(found: object, path: str) -> None:
    """Refuse what is no identity hash."""
    if not isinstance(found, str) or not _HASH.fullmatch(found):
        raise InvalidValueError(path, "64 lower-case hex digits", cut(found))


def _check_latch(latch: Latch) -> None:
    if not isinstance(latch.ref, str) or (ref_number(latch.ref) is None and latch.ref != BLOCKED):
        raise InvalidValueError("ref", "a ref (m00001, ...) or BLOCKED", cut(latch.ref))
    check_type(latch.identity, Identity, "identity", "an Identity")
    if latch.identity != NO_IDENTITY:
        check_hash(latch.identity.hash, "identity.hash")
        check_hash(latch.shown, "shown")


def _join(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidValueError("text", "a string", cut(text))
    return join_halves(text)


@frozen
class EmergencyTruncateLatch:
    """A clip that was made because the window was full.

    Args:
        ref: the ref of its message.
        identity: what its message is, in its original form.
        shown: the identity hash of the message when it shows *text*.
        text: what the model reads in place of the message's own text; pairs of surrogates are joined in it, as
            everywhere in JSON, lone ones kept.
        extra: fields of a newer release, carried through.

    Raises:
        InvalidValueError: a field has the wrong type or form.
    """

    ref: str
    identity: Identity
    shown: str
    text: str = field(converter=_join)
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, repr=False, hash=False)

    def __attrs_post_init__(self) -> None:
        _check_latch(self)


@frozen
class ViewLatch:
    """Any other rendered view of a message (crushed JSON, an absorbed result); *view* is its name."""

    ref: str
    identity: Identity
    shown: str
    text: str = field(converter=_join)
    view: str = field(converter=_join)
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, repr=False, hash=False)

    def __attrs_post_init__(self) -> None:
        _check_latch(self)


Latch: TypeAlias = EmergencyTruncateLatch | ViewLatch


@frozen
class Drop:
    """A latch out of service, kept in quarantine with its reason."""

    latch: Latch
    reason: Reason
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True, repr=False, hash=False)


def latch_order(latch: Latch) -> tuple[int, str, bool]:
    """Give the sort key of the stored order: by ref number, the clip before the view."""
    return ref_number(latch.ref) or 0, latch.ref, isinstance(latch, ViewLatch)


def make_latch(message: Message, ref: str, identity: Identity, text: str, view: str | None) -> Latch:
    """Make the latch that shows *text* on *message*, whose original form has *identity*."""
    shown = hash_fields(message.tool_name, message.tool_call_id, text)
    if view is None:
        return EmergencyTruncateLatch(ref, identity, shown, text)
    return ViewLatch(ref, identity, shown, text, view)


def with_text(message: Message, text: str) -> Message:
    """Give *message* with another text; the same object where it has that text already."""
    if message.text == text:
        return message
    return Message(message.id, message.role, message.kind, text, message.tool_name, message.tool_call_id)


def mismatch(found: Identity, wanted: Identity) -> Reason | None:
    """Name the first of role, kind, hash in which *found* differs from *wanted*, or None."""
    if found.role is not wanted.role:
        return Reason.ROLE_MISMATCH
    if found.kind is not wanted.kind:
        return Reason.KIND_MISMATCH
    return None if found.hash == wanted.hash else Reason.HASH_MISMATCH


def forms(identity: Identity, latches: Iterable[Latch]) -> frozenset[str]:
    """Give the hashes that the message of *identity* has: its own, and what the *latches* made for it show."""
    return frozenset((identity.hash, *(latch.shown for latch in latches if latch.identity == identity)))


def misfit(found: Identity, wanted: Identity, made: Iterable[Latch]) -> Reason | None:
    """Name what keeps *found* from being a form of the message of *wanted*, or None where it is one.

    Args:
        found: the identity of a message.
        wanted: the identity of a latch.
        made: the latches that may have been made for the same message; looked at only where the hashes differ.
    """
    reason = mismatch(found, wanted)
    if reason is Reason.HASH_MISMATCH and found.hash in forms(wanted, made):
        return None
    return reason


def refusal(latch: Latch, made: Iterable[Latch], found: Identity) -> Reason | None:
    """Say why *latch* may not touch the message that holds its ref, or None where it may.

    Args:
        latch: the latch that wants to apply.
        made: the latches on the same ref, and superseded ones.
        found: what the message is that holds the ref now.
    """
    if latch.identity == NO_IDENTITY:
        return Reason.NO_IDENTITY
    if not LATCHABLE[latch.identity.kind]:
        return Reason.FORBIDDEN_KIND
    return misfit(found, latch.identity, made)
