"""`latchguard why`: the life of a latch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from latchguard.cli.status import Status
from latchguard.core.errors import cut
from latchguard.core.latches import Latch, ViewLatch

if TYPE_CHECKING:
    from latchguard.store.lives import Life

__all__ = ["why_command"]


@click.command("why", short_help="Tell the life of a message's latches.")
@click.argument("url")
@click.argument("session")
@click.argument("target", metavar="REF|MESSAGE")
def why_command(url: str, session: str, target: str) -> Status:
    """Tell what became of every latch of one message in the store at URL. Reads only.

    Exit status: 0 told, 10 the database file, session or message is not there, 20 the database failed.
    """
    from latchguard.store.connections import make_reader, reading  # noqa: PLC0415  # SQLAlchemy, only where used
    from latchguard.store.lives import read_life  # noqa: PLC0415
    from latchguard.store.schema import check_schema  # noqa: PLC0415
    from latchguard.store.views import find_header  # noqa: PLC0415

    with reading(make_reader(url), None) as connection:
        check_schema(connection)
        life = read_life(connection, find_header(connection, session), target)
    for line in _tell(life, target):
        click.echo(line)
    return Status.CLEAN


def _tell(life: Life, target: str) -> Iterator[str]:
    if life.row is None:
        yield f"ref {cut(target)}: no message holds it"
    else:
        where = life.row.ref_text if life.row.in_refs else "no ref: a restamp left it out"
        identity = life.row.identity
        yield f"message {cut(life.row.message_id)}: {where}; {identity.role} {identity.kind} {identity.hash[:12]}"
    for latch, reason in life.in_force:
        fate = "shown" if latch == life.shown else f"refused, {reason}" if reason else "hidden by the clip"
        yield f"  in force    {_describe(latch)}: {fate}"
    for stored in life.dropped:
        at = datetime.fromtimestamp(stored.dropped_at_s, UTC).isoformat().replace("+00:00", "Z")
        yield f"  dropped     {_describe(stored.drop.latch)}: {stored.drop.reason}, {at}, drop {stored.id}"
    if not life.in_force and not life.dropped:
        yield "  no latch was ever made for it"


def _describe(latch: Latch) -> str:
    name = f"view {cut(latch.view)}" if isinstance(latch, ViewLatch) else "clip"
    return f"{name} on {latch.ref}, made for {latch.identity.hash[:12] or 'nobody knows whom'}, {cut(latch.text, 40)}"
