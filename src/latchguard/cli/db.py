"""`latchguard db`: create, upgrade and verify the store's database."""

from __future__ import annotations

import click

from latchguard.cli.output import plural
from latchguard.cli.status import Status

__all__ = ["db_command"]

MAX_SHOWN = 1000


@click.group("db")
def db_command() -> None:
    """Create, upgrade and verify the database of a SessionStore."""


@db_command.command("upgrade")
@click.argument("url")
def upgrade_command(url: str) -> Status:
    """Create the tables at URL, or bring them up to date.

    Latches from before identities were kept hold the schema at 0002: repair them, then upgrade again.
    """
    from latchguard.store.schema import HEAD  # noqa: PLC0415  # SQLAlchemy, only where a database is used
    from latchguard.store.sessions import SessionStore  # noqa: PLC0415

    revision = SessionStore(url).upgrade()
    click.echo(f"schema {revision}" if revision == HEAD else f"schema {revision}: latches without an identity wait")
    return Status.CLEAN


@db_command.command("sql")
@click.argument("dialect", type=click.Choice(["sqlite", "postgresql", "mysql", "mariadb"]))
def sql_command(dialect: str) -> Status:
    """Print the DDL of all revisions, for those who review it or run it by hand."""
    from latchguard.store.schema import upgrade_sql  # noqa: PLC0415  # SQLAlchemy, only where a database is used

    click.echo(upgrade_sql(dialect), nl=False)
    return Status.CLEAN


@db_command.command("check")
@click.argument("url")
def check_command(url: str) -> Status:
    """Verify the database at URL from outside. Reads only.

    Refs are one to one, every text has its identity, every latch fits its message, no row dangles. Texts that the
    host has are counted. Exit status: 0 nothing wrong, 1 findings, 10 no such file, 11 busy, 20 the database failed
    or has another schema.
    """
    from latchguard.store.checking import check_database, count_texts_not_kept  # noqa: PLC0415  # SQLAlchemy, only here
    from latchguard.store.connections import make_reader, reading  # noqa: PLC0415

    counts: dict[str, int] = {}
    with reading(make_reader(url), None) as connection:
        for finding in check_database(connection):
            counts[finding.rule] = shown = counts.get(finding.rule, 0) + 1
            if shown <= MAX_SHOWN:
                click.echo(f"{finding.rule}: {finding.path}: {finding.note}")
        not_kept = count_texts_not_kept(connection)
    for rule, count in counts.items():
        click.echo(f"{plural(count, 'finding')} of {rule}")
    if not counts:
        click.echo("nothing wrong")
    if not_kept:
        click.echo(f"not checked: {plural(not_kept, 'text')} that the host has")
    return Status.FINDINGS if counts else Status.CLEAN
