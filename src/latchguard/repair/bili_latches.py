"""Latches at rest: what each verdict changes in the bytes of a session file.

1. A bound entry gains `identity` beside its ref and text; a map entry becomes `ref: {text, identity}`. Its container
   keeps its type. An entry that moves takes its bytes along.
2. A dropped entry moves to `state.latchguardQuarantine` with all it holds, its container's name and the reason.
3. No entry moves to a ref where another of its class must stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from latchguard.core.findings import Finding, Repair, permits
from latchguard.core.identity import Identity
from latchguard.core.jsonspans import Edit, Insert, JsonSpans, Remove, Replace, edit_json, format_path
from latchguard.core.jsontext import dump_json
from latchguard.core.latches import LATCHABLE
from latchguard.repair.judging import Verdict, find_stuck, judge_latches, nearness
from latchguard.repair.plans import Change, PlanOptions
from latchguard.repair.state_rules import LATCH_WITHOUT_IDENTITY, STALE_LATCH
from latchguard.sources.bili import LATCH_FIELDS, VIEWS, BiliLatch, BiliView

__all__ = ["check_latches"]


def check_latches(view: BiliView, spans: JsonSpans, options: PlanOptions) -> Iterator[Change]:
    """Find the latches that have no identity or stand under a ref that is not their message's."""
    verdicts = _judge(view, options)
    stays = {
        (name == VIEWS, key)
        for name in LATCH_FIELDS
        if isinstance(container := view.state.get(name), dict)
        for key in container
    } - {(verdict.latch.is_view, verdict.latch.ref) for verdict in verdicts}
    stuck = find_stuck(verdicts, view.refs, stays, leaves=permits(options.allow, Repair.PLACEHOLDER))
    for position, verdict in enumerate(verdicts):
        change = _change(verdict, view, spans)
        if change is not None:
            yield evolve(change, edits=(), record=None) if position in stuck else change
    for fault in view.faults:
        if fault.path[len(view.root) + 1] in LATCH_FIELDS:
            finding = Finding(LATCH_WITHOUT_IDENTITY, format_path(fault.path), Repair.DETECT, applied=False)
            yield Change(evolve(finding, before=fault.found, note=f"expected {fault.expected}"))


def _judge(view: BiliView, options: PlanOptions) -> list[Verdict[BiliLatch]]:
    strays = [latch for latch in view.latches if not _is_at_home(latch, view)]
    places = {(latch.is_view, latch.ref) for latch in view.latches}
    if not strays and len(places) == len(view.latches):  # most files: few of their messages need be read, or none
        return []
    near = None
    if not any(latch.identity for latch in strays):  # an identity may be any message's
        refs = {latch.ref for latch in view.latches}
        near = view.messages_near(refs, nearness(strays))
    if near is not None:
        return judge_latches(view.latches, near, view.refs, options.markers)
    messages = (entry.message for entry in view.messages)
    return judge_latches(view.latches, messages, view.refs, options.markers, unreadable=view.unreadable)


def _is_at_home(latch: BiliLatch, view: BiliView) -> bool:
    """Say whether *latch* has the identity of the one message that holds its ref."""
    wanted = latch.identity
    if wanted is None or not LATCHABLE[wanted.kind]:
        return False
    holder = view.holder(latch.ref)
    return holder is not None and Identity.of(holder) == wanted


def _change(verdict: Verdict[BiliLatch], view: BiliView, spans: JsonSpans) -> Change | None:
    latch, holder, target = verdict.latch, verdict.holder, verdict.target
    before = {
        "latch": latch.container,
        "ref": latch.ref,
        "text": latch.text,
        "message": holder.id if holder else None,
        "kind": str(holder.kind) if holder else None,
    }
    finding = Finding(
        STALE_LATCH,
        format_path(latch.path),
        Repair.LOSSLESS,
        applied=False,
        before=before,
        note=verdict.note,
        tool_name=holder.tool_name if holder else None,
    )
    if verdict.reason:
        finding = evolve(finding, repair=Repair.PLACEHOLDER, after={"reason": str(verdict.reason)})
        return Change(finding, (Remove(latch.path),), _quarantine_record(verdict, spans))
    if verdict.surplus:
        return Change(evolve(finding, note="another latch of its message shows the same text"), (Remove(latch.path),))
    if target is None or verdict.identity is None:
        detect = evolve(finding, rule=LATCH_WITHOUT_IDENTITY, repair=Repair.DETECT)
        return Change(detect) if verdict.note else None
    ref = view.refs.own_ref(target.id) or latch.ref
    if ref == latch.ref and verdict.identity == latch.identity:
        return None
    after = {"ref": ref, "message": target.id, "identity": _dump_identity(verdict.identity)}
    stale = ref != latch.ref or latch.identity is not None
    finding = evolve(finding, rule=STALE_LATCH if stale else LATCH_WITHOUT_IDENTITY, after=after)
    return Change(finding, tuple(_bind(verdict, ref, _dump_identity(verdict.identity), spans)))


def _bind(verdict: Verdict[BiliLatch], ref: str, identity: dict[str, Any], spans: JsonSpans) -> Iterator[Edit]:
    """Give the edits that put an entry under *ref* with *identity*."""
    latch = verdict.latch
    stamp: Edit = Insert(latch.path, dump_json(identity), "identity")
    if latch.has_identity:
        stamp = Replace((*latch.path, "identity"), dump_json(identity))
    if not latch.keyed:
        if ref != latch.ref:
            yield Replace((*latch.path, "ref"), dump_json(ref))
        yield stamp
    elif ref == latch.ref and isinstance(latch.value, dict):
        yield stamp
    else:
        value = _entry_object(verdict, spans)
        value = edit_json(value, [evolve(stamp, path=stamp.path[len(latch.path) :])])
        if ref == latch.ref:
            yield Replace(latch.path, value)
        else:
            yield Remove(latch.path)
            yield Insert(latch.path[:-1], value, ref)


def _entry_object(verdict: Verdict[BiliLatch], spans: JsonSpans) -> bytes:
    """Give the bytes of an entry as an object; a bare text becomes `{text}`."""
    start, end = spans.span(verdict.latch.path)
    value = spans.raw[start:end]
    return value if isinstance(verdict.latch.value, dict) else b'{"text":' + value + b"}"


def _quarantine_record(verdict: Verdict[BiliLatch], spans: JsonSpans) -> bytes:
    latch = verdict.latch
    added = {"latch": latch.container, "reason": str(verdict.reason)}
    if latch.keyed:
        added["ref"] = latch.ref
    return edit_json(_entry_object(verdict, spans), [Insert((), dump_json(value), key) for key, value in added.items()])


def _dump_identity(identity: Identity) -> dict[str, Any]:
    return {"hash": identity.hash, "role": str(identity.role), "kind": str(identity.kind)}
