"""The store for `await`: the same methods, the same results."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from latchguard import AsyncSessionStore, Kind, Message, Role, SessionStore
from latchguard.core.errors import StaleStateError, StoreBusyError
from tests.store.conftest import make_database
from tests.store.test_texts import ODD

ONE = Message("a", Role.USER, Kind.TEXT, "one")
TWO = Message("b", Role.USER, Kind.TEXT, "two")


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """A database with an asynchronous driver."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/own.db"
        return
    for made in make_database(request.param):
        yield made.replace("mysql+pymysql:", "mysql+asyncmy:")  # PostgreSQL's driver is both


def run(url: str, use: Callable[[AsyncSessionStore], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = AsyncSessionStore(url)
        try:
            await store.upgrade()
            await use(store)
        finally:
            await store.close()

    asyncio.run(whole())


def test_every_method_is_there() -> None:
    """What `SessionStore` offers can be awaited."""
    public = {name for name, _ in inspect.getmembers(SessionStore, callable) if not name.startswith("_")}
    assert [name for name in sorted(public) if not hasattr(AsyncSessionStore, name)] == []


def test_a_conversation(url: str) -> None:
    """Append, latch, replay, restamp, stream, resolve, state."""

    async def use(store: AsyncSessionStore) -> None:
        assert await store.append("s", [ONE, TWO]) == ["m00001", "m00002"]
        await store.latch("s", ONE, "clip")
        await store.restamp("s", [TWO, ONE])
        assert (await store.replay("s")).messages == [TWO, evolve(ONE, text="clip")]
        assert [message async for message in store.stream("s")] == [TWO, evolve(ONE, text="clip")]
        assert await store.resolve("s", "m00001", epoch=1) == TWO
        assert (await store.state("s")).version == 3
        assert await store.sessions() == ["s"]

    run(url, use)


def test_texts_come_back(url: str) -> None:
    """Any text, as from the drivers that are not asynchronous; marks of every parameter style too."""
    texts = {**ODD, "marks": "100% %s %(a)s ? :a $1 \\ ' \""}

    async def use(store: AsyncSessionStore) -> None:
        calls = [Message(name, Role.ASSISTANT, Kind.TOOL_CALL, one, one, one) for name, one in texts.items()]
        await store.append("s", calls)
        await store.append("s", [ONE])
        for one in texts.values():
            await store.latch("s", ONE, one)
            assert (await store.replay("s")).messages == [*calls, evolve(ONE, text=one)]
        assert await store.messages("s") == [*calls, ONE]

    run(url, use)


def test_a_held_lock_is_busy(url: str) -> None:
    """The error of each driver says whether trying again may help."""

    async def use(store: AsyncSessionStore) -> None:
        await store.append("s", [ONE])
        other = AsyncSessionStore(impatient(store.engine.url))
        async with store.engine.connect() as connection:
            await store.append("s", [TWO], connection=connection.sync_connection)
            with pytest.raises(StoreBusyError):
                await other.append("s", [TWO])
            await connection.rollback()
        await other.close()
        assert await store.messages("s") == [ONE]

    run(url, use)


def impatient(url: URL) -> AsyncEngine:
    """Give an engine that waits a second for a lock, or less."""
    arguments: dict[str, dict[str, Any]] = {
        "sqlite": {"timeout": 0.05},
        "postgresql": {"options": "-c lock_timeout=50"},
        "mysql": {"init_command": "SET innodb_lock_wait_timeout = 1"},
    }
    return create_async_engine(url, connect_args=arguments[url.get_backend_name()])


def test_a_turn(url: str) -> None:
    """The model is awaited inside; what lost the race writes nothing."""

    async def use(store: AsyncSessionStore) -> None:
        async with store.turn("s", [ONE]) as turn:
            await asyncio.sleep(0)
            turn.latch(ONE, "clip")
        with pytest.raises(StaleStateError):
            async with store.turn("s", [ONE, TWO]):
                await store.append("s", [TWO])
        with pytest.raises(ZeroDivisionError):
            async with store.turn("s", [ONE, TWO]) as turn:
                turn.latch(TWO, str(1 / 0))
        assert (await store.replay("s")).messages == [evolve(ONE, text="clip"), TWO]

    run(url, use)


def test_the_hosts_transaction(url: str) -> None:
    """On the host's connection nothing stays when the host does not commit."""

    async def use(store: AsyncSessionStore) -> None:
        async with store.engine.connect() as connection:
            await store.append("s", [ONE], connection=connection.sync_connection)
            await connection.rollback()
        async with store.engine.begin() as connection:
            await store.append("t", [ONE], connection=connection.sync_connection)
        assert await store.sessions() == ["t"]

    run(url, use)


def test_many_at_once(url: str) -> None:
    """Writers on one session wait for each other; each message gets a ref of its own."""

    async def use(store: AsyncSessionStore) -> None:
        messages = [Message(str(number), Role.USER, Kind.TEXT, "x") for number in range(20)]
        refs = await asyncio.gather(*(store.append("s", [message]) for message in messages))
        assert sorted(ref for [ref] in refs) == [f"m{number:05d}" for number in range(1, 21)]
        assert (await store.state("s")).version == 20

    run(url, use)
