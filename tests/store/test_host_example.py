"""A worked example: a chat-history layer with tables of its own, beside which the refs and latches live.

The host owns messages and sessions. Each turn its rows and ours commit in one transaction. What the model named by
ref is looked up through the epoch it was shown.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, Text, create_engine, insert, select

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import StaleRefError
from tests.store.conftest import SERVERS, make_database

HOST = MetaData()
CHAT = Table(
    "chat_messages",
    HOST,
    Column("id", Integer, primary_key=True),
    Column("thread", String(50), nullable=False),
    Column("role", String(20), nullable=False),
    Column("content", Text, nullable=False),
)
LIMIT = 400  # characters that this host lets a message take in the window


class ChatHistory:
    """What an application writes to keep its chats; `store` is all that it needs of latchguard."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.store = SessionStore(engine)

    def say(self, thread: str, role: str, content: str) -> list[Message]:
        """Store one message and give what the model is to see: one transaction, host rows and ours."""
        with self.engine.begin() as connection:
            connection.execute(insert(CHAT).values(thread=thread, role=role, content=content))
            with self.store.turn(thread, self.load(connection, thread), connection=connection) as turn:
                for message in turn.messages:
                    if len(message.text) > LIMIT:
                        turn.latch(message, f"{message.text[:100]} [...] {message.text[-100:]}")
                return list(turn.messages)

    def load(self, connection: Connection, thread: str) -> list[Message]:
        """Give the history as the host has it."""
        rows = connection.execute(select(CHAT).where(CHAT.c.thread == thread).order_by(CHAT.c.id))
        return [Message(str(row.id), Role(row.role), Kind.TEXT, row.content) for row in rows]

    def forget(self, thread: str, message_id: int) -> None:
        """Delete one message: the rest is renumbered, and every clip moves with its message."""
        with self.engine.begin() as connection:
            connection.execute(CHAT.delete().where(CHAT.c.id == message_id))
            self.store.restamp(thread, self.load(connection, thread), connection=connection)


@pytest.fixture(params=["sqlite", *SERVERS])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChatHistory]:
    """The host's database, its tables and ours."""
    urls = iter([f"sqlite:///{tmp_path}/chat.db"]) if request.param == "sqlite" else make_database(request.param)
    engine = create_engine(next(urls))
    HOST.create_all(engine)
    history = ChatHistory(engine)
    history.store.upgrade()
    yield history
    engine.dispose()
    list(urls)


def test_a_long_message_is_clipped_once_and_for_all(chats: ChatHistory) -> None:
    """The same bytes on every later turn, so that the provider's cache holds; the host's row stays whole."""
    first = chats.say("t", "user", "long " * 200)
    second = chats.say("t", "assistant", "I see.")
    assert second[: len(first)] == first
    assert len(first[0].text) < LIMIT
    with chats.engine.connect() as connection:
        assert chats.load(connection, "t")[0].text == "long " * 200


def test_a_clip_moves_with_its_message(chats: ChatHistory) -> None:
    """A message before it is deleted; the clip's old ref is another's now, and the clip is where it belongs."""
    chats.say("t", "user", "short")
    [_, clipped] = chats.say("t", "user", "long " * 200)
    epoch = chats.store.state("t").epoch
    chats.say("t", "assistant", "an answer")
    chats.forget("t", 1)
    seen = chats.say("t", "user", "go on")
    assert [message.text for message in seen] == [clipped.text, "an answer", "go on"]
    with pytest.raises(StaleRefError):
        chats.store.resolve("t", "m00002", epoch=epoch)
    assert chats.store.resolve("t", "m00002", epoch=epoch + 1).text == "an answer"


def test_what_the_host_rolls_back_we_roll_back(chats: ChatHistory) -> None:
    """A failed turn leaves neither a row of the host nor one of ours."""
    chats.say("t", "user", "hello")
    before = chats.store.state("t")
    with pytest.raises(ValueError, match="nobody"):
        chats.say("t", "nobody", "boo")
    with chats.engine.connect() as connection:
        assert [message.text for message in chats.load(connection, "t")] == ["hello"]
    assert chats.store.state("t") == before


def test_a_thread_is_forked(chats: ChatHistory) -> None:
    """The fork shows the same and goes its own way."""
    chats.say("t", "user", "long " * 200)
    chats.say("t", "assistant", "one")
    chats.store.fork("t", "t2", "1")
    assert chats.store.replay("t2").messages == chats.store.replay("t").messages[:1]
    chats.store.restamp("t2")
    assert (chats.store.state("t").epoch, len(chats.store.messages("t"))) == (0, 2)
