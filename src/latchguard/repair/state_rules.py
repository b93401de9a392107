"""Rules of the area `state`: what a session keeps beside its messages. Their checks stand with each format."""

from __future__ import annotations

from typing import Final

from latchguard.core.findings import Repair, Rule

__all__ = ["LATCH_WITHOUT_IDENTITY", "RULES", "STALE_LATCH", "STALE_REF"]

STALE_REF: Final = "stale-ref"
STALE_LATCH: Final = "stale-latch"
LATCH_WITHOUT_IDENTITY: Final = "latch-without-identity"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        STALE_LATCH,
        "state",
        Repair.PLACEHOLDER,
        """A latch under a ref that is not its message's, or with an identity that is not its message's.

Fires on: a latch that its own text proves to be another message's, or that a message in the file disproves.
Seen: session files of a context-compression proxy (2026): a cold load renumbered the refs and left the latches
under their old ones, so that a clip landed on a tool call as its arguments.
Repair: lossless where it moves to the message that it is proven to be of, or where a second latch that shows
the same text is removed; else placeholder: it goes to the session's quarantine with its reason, and its message
shows its own text.""",
    ),
    Rule(
        LATCH_WITHOUT_IDENTITY,
        "state",
        Repair.LOSSLESS,
        """A latch that does not say what it was made for, so that no reader can tell when its ref has moved.

Fires on: any latch without an identity, or with one of the wrong form, under the ref of a message that it may
be of. Seen: every session file that the proxy wrote before latches had identities (2026).
Repair: lossless where it is proven to be its holder's: it gains that message's identity. One that nothing in
the file proves or disproves (its message is not in the file, a view without a known marker) is reported and
left in place.""",
    ),
    Rule(
        STALE_REF,
        "state",
        Repair.LOSSLESS,
        """Anything else keyed by ref that does not agree with the ref map.

Fires on: token counts, image records, hidden and dead refs, block spans under a ref that is not their message's
or that the map does not know; a map that contradicts itself. Seen: with stale latches, they outlive a
renumbering in the same way.
Repair: lossless: a record that names its message moves to that message's ref, a ref that nothing knows is
removed. What cannot be judged is reported and left.""",
        errors=("startId ... is not available in the current conversation context",),
    ),
)
