"""fsck for LLM conversations, and the guard at their exit.

Names are loaded when they are first used, so that who needs `replay` pays for no converter and no database.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# fmt: off
if TYPE_CHECKING:
    from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS, decode_arguments
    from latchguard.core.codec import dump_state, load_state
    from latchguard.core.errors import (
        ArgumentsError, DuplicateMessageError, HolderAbsentError, IdentityMismatchError, InvalidValueError,
        LatchError, LatchguardError, MessageConflictError, NumberingError, ProfileConflictError,
        SessionNotFoundError, StaleRefError, StaleStateError, StateVersionError, UnknownMessageError,
        UnknownProfileError, WireUndecidedError,
    )
    from latchguard.core.findings import Finding
    from latchguard.core.history import History
    from latchguard.core.identity import Identity
    from latchguard.core.latches import EmergencyTruncateLatch, ViewLatch
    from latchguard.core.message import Kind, Message, Role
    from latchguard.core.reasons import Reason
    from latchguard.core.replaying import Replay, replay
    from latchguard.core.restamping import Restamp, restamp
    from latchguard.core.state import ConversationState
    from latchguard.egress.hardening import Hardened, HardenedJson, harden, harden_json
    from latchguard.store.async_sessions import AsyncSessionStore
    from latchguard.store.sessions import SessionStore

_HOMES = {
    "core.arguments": ("PLACEHOLDER_ARGUMENTS", "decode_arguments"),
    "core.codec": ("dump_state", "load_state"),
    "core.errors": (
        "ArgumentsError", "DuplicateMessageError", "HolderAbsentError", "IdentityMismatchError",
        "InvalidValueError", "LatchError", "LatchguardError", "MessageConflictError", "NumberingError",
        "ProfileConflictError", "SessionNotFoundError", "StaleRefError", "StaleStateError", "StateVersionError",
        "UnknownMessageError", "UnknownProfileError", "WireUndecidedError",
    ),
    "core.findings": ("Finding",),
    "core.history": ("History",),
    "core.identity": ("Identity",),
    "core.latches": ("EmergencyTruncateLatch", "ViewLatch"),
    "core.message": ("Kind", "Message", "Role"),
    "core.reasons": ("Reason",),
    "core.replaying": ("Replay", "replay"),
    "core.restamping": ("Restamp", "restamp"),
    "core.state": ("ConversationState",),
    "egress.hardening": ("Hardened", "HardenedJson", "harden", "harden_json"),
    "store.async_sessions": ("AsyncSessionStore",),
    "store.sessions": ("SessionStore",),
}
_HOME_OF = {name: f"latchguard.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "PLACEHOLDER_ARGUMENTS", "ArgumentsError", "AsyncSessionStore", "ConversationState", "DuplicateMessageError",
    "EmergencyTruncateLatch", "Finding", "Hardened", "HardenedJson", "History", "HolderAbsentError", "Identity",
    "IdentityMismatchError", "InvalidValueError", "Kind", "LatchError", "LatchguardError", "Message",
    "MessageConflictError", "NumberingError", "ProfileConflictError", "Reason", "Replay", "Restamp", "Role",
    "SessionNotFoundError", "SessionStore", "StaleRefError", "StaleStateError", "StateVersionError",
    "UnknownMessageError", "UnknownProfileError", "ViewLatch", "WireUndecidedError", "decode_arguments",
    "dump_state", "harden", "harden_json", "load_state", "replay", "restamp",
]
# fmt: on


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'latchguard' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
