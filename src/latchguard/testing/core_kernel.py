"""The real core as a kernel, and what any kernel that holds a `ConversationState` reports of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

from attrs import evolve

from latchguard.core.codec import dump_latch, dump_state, load_state
from latchguard.core.errors import LatchError, LatchguardError
from latchguard.core.jsontext import dump_json, load_json
from latchguard.core.latches import NO_IDENTITY, EmergencyTruncateLatch, Latch, ViewLatch, latch_order
from latchguard.core.message import Message
from latchguard.core.reasons import Reason
from latchguard.core.replaying import LatchOutcome, Replay, replay
from latchguard.core.restamping import restamp
from latchguard.core.state import ConversationState
from latchguard.testing.protocol import Json, check_op, needed_capabilities

__all__ = ["CoreKernel", "report_replay", "report_state", "to_message"]


class CoreKernel:
    """The real core: its state is the JSON of `dump_state`.

    Guarantees:
        Pure. Pickles by reference, so that purity can be checked in a new process.
    """

    capabilities: Sequence[str] = (
        "unlatch", "view-latch", "protect", "numbering", "fork", "adopt", "own-output", "replay-report", "versions",
        "unknown-fields", "lone-surrogates",
    )  # fmt: skip

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        """Do one op on the core."""
        before = ConversationState() if state is None else load_state(dump_json(state))
        events: list[Json] = []
        after = before
        if needed_capabilities(op) - set(self.capabilities):
            events.append({"event": "refused", "reason": "unsupported"})
        elif check_op(history, op) and not _is_for_the_core(op):
            events.append({"event": "refused", "reason": "malformed"})
        else:
            try:
                after = self.change(before, [self.read(entry) for entry in history], op, events)
            except LatchError as error:
                events.append({"event": "refused", "reason": str(error.reason)})
            except LatchguardError as error:
                events.append({"event": "refused", "reason": error.code})
        view: list[Json] = []
        if len({entry["id"] for entry in history}) == len(history):
            replayed = self.replay(after, [self.read(entry) for entry in history])
            events.append(report_replay(replayed))
            view = [{**entry, "text": shown.text} for entry, shown in zip(history, replayed.messages, strict=True)]
        return {
            "state": load_json(dump_state(after).decode()),
            "view": view,
            "events": [*events, report_state(after)],
        }

    def change(  # noqa: PLR0911  # an op a return
        self, state: ConversationState, messages: Sequence[Message], op: Json, events: list[Json]
    ) -> ConversationState:
        """Give the state after *op*, or let the core refuse it; add what it has to say to *events*."""
        find: Callable[..., Any] = {message.id: message for message in messages}.get
        match op["op"]:
            case "append":
                return state.assign([find(key) for key in op["ids"]], protected=op.get("protected") or ())
            case "latch":
                return state.latch(find(op["id"]), op.get("text"), view=op.get("view"))  # type: ignore[arg-type]
            case "unlatch":
                return state.unlatch(find(op["id"]))
            case "edit":
                return state.assign([find(op["id"])])
            case "adopt":
                return _adopt(state, op)
            case "restamp":
                result = restamp(state, messages, numbering=op.get("numbering"))
                events.append({"event": "moved", "refs": dict(result.moved)})
                return result.state
            case "reload":
                return load_state(dump_state(state))
        return state

    def read(self, entry: Json) -> Message:
        """Give the core's message for one of the history."""
        return to_message(entry)

    def replay(self, state: ConversationState, messages: Sequence[Message]) -> Replay:
        """Give what the model would be sent, and what became of each latch."""
        return replay(messages, state)


def _adopt(state: ConversationState, op: Json) -> ConversationState:
    """Put a latch without an identity into force, as a state of an older release holds it."""
    ref, view = op["ref"], op.get("view")
    latch: Latch = EmergencyTruncateLatch(ref, NO_IDENTITY, "", op["text"])
    if view is not None:
        latch = ViewLatch(ref, NO_IDENTITY, "", op["text"], view)
    if any(other.ref == ref and type(other) is type(latch) for other in state.latches):
        raise LatchError(state.refs.holder(ref) or "", ref, Reason.SUPERSEDED)
    latches = tuple(sorted((*state.latches, latch), key=latch_order))
    return evolve(state, latches=latches, version=state.version + 1)


def to_message(entry: Json) -> Message:
    """Give the core's message for one in the protocol's form."""
    return Message(**{name: entry[name] for name in _FIELDS})


_FIELDS: Final = ("id", "role", "kind", "text", "tool_name", "tool_call_id")


def report_state(state: ConversationState) -> Json:
    """Give the event `report` of *state*; a drop is named by what it holds, equal ones by their count."""
    seen: Counter[str] = Counter()
    quarantine = []
    for drop in state.quarantine:
        name = sha256(dump_json([dump_latch(drop.latch), drop.reason])).hexdigest()[:16]
        seen[name] += 1
        content = {"text": drop.latch.text, "view": _view_of(drop.latch), "reason": str(drop.reason)}
        quarantine.append({"drop": f"{name}-{seen[name]}", **content})
    latches = [_name_latch(latch) for latch in state.latches]
    counts = {"version": state.version, "epoch": state.epoch}
    return {"event": "report", "refs": dict(state.refs), "latches": latches, "quarantine": quarantine, **counts}


def report_replay(replayed: Replay) -> Json:
    """Give the event `replayed` of what `replay` gave."""
    applied = [_tell(outcome) for outcome in replayed.applied]
    refused = [{**_tell(outcome), "reason": str(outcome.reason)} for outcome in replayed.refused]
    return {"event": "replayed", "applied": applied, "refused": refused}


def _tell(outcome: LatchOutcome) -> Json:
    return {**_name_latch(outcome.latch), "holder": outcome.holder.id if outcome.holder else None}


def _name_latch(latch: Latch) -> Json:
    return {"ref": latch.ref, "text": latch.text, "view": _view_of(latch)}


def _view_of(latch: Latch) -> str | None:
    return latch.view if isinstance(latch, ViewLatch) else None


def _is_for_the_core(op: Json) -> bool:
    """Whether the core can be asked for a malformed *op*: then it is the core that has to refuse it."""
    return op.get("op") in ("latch", "edit", "restamp") or (op.get("op") == "append" and isinstance(op["ids"], list))
