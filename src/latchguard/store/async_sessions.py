"""The store for asynchronous hosts: `SessionStore` itself, run as `AsyncConnection.run_sync` runs. No second SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, StaticPool
from sqlalchemy.util import greenlet_spawn

from latchguard.core.message import Message
from latchguard.store.connections import connect_arguments, prepare_engine, shown_url
from latchguard.store.sessions import SessionStore
from latchguard.store.turns import Turn

__all__ = ["AsyncSessionStore"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method: TypeAlias = Callable[Concatenate[SessionStore, _P], _T]
_AsyncMethod: TypeAlias = Callable[Concatenate["AsyncSessionStore", _P], Awaitable[_T]]


def _awaitable(method: _Method[_P, _T]) -> _AsyncMethod[_P, _T]:
    @wraps(method)
    async def run(store: AsyncSessionStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await greenlet_spawn(partial(method, store.sync, *args, **kwargs))

    return run


def _make_engine(url: str) -> AsyncEngine:
    arguments = connect_arguments(url)
    engine = create_async_engine(url, connect_args=arguments)
    if isinstance(engine.pool, StaticPool):  # in memory: one connection, which all tasks would use at once
        pool = {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}
        engine = create_async_engine(url, connect_args=arguments, **pool)
    return engine


class AsyncSessionStore:
    """Conversations in a database, for `await`: every method is that of `SessionStore` with its arguments.

    Args:
        database: a SQLAlchemy URL with an asynchronous driver, or the host's engine.
        keep_texts: as for `SessionStore`.

    `connection=` takes the `sync_connection` of the host's `AsyncConnection`. Dispose the engine at the end (`close`):
    an open connection of some drivers keeps the interpreter from ending.
    """

    def __init__(self, database: str | AsyncEngine, *, keep_texts: bool = True) -> None:
        """Take a URL or an engine; nothing is opened yet."""
        if isinstance(database, str):
            database = _make_engine(database)
            prepare_engine(database.sync_engine)
        self.engine = database
        self.sync = SessionStore(database.sync_engine, keep_texts=keep_texts)

    def __repr__(self) -> str:
        return f"AsyncSessionStore({shown_url(self.sync.engine)!r})"

    async def close(self) -> None:
        """Close the connections of the engine."""
        await self.engine.dispose()

    upgrade = _awaitable(SessionStore.upgrade)
    append = _awaitable(SessionStore.append)
    latch = _awaitable(SessionStore.latch)
    unlatch = _awaitable(SessionStore.unlatch)
    edit = _awaitable(SessionStore.edit)
    restamp = _awaitable(SessionStore.restamp)
    release = _awaitable(SessionStore.release)
    fork = _awaitable(SessionStore.fork)
    delete = _awaitable(SessionStore.delete)
    purge = _awaitable(SessionStore.purge)
    load = _awaitable(SessionStore.load)
    export = _awaitable(SessionStore.export)
    resolve = _awaitable(SessionStore.resolve)
    resolve_id = _awaitable(SessionStore.resolve_id)
    replay = _awaitable(SessionStore.replay)
    messages = _awaitable(SessionStore.messages)
    state = _awaitable(SessionStore.state)
    quarantine = _awaitable(SessionStore.quarantine)
    sessions = _awaitable(SessionStore.sessions)

    @asynccontextmanager
    async def turn(
        self,
        session: str,
        messages: Sequence[Message],
        *,
        protected: Collection[str] = (),
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> AsyncIterator[Turn]:
        """Take one turn, as `SessionStore.turn` does; the model may be awaited inside."""
        taken = self.sync.turn(
            session, messages, protected=protected, expect_version=expect_version, connection=connection
        )
        turn = await greenlet_spawn(taken.__enter__)
        try:
            yield turn
        except BaseException as error:
            await greenlet_spawn(taken.__exit__, type(error), error, error.__traceback__)
            raise
        await greenlet_spawn(taken.__exit__, None, None, None)

    async def stream(self, session: str, *, connection: Connection | None = None) -> AsyncIterator[Message]:
        """Give what the model sees, message by message, as `SessionStore.stream` does."""
        messages = self.sync.stream(session, connection=connection)
        try:
            while (message := await greenlet_spawn(next, messages, None)) is not None:
                yield message
        finally:
            await greenlet_spawn(messages.close)
