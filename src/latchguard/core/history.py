"""An indexed history: positions by message id, kept as messages are appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from latchguard.core.errors import DuplicateMessageError, InvalidValueError, check_type, cut
from latchguard.core.message import Message

__all__ = ["History", "index_messages", "positions_of", "to_messages"]


def index_messages(messages: Iterable[Message], start: int = 0) -> dict[str, int]:
    """Give message id -> position.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: something in *messages* is no `Message`.
    """
    listed = list(messages)
    if not all(issubclass(found, Message) for found in set(map(type, listed))):  # few types, many messages
        position = next(place for place, found in enumerate(listed) if not isinstance(found, Message))
        raise InvalidValueError(f"messages[{start + position}]", "a Message", cut(listed[position]))
    ids = [message.id for message in listed]
    index = {message_id: position for position, message_id in enumerate(ids, start)}
    if len(index) < len(ids):
        first: dict[str, int] = {}
        second = next(place for place, message_id in enumerate(ids) if first.setdefault(message_id, place) != place)
        raise DuplicateMessageError(ids[second], start + first[ids[second]], start + second)
    return index


def to_messages(messages: object) -> list[Message]:
    """Give *messages*, any iterable, as a list.

    Raises:
        InvalidValueError: it is none.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise InvalidValueError("messages", "messages, oldest first", cut(messages))
    return list(messages)


def positions_of(messages: Sequence[Message]) -> Mapping[str, int]:
    """Give message id -> position; a `History` is not indexed again.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: *messages* is no sequence of messages.
    """
    if isinstance(messages, History):
        return messages.positions
    check_type(messages, Sequence, "messages", "a sequence of messages")
    return index_messages(messages)


class History(Sequence[Message]):
    """Messages, oldest first, indexed once and extended in place: replay on it costs what the latches cost.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: something is no `Message`.

    Guarantees:
        A failed `append` or `extend` leaves the history as it was.
    """

    __slots__ = ("_index", "_messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = to_messages(messages)
        self._index = index_messages(self._messages)

    @property
    def positions(self) -> Mapping[str, int]:
        """Message id -> position."""
        return self._index

    def append(self, message: Message) -> None:
        """Add one message at the end."""
        self.extend((message,))

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages at the end."""
        new = to_messages(messages)
        added = index_messages(new, len(self._messages))
        for message_id in added.keys() & self._index.keys():
            raise DuplicateMessageError(message_id, self._index[message_id], added[message_id])
        self._messages += new
        self._index |= added

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> list[Message]: ...
    def __getitem__(self, position: int | slice) -> Message | list[Message]:
        return self._messages[position]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"History({len(self)} messages)"
