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
        """Fires on a latch that stands under a ref which is not its message's, or whose identity is not its message's.

        Seen in 2026 in session files of a context-compression proxy: a cold load renumbered the refs and left the
        latches under their old ones, so that a clip landed on a tool call as its arguments. Head and tail of the clip
        prove which message it was made for. Moving it there, and removing a second latch that shows the same text,
        loses nothing. One that a message in the file disproves goes to the session's quarantine with its reason: its
        message shows its own text again (placeholder).""",
    ),
    Rule(
        LATCH_WITHOUT_IDENTITY,
        "state",
        Repair.LOSSLESS,
        """Fires on a latch that does not say what it was made for, so that no reader can tell when its ref has moved.

        A latch that is proven to be its holder's gains that message's identity (lossless). One that nothing in the
        file proves or disproves (its message is not in the file, or it is a view without a known marker) is reported
        and left in place.""",
    ),
    Rule(
        STALE_REF,
        "state",
        Repair.LOSSLESS,
        """Fires on anything else keyed by ref that does not agree with the ref map.

        Token counts, image records, hidden and dead refs and block spans outlive a renumbering of the refs like
        latches do. A record that names its message moves to that message's ref; a ref that nothing in the map knows is
        removed. A map that contradicts itself is reported and left.""",
    ),
)
