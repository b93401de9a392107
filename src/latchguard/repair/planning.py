"""Plan a repair of stored bytes, and apply it: bytes in, plan and bytes out. Nothing here touches a file.

1. Checking gives changes: a finding, and the edits that would repair it. Each rule's check is one row of `_CHECKS`.
2. A plan takes the changes that are asked for and permitted; what it repairs says so (`applied`).
3. Applying makes the edits in the bytes and copies every other byte; a plan of a repaired document has no step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from attrs import evolve

from latchguard.core.findings import Wire, permits
from latchguard.core.jsonspans import Insert, JsonSpans, Path, Replace, edit_json
from latchguard.core.jsontext import dump_json
from latchguard.repair.bili_latches import check_latches
from latchguard.repair.bili_refs import check_refs
from latchguard.repair.bili_spread import check_spread
from latchguard.repair.plans import Change, Limits, Plan, PlanOptions, SourceChangedError, Step, digest
from latchguard.sources.bili import QUARANTINE, BiliView, view_session
from latchguard.sources.detect import detect_format, detect_value
from latchguard.sources.errors import FormatUndecidedError, SourceError, UnplannableFormatError
from latchguard.sources.framing import Framed, frame, unframe
from latchguard.sources.reading import read_json

__all__ = ["apply_plan", "plan_bytes"]

_BILI: Final = "bili"
_BODIES: Final = frozenset(wire.value for wire in Wire)
_Check: TypeAlias = Callable[[BiliView, JsonSpans, PlanOptions], Iterable[Change]]

_CHECKS: Final[tuple[_Check, ...]] = (
    check_latches,
    lambda view, _spans, _options: check_refs(view),
    lambda view, _spans, options: check_spread(view, options),
)


def plan_bytes(raw: bytes, *, format: str | None = None, options: PlanOptions | None = None) -> Plan:  # noqa: A002  # the contract's name
    """Say what is wrong in one stored session and what would repair it.

    Args:
        raw: the whole file.
        format: one of `sources.detect.FORMATS`, or None to tell it from the bytes.
        options: what to look at, what may be done, what it may cost.

    Returns:
        The plan; without steps where nothing is wrong, or nothing may be repaired.

    Raises:
        SourceError: the bytes cannot be read as a session: empty, no JSON, half written, no session, encrypted, too
            large, too deep, a bad frame, an undecided format or one whose repairs are not planned here.

    Guarantees:
        Pure; the same bytes give the same plan in every process.
    """
    options = options or PlanOptions()
    framed = unframe(raw, options.limits)
    found, document = _read(raw, framed, format, options)
    if found != _BILI:
        from latchguard.repair.bodies import plan_bodies  # noqa: PLC0415  # all rules of requests, for bodies only

        return plan_bodies(raw, found, options)
    view = view_session(document)
    spans = JsonSpans(framed.body)
    changes = [change for check in _CHECKS for change in check(view, spans, options)]
    changes = [change for change in changes if options.looks_at(change.finding.rule)]
    planned = [_judge(change, options) for change in changes]
    steps = [*_steps(planned), *_quarantine(planned, view)]
    return Plan(
        format=_BILI,
        session=view.session,
        before=digest(raw) if steps else "",
        steps=tuple(Step(step.edit, _span_digest(spans, step.edit.path), step.finding) for step in steps),
        findings=tuple(change.finding for change in planned),
    )


def apply_plan(raw: bytes, plan: Plan) -> bytes:
    """Make the steps of *plan* in *raw*.

    Returns:
        The repaired bytes in the same frame; *raw* itself where the plan has no step.

    Raises:
        SourceChangedError: *raw* is not what the plan was made from, or a step does not fit it.

    Guarantees:
        Pure. Every byte outside of the edited spans is copied (I10); a frame is compressed anew.
    """
    if not plan.steps:
        return raw
    if (found := digest(raw)) != plan.before:
        raise SourceChangedError("file", plan.before, found)
    if plan.format != _BILI:
        from latchguard.repair.bodies import apply_bodies  # noqa: PLC0415  # the same

        return apply_bodies(raw, plan)
    # The plan was made of these very bytes, within limits.
    framed = unframe(raw, Limits(file_bytes=sys.maxsize, frame_bytes=sys.maxsize - 1))
    spans = JsonSpans(framed.body)
    for step in plan.steps:
        if (found := _span_digest(spans, step.edit.path)) != step.before:
            raise SourceChangedError(str(step.finding.path), step.before, found)
    return frame(evolve(framed, body=edit_json(framed.body, [step.edit for step in plan.steps])))


def _read(raw: bytes, framed: Framed, wanted: str | None, options: PlanOptions) -> tuple[str, Any]:
    """Give the format, if it is one that is planned here, and the document, if it is one."""
    document: Any = None
    try:
        document = read_json(framed.body, options.limits)
    except SourceError:
        found = wanted or detect_format(raw)
        if found in (None, _BILI):
            raise
    else:
        found = wanted or (_BILI if framed.header else detect_value(document))
        if found is None and _names_session(document):
            found = _BILI
    if found is None:
        raise FormatUndecidedError("$", "a session whose format shows", type(document).__name__)
    if found != _BILI and (found not in _BODIES or framed.header):
        raise UnplannableFormatError("$", f"a session of format {_BILI}, or request bodies", found)
    return found, document


def _names_session(document: Any) -> bool:
    """Say whether a document has a session's outer keys, so that the view can say what is missing."""
    return isinstance(document, dict) and ("state" in document or "payload" in document)


def _judge(change: Change, options: PlanOptions) -> Change:
    """Mark a change as applied where it has a repair and the repair is permitted."""
    if change.edits and permits(options.allow, change.finding.repair):
        return Change(evolve(change.finding, applied=True), change.edits, change.record)
    return Change(change.finding)


def _steps(changes: Iterable[Change]) -> Iterator[Step]:
    for change in changes:
        for edit in change.edits:
            yield Step(edit, "", change.finding)


def _quarantine(changes: Iterable[Change], view: BiliView) -> Iterator[Step]:
    """Give the steps that add the dropped latches to the session's quarantine, and make it where there is none."""
    path: Path = (*view.root, "state", QUARANTINE)
    records = [(change.record, change.finding) for change in changes if change.record is not None]
    stored = view.state.get(QUARANTINE)
    if isinstance(stored, list):
        for record, finding in records:
            yield Step(Insert(path, record), "", finding)
    elif records:
        kept = [] if QUARANTINE not in view.state else [dump_json(stored)]
        value = b"[" + b",".join([*kept, *(record for record, _ in records)]) + b"]"
        edit = Replace(path, value) if kept else Insert(path[:-1], value, QUARANTINE)
        yield Step(edit, "", records[0][1])


def _span_digest(spans: JsonSpans, path: Path) -> str:
    start, end = spans.span(path)
    return digest(spans.raw[start:end])
