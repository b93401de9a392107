"""latchguard's own tables as an older release left them: latches without an identity."""

from collections.abc import Iterable
from typing import Any, Final

from alembic import command
from sqlalchemy import Connection, Engine, insert, select

from latchguard import Identity, SessionStore
from latchguard.core.refs import ref_number
from latchguard.store.connections import begin_immediate
from latchguard.store.schema import OPEN, alembic_config
from latchguard.store.tables import bodies, latches, messages, quarantine, repair_journal, repair_progress, sessions
from latchguard.store.texts import to_stored
from tests.migrate.talks import OldSession

TABLES: Final = (sessions, messages, bodies, latches, quarantine, repair_journal, repair_progress)
BATCH: Final = 500


def make_old_store(engine: Engine, old_sessions: Iterable[OldSession]) -> None:
    """Make the schema of old with *old_sessions*, and upgrade it as far as it goes without a repair."""
    with engine.begin() as connection:
        begin_immediate(connection)
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        insert_sessions(connection, old_sessions)
    assert SessionStore(engine).upgrade() == OPEN


def insert_sessions(connection: Connection, old_sessions: Iterable[OldSession]) -> None:
    rows: dict[Any, list[dict[str, Any]]] = {sessions: [], messages: [], bodies: [], latches: []}
    for key, old in enumerate(old_sessions, 1):
        size = len(old.messages) + 1
        cursor = 1 + max((ref_number(ref or "") or 0 for _, ref in old.messages), default=0)
        head = {"id": key, "name": old.name, "version": 3, "epoch": 1, "ref_cursor": cursor, "next_number": size}
        rows[sessions].append(head)
        for number, (message, ref) in enumerate(old.messages, 1):
            identity = Identity.of(message)
            place = {"session_id": key, "body": number}
            number_of_ref = ref_number(ref or "")
            rows[messages].append(
                {
                    **place,
                    "position": number,
                    "message_id": message.id,
                    "ref": number_of_ref,
                    "present": True,
                    "protected": number_of_ref is None,
                    "hash": bytes.fromhex(identity.hash),
                    "role": str(identity.role),
                    "kind": str(identity.kind),
                }
            )
            texts = {"tool_name": message.tool_name, "tool_call_id": message.tool_call_id, "text": message.text}
            stored = {name: None if text is None else to_stored(text) for name, text in texts.items()}
            rows[bodies].append({**place, **stored})
        for ref, view, text in old.latches:
            mark = {"session_id": key, "ref": ref_number(ref), "is_view": view is not None, "view": view}
            rows[latches].append({**mark, "text": to_stored(text)})
        if key % BATCH == 0:
            flush(connection, rows)
    flush(connection, rows)


def flush(connection: Connection, rows: dict[Any, list[dict[str, Any]]]) -> None:
    for table, values in rows.items():
        if values:
            connection.execute(insert(table), values)
            values.clear()


def stored_rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Give every row of the store by its primary key, but for what counts writes and seconds."""
    aside = {"version", "dropped_at_s", "run"}
    with engine.connect() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(
                    select(*(column for column in table.c if column.name not in aside)).order_by(
                        *table.primary_key.columns
                    )
                )
            ]
            for table in TABLES
        }
