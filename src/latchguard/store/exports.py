"""A session as JSON Lines: all that the store holds of it, exactly.

1. The first line: `{"format": "latchguard-session", "schema": 1, "session", "purged", "keeps_texts", "dropped_at_s":
   [...], "state": {...}}`, where the state is as `dump_state` writes it and the times are those of its quarantine.
2. Then one line per message, in order: `{"id", "role", "kind", "text", "tool_name", "tool_call_id", "present"}`.
3. Where the host owns the history (`keeps_texts` is false), a line is `{"id", "identity": {"hash", "role", "kind"},
   "present"}`.
4. Lone surrogates are written as escapes. Nothing is coerced on the way back (`core.codec`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import evolve, frozen
from sqlalchemy import Connection, update

from latchguard.core.codec import decode_utf8, dump_state, load_state, structure
from latchguard.core.errors import InvalidValueError, StateVersionError, cut
from latchguard.core.identity import Identity
from latchguard.core.jsontext import dump_json, load_json
from latchguard.core.latches import check_hash
from latchguard.core.message import Kind, Message, Role
from latchguard.core.refs import BLOCKED, ref_number
from latchguard.core.state import ConversationState
from latchguard.store.changes import MAX_NUMBER, insert_messages, write_change
from latchguard.store.connections import update_rows
from latchguard.store.headers import create_locked
from latchguard.store.keeping import KeepTextsMismatchError
from latchguard.store.parts import make_part, read_all_rows, read_drops, read_latches, read_messages
from latchguard.store.rows import Header, MessageRow, state_extra
from latchguard.store.tables import quarantine, sessions
from latchguard.store.texts import check_key

__all__ = ["SCHEMA", "Export", "dump_export", "insert_export", "parse_export"]

SCHEMA: Final = 1
_FORMAT: Final = "latchguard-session"


@frozen
class _Head:
    format: str
    schema: int
    session: str
    purged: int
    dropped_at_s: list[int]
    keeps_texts: bool = True  # older exports do not say


@frozen
class _Line:
    id: str
    role: Role
    kind: Kind
    text: str
    tool_name: str | None
    tool_call_id: str | None
    present: bool


@frozen
class _HostLine:
    id: str
    identity: Identity
    present: bool


@frozen
class Export:
    """A session out of its database.

    Args:
        session: its name.
        purged: how many drops an operator took out of quarantine for good.
        dropped_at_s: when each drop of the quarantine was made, Unix time in seconds.
        state: refs, latches, quarantine.
        identities: message id -> identity, in order, of those that a restamp left out too.
        present: the ids of those in the history.
        messages: the same with their texts; None where the host owns the history.
    """

    session: str
    purged: int
    dropped_at_s: list[int]
    state: ConversationState
    identities: Mapping[str, Identity]
    present: frozenset[str]
    messages: list[Message] | None


def dump_export(connection: Connection, header: Header) -> bytes:
    """Give the session's lines."""
    return b"".join(line + b"\n" for line in _lines(connection, header))


def _lines(connection: Connection, header: Header) -> Iterator[bytes]:
    rows = read_all_rows(connection, header.key)
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    state = make_part(header, rows, read_latches(connection, header.key), drops).state
    head = {
        "format": _FORMAT,
        "schema": SCHEMA,
        "session": header.name,
        "purged": header.purged,
        "keeps_texts": header.keeps_texts,
        "dropped_at_s": [stored.dropped_at_s for stored in drops],
    }
    yield dump_json(head)[:-1] + b',"state":' + dump_state(state) + b"}"
    if not header.keeps_texts:
        yield from (dump_json(_host_line(row)) for row in rows)
        return
    for row, message in zip(rows, read_messages(connection, header.key, rows).values(), strict=True):
        yield dump_json(
            {
                "id": message.id,
                "role": message.role,
                "kind": message.kind,
                "text": message.text,
                "tool_name": message.tool_name,
                "tool_call_id": message.tool_call_id,
                "present": bool(row.present),
            }
        )


def _host_line(row: MessageRow) -> dict[str, Any]:
    identity = {"hash": row.hash.hex(), "role": row.role, "kind": row.kind}
    return {"id": row.message_id, "identity": identity, "present": bool(row.present)}


