"""Plan what becomes of the open latches of one session in a database: values in, values out.

1. The judging is that of files (`repair.judging`). A database holds the whole session, so nothing is left in place for
   want of its message: what nobody proves is dropped, `unproven`, or `unassigned-ref` where no message holds its ref.
2. A place that a latch with an identity holds is not to be had: the open latch is the older one, `superseded`.
3. A plan holds no text: what a latch says is where it was, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve, frozen

from latchguard.core.findings import Finding, Repair, permits
from latchguard.core.identity import Identity, hash_fields
from latchguard.core.jsonspans import format_path
from latchguard.core.reasons import Reason
from latchguard.repair.database_tables import RowLatch, StoredSession
from latchguard.repair.judging import Verdict, find_stuck, judge_latches
from latchguard.repair.plans import PlanOptions
from latchguard.repair.state_rules import LATCH_WITHOUT_IDENTITY, STALE_LATCH

__all__ = ["LatchPlan", "LatchStep", "plan_latches"]


@frozen
class LatchStep:
    """What becomes of one latch.

    Args:
        session: its session.
        key: of its row, as the primary key has it.
        ref: what it stands under; `BLOCKED` where it has none.
        message: the id of the message that it is proven to be of; None where it is dropped.
        new_ref: what it stands under afterwards; None where it is dropped.
        identity: what it says its message is; None where nothing is proven.
        shown: the identity hash of the message when it shows the latch's text; None without *identity*.
        reason: why it is dropped, None where it stays.
    """

    session: str
    key: tuple[Any, ...]
    ref: str
    message: str | None = None
    new_ref: str | None = None
    identity: Identity | None = None
    shown: str | None = None
    reason: Reason | None = None

    @property
    def outcome(self) -> str:
        """`bound` where it was, `rebound` to another ref, or the reason why it is dropped."""
        if self.reason is not None:
            return str(self.reason)
        return "bound" if self.new_ref == self.ref else "rebound"


@frozen
class LatchPlan:
    """What was found in one session, and the steps that repair it.

    Args:
        session: its name.
        steps: one per latch that changes, in the order of the findings.
        findings: one per open latch; `applied` says whether a step repairs it.
        left: what a second look finds, once the steps are done.
    """

    session: str
    steps: tuple[LatchStep, ...] = ()
    findings: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()


def plan_latches(stored: StoredSession, options: PlanOptions) -> LatchPlan:
    """Say where each open latch of a session belongs.

    Guarantees:
        Pure; the same rows give the same plan in every process.
    """
    if not stored.latches:
        return LatchPlan(stored.key.name)
    judged = judge_latches(stored.latches, stored.messages, stored.refs, options.markers)
    verdicts = [_settle(verdict, stored) for verdict in judged]
    leaves = permits(options.allow, Repair.PLACEHOLDER) and options.looks_at(STALE_LATCH)
    stuck = find_stuck(verdicts, stored.refs, stored.taken, leaves=leaves)
    steps: list[LatchStep] = []
    findings: list[Finding] = []
    for position, verdict in enumerate(verdicts):
        step = _step(verdict, stored)
        finding = _finding(verdict, step)
        if options.looks_at(finding.rule):
            applied = position not in stuck and permits(options.allow, finding.repair)
            findings.append(evolve(finding, applied=applied))
            steps += [step] if applied else []
    return LatchPlan(stored.key.name, tuple(steps), tuple(findings))


def _settle(verdict: Verdict[RowLatch], stored: StoredSession) -> Verdict[RowLatch]:
    """Decide what a session file could leave open: here every message is present."""
    if verdict.surplus:
        note = "another latch of its message shows the same text"
        return evolve(verdict, surplus=False, target=None, reason=Reason.SUPERSEDED, note=note)
    if verdict.target is not None:
        place = (verdict.latch.is_view, stored.refs.own_ref(verdict.target.id))
        if place in stored.taken:
            return evolve(verdict, target=None, reason=Reason.SUPERSEDED, note="its message has a newer latch")
        return verdict
    if verdict.reason is None:
        return evolve(verdict, reason=Reason.UNPROVEN if verdict.holder else Reason.UNASSIGNED_REF)
    return verdict


def _step(verdict: Verdict[RowLatch], stored: StoredSession) -> LatchStep:
    latch, target = verdict.latch, verdict.target
    bare = LatchStep(stored.key.name, latch.key, latch.ref, reason=verdict.reason)
    if target is None or verdict.identity is None:
        return bare
    shown = hash_fields(target.tool_name, target.tool_call_id, latch.text)
    ref = stored.refs.own_ref(target.id)
    return evolve(bare, message=target.id, new_ref=ref, identity=verdict.identity, shown=shown)


def _finding(verdict: Verdict[RowLatch], step: LatchStep) -> Finding:
    latch, holder = verdict.latch, verdict.holder
    before = {
        "latch": "view" if latch.is_view else "clip",
        "ref": latch.ref,
        "text": latch.text,
        "message": holder.id if holder else None,
        "kind": str(holder.kind) if holder else None,
    }
    return Finding(
        LATCH_WITHOUT_IDENTITY if step.new_ref == latch.ref else STALE_LATCH,
        format_path(("latches", *(part if isinstance(part, int) else str(part) for part in latch.key))),
        Repair.PLACEHOLDER if step.reason else Repair.LOSSLESS,
        applied=False,
        before=before,
        after=dict(_after(step)),
        note=verdict.note,
        tool_name=holder.tool_name if holder else None,
    )


def _after(step: LatchStep) -> Iterator[tuple[str, Any]]:
    if step.reason is not None:
        yield "reason", str(step.reason)
        return
    yield "ref", step.new_ref
    yield "message", step.message
    if step.identity is not None:
        identity = step.identity
        yield "identity", {"hash": identity.hash, "role": str(identity.role), "kind": str(identity.kind)}
