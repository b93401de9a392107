"""A database of the identity-less schema, as an older release left it."""

from __future__ import annotations

from typing import Final

from alembic import command
from sqlalchemy import Engine, insert

from latchguard import Identity, Kind, Message, Role
from latchguard.store.connections import begin_immediate
from latchguard.store.schema import alembic_config
from latchguard.store.tables import bodies, latches, messages, sessions

MARKER: Final = "\n\n...[truncated for context space] \u2014 original ~900 tokens]...\n\n"

# session -> number of its latches
OLD_LATCHES: Final = {"healthy": 1, "poisoned": 2}


def long_text(seed: str) -> str:
    return " ".join(f"{seed}{number}" for number in range(400))


def clip_of(text: str) -> str:
    return text[:300] + MARKER + text[-300:]


def make_old_database(engine: Engine) -> None:
    """Make the schema of old with two sessions: one whose latch is right, one whose refs have moved since."""
    with engine.begin() as connection:
        begin_immediate(connection)
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for key, session in enumerate(OLD_LATCHES, 1):
            row = {"id": key, "name": session, "version": 3, "epoch": 1, "ref_cursor": 4, "next_number": 4}
            connection.execute(insert(sessions).values(row))
            for number, message in enumerate(OLD_HISTORY[session], 1):
                identity = Identity.of(message)
                connection.execute(
                    insert(messages).values(
                        session_id=key,
                        position=number,
                        message_id=message.id,
                        ref=number,
                        present=True,
                        protected=False,
                        hash=bytes.fromhex(identity.hash),
                        role=str(message.role),
                        kind=str(message.kind),
                        body=number,
                    )
                )
                connection.execute(insert(bodies).values(session_id=key, body=number, text=message.text))
            for ref, text in OLD_TEXTS[session]:
                connection.execute(insert(latches).values(session_id=key, ref=ref, is_view=False, text=text))


OLD_HISTORY: Final = {
    "healthy": [
        Message("h1", Role.USER, Kind.TEXT, long_text("user")),
        Message("h2", Role.ASSISTANT, Kind.TEXT, "short"),
    ],
    "poisoned": [
        Message("p1", Role.ASSISTANT, Kind.TOOL_CALL, '{"q": 1}'),
        Message("p2", Role.TOOL, Kind.TOOL_RESULT, long_text("result")),
        Message("p3", Role.USER, Kind.TEXT, long_text("question")),
    ],
}
OLD_TEXTS: Final = {
    "healthy": [(1, clip_of(long_text("user")))],
    "poisoned": [(1, clip_of(long_text("result"))), (2, clip_of("gone" + long_text("nothing")))],
}