def parse_export(raw: bytes) -> Export:
    """Read what `dump_export` wrote.

    Raises:
        InvalidValueError: it is something else, or does not fit together; the path says where.
        StateVersionError: it is of a newer release.
    """
    lines = decode_utf8(raw).removesuffix("\n").split("\n")
    head_value = _load_line(lines[0], 1)
    state_value = head_value.pop("state", None)
    if type(schema := head_value.get("schema")) is int and schema > SCHEMA:
        raise StateVersionError("line 1: $.schema", SCHEMA, schema)
    head = structure(head_value, _Head)
    if head.format != _FORMAT:
        raise InvalidValueError("line 1: $.format", _FORMAT, cut(head.format))
    state = load_state(dump_json(state_value))
    form: type[_Line | _HostLine] = _Line if head.keeps_texts else _HostLine
    parsed = [structure(_load_line(line, number), form) for number, line in enumerate(lines[1:], 2)]
    messages = [_to_message(line) for line in parsed if isinstance(line, _Line)] if head.keeps_texts else None
    identities = {line.id: line.identity for line in parsed if isinstance(line, _HostLine)}
    identities |= {message.id: Identity.of(message) for message in messages or ()}
    if len(identities) < len(parsed):
        raise InvalidValueError("messages", "an id of its own for each message", "an id twice")
    export = Export(
        head.session,
        head.purged,
        head.dropped_at_s,
        state,
        identities,
        frozenset(line.id for line in parsed if line.present),
        messages,
    )
    _check_export(export)
    return export


def _to_message(line: _Line) -> Message:
    return Message(line.id, line.role, line.kind, line.text, line.tool_name, line.tool_call_id)


def _load_line(line: str, number: int) -> dict[str, Any]:
    try:
        value = load_json(line)
    except ValueError as error:
        raise InvalidValueError(f"line {number}", "a JSON object", cut(line)) from error
    if not isinstance(value, dict):
        raise InvalidValueError(f"line {number}", "a JSON object", cut(line))
    return value


def _check_export(export: Export) -> None:
    """Check what the types cannot say: state and messages belong together."""
    state = export.state
    for message_id, stored in export.identities.items():
        check_key(message_id, "message id")
        check_hash(stored.hash, f"message {cut(message_id)}: identity.hash")
    for message_id, ref in state.refs.items():
        identity = export.identities.get(message_id)
        if identity is None or identity != state.identities.get(message_id):
            raise InvalidValueError(f"message {cut(message_id)}", "its line, with the identity in the state", "none")
        if ref != BLOCKED and (message_id not in export.present or (ref_number(ref) or 0) > MAX_NUMBER):
            raise InvalidValueError(f"message {cut(message_id)}", "a present message with a ref below 2**63", ref)
    if export.present - state.refs.keys():
        raise InvalidValueError(
            "messages", "a ref for each present message", cut(min(export.present - state.refs.keys()))
        )
    if len(export.dropped_at_s) != len(state.quarantine):
        raise InvalidValueError(
            "line 1: $.dropped_at_s", f"{len(state.quarantine)} times", f"{len(export.dropped_at_s)}"
        )


def insert_export(connection: Connection, name: str, export: Export, *, keep_texts: bool) -> None:
    """Make session *name* of *export*, with the texts or without.

    Raises:
        KeepTextsMismatchError: texts are to be kept, and the export has none.
        SessionExistsError: it is there already.
    """
    if keep_texts and export.messages is None:
        raise KeepTextsMismatchError(name, keep_texts, not keep_texts)
    header = create_locked(connection, name, keeps_texts=keep_texts)
    rows = [_to_row(number, message_id, export) for number, message_id in enumerate(export.identities, 1)]
    insert_messages(connection, header, rows, export.messages or ())
    header = evolve(header, next_number=len(rows) + 1)
    write_change(connection, make_part(header, rows), export.state, {}, export.present)
    values = {"purged": export.purged, "next_number": header.next_number, "extra": state_extra(export.state)}
    connection.execute(update(sessions).where(sessions.c.id == header.key).values(values))
    drops = read_drops(connection, quarantine.c.session_id == header.key)
    times = [(at_s, stored.id) for at_s, stored in zip(export.dropped_at_s, drops, strict=True)]
    update_rows(connection, quarantine, "dropped_at_s", ("id",), times)


def _to_row(number: int, message_id: str, export: Export) -> MessageRow:
    identity, ref = export.identities[message_id], export.state.refs.get(message_id)
    what = bytes.fromhex(identity.hash), str(identity.role), str(identity.kind)
    present = message_id in export.present
    return MessageRow(number, message_id, ref_number(ref or BLOCKED), present, ref == BLOCKED, *what, number)
