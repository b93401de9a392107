"""The store: conversations in a database, beside the host's own tables or in a file of their own.

1. Every write is one transaction, serialised on the session's row; on a caller's connection it is a part of the
   caller's transaction.
2. What a write does is decided by the core, on the rows that matter (`operations`).
3. A read sees one snapshot. It needs no more than a read-only connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection, Engine

from latchguard.core.errors import SessionNotFoundError, StaleStateError
from latchguard.core.message import Message
from latchguard.core.replaying import Replay
from latchguard.core.restamping import Restamp
from latchguard.core.state import ConversationState
from latchguard.store import exports, operations, views
from latchguard.store.connections import make_engine, reading, run_writing, shown_url
from latchguard.store.headers import check_version, lock_header, lock_or_create
from latchguard.store.keeping import check_keeps_texts, require_texts
from latchguard.store.rows import Header, StoredDrop
from latchguard.store.schema import check_schema, upgrade_database
from latchguard.store.texts import check_key
from latchguard.store.turns import Turn, close_turn, open_turn

__all__ = ["SessionStore"]

_T = TypeVar("_T")
_Write: TypeAlias = Callable[[Connection, Header], _T]


class SessionStore:
    """Conversations in a database: refs, latches, quarantine and messages.

    Args:
        database: a SQLAlchemy URL, or the host's engine.
        keep_texts: False where the host has the messages in a table of its own: a session that is made then gets each
            message's id, position, ref, role, kind and hash, and no text. Each session keeps what it was made with.

    Every method takes `connection=`, the host's own, in whose transaction it then runs: host rows and ours commit
    together or not at all. Every write takes `expect_version=`.

    Raises (every method):
        InvalidValueError: an argument that no database could hold; nothing is written.
        SchemaOutdatedError: `upgrade` has not been run.
        StateVersionError: the database is of a newer release.
        StoreBusyError: somebody else holds a lock; trying again helps.
        StoreFailedError: the database failed; nothing is written.
        StaleStateError (writes): the session is not at `expect_version`; nothing is written.
        KeepTextsMismatchError (writes that are given messages): the session was made with another `keep_texts`.
        TextsNotKeptError (`messages`, `stream`, `resolve`, and `replay` without messages): the texts are the host's.
    """

    def __init__(self, database: str | Engine, *, keep_texts: bool = True) -> None:
        """Take a URL or an engine; nothing is opened yet."""
        self.engine = make_engine(database) if isinstance(database, str) else database
        self.keep_texts = keep_texts
        self._checked = False

    def __repr__(self) -> str:
        return f"SessionStore({shown_url(self.engine)!r})"

    def close(self) -> None:
        """Close the connections of the engine."""
        self.engine.dispose()

    def upgrade(self, *, connection: Connection | None = None) -> str:
        """Create or upgrade the tables; give the revision reached (`schema.upgrade_database`)."""
        return upgrade_database(self.engine, connection)

    @contextmanager
    def turn(
        self,
        session: str,
        messages: Sequence[Message],
        *,
        protected: Collection[str] = (),
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> Iterator[Turn]:
        """Take one turn: append what is new, show what the model sees, take latches; written once, at the end.

        Args:
            session: made where there is none.
            messages: the history as the host has it, or its end; known messages are told by id.
            protected: message ids that get `BLOCKED`.
            expect_version: the version that the session must have.
            connection: the host's own.

        Returns:
            A `Turn`, in a `with` block: `.messages`, `.refs`, `.latch(message, text)`. No lock is held inside, so
            the model may be asked there. An error inside the block writes nothing.

        Raises:
            MessageConflictError: a known id has another identity, and is not what a latch shows.
            StaleStateError: at the end: somebody else wrote the session meanwhile; nothing is written.
        """
        check_key(session, "session")
        with self._read(connection) as reader:
            turn = open_turn(reader, session, messages, protected, expect_version, keep_texts=self.keep_texts)
        yield turn
        if turn.changed:
            self._run(connection, lambda writer: close_turn(writer, turn))

    def append(
        self,
        session: str,
        messages: Sequence[Message],
        *,
        protected: Collection[str] = (),
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> list[str]:
        """Append what is new of *messages*; give the ref of each.

        Args:
            session: made where there is none.
            messages: in order; a known id with equal identity, or with what a latch shows on it, is a retry.
            protected: message ids that get `BLOCKED`.
            expect_version: the version that the session must have.
            connection: the host's own.

        Raises:
            DuplicateMessageError: two of *messages* share an id.
            MessageConflictError: a known id has another identity.
            UnknownMessageError: a protected id is neither known nor given.
        """
        given = operations.index_given(messages)
        after = self._take_messages(
            session,
            expect_version,
            connection,
            lambda writer, header: operations.append_messages(writer, header, given, protected),
            create=True,
        )
        return [after.refs[message_id] for message_id in given]

    def latch(
        self,
        session: str,
        message: Message,
        text: str,
        *,
        view: str | None = None,
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Show *text* in place of the message's own from now on: a clip, or the view of that name.

        Raises:
            SessionNotFoundError, UnknownMessageError: it is not there.
            IdentityMismatchError: the stored message is another one than *message*, and not what a latch shows.
            LatchError: the message may carry no latch.
        """
        self._change(
            session, message, expect_version, connection, partial(ConversationState.latch, text=text, view=view)
        )

    def unlatch(
        self,
        session: str,
        message: Message,
        *,
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Clear the latch that shows on *message*: to quarantine, `cleared`. Nothing happens where there is none.

        Raises:
            SessionNotFoundError, UnknownMessageError: it is not there.
            IdentityMismatchError: the stored message is another one.
        """
        self._change(session, message, expect_version, connection, ConversationState.unlatch)

    def edit(
        self,
        session: str,
        message: Message,
        *,
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Put *message* in place of the stored one with its id.

        Its latches stay: they are refused while it differs from what they were made for, and a restamp drops them.

        Raises:
            SessionNotFoundError, UnknownMessageError: it is not there.
        """
        self._take_messages(
            session, expect_version, connection, lambda writer, header: operations.edit_message(writer, header, message)
        )

    def restamp(
        self,
        session: str,
        messages: Sequence[Message] | None = None,
        *,
        numbering: Mapping[str, str] | None = None,
        expect_version: int | None = None,
        connection: Connection | None = None,
    ) -> Restamp:
        """Number the refs anew and rebind or drop every latch, in one transaction.

        Args:
            session: made where there is none and *messages* are given.
            messages: the whole history in its new order; None for the stored one. Unknown ones are added; absent
                ones keep their row and lose their ref.
            numbering: message id -> ref, as in `latchguard.restamp`.
            expect_version: the version that the session must have.
            connection: the host's own.

        Returns:
            What was rebound, dropped and moved, and the state after.

        Raises:
            DuplicateMessageError: two of *messages* share an id.
            NumberingError: *numbering* is not one to one, or holds no ref or one beyond 2**63 - 1.
            SessionNotFoundError: there is none, and no *messages*.
        """
        if messages is None:
            return self._write(
                session,
                expect_version,
                connection,
                lambda writer, header: operations.restamp_session(writer, header, None, numbering),
            )
        given = operations.index_given(messages)
        return self._take_messages(
            session,
            expect_version,
            connection,
            lambda writer, header: operations.restamp_session(writer, header, given, numbering),
            create=True,
        )

    def release(self, drop_id: int, *, expect_version: int | None = None, connection: Connection | None = None) -> None:
        """Put a drop (`quarantine`) back on the one message that has its identity; never by force.

        Raises:
            UnknownDropError: it is not in quarantine.
            HolderAbsentError: no message has its identity, or several have.
            LatchError: its kind takes no latch.
        """
        session = self._run(connection, lambda finder: operations.session_of_drop(finder, drop_id))
        self._write(
            session, expect_version, connection, lambda writer, header: operations.release_drop(writer, header, drop_id)
        )

    def fork(self, session: str, new: str, upto: str | None = None, *, connection: Connection | None = None) -> None:
        """Make session *new* of the history up to the message *upto*, itself included, or of all of it.

        Refs, latches and protection are copied, of the quarantine only what a copied latch superseded; the fork
        starts its own epoch, and never issues a ref that *session* had issued.

        Raises:
            SessionNotFoundError, UnknownMessageError: what is to be copied is not there.
            SessionExistsError: *new* is there already.
        """
        check_key(new, "new")
        self._take_messages(
            session, None, connection, lambda writer, header: operations.copy_session(writer, header, new, upto)
        )

    def delete(self, session: str, *, expect_version: int | None = None, connection: Connection | None = None) -> None:
        """Delete a session: messages, latches, quarantine and journal.

        Raises:
            SessionNotFoundError: there is none.
        """
        self._write(session, expect_version, connection, operations.delete_session)

    def purge(self, *, older_than_s: float, session: str | None = None, connection: Connection | None = None) -> int:
        """Delete drops that are in quarantine for longer than *older_than_s* seconds; give their count.

        What a latch in force superseded stays as long as that one: what it showed is known as its message by it.
        Each session keeps the count of what was purged (I3), and is a transaction of its own: none waits for all.
        """
        before_s = time.time() - older_than_s
        names = self._run(connection, lambda finder: operations.sessions_with_drops(finder, before_s, session))
        total = 0
        for name in names:
            with suppress(SessionNotFoundError):
                total += self._write(
                    name, None, connection, lambda writer, header: operations.purge_drops(writer, header, before_s)
                )
        return total

    def load(self, raw: bytes, *, session: str | None = None, connection: Connection | None = None) -> str:
        """Make the session that `export` wrote, under its own name or another; give the name.

        A store that keeps no texts takes none out of *raw* either: so a history becomes the host's own.

        Raises:
            InvalidValueError: *raw* is no export, or does not fit together; the path says where.
            SessionExistsError: the session is there already.
            KeepTextsMismatchError: this store keeps texts, and *raw* has none.
        """
        document = exports.parse_export(raw)
        name = document.session if session is None else session
        check_key(name, "session")
        self._run(
            connection,
            lambda writer: exports.insert_export(writer, name, document, keep_texts=self.keep_texts),
        )
        return name

    def export(self, session: str, *, connection: Connection | None = None) -> bytes:
        """Give a session as JSON Lines, exactly: `load` makes an equal one.

        Raises:
            SessionNotFoundError: there is none.
            StoreBusyError: a host's `READ COMMITTED` transaction saw it before and after somebody else's write.
        """
        with self._view(session, connection, whole=True) as (reader, header):
            return exports.dump_export(reader, header)

    def resolve(
        self, session: str, ref: str, *, epoch: int | None = None, connection: Connection | None = None
    ) -> Message:
        """Give the message that a model named by its ref; `resolve_id` gives its id alone.

        Args:
            session: the session.
            ref: as the model was shown it.
            epoch: of the refs that the model was shown (`turn.epoch`); refs of another epoch are refused.
            connection: the host's own.

        Raises:
            SessionNotFoundError: there is no such session.
            StaleRefError: a restamp has renumbered since, or no message holds the ref.
        """
        with self._texts(session, "resolve", connection) as (reader, header):
            return views.resolve_ref(reader, header, ref, epoch)

    def resolve_id(
        self, session: str, ref: str, *, epoch: int | None = None, connection: Connection | None = None
    ) -> str:
        """Give the id of the message that a model named by its ref: the same as `resolve`, without the text.

        Raises:
            SessionNotFoundError: there is no such session.
            StaleRefError: a restamp has renumbered since, or no message holds the ref.
        """
        with self._view(session, connection) as (reader, header):
            return views.resolve_row(reader, header, ref, epoch).message_id

    def replay(
        self, session: str, messages: Sequence[Message] | None = None, *, connection: Connection | None = None
    ) -> Replay:
        """Give what the model sees of *messages*, or of the stored history. Writes nothing.

        Raises:
            SessionNotFoundError: there is no such session.
            DuplicateMessageError: two of *messages* share an id.
        """
        view = self._texts(session, "replay", connection) if messages is None else self._view(session, connection)
        with view as (reader, header):
            return views.read_replay(reader, header, messages)

    def stream(self, session: str, *, connection: Connection | None = None) -> Generator[Message]:
        """Give what the model sees of the stored history, message by message, in one snapshot and flat memory.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        with self._texts(session, "stream", connection) as (reader, header):
            yield from views.stream_replay(reader, header)

    def messages(self, session: str, *, connection: Connection | None = None) -> Sequence[Message]:
        """Give the stored history in its original form, each message built when it is looked at.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        with self._texts(session, "messages", connection) as (reader, header):
            return views.read_history(reader, header)

    def state(self, session: str, *, connection: Connection | None = None) -> ConversationState:
        """Give the state as the core has it.

        Raises:
            SessionNotFoundError: there is no such session.
            StoreBusyError: a host's `READ COMMITTED` transaction saw it before and after somebody else's write.
        """
        with self._view(session, connection, whole=True) as (reader, header):
            return views.read_state(reader, header)

    def quarantine(self, session: str, *, connection: Connection | None = None) -> list[StoredDrop]:
        """Give the latches out of service, oldest first, each with the id that `release` takes.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        with self._view(session, connection) as (reader, header):
            return views.list_drops(reader, header)

    def sessions(
        self, *, after: str | None = None, limit: int | None = None, connection: Connection | None = None
    ) -> list[str]:
        """Give the names of the sessions, ordered by code point: at most *limit*, those behind *after*."""
        with self._read(connection) as reader:
            return views.list_sessions(reader, after, limit)

    @contextmanager
    def _read(self, connection: Connection | None) -> Iterator[Connection]:
        with reading(self.engine, connection) as reader:
            self._check(reader)
            yield reader

    @contextmanager
    def _view(
        self, session: str, connection: Connection | None, *, whole: bool = False
    ) -> Iterator[tuple[Connection, Header]]:
        """Give what reads *session*; where it is read *whole* on a host's connection, at one version or not at all."""
        check_key(session, "session")
        with self._read(connection) as reader:
            header = views.find_header(reader, session)
            yield reader, header
            if whole and connection is not None:
                views.check_unmoved(reader, header)

    @contextmanager
    def _texts(
        self, session: str, operation: str, connection: Connection | None
    ) -> Iterator[tuple[Connection, Header]]:
        with self._view(session, connection) as (reader, header):
            require_texts(header, operation)
            yield reader, header

    def _run(self, connection: Connection | None, do: Callable[[Connection], _T]) -> _T:
        """Run *do* in a write's transaction, and again where that is our own and a deadlock ended it."""

        def checked(writer: Connection) -> _T:
            self._check(writer, to_write=True)
            return do(writer)

        return run_writing(self.engine, connection, checked)

    def _write(
        self,
        session: str,
        expect_version: int | None,
        connection: Connection | None,
        do: _Write[_T],
        *,
        create: bool = False,
    ) -> _T:
        """Run *do* under the lock of *session*, which is made where there is none if *create* says so."""
        check_key(session, "session")

        def locked(writer: Connection) -> _T:
            if create and not expect_version:
                header = lock_or_create(writer, session, keeps_texts=self.keep_texts)
            else:
                header = lock_header(writer, session)
            check_version(header, expect_version)
            return do(writer, header)

        try:
            return self._run(connection, locked)
        except SessionNotFoundError as error:
            if create and expect_version:  # refused without making it: a host may commit all the same
                raise StaleStateError(session, expect_version, 0) from error
            raise

    def _take_messages(
        self,
        session: str,
        expect_version: int | None,
        connection: Connection | None,
        do: _Write[_T],
        *,
        create: bool = False,
    ) -> _T:
        def checked(writer: Connection, header: Header) -> _T:
            check_keeps_texts(header, self.keep_texts)
            return do(writer, header)

        return self._write(session, expect_version, connection, checked, create=create)

    def _change(
        self,
        session: str,
        message: Message,
        expect_version: int | None,
        connection: Connection | None,
        change: Callable[[ConversationState, Message], ConversationState],
    ) -> None:
        self._write(
            session,
            expect_version,
            connection,
            lambda writer, header: operations.change_latches(writer, header, message, change),
        )

    def _check(self, connection: Connection, *, to_write: bool = False) -> None:
        """Look at the schema once: it does not go back."""
        if not self._checked:
            check_schema(connection, to_write=to_write)
            self._checked = True
