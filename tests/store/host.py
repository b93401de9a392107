"""A host that has the messages in a table of its own, beside which the store keeps refs and latches, and no text."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, delete, insert, select

from latchguard import ConversationState, Message, Replay, Restamp, SessionStore
from latchguard.store.column_types import KeyText, long_text

_METADATA = MetaData()
HOST_MESSAGES = Table(
    "host_messages",
    _METADATA,
    Column("number", Integer, primary_key=True),
    Column("session", Text, nullable=False),
    Column("id", KeyText, nullable=False),
    Column("body", long_text(), nullable=False),
)


class HostStore:
    """The methods that the laws are about: bodies in the host's table, all else in a `SessionStore` without texts.

    Each write is one transaction for both.
    """

    def __init__(self, store: SessionStore) -> None:
        """Take a store with `keep_texts=False`, its tables ready."""
        self.store, self.engine = store, store.engine

    def make_table(self) -> None:
        """Make the host's table, empty."""
        _METADATA.drop_all(self.engine)
        _METADATA.create_all(self.engine)

    def append(self, session: str, messages: Sequence[Message], *, protected: Collection[str] = ()) -> list[str]:
        """Append what is new; the first form of a message is the one that the host keeps."""
        with self.engine.begin() as connection:
            refs = self.store.append(session, messages, protected=protected, connection=connection)
            known = {message.id for message in self.history(connection, session)}
            _insert(connection, session, [message for message in messages if message.id not in known])
            return refs

    def latch(self, session: str, message: Message, text: str, *, view: str | None = None) -> None:
        """Nothing of the host's is concerned."""
        self.store.latch(session, message, text, view=view)

    def unlatch(self, session: str, message: Message) -> None:
        """Nothing of the host's is concerned."""
        self.store.unlatch(session, message)

    def edit(self, session: str, message: Message) -> None:
        """Edit the host's row too."""
        with self.engine.begin() as connection:
            self.store.edit(session, message, connection=connection)
            mine = (HOST_MESSAGES.c.session == session) & (HOST_MESSAGES.c.id == message.id)
            connection.execute(HOST_MESSAGES.update().where(mine).values(body=_dump(message)))

    def restamp(
        self, session: str, messages: Sequence[Message], *, numbering: Mapping[str, str] | None = None
    ) -> Restamp:
        """Write the host's history anew, and renumber."""
        with self.engine.begin() as connection:
            result = self.store.restamp(session, messages, numbering=numbering, connection=connection)
            connection.execute(delete(HOST_MESSAGES).where(HOST_MESSAGES.c.session == session))
            _insert(connection, session, messages)
            return result

    def release(self, drop_id: int) -> None:
        """Nothing of the host's is concerned."""
        self.store.release(drop_id)

    def fork(self, session: str, new: str, upto: str | None = None) -> None:
        """Copy the host's rows too."""
        with self.engine.begin() as connection:
            self.store.fork(session, new, upto, connection=connection)
            history = self.history(connection, session)
            ids = [message.id for message in history]
            _insert(connection, new, history if upto is None else history[: ids.index(upto) + 1])

    def replay(self, session: str, messages: Sequence[Message] | None = None) -> Replay:
        """Hand the host's history on where no messages are given."""
        with self.engine.connect() as connection:
            given = self.history(connection, session) if messages is None else messages
            return self.store.replay(session, given, connection=connection)

    def messages(self, session: str) -> Sequence[Message]:
        """Give the host's history."""
        with self.engine.connect() as connection:
            return self.history(connection, session)

    def state(self, session: str) -> ConversationState:
        """Give refs, latches and quarantine."""
        return self.store.state(session)

    def quarantine(self, session: str) -> Sequence[Any]:
        """Give the drops."""
        return self.store.quarantine(session)

    def history(self, connection: Connection, session: str) -> list[Message]:
        """Give the messages as the host has them."""
        mine = select(HOST_MESSAGES.c.body).where(HOST_MESSAGES.c.session == session)
        return [_load(body) for body in connection.execute(mine.order_by(HOST_MESSAGES.c.number)).scalars()]


def _insert(connection: Connection, session: str, messages: Sequence[Message]) -> None:
    if messages:
        rows = [{"session": session, "id": message.id, "body": _dump(message)} for message in messages]
        connection.execute(insert(HOST_MESSAGES), rows)


def _dump(message: Message) -> str:
    return json.dumps(
        [message.id, message.role, message.kind, message.text, message.tool_name, message.tool_call_id]
    )  # ASCII: a lone surrogate is an escape


def _load(body: str) -> Message:
    return Message(*json.loads(body))
