"""The writes. Each cuts a part under the session's lock, lets the core decide, and writes the difference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve
from sqlalchemy import ColumnElement, Connection, Table, delete, insert, literal, select, update

from latchguard.core.errors import (
    HolderAbsentError,
    IdentityMismatchError,
    LatchError,
    MessageConflictError,
    UnknownDropError,
    UnknownMessageError,
    check_type,
)
from latchguard.core.history import index_messages
from latchguard.core.identity import Identity
from latchguard.core.latches import LATCHABLE, Drop, Latch, ViewLatch, latch_order, misfit
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, ref_number
from latchguard.core.restamping import Restamp, restamp_identities
from latchguard.core.state import ConversationState
from latchguard.store.changes import write_change
from latchguard.store.headers import create_locked
from latchguard.store.parts import (
    Part,
    make_part,
    read_all_rows,
    read_drops,
    read_gone,
    read_holders,
    read_latches,
    read_rows,
    read_rows_where,
    read_superseded,
)
from latchguard.store.rows import Header, MessageRow, describe
from latchguard.store.tables import (
    bodies,
    latches,
    messages,
    quarantine,
    repair_journal,
    repair_progress,
    sessions,
)
from latchguard.store.texts import check_key

__all__ = [
    "append_messages",
    "change_latches",
    "check_meant",
    "copy_session",
    "cut_for_append",
    "delete_session",
    "edit_message",
    "index_given",
    "keep_identities",
    "purge_drops",
    "release_drop",
    "restamp_session",
    "session_of_drop",
    "sessions_with_drops",
    "take_new",
]


def index_given(given: Sequence[Message]) -> dict[str, Message]:
    """Give message id -> message, each id checked to be storable.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: an id cannot be stored.
    """
    index_messages(given)
    for position, message in enumerate(given):
        check_key(message.id, f"messages[{position}].id")
    return {message.id: message for message in given}


def cut_for_append(
    connection: Connection,
    header: Header,
    given: Mapping[str, Message],
    protected: Collection[str] = (),
    *,
    with_latches: bool = False,
) -> Part:
    """Read what decides where *given* go; *with_latches* all latches and their holders too, to replay.

    Raises:
        MessageConflictError: a known id has another identity.
    """
    found = read_rows(connection, header.key, given.keys() | set(protected))
    rows = {row.message_id: row for row in found}
    differing = [row for row in found if _differs(row, given.get(row.message_id))]
    if with_latches:
        on_them = read_latches(connection, header.key)
        rows |= {row.message_id: row for row in read_holders(connection, header.key)}
    else:
        concerned = {row.ref for row in found if row.message_id in protected} | {row.ref for row in differing}
        on_them = read_latches(connection, header.key, {ref for ref in concerned if ref is not None})
    new = [Identity.of(message).hash for key, message in given.items() if not (key in rows and rows[key].in_refs)]
    drops = read_gone(connection, header.key, new)
    drops += read_superseded(connection, header.key, on_them)
    part = make_part(header, rows.values(), on_them, drops)
    for row in differing:
        if not _shows(part, row.identity, message := given[row.message_id]):
            raise MessageConflictError(
                header.name, row.message_id, describe(row.identity), describe(Identity.of(message))
            )
    return part


def _differs(row: MessageRow, message: Message | None) -> bool:
    return message is not None and not row.is_a(Identity.of(message))


def _shows(part: Part, stored: Identity, message: Message) -> bool:
    """Say whether *message* and the *stored* one are forms of the same: our own output, sent back."""
    state, found = part.state, Identity.of(message)
    ref = state.refs.get(message.id)
    siblings = [latch for latch in state.latches if latch.ref == ref]
    made = [*siblings, *state.superseded()]
    return any(
        misfit(stored, latch.identity, made) is misfit(found, latch.identity, made) is None for latch in siblings
    )


def take_new(part: Part, given: Mapping[str, Message], protected: Collection[str] = ()) -> ConversationState:
    """Give the state after the messages of *given* that are new have come.

    One that is protected from now on loses its latch: the form in which it is held is its own from then on, or a
    retry would find another message.
    """
    new = [message for key, message in given.items() if key not in part.state.refs or key in protected]
    after = part.state.assign(new, protected=protected)
    if after is part.state and any(key in part.rows and not part.rows[key].present for key in given):
        return evolve(after, version=after.version + 1)  # a protected message is back: the core has it all the while
    return after


def append_messages(
    connection: Connection, header: Header, given: Mapping[str, Message], protected: Collection[str]
) -> ConversationState:
    """Append what is new of *given*; give the state of these messages after."""
    part = cut_for_append(connection, header, given, protected)
    after = take_new(part, given, protected)
    write_change(connection, part, after, given)
    return after


def change_latches(
    connection: Connection,
    header: Header,
    message: Message,
    change: Callable[[ConversationState, Message], ConversationState],
) -> None:
    """Change the latches of one message.

    Raises:
        UnknownMessageError: the session has no such message.
        IdentityMismatchError: the stored message is not the one that the caller means.
    """
    part = _cut_one(connection, header, message)
    check_meant(part, part.rows[message.id].identity, message)
    write_change(connection, part, keep_identities(part.state, change(part.state, message)), {})


def check_meant(part: Part, stored: Identity, message: Message) -> None:
    """Refuse a *message* that is neither the *stored* one nor what its latches show.

    Raises:
        IdentityMismatchError: it is another one.
    """
    if Identity.of(message) != stored and not _shows(part, stored, message):
        raise IdentityMismatchError(part.header.name, message.id, describe(Identity.of(message)), describe(stored))


def keep_identities(before: ConversationState, after: ConversationState) -> ConversationState:
    """Take no note of the form in which a caller holds a message: the stored one is what counts."""
    return after if after.identities == before.identities else evolve(after, identities=before.identities)


def _cut_one(connection: Connection, header: Header, message: Message) -> Part:
    check_key(message.id, "message.id")
    rows = read_rows(connection, header.key, [message.id])
    if not rows:
        raise UnknownMessageError(message.id, f"a message of session {header.name!a}")
    refs = [row.ref for row in rows if row.ref is not None]
    found = read_latches(connection, header.key, refs)
    return make_part(header, rows, found, read_superseded(connection, header.key, found))


def edit_message(connection: Connection, header: Header, message: Message) -> None:
    """Put *message* in place of the stored one with its id; its latches stay, and are refused while they differ.

    Raises:
        UnknownMessageError: the history has no such message.
    """
    part = _cut_one(connection, header, message)
    if message.id not in part.state.refs:
        raise UnknownMessageError(message.id, f"a message in the history of session {header.name!a}")
    write_change(connection, part, part.state.assign([message]), {message.id: message})


def restamp_session(
    connection: Connection,
    header: Header,
    given: Mapping[str, Message] | None,
    numbering: Mapping[str, str] | None,
) -> Restamp:
    """Number the refs anew over *given*, the whole history, or over the stored one."""
    rows = read_all_rows(connection, header.key)
    in_force = read_latches(connection, header.key)
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    concerned = [stored.latch for stored in in_force]
    concerned += [stored.drop.latch for stored in drops if stored.drop.reason in (Reason.GONE, Reason.CLEARED)]
    # Which rows can matter to a latch: those that have an identity or a form of one, or carry one.
    hashes = {bytes.fromhex(text) for latch in concerned for text in (latch.identity.hash, latch.shown)}
    refs = {ref_number(stored.latch.ref) for stored in in_force}
    wanted = (row for row in rows if (row.hash in hashes or row.ref in refs) and row.in_refs)
    part = make_part(header, rows, in_force, drops, {row.message_id: row.identity for row in wanted})
    if given is None:
        present: dict[str, Identity | None] = dict.fromkeys(part.rows)
        present.update(part.state.identities)
        for row in rows:
            if not row.present:
                del present[row.message_id]
    else:
        check_type(numbering, Mapping | None, "numbering", "a mapping from message id to ref")
        protected = {key for key, ref in (numbering or {}).items() if ref == BLOCKED}
        present = {key: _identity_now(part, message, protected) for key, message in given.items()}
    result = restamp_identities(part.state, present, numbering)
    if result.state is part.state and any(row.protected and row.present != (row.message_id in present) for row in rows):
        # A protected message leaves the history or is back: the core has it all the while.
        result = evolve(result, state=evolve(part.state, version=header.version + 1, epoch=header.epoch + 1))
    write_change(connection, part, result.state, given or {}, present.keys())
    return evolve(result, state=_with_all_identities(result.state, part))


def _identity_now(part: Part, message: Message, protected: Container[str]) -> Identity | None:
    """Give what a message of the whole history is; None where it is as stored and no latch cares.

    One that becomes *protected* loses its latch: from then on it is what it is given as.
    """
    row, found = part.rows.get(message.id), Identity.of(message)
    if row is None or not row.in_refs:
        return found
    as_stored = row.is_a(found) or (message.id not in protected and _shows(part, row.identity, message))
    return part.state.identities.get(message.id) if as_stored else found


def _with_all_identities(state: ConversationState, part: Part) -> ConversationState:
    return evolve(state, identities=_Identities(state, part.rows))


class _Identities(Mapping[str, Identity]):
    """The identities of a whole history, each made when it is looked at."""

    def __init__(self, state: ConversationState, rows: Mapping[str, MessageRow]) -> None:
        self._refs, self._known, self._rows = state.refs, state.identities, rows

    def __getitem__(self, message_id: str) -> Identity:
        if message_id not in self._refs:
            raise KeyError(message_id)
        return self._known.get(message_id) or self._rows[message_id].identity

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def session_of_drop(connection: Connection, drop_id: int) -> str:
    """Give the session in whose quarantine a drop is.

    Raises:
        UnknownDropError: it is in none.
    """
    statement = (
        select(sessions.c.name)
        .join_from(quarantine, sessions, sessions.c.id == quarantine.c.session_id)
        .where(quarantine.c.id == drop_id)
    )
    name: str | None = connection.execute(statement).scalar_one_or_none()
    if name is None:
        raise UnknownDropError(drop_id)
    return name


def release_drop(connection: Connection, header: Header, drop_id: int) -> None:
    """Put a drop back on the one message that has its identity.

    Raises:
        UnknownDropError: it is not in this session's quarantine.
        HolderAbsentError: no message has its identity, or several have.
        LatchError: its kind takes no latch.
    """
    drops = read_drops(connection, (quarantine.c.session_id == header.key) & (quarantine.c.id == drop_id))
    if not drops:
        raise UnknownDropError(drop_id)
    latch = drops[0].drop.latch
    row = _only_holder(connection, header, drop_id, latch)
    if not LATCHABLE[latch.identity.kind]:
        raise LatchError(row.message_id, row.ref_text, Reason.FORBIDDEN_KIND)
    connection.execute(delete(quarantine).where(quarantine.c.id == drop_id))  # the one it replaces may be its equal
    part = make_part(header, [row], read_latches(connection, header.key, [row.ref or 0]))
    write_change(connection, part, _released(part.state, evolve(latch, ref=row.ref_text)), {})


def _only_holder(connection: Connection, header: Header, drop_id: int, latch: Latch) -> MessageRow:
    wanted = latch.identity
    found = read_rows_where(
        connection,
        messages.c.session_id == header.key,
        messages.c.hash == bytes.fromhex(wanted.hash),
        messages.c.role == str(wanted.role),
        messages.c.kind == str(wanted.kind),
        messages.c.ref.is_not(None),
    )
    if len(found) != 1:
        raise HolderAbsentError(header.name, drop_id, len(found))
    return found[0]


def _released(state: ConversationState, latch: Latch) -> ConversationState:
    """Take *latch* from quarantine into force; one of its class that is there is superseded."""
    replaced = [other for other in state.latches if isinstance(other, ViewLatch) == isinstance(latch, ViewLatch)]
    kept = [other for other in state.latches if other not in replaced]
    return evolve(
        state,
        latches=tuple(sorted((*kept, latch), key=latch_order)),
        quarantine=tuple(Drop(other, Reason.SUPERSEDED) for other in replaced),
        version=state.version + 1,
    )


def copy_session(connection: Connection, header: Header, new: str, upto: str | None) -> None:
    """Make session *new* of the history up to message *upto*, itself included; whole where that is None.

    Raises:
        UnknownMessageError: *upto* is not in the history.
        SessionExistsError: *new* is there already.
    """
    last = None
    if upto is not None:
        rows = [row for row in read_rows(connection, header.key, [upto]) if row.in_refs]
        if not rows:
            raise UnknownMessageError(upto, f"a message in the history of session {header.name!a}")
        last = rows[0].position
    copy = create_locked(connection, new, keeps_texts=header.keeps_texts)
    kept = (messages.c.session_id == header.key) & (messages.c.present | messages.c.protected)
    if last is not None:
        kept &= messages.c.position <= last
    in_kept = select(messages.c.body).where(kept)
    refs_kept = select(messages.c.ref).where(kept, messages.c.ref.is_not(None))
    mine = bodies.c.session_id == header.key
    on_them = (latches.c.session_id == header.key) & latches.c.ref.in_(refs_kept)
    # What a superseded latch showed is a form of its message still: a host may hold it, in the fork too.
    replaced = (quarantine.c.session_id == header.key) & (quarantine.c.reason == str(Reason.SUPERSEDED))
    replaced &= quarantine.c.hash.in_(select(latches.c.hash).where(on_them))
    for table, source in (
        (messages, select(*_but(messages, copy.key)).where(kept)),
        (bodies, select(*_but(bodies, copy.key)).where(mine, bodies.c.body.in_(in_kept))),
        (latches, select(*_but(latches, copy.key)).where(on_them)),
        (quarantine, select(*_but(quarantine, copy.key)).where(replaced).order_by(quarantine.c.id)),
    ):
        connection.execute(insert(table).from_select([c.name for c in table.c if c.name != "id"], source))
    counters = {"version": 1, "ref_cursor": header.cursor, "next_number": header.next_number, "extra": header.extra}
    connection.execute(update(sessions).where(sessions.c.id == copy.key).values(counters))


def _but(table: Table, session_key: int) -> list[ColumnElement[Any]]:
    """Give the columns of *table* with another session, and without the key that the database gives."""
    return [
        literal(session_key).label("session_id") if column.name == "session_id" else column
        for column in table.c
        if column.name != "id"
    ]


def delete_session(connection: Connection, header: Header) -> None:
    """Delete messages, latches, quarantine and journal of a session, and the session."""
    for table in (messages, bodies, latches, quarantine):
        connection.execute(delete(table).where(table.c.session_id == header.key))
    for table in (repair_journal, repair_progress):
        connection.execute(delete(table).where(table.c.target == latches.name, table.c.session == header.name))
    connection.execute(delete(sessions).where(sessions.c.id == header.key))


def sessions_with_drops(connection: Connection, before_s: float, session: str | None) -> list[str]:
    """Give the names of the sessions, or of the one, that have drops from before *before_s*."""
    statement = (
        select(sessions.c.name)
        .join_from(quarantine, sessions, sessions.c.id == quarantine.c.session_id)
        .where(quarantine.c.dropped_at_s < before_s)
        .distinct()
    )
    if session is not None:
        statement = statement.where(sessions.c.name == session)
    return sorted(connection.execute(statement).scalars())


def purge_drops(connection: Connection, header: Header, before_s: float) -> int:
    """Delete the drops of a session from before *before_s*, and keep their count.

    What a latch in force superseded stays: by it an earlier output, which a host may hold, is known.
    """
    old = (quarantine.c.session_id == header.key) & (quarantine.c.dropped_at_s < before_s)
    in_force = select(latches.c.hash).where(latches.c.session_id == header.key, latches.c.hash.is_not(None))
    digest, reason = quarantine.c.hash, quarantine.c.reason
    old &= (reason != str(Reason.SUPERSEDED)) | digest.is_(None) | digest.not_in(in_force)
    count = connection.execute(delete(quarantine).where(old)).rowcount
    connection.execute(update(sessions).where(sessions.c.id == header.key).values(purged=header.purged + count))
    return count
