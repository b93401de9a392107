"""Bodies to messages: what a body says, and a frame that keeps all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from attrs import field, frozen

from latchguard.core.errors import InvalidValueError, UnknownMessageError, cut
from latchguard.core.findings import Wire
from latchguard.core.identity import Identity, hash_fields
from latchguard.core.jsonspans import Path
from latchguard.core.message import Message
from latchguard.wire.anthropic import ANTHROPIC
from latchguard.wire.base import Format, Section, Unit
from latchguard.wire.chat import CHAT
from latchguard.wire.detect import detect_wire, is_plain, require_wire
from latchguard.wire.gemini import GEMINI
from latchguard.wire.responses import RESPONSES

__all__ = ["FORMATS", "Frame", "Parsed", "Place", "parse"]

FORMATS: Final[Mapping[Wire, Format]] = MappingProxyType(
    {Wire.OPENAI_CHAT: CHAT, Wire.OPENAI_RESPONSES: RESPONSES, Wire.ANTHROPIC: ANTHROPIC, Wire.GEMINI: GEMINI}
)

_ID_DIGITS: Final = 32


@frozen
class Place:
    """Where one message of a body sits: the numbers of its section and of its unit there, and how it was read."""

    section: int
    index: int
    unit: Unit
    message: Message


@frozen(eq=False, repr=False)
class Frame:
    """All of a body that is no message, and where each message sat. Opaque: give it back to `render` as it came.

    It keeps the body itself, not a copy: a body that is changed afterwards has to be parsed again.
    """

    wire: Wire
    body: Any
    sections: tuple[Section, ...]
    places: Mapping[str, Place] = field(factory=dict)

    def path(self, message_id: str) -> Path:
        """Give the path of the message's span in the body.

        Raises:
            UnknownMessageError: the body has no such message.
        """
        if (place := self.places.get(message_id)) is None:
            raise UnknownMessageError(message_id, "the id of a message of this body")
        return (*self.entry_path(place), *place.unit.span.path)

    def entry_path(self, place: Place) -> Path:
        """Give the path of the entry that holds the message; of the section where that is one text."""
        section = self.sections[place.section]
        return section.at if section.entries is None else (*section.at, place.unit.entry)

    def __repr__(self) -> str:
        return f"Frame({self.wire}, {len(self.places)} messages)"


@frozen
class Parsed:
    """The messages of a body, oldest first, and the frame to render them into."""

    messages: tuple[Message, ...]
    frame: Frame


def parse(body: Any, wire: Wire | str | None = None) -> Parsed:
    """Read the messages of a request body.

    Args:
        body: a body, or the bare list of its messages, items or contents, as `json.loads` gives it.
        wire: the wire it is of; None detects it. Plain text under `messages`, which chat and Anthropic say alike, is
            taken for chat.

    Returns:
        The messages, the head (`system`, `instructions`) first. Each text block, call and result is one. An id is the
        wire's own where it has one (items of Responses), else made of what the message is and how many equal ones
        came before.

    Raises:
        WireUndecidedError: *wire* is no wire, or it is None and the body's shape does not decide.
        InvalidValueError: *body* is neither an object nor an array.

    Guarantees:
        Pure, linear, never recursive. `render(*parse(body))` is *body* itself. An id depends on its message and
        those before it, never on what follows (I13). What has an unknown shape or a wrong type is no message and
        stays in the frame.
    """
    if wire is None and detect_wire(body) is None and is_plain(body):
        wire = Wire.OPENAI_CHAT
    found = require_wire(body, wire)
    if not isinstance(body, dict | list):
        raise InvalidValueError("$", "a JSON object or array", cut(body))
    sections = FORMATS[found].read(body)
    places = {place.message.id: place for place in _place(sections)}
    return Parsed(tuple(place.message for place in places.values()), Frame(found, body, sections, places))


def _place(sections: Iterable[Section]) -> Iterator[Place]:
    twins: Counter[Identity] = Counter()
    taken: set[str] = set()
    for number, section in enumerate(sections):
        for index, unit in enumerate(section.units):
            fields = (unit.role, unit.kind, unit.text, unit.tool_name, unit.tool_call_id)
            identity = Identity(hash_fields(unit.tool_name, unit.tool_call_id, unit.text), unit.role, unit.kind)
            message_id = unit.host_id
            if not message_id or message_id in taken:
                message_id = _derive_id(identity, twins[identity], taken)
            twins[identity] += 1
            taken.add(message_id)
            yield Place(number, index, unit, Message(message_id, *fields))


def _derive_id(identity: Identity, rank: int, taken: set[str]) -> str:
    """Name content only: a digest of the identity, and the twin's rank. A host's id may stand in the way."""
    digest = sha256(f"{identity.role}|{identity.kind}|{identity.hash}".encode()).hexdigest()[:_ID_DIGITS]
    while (message_id := f"w_{digest}_{rank}" if rank else f"w_{digest}") in taken:
        rank += 1
    return message_id
