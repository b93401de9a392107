"""Migrations: from nothing, from the schema of old, interrupted, in a host's database."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, create_engine, event, inspect, text, update

from latchguard import Kind, Message, Reason, Role, SessionStore
from latchguard.core.errors import SchemaOutdatedError, StateVersionError, StoreFailedError
from latchguard.store.schema import (
    HEAD,
    OPEN,
    alembic_options,
    check_schema,
    read_revision,
    upgrade_sql,
)
from latchguard.store.tables import PREFIX, VERSION_TABLE, include_name, latches, metadata
from tests.store.conftest import SERVERS, make_database
from tests.store.old import OLD_HISTORY, OLD_LATCHES, make_old_database

ONE = Message("a", Role.USER, Kind.TEXT, "one")


@pytest.fixture(params=["sqlite", *SERVERS])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    """A store in a database without a single table."""
    urls = iter([f"sqlite:///{tmp_path}/own.db"]) if request.param == "sqlite" else make_database(request.param)
    store = SessionStore(next(urls))
    yield store
    store.close()
    list(urls)


def test_an_upgrade_gives_the_tables_of_the_code(empty_store: SessionStore) -> None:
    """Nothing is left for Alembic to generate: types, keys, indexes and all."""
    assert empty_store.upgrade() == HEAD
    with empty_store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=alembic_options())
        assert compare_metadata(context, metadata) == []
    assert empty_store.upgrade() == HEAD


def test_names_fit_and_carry_the_prefix(empty_store: SessionStore) -> None:
    """PostgreSQL cuts names at 63 characters; a host tells ours by their prefix."""
    empty_store.upgrade()
    found = inspect(empty_store.engine)
    names = set(found.get_table_names())
    assert names == {*metadata.tables, VERSION_TABLE}
    for table in metadata.tables.values():
        names |= {str(index.name) for index in table.indexes} | {str(one.name) for one in table.constraints}
    assert [name for name in names if PREFIX not in name or len(name) > 62] == []


def test_a_store_without_tables_says_what_to_do(empty_store: SessionStore) -> None:
    """Reads and writes name the schema that is needed and the one that is there."""
    uses: list[Callable[[], object]] = [empty_store.sessions, lambda: empty_store.append("s", [ONE])]
    for use in uses:
        with pytest.raises(SchemaOutdatedError) as caught:
            use()
        assert (caught.value.expected, caught.value.found) == (HEAD, "none")


def test_a_newer_schema_is_refused(empty_store: SessionStore) -> None:
    """With both versions named, by reads, writes and upgrades; nothing is touched."""
    empty_store.upgrade()
    with empty_store.engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0009'"))  # noqa: S608  # our own table
    other = SessionStore(empty_store.engine)
    for use in (other.sessions, other.upgrade, lambda: other.append("s", [ONE])):
        with pytest.raises(StateVersionError) as caught:
            use()
        assert (caught.value.expected, caught.value.found) == (HEAD, "0009")


def test_latches_of_old_are_kept_and_refused(empty_store: SessionStore) -> None:
    """An upgrade of the identity-less schema stops before it demands identities; nothing lands on a message."""
    make_old_database(empty_store.engine)
    assert empty_store.upgrade() == OPEN
    for session, count in OLD_LATCHES.items():
        replayed = empty_store.replay(session)
        assert replayed.messages == empty_store.messages(session)
        assert [outcome.reason for outcome in replayed.refused] == [Reason.NO_IDENTITY] * count
    assert empty_store.upgrade() == OPEN


def test_the_last_revision_follows_when_no_latch_waits(empty_store: SessionStore) -> None:
    """Then a latch without an identity is impossible."""
    make_old_database(empty_store.engine)
    empty_store.upgrade()
    with empty_store.engine.begin() as connection:
        connection.execute(latches.delete().where(latches.c.session_id > 1))
        known = {"hash": bytes(32), "role": "user", "kind": "text", "shown": bytes(32)}
        connection.execute(update(latches).values(known))
    assert empty_store.upgrade() == HEAD
    with pytest.raises(Exception, match=r"(?i)null"), empty_store.engine.begin() as connection:
        connection.execute(update(latches).values(hash=None))


def test_sessions_from_before_keep_their_texts(empty_store: SessionStore) -> None:
    """A database that was made before a session said so: it is outdated, then upgraded, and its texts are there."""
    make_old_database(empty_store.engine)
    with pytest.raises(SchemaOutdatedError) as caught:
        empty_store.sessions()
    assert (caught.value.expected, caught.value.found) == (HEAD, "0001")
    empty_store.upgrade()
    assert empty_store.messages("poisoned") == OLD_HISTORY["poisoned"]
    assert empty_store.append("poisoned", [ONE]) == ["m00004"]


def test_ddl_can_be_read_first(empty_store: SessionStore) -> None:
    """The SQL that `upgrade_sql` gives makes the same database."""
    dialect = empty_store.engine.dialect.name
    with empty_store.engine.begin() as connection:
        for statement in statements(upgrade_sql(dialect)):
            connection.exec_driver_sql(statement)
    with empty_store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=alembic_options())
        assert compare_metadata(context, metadata) == []
        check_schema(connection)


def statements(script: str) -> list[str]:
    lines = [line for line in script.split("\n") if not line.startswith("--")]
    found = [statement.strip() for statement in "\n".join(lines).split(";")]
    return [statement for statement in found if statement and statement not in {"BEGIN", "COMMIT"}]


def test_a_host_keeps_its_own_tables_and_its_own_alembic(empty_store: SessionStore) -> None:
    """Ours are no drop in the host's autogenerate, and the host's version table is its own."""
    empty_store.upgrade()
    own = MetaData()
    with empty_store.engine.begin() as connection:
        connection.execute(text("CREATE TABLE host_messages (id INTEGER)"))
        context = MigrationContext.configure(connection, opts={"include_name": include_name})
        drops = [step[1].name for step in compare_metadata(context, own) if step[0] == "remove_table"]
    assert drops == ["host_messages"]


def test_an_upgrade_in_the_hosts_transaction(tmp_path: Path) -> None:
    """The host commits it, or nothing is there."""
    store = SessionStore(f"sqlite:///{tmp_path}/own.db")
    with store.engine.connect() as connection:
        assert store.upgrade(connection=connection) == HEAD
        connection.rollback()
    with store.engine.connect() as connection:
        assert read_revision(connection) is None
    store.close()


def test_another_schema_of_postgresql() -> None:
    """Where `search_path` points, there the tables are, and only there."""
    urls = make_database("postgresql")
    engine = create_engine(next(urls))
    event.listen(engine, "connect", use_schema)
    store = SessionStore(engine)
    store.upgrade()
    store.append("s", [ONE])
    assert set(inspect(engine).get_table_names(schema="other")) == {*metadata.tables, VERSION_TABLE}
    assert inspect(engine).get_table_names(schema="public") == []
    store.close()
    list(urls)


def use_schema(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS other")
        cursor.execute("SET search_path TO other")
    connection.commit()


class BrokenUpgradeError(Exception):
    """What breaks an upgrade."""


def fail_at(connection: Connection, step: int) -> None:
    """Let the statement number *step* fail, counted from 1; raise nothing where there are fewer."""
    left = [step]

    @event.listens_for(connection, "before_cursor_execute")
    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise BrokenUpgradeError


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        found = list(connection.iterdump())
    connection.close()
    return found


def test_an_upgrade_is_atomic_at_every_statement(tmp_path: Path) -> None:
    """On SQLite a failure at any statement leaves the database of old as it was, and the next run goes through."""
    path = tmp_path / "old.db"
    engine = create_engine(f"sqlite:///{path}")
    make_old_database(engine)
    before, step = dump(path), 0
    store = SessionStore(engine)
    while True:
        step += 1
        try:
            with engine.connect() as connection:
                fail_at(connection, step)
                store.upgrade(connection=connection)
                connection.commit()
        except BrokenUpgradeError:
            assert dump(path) == before
        else:
            break
    assert step > 20
    assert store.upgrade() == OPEN
    store.close()


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("server", SERVERS)
def test_an_interrupted_upgrade_is_run_again(server: str, stride: int) -> None:
    """PostgreSQL is as before; MariaDB, which commits at DDL, goes on where it was interrupted."""
    urls = make_database(server)
    engine = create_engine(next(urls))
    store = SessionStore(engine)
    for step in range(1, 400, stride):
        try:
            with engine.connect() as connection:
                fail_at(connection, step)
                store.upgrade(connection=connection)
                connection.commit()
        except BrokenUpgradeError:
            if server == "postgresql":
                assert inspect(engine).get_table_names() == []
        else:
            break
    assert step > 20
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=alembic_options())
        assert compare_metadata(context, metadata) == []
    store.close()
    list(urls)


def test_a_url_is_shown_without_its_password() -> None:
    """In the repr and in errors."""
    store = SessionStore("postgresql+psycopg://someone:secret@127.0.0.1:1/nowhere")
    assert "secret" not in repr(store)
    with pytest.raises(StoreFailedError) as caught:
        store.sessions()
    assert "secret" not in caught.value.where
