"""A worked example: a chat-history layer that has its messages in a table of its own.

The host owns the texts; latchguard has refs, identities and latches beside them (`keep_texts=False`). Each turn both
commit in one transaction. What the model named by ref is looked up through the epoch it was shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    create_engine,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from latchguard import AsyncSessionStore, Kind, Message, Role, SessionStore
from latchguard.core.errors import StaleRefError
from latchguard.store.connections import make_engine
from latchguard.store.tables import bodies
from latchguard.store.turns import Turn
from tests.store.conftest import SERVERS, make_database

HOST = MetaData()
CHAT = Table(
    "chat_messages",
    HOST,
    Column("thread", String(50), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("role", String(20), nullable=False),
    Column("content", Text, nullable=False),
)
LIMIT = 400  # characters that this host lets a message take in the window


def next_number(thread: str) -> Select[tuple[int]]:
    """Give the query for the number of the next message; numbers are never used twice."""
    return select(func.coalesce(func.max(CHAT.c.number), 0) + 1).where(CHAT.c.thread == thread)


def history_of(thread: str) -> Select[Any]:
    """Give the query for the history, oldest first."""
    return select(CHAT).where(CHAT.c.thread == thread).order_by(CHAT.c.number)


def to_message(row: Any) -> Message:
    """Give a row of the host as the store takes it."""
    return Message(str(row.number), Role(row.role), Kind.TEXT, row.content)


def clip(turn: Turn) -> list[Message]:
    """Clip what is too long, once and for all; give what the model is to see."""
    for message in turn.messages:
        if len(message.text) > LIMIT:
            turn.latch(message, f"{message.text[:100]} [...] {message.text[-100:]}")
    return list(turn.messages)


class ChatHistory:
    """What an application writes to keep its chats; `store` is all that it needs of latchguard."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.store = SessionStore(engine, keep_texts=False)

    def say(self, thread: str, role: str, content: str) -> list[Message]:
        """Store one message and give what the model is to see: one transaction, host rows and ours."""
        with self.engine.begin() as connection:
            number = connection.execute(next_number(thread)).scalar_one()
            connection.execute(insert(CHAT).values(thread=thread, number=number, role=role, content=content))
            with self.store.turn(thread, self.load(connection, thread), connection=connection) as turn:
                return clip(turn)

    def load(self, connection: Connection, thread: str) -> list[Message]:
        """Give the history as the host has it."""
        return [to_message(row) for row in connection.execute(history_of(thread))]

    def named(self, thread: str, ref: str, epoch: int) -> str:
        """Give the text of the message that the model named by a ref it was shown."""
        with self.engine.connect() as connection:
            message_id = self.store.resolve_id(thread, ref, epoch=epoch, connection=connection)
            found = select(CHAT.c.content).where(CHAT.c.thread == thread, CHAT.c.number == int(message_id))
            return str(connection.execute(found).scalar_one())

    def forget(self, thread: str, number: int) -> None:
        """Delete one message: the rest is renumbered, and every clip moves with its message."""
        with self.engine.begin() as connection:
            connection.execute(delete(CHAT).where(CHAT.c.thread == thread, CHAT.c.number == number))
            self.store.restamp(thread, self.load(connection, thread), connection=connection)

    def fork(self, thread: str, new: str, upto: int) -> None:
        """Go on from a message in a thread of its own."""
        with self.engine.begin() as connection:
            copied = select(CHAT).where(CHAT.c.thread == thread, CHAT.c.number <= upto)
            for row in connection.execute(copied).all():
                values = {"thread": new, "number": row.number, "role": row.role, "content": row.content}
                connection.execute(insert(CHAT).values(values))
            self.store.fork(thread, new, str(upto), connection=connection)


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


def test_there_is_one_copy_of_a_text(chats: ChatHistory) -> None:
    """The host's."""
    chats.say("t", "user", "hello")
    with chats.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(bodies)).scalar_one() == 0


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
        chats.named("t", "m00002", epoch)
    assert chats.named("t", "m00002", epoch + 1) == "an answer"


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
    first = chats.say("t", "user", "long " * 200)
    chats.say("t", "assistant", "one")
    chats.fork("t", "t2", 1)
    assert chats.say("t2", "user", "two")[:1] == first
    chats.store.restamp("t2")
    assert (chats.store.state("t").epoch, dict(chats.store.state("t").refs)) == (0, {"1": "m00001", "2": "m00002"})


class AsyncChatHistory:
    """The same for an application that awaits: the same queries, the same clip, one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.store = AsyncSessionStore(engine, keep_texts=False)

    async def say(self, thread: str, role: str, content: str) -> list[Message]:
        """Store one message and give what the model is to see."""
        async with self.engine.begin() as connection:
            number = (await connection.execute(next_number(thread))).scalar_one()
            await connection.execute(insert(CHAT).values(thread=thread, number=number, role=role, content=content))
            history = [to_message(row) for row in await connection.execute(history_of(thread))]
            async with self.store.turn(thread, history, connection=connection.sync_connection) as turn:
                return clip(turn)


ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}


@pytest.fixture(params=ASYNC_DRIVERS)
def async_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with the host's tables, and an asynchronous driver."""
    urls = iter([f"sqlite:///{tmp_path}/chat.db"]) if request.param == "sqlite" else make_database(request.param)
    engine = make_engine(next(urls))
    HOST.create_all(engine)
    yield engine.url.set(drivername=ASYNC_DRIVERS[request.param]).render_as_string(hide_password=False)
    engine.dispose()
    list(urls)


def run(url: str, use: Callable[[AsyncChatHistory], Awaitable[None]]) -> None:
    async def whole() -> None:
        chats = AsyncChatHistory(create_async_engine(url))
        try:
            await chats.store.upgrade()
            await use(chats)
        finally:
            await chats.store.close()

    asyncio.run(whole())


def test_an_asynchronous_host(async_url: str) -> None:
    """The clip holds, and a failed turn leaves neither a row of the host nor one of ours."""

    async def use(chats: AsyncChatHistory) -> None:
        first = await chats.say("t", "user", "long " * 200)
        assert (await chats.say("t", "assistant", "I see."))[:1] == first
        before = await chats.store.state("t")
        with pytest.raises(ValueError, match="nobody"):
            await chats.say("t", "nobody", "boo")
        assert await chats.store.state("t") == before
        assert [message.text for message in await chats.say("t", "user", "go on")][1:] == ["I see.", "go on"]

    run(async_url, use)
