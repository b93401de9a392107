"""Whether a session keeps the texts of its messages, or its host does.

1. A session is made with texts or without, as the store's `keep_texts` says, and stays so.
2. Without, it has of each message the id, position, ref, role, kind and identity hash: what latches, replay and
   restamp need. It has no tool name and no call id: the hash covers them, and nothing else here looks at them.
3. A store is given messages only for sessions of its own sort, so that two processes cannot mix them.
4. What cannot be told without texts is refused; nothing is given with an empty text in place of one.
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import define

from latchguard.core.errors import LatchguardError, cut
from latchguard.store.rows import Header

__all__ = ["KeepTextsMismatchError", "TextsNotKeptError", "check_keeps_texts", "require_texts"]

# What needs texts, and what an embedder does instead.
_INSTEAD: Final = {
    "messages": "read them there",
    "replay": "give it the messages: `replay(session, messages)`",
    "resolve": "`resolve_id` gives the message's id",
    "stream": "`replay(session, messages)` takes a part of a history too",
}


@define(repr=False, str=False, eq=False)
class TextsNotKeptError(LatchguardError):
    """An *operation* that needs the texts of a session whose host has them; *instead* says what does not."""

    code: ClassVar[str] = "texts-not-kept"
    session: str
    operation: str
    instead: str

    def __str__(self) -> str:
        return f"session {cut(self.session)}: `{self.operation}` needs texts, and the host has them; {self.instead}"


@define(repr=False, str=False, eq=False)
class KeepTextsMismatchError(LatchguardError):
    """Messages for a session of the other sort: *expected* is the store's `keep_texts`, *found* the session's."""

    code: ClassVar[str] = "keep-texts-mismatch"
    session: str
    expected: bool
    found: bool

    def __str__(self) -> str:
        return f"session {cut(self.session)}: made with keep_texts={self.found}, and the store has {self.expected}"


def check_keeps_texts(header: Header, keep_texts: bool) -> None:  # noqa: FBT001  # the store's keyword, handed on
    """Refuse messages for a session of the other sort: their texts would be lost, or stored where none may be.

    Raises:
        KeepTextsMismatchError: the session was not made with *keep_texts*.
    """
    if header.keeps_texts is not keep_texts:
        raise KeepTextsMismatchError(header.name, keep_texts, header.keeps_texts)


def require_texts(header: Header, operation: str) -> None:
    """Refuse what cannot be told without texts.

    Raises:
        TextsNotKeptError: the host has them.
    """
    if not header.keeps_texts:
        raise TextsNotKeptError(header.name, operation, _INSTEAD[operation])
