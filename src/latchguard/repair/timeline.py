"""What a model is shown of a stored session, before and after a repair, message by message.

*Before* is what a reader shows that applies a latch to whatever message holds its ref; *after* is what a reader shows
that checks identities. A provider caches by prefix: from the first message on that differs its cache is lost.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from latchguard.core.errors import LatchguardError
from latchguard.core.latches import EmergencyTruncateLatch, ViewLatch
from latchguard.core.replaying import replay
from latchguard.repair import osops
from latchguard.repair.files import file_digest
from latchguard.repair.journal import backup_path
from latchguard.repair.planning import apply_plan
from latchguard.repair.plans import Plan
from latchguard.sources.bili import CLIPS, BiliLatch, BiliView, load_bili, view_session
from latchguard.sources.framing import unframe
from latchguard.sources.limits import Limits
from latchguard.sources.reading import read_json

__all__ = ["Row", "first_change", "read_old_bytes", "read_timeline"]


_NAMES: Final = {
    EmergencyTruncateLatch: "clip",
    ViewLatch: "view",
}


@frozen
class Row:
    """One message of a session.

    Args:
        message_id: its id.
        ref: the ref it holds, None where it holds none.
        role: its role.
        kind: its kind.
        before: the text that is shown before the repair.
        after: the text that is shown after it.
        sat: the latches that were applied to it before.
        landed: the latches that are applied to it after.
    """

    message_id: str
    ref: str | None
    role: str
    kind: str
    before: str
    after: str
    sat: tuple[str, ...]
    landed: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        """Whether the model is shown another text."""
        return self.before != self.after


def read_old_bytes(source: str, run: str | None, before: str) -> bytes | None:
    """Give the bytes that had the digest *before*: of the file, or of the copy that *run* made; None where neither has.

    Raises:
        FileSystemError: one of them cannot be read.
    """
    path = os.path.abspath(source)
    for place in (path, backup_path(path, run)) if run else (path,):
        if file_digest(place) == before:
            with osops.opened(place) as handle:
                return osops.read(handle, osops.status(handle).st_size)
    return None


def first_change(rows: Sequence[Row]) -> int | None:
    """Give the position of the first message that is shown with another text; None where there is none."""
    return next((position for position, row in enumerate(rows) if row.is_changed), None)


def read_timeline(raw: bytes, plan: Plan, limits: Limits) -> tuple[Row, ...]:
    """Give the messages of a session, oldest first, as they are shown before and after *plan*.

    Empty for a format without latches, and for a session that cannot be replayed (two messages share an id).
    """
    if plan.format != "bili":
        return ()
    try:
        view = view_session(read_json(unframe(raw, limits).body, limits))
        repaired = load_bili(apply_plan(raw, plan), limits)
        shown = replay(repaired.messages, repaired.state)
    except LatchguardError:
        return ()
    sat = _latches_by_holder(view)
    landed: defaultdict[str, list[str]] = defaultdict(list)
    for outcome in shown.applied:
        if outcome.holder is not None:
            landed[outcome.holder.id].append(f"{_NAMES[type(outcome.latch)]} {outcome.latch.ref}")
    after = {message.id: message.text for message in shown.messages}
    return tuple(
        Row(
            message_id=entry.message.id,
            ref=view.refs.by_id.get(entry.message.id),
            role=str(entry.message.role),
            kind=str(entry.message.kind),
            before=sat[entry.message.id][-1].text if entry.message.id in sat else entry.message.text,
            after=after.get(entry.message.id, ""),
            sat=tuple(
                f"{'clip' if latch.container == CLIPS else 'view'} {latch.ref}"
                for latch in sat.get(entry.message.id, ())
            ),
            landed=tuple(landed.get(entry.message.id, ())),
        )
        for entry in view.messages
    )


def _latches_by_holder(view: BiliView) -> Mapping[str, list[BiliLatch]]:
    """Give the latches per message that holds their ref; the one that shows is the last."""
    held: defaultdict[str, list[BiliLatch]] = defaultdict(list)
    for latch in view.latches:
        if (holder := view.refs.by_ref.get(latch.ref)) is not None:
            held[holder].append(latch)
    return dict(held)
