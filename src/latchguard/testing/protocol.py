"""The protocol between harness and kernel, as data: ops, capabilities, replies. `docs/harness.md` is its page.

1. `step(state, history, op)` gives `{"state", "view", "events"}`, all JSON. The state is the kernel's own business,
   `null` before the first step; the harness hands it back as it got it.
2. `history` is what the host holds once the op is done, oldest first, in messages `{"id", "role", "kind", "text",
   "tool_name", "tool_call_id"}`: the whole of it, but for `resend`, where head or tail may be missing.
3. `view` is what the model would be sent: an entry per message of `history`, in order, at least `{"id", "text"}`.
4. `events` holds exactly one `report`, and `refused`, `moved`, `crashed`, `replayed` where they apply. Others are
   ignored.
5. An op that makes no sense, or that the kernel does not declare, gets `refused`, and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "BLOCKED",
    "CAPABILITIES",
    "LATCHABLE_KINDS",
    "OPS",
    "REASONS",
    "Json",
    "Kernel",
    "RestartableKernel",
    "check_op",
    "check_reply",
    "needed_capabilities",
    "ref_number",
]

Json: TypeAlias = dict[str, Any]

BLOCKED: Final = "BLOCKED"
LATCHABLE_KINDS: Final = frozenset(("text", "tool-result"))

# What a kernel may declare beyond append, latch, restamp, resend, edit and reload, and what it promises by it.
CAPABILITIES: Final[Mapping[str, str]] = {
    "unlatch": "op `unlatch`: the latch that shows is cleared",
    "view-latch": "`latch` with a `view`: a second class of latch, hidden by a clip",
    "protect": "`append` with `protected`, `BLOCKED` in a numbering",
    "numbering": "`restamp` with a `numbering` from a host's ledger",
    "fork": "op `fork`: go on with the first messages only",
    "release": "op `release`: an operator puts a drop back",
    "adopt": "op `adopt`: a latch of an older release, which has a ref and no identity, is taken over",
    "own-output": "a message that comes back as it was shown is known as that message, at a restamp under a new id too",
    "replay-report": "the event `replayed`: of each latch, whether it was applied, or why not, and what holds its ref",
    "versions": "the report has `version`, the count of writes that changed something, and `epoch`, that of restamps",
    "crash": "`restamp` with `crash: n` stops at the n-th write and gives what a reload would find",
    "unknown-fields": "the state is a JSON object; fields of it that the kernel does not know are kept",
    "lone-surrogates": "texts may hold halves of surrogate pairs",
    "impure": "the kernel has a state of its own and gets one process, or one restart, per run",
}

# The closed list of reasons.
REASONS: Final = frozenset(
    {
        "hash-mismatch", "role-mismatch", "kind-mismatch", "unassigned-ref", "holder-absent", "blocked-ref",
        "forbidden-kind", "no-identity", "unproven", "ambiguous", "gone", "superseded", "cleared",
    }
)  # fmt: skip

_TEXT: Final = (str,)
_TEXT_OR_NULL: Final = (str, type(None))
# op -> its fields, each with the types that it takes; a field with None among them may be missing.
OPS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "append": {"ids": (list,), "protected": (list, type(None))},
    "latch": {"id": _TEXT, "text": _TEXT, "view": _TEXT_OR_NULL},
    "unlatch": {"id": _TEXT},
    "restamp": {"numbering": (dict, type(None)), "crash": (int, type(None))},
    "resend": {},
    "edit": {"id": _TEXT},
    "fork": {"upto": (int,)},
    "reload": {},
    "release": {"drop": _TEXT},
    "adopt": {"ref": _TEXT, "text": _TEXT, "view": _TEXT_OR_NULL},
}

_REF: Final = re.compile(r"m(?:[0-9]{5}|[1-9][0-9]{5,})", re.ASCII)
_MAX_DIGITS: Final = 4300


class Kernel(Protocol):
    """A context kernel under test: a pure function and what it declares."""

    @property
    def capabilities(self) -> Collection[str]:
        """The names of `CAPABILITIES` that this kernel has."""

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Mapping[str, Any]:
        """Do *op* and give `{"state", "view", "events"}`. Pure, unless `impure` is declared."""


@runtime_checkable
class RestartableKernel(Kernel, Protocol):
    """A kernel that forgets everything on `restart()`; one that declares `impure` must be one."""

    def restart(self) -> None:
        """Start anew, as a new process would; called before each run."""


def ref_number(ref: object) -> int | None:
    """Give the number of a well-formed ref, else None."""
    return int(ref[1:]) or None if isinstance(ref, str) and len(ref) < _MAX_DIGITS and _REF.fullmatch(ref) else None


def needed_capabilities(op: Mapping[str, Any]) -> frozenset[str]:
    """Give the capabilities that *op* asks for."""
    name = op.get("op")
    needed = {name} & CAPABILITIES.keys() if isinstance(name, str) else set()
    if name == "latch" and op.get("view") is not None:
        needed.add("view-latch")
    if name == "append" and op.get("protected"):
        needed.add("protect")
    if name == "restamp" and (numbering := op.get("numbering")) is not None:
        needed.add("numbering")
        if isinstance(numbering, dict) and BLOCKED in numbering.values():
            needed.add("protect")
    if name == "restamp" and op.get("crash") is not None:
        needed.add("crash")
    return frozenset(needed)


def check_op(  # noqa: PLR0911  # a return per kind of fault
    history: Sequence[Mapping[str, Any]], op: Mapping[str, Any]
) -> str | None:
    """Say what makes *op* malformed for *history*, or None. What a latch or release may do is another matter."""
    fields = OPS.get(name) if isinstance(name := op.get("op"), str) else None
    if fields is None:
        return f"unknown op {name!r}"
    for field, types in fields.items():
        if type(op.get(field)) not in types:
            return f"{field} is {op.get(field)!r}"
    for field in op.keys() - fields.keys() - {"op"}:
        return f"unknown field {field!r}"
    ids = [message["id"] for message in history]
    if len(set(ids)) < len(ids):
        return "two messages share an id"
    present = set(ids)
    named = op.get("ids", []) + (op.get("protected") or []) + ([op["id"]] if "id" in op else [])
    for message_id in named:
        if not isinstance(message_id, str) or message_id not in present:
            return f"no message {message_id!r}"
    if name == "fork" and op["upto"] != len(ids):
        return f"upto is {op['upto']}, of {len(ids)} messages"
    return _check_numbering(op["numbering"]) if op.get("numbering") else None


def _check_numbering(numbering: Mapping[str, Any]) -> str | None:
    refs = [ref for ref in numbering.values() if ref != BLOCKED]
    for ref in refs:
        if ref_number(ref) is None:
            return f"{ref!r} is no ref"
    return "two messages share a ref" if len(set(refs)) < len(refs) else None


def check_reply(reply: Any) -> str | None:  # noqa: PLR0911  # likewise
    """Say what is wrong with the shape of *reply*, or None. The same as `protocol.schema.json`, and quicker."""
    if not isinstance(reply, dict) or not reply.keys() >= {"state", "view", "events"}:
        return "a reply is an object with state, view and events"
    view, events = reply["view"], reply["events"]
    if not isinstance(view, list) or not all(_is_object(entry, id=str, text=str) for entry in view):
        return "view is a list of objects with the texts id and text"
    if not isinstance(events, list) or not all(_is_object(event, event=str) for event in events):
        return "events is a list of objects with the text event"
    reports = [event for event in events if event["event"] == "report"]
    if len(reports) != 1:
        return f"events holds exactly one report, not {len(reports)}"
    for event in events:
        if event["event"] == "refused" and not isinstance(event.get("reason"), str):
            return "refused has the text reason"
        if event["event"] == "moved" and not _is_map(event.get("refs"), _TEXT_OR_NULL):
            return "moved has refs, an object of texts and nulls"
        if event["event"] == "replayed" and (problem := _check_replayed(event)):
            return problem
    return _check_report(reports[0])


def _check_report(report: Mapping[str, Any]) -> str | None:
    if not _is_map(report.get("refs"), _TEXT):
        return "report.refs is an object of texts"
    for name in ("version", "epoch"):
        if type(report.get(name, 0)) is not int:
            return f"report.{name} is an integer"
    return _check_lists(report, latches=("ref", "text"), quarantine=("drop", "text", "reason"))


def _check_replayed(event: Mapping[str, Any]) -> str | None:
    problem = _check_lists(event, applied=("ref", "text", "holder"), refused=("ref", "text", "reason"))
    if problem or all(isinstance(entry.get("holder"), _TEXT_OR_NULL) for entry in event["refused"]):
        return problem
    return "replayed.refused has holder, a text or null"


def _check_lists(event: Mapping[str, Any], **lists: Sequence[str]) -> str | None:
    for name, fields in lists.items():
        entries, wanted = event.get(name), dict.fromkeys(fields, str)
        if not isinstance(entries, list) or not all(
            _is_object(entry, **wanted) and isinstance(entry.get("view"), _TEXT_OR_NULL) for entry in entries
        ):
            found = f"{event['event']}.{name}"
            return f"{found} is a list of objects with the texts {', '.join(fields)} and view, a text or null"
    return None


def _is_object(value: Any, **fields: type) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), wanted) for name, wanted in fields.items())


def _is_map(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, types) for entry in value.values())
