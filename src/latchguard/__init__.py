"""fsck for LLM conversations, and the guard at their exit."""

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS, decode_arguments
from latchguard.core.codec import dump_state, load_state
from latchguard.core.errors import LatchguardError
from latchguard.core.findings import Finding
from latchguard.core.history import History
from latchguard.core.identity import Identity
from latchguard.core.latches import EmergencyTruncateLatch, ViewLatch
from latchguard.core.message import Kind, Message, Role
from latchguard.core.reasons import Reason
from latchguard.core.replaying import Replay, replay
from latchguard.core.restamping import Restamp, restamp
from latchguard.core.state import ConversationState

__all__ = [
    "PLACEHOLDER_ARGUMENTS",
    "ConversationState",
    "EmergencyTruncateLatch",
    "Finding",
    "History",
    "Identity",
    "Kind",
    "LatchguardError",
    "Message",
    "Reason",
    "Replay",
    "Restamp",
    "Role",
    "ViewLatch",
    "decode_arguments",
    "dump_state",
    "load_state",
    "replay",
    "restamp",
]
