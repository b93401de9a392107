"""Traces: a run as JSON lines, for people to read and for any kernel to run again.

1. The first line is the header: `{"trace": 1, "needs": [capabilities], "note": ...}`.
2. Then a line per step: `{"step": n, "say": ..., "history": [...], "op": {...}, "reply": {...}}`. `say` tells it in a
   sentence; the reply is the one of the kernel that the trace was taken from, or missing.
3. A trace of a failure ends with `{"violation": {"law", "sentence", "where", "expected", "found"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latchguard.testing.errors import TraceError
from latchguard.testing.laws import Violation
from latchguard.testing.protocol import Json, needed_capabilities
from latchguard.testing.run import Run, Step

__all__ = ["describe", "dump_trace", "load_trace", "replay_trace", "tell"]

_TEXT_SHOWN = 48


def dump_trace(steps: Sequence[Step], violation: Violation | None = None, note: str = "") -> str:
    """Give the trace of *steps* as JSON lines, ASCII."""
    needs = sorted(_needs(steps))
    lines: list[Json] = [{"trace": 1, "needs": needs, "note": note}]
    for number, step in enumerate(steps, 1):
        line = {"step": number, "say": describe(step), "history": step.history, "op": step.op}
        lines.append(line if step.reply is None else {**line, "reply": step.reply})
    if violation is not None:
        law = violation.law
        broken = {"law": law.name, "invariant": law.invariant, "sentence": law.sentence, "where": violation.where}
        lines.append({"violation": {**broken, "expected": violation.expected, "found": violation.found}})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _needs(steps: Iterable[Step]) -> set[str]:
    needs: set[str] = set()
    before: Mapping[str, str] = {}
    for step in steps:
        needs |= needed_capabilities(step.op)
        if any("\ud800" <= unit < "\ue000" for message in step.history for unit in message["text"]):
            needs.add("lone-surrogates")
        after = {message["id"]: message["text"] for message in step.history}
        same = step.op.get("op") not in ("edit", "restamp")
        if same and any(before.get(key, text) != text for key, text in after.items()):
            needs.add("own-output")
        before = {**before, **after}
    return needs


def load_trace(path: Path) -> tuple[Json, list[Step]]:
    """Read a trace: its header and its steps.

    Raises:
        TraceError: the file is none; the line says where.
    """
    steps: list[Step] = []
    header: Json = {}
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except ValueError as error:
            raise TraceError(str(path), number, "a JSON object") from error
        if not header:
            if not isinstance(line, dict) or line.get("trace") != 1:
                raise TraceError(str(path), number, 'a header {"trace": 1, ...}')
            header = line
        elif isinstance(line, dict) and "step" in line:
            if not isinstance(line.get("history"), list) or not isinstance(line.get("op"), dict):
                raise TraceError(str(path), number, "a step with history and op")
            steps.append(Step(line["history"], line["op"], line.get("reply")))
    if not header:
        raise TraceError(str(path), 1, 'a header {"trace": 1, ...}')
    return header, steps


def replay_trace(run: Run, steps: Iterable[Step]) -> None:
    """Make a fresh *run* do *steps*; a drop is found by what it holds, since each kernel names drops its own way.

    Raises:
        Violation: the kernel breaks a law.
        ProtocolError: it does not speak the protocol.
    """
    recorded: Json | None = None
    for step in steps:
        op = step.op
        if op.get("op") == "release" and recorded is not None and run.steps:
            op = {**op, "drop": _translate(op["drop"], _quarantine(recorded), _quarantine(run.steps[-1].reply))}
        run.step(step.history, op)
        recorded = step.reply


def _quarantine(reply: Json | None) -> Sequence[Json]:
    report: Json = next((event for event in (reply or {}).get("events", ()) if event["event"] == "report"), {})
    found: Sequence[Json] = report.get("quarantine", ())
    return found


def _translate(drop: str, theirs: Sequence[Json], ours: Sequence[Json]) -> str:
    def content(entry: Json) -> tuple[Any, ...]:
        return entry["text"], entry.get("view"), entry["reason"]

    wanted = next((content(entry) for entry in theirs if entry["drop"] == drop), None)
    return next((str(entry["drop"]) for entry in ours if content(entry) == wanted), drop)


def tell(steps: Sequence[Step], violation: Violation) -> str:
    """Give the counterexample as text: a line per step, then the law."""
    lines = [f"{number}. {describe(step)}" for number, step in enumerate(steps, 1)]
    law = violation.law
    return "\n".join([*lines, f"breaks {law.name} ({law.invariant}): {law.sentence}", *_details(violation)])


def _details(violation: Violation) -> list[str]:
    return [f"  at       {violation.where}", f"  expected {violation.expected}", f"  found    {violation.found}"]


def describe(step: Step) -> str:
    """Tell one step in a sentence, ASCII: what was asked, and what is shown where it is not the message's own text."""
    parts = [_describe_op(step.history, step.op)]
    reply = step.reply
    if reply is None:
        return parts[0]
    refs: Json = next((event["refs"] for event in reply["events"] if event["event"] == "report"), {})
    for event in reply["events"]:
        if event["event"] == "refused":
            parts.append(f"refused ({event['reason']})")
        if event["event"] == "crashed":
            parts.append("cut short")
    own = {message["id"]: message for message in step.history}
    for entry in reply["view"]:
        message = own.get(entry["id"])
        if message is not None and entry["text"] != message["text"]:
            holder = f"{entry['id']} ({refs.get(entry['id'], 'no ref')}, {message['kind']})"
            parts.append(f"{holder} shows {_short(entry['text'])}")
    return "; ".join(parts)


def _describe_op(history: Sequence[Json], op: Json) -> str:
    by_id = {message["id"]: message for message in history}
    named = op.get("ids") if isinstance(op.get("ids"), list) else [op["id"]] if isinstance(op.get("id"), str) else []
    messages = ", ".join(_name(by_id[key]) if key in by_id else ascii(key) for key in named or ())
    match op.get("op"):
        case "append":
            protected = f", protect {', '.join(map(str, op['protected']))}" if op.get("protected") else ""
            return f"append {messages or 'nothing'}{protected}"
        case "latch":
            kind = f"view {op['view']!a}" if op.get("view") is not None else "clip"
            return f"latch on {messages}: {kind} {_short(op.get('text'))}"
        case "restamp":
            numbering = f" as {json.dumps(op['numbering'])}" if op.get("numbering") is not None else ""
            crash = f", cut short at write {op['crash']}" if "crash" in op else ""
            return f"restamp to [{', '.join(map(_name, history))}]{numbering}{crash}"
        case "resend":
            return f"resend {len(history)} messages"
    rest = {key: value for key, value in op.items() if key not in ("op", "id")}
    return f"{op.get('op')} {messages}{json.dumps(rest) if rest else ''}".strip()


def _name(message: Json) -> str:
    return f"{message['id']} ({message['role']} {message['kind']} {_short(message['text'])})"


def _short(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= _TEXT_SHOWN else shown[: _TEXT_SHOWN - 4] + "...'"
