"""A context kernel in plain Python: the contract on JSON, with nothing of latchguard's core in it.

It is what the planted kernels break, and it shows that the laws ask for the contract, not for one implementation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final

from latchguard.testing.protocol import BLOCKED, CAPABILITIES, LATCHABLE_KINDS, Json, check_op, needed_capabilities

__all__ = ["PlainKernel"]

_EMPTY: Final[Json] = {
    "refs": {}, "cursor": 1, "seen": {}, "latches": [], "quarantine": [], "drops": 0, "version": 0, "epoch": 0
}  # fmt: skip
_UNDECLARED: Final = frozenset(("own-output", "impure"))


class PlainKernel:
    """The contract in plain Python. Its state: `refs` and `seen` by message id, latches by ref, and the quarantine."""

    capabilities: Sequence[str] = tuple(name for name in CAPABILITIES if name not in _UNDECLARED)

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        """Do one op on a copy of *state*; a refused one leaves the state as it was."""
        before: Json = deepcopy(_EMPTY) if state is None else state
        after, events = deepcopy(before), list[Json]()
        reason = self.refuse(history, op) or getattr(self, op["op"])(after, history, op, events)
        if reason:
            after, events = deepcopy(before), [{"event": "refused", "reason": reason}]
        if after != before:
            after["version"] += 1
            after["epoch"] += op["op"] == "restamp"
        return self.reply(after, history, events)

    def reply(self, state: Json, history: Sequence[Json], events: Sequence[Json]) -> Json:
        """Give the reply of a step that ends in *state*."""
        told = [*events, self.replayed(state, history), self.report(state)]
        return {"state": state, "view": self.view(state, history), "events": told}

    def refuse(self, history: Sequence[Json], op: Json) -> str | None:
        """Say why *op* is not even tried."""
        if self.malformed(history, op):
            return "malformed"
        return "unsupported" if needed_capabilities(op) - set(self.capabilities) else None

    def malformed(self, history: Sequence[Json], op: Json) -> bool:
        """Whether *op* makes no sense for *history*."""
        return check_op(history, op) is not None

    def identity(self, message: Mapping[str, Any]) -> list[str]:
        """Give what a message is: role, kind, hash."""
        fields = json.dumps([message["tool_name"], message["tool_call_id"], message["text"]])
        return [message["role"], message["kind"], sha256(fields.encode()).hexdigest()]

    def latchable(self, message: Mapping[str, Any]) -> bool:
        """Whether a message may carry a latch."""
        return message["kind"] in LATCHABLE_KINDS

    # --- what the model sees, and what the harness is told ---

    def applies(self, latch: Json, message: Json) -> bool:
        """Whether *latch* was made for what *message* is."""
        return bool(latch["identity"] == self.identity(message)) and self.latchable(message)

    def on(self, state: Json, message: Json) -> list[Json]:
        """Give the latches that may touch *message*, the clip before the view."""
        ref = state["refs"].get(message["id"])
        found = [latch for latch in state["latches"] if latch["ref"] == ref and ref != BLOCKED]
        return sorted((latch for latch in found if self.applies(latch, message)), key=lambda latch: latch["view"] or "")

    def view(self, state: Json, history: Sequence[Json]) -> list[Json]:
        """Give the history as the model sees it."""
        shown = []
        for message in history:
            latches = self.on(state, message)
            shown.append({**message, "text": latches[0]["text"]} if latches else message)
        return shown

    def report(self, state: Json) -> Json:
        """Give the account of *state*."""
        latches = [{key: latch[key] for key in ("ref", "text", "view")} for latch in state["latches"]]
        quarantine = [{key: drop[key] for key in ("drop", "text", "view", "reason")} for drop in state["quarantine"]]
        counts = {key: state[key] for key in ("version", "epoch")}
        return {"event": "report", "refs": state["refs"], "latches": latches, "quarantine": quarantine, **counts}

    def replayed(self, state: Json, history: Sequence[Json]) -> Json:
        """Say which latches show in *history*, and why others do not. A view under a clip does neither."""
        applied, refused = list[Json](), list[Json]()
        holders = {state["refs"].get(message["id"]): message for message in history}
        for latch in state["latches"]:
            named = {key: latch[key] for key in ("ref", "text", "view")}
            holder = holders.get(latch["ref"])
            fitting = self.on(state, holder) if holder else []
            if holder is None or latch["ref"] == BLOCKED:
                known = latch["ref"] in state["refs"].values()
                reason = "blocked-ref" if latch["ref"] == BLOCKED else "holder-absent" if known else "unassigned-ref"
                refused.append({**named, "reason": reason, "holder": None})
            elif latch not in fitting:
                reason = self.differs(holder, latch) or "forbidden-kind"
                refused.append({**named, "reason": reason, "holder": holder["id"]})
            elif latch is fitting[0]:
                applied.append({**named, "holder": holder["id"]})
        return {"event": "replayed", "applied": applied, "refused": refused}

    # --- ops: each changes the state and gives a reason where it has to be refused ---

    def append(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Give refs to what is new; protect what is named."""
        fresh = [message for message in history if message["id"] not in state["refs"]]
        for message in fresh:
            state["refs"][message["id"]] = self.next_ref(state)
        for key in op.get("protected") or ():
            ref = state["refs"][key]
            hit = [latch for latch in state["latches"] if latch["ref"] == ref != BLOCKED]
            self.drop_all(state, hit, "blocked-ref")
            state["refs"][key] = BLOCKED
        self.see(state, history)
        self.revive(state, fresh)
        return None

    def next_ref(self, state: Json) -> str:
        """Give a new ref from the cursor."""
        state["cursor"] += 1
        return f"m{state['cursor'] - 1:05d}"

    def latch(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Make a latch; it replaces the one of its class."""
        message = _find(history, op["id"])
        ref = state["refs"].get(op["id"])
        if not self.latchable(message):
            return "forbidden-kind"
        if ref in (None, BLOCKED):
            return "blocked-ref" if ref else "unassigned-ref"
        new = {"ref": ref, "identity": self.identity(message), "text": op["text"], "view": op.get("view")}
        if new in state["latches"]:
            return None
        for old in [latch for latch in state["latches"] if latch["ref"] == ref]:
            if (old["view"] is None) == (new["view"] is None):
                self.drop(state, old, self.differs(message, old) or "superseded")
        state["latches"].append(new)
        self.see(state, history)
        return None

    def unlatch(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Clear the latch that shows."""
        for latch in self.on(state, _find(history, op["id"]))[:1]:
            self.drop(state, latch, "cleared")
        return None

    def resend(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Show, and write nothing."""
        return None

    def edit(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Take note of what the message is now; its latches wait."""
        self.see(state, history)
        return None

    def fork(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Go on with the messages of *history*."""
        kept = {message["id"] for message in history}
        state["refs"] = {key: ref for key, ref in state["refs"].items() if key in kept}
        state["latches"] = [latch for latch in state["latches"] if latch["ref"] in state["refs"].values()]
        self.see(state, history)
        return None

    def reload(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Load what was stored: nothing changes."""
        return None

    def release(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Put a drop back on the one message that it was made for."""
        drops = [drop for drop in state["quarantine"] if drop["drop"] == op["drop"]]
        homes = [
            message for message in history
            if drops and self.identity(message) == drops[0]["identity"] and state["refs"][message["id"]] != BLOCKED
        ]  # fmt: skip
        if len(homes) != 1 or self.taken(state, state["refs"][homes[0]["id"]], drops[0]):
            return "holder-absent"
        self.put_back(state, drops[0], state["refs"][homes[0]["id"]])
        return None

    def adopt(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Take over a latch without an identity: it shows nowhere, and stays with its message."""
        slots = [(latch["ref"], latch["view"] is None) for latch in state["latches"]]
        if (op["ref"], op.get("view") is None) in slots:
            return "superseded"
        state["latches"].append({"ref": op["ref"], "identity": None, "text": op["text"], "view": op.get("view")})
        return None

    def restamp(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Renumber, and move every latch, in one write."""
        if op.get("crash") == 1:
            events.append({"event": "crashed"})
            return None
        old = dict(state["refs"])
        fresh = [message for message in history if message["id"] not in old]
        homes = self.bind(state, history)
        state["refs"] = self.renumber(state, history, op.get("numbering"))
        self.move(state, homes)
        self.see(state, history)
        self.revive(state, fresh)
        events.append({"event": "moved", "refs": self.moved(old, state["refs"])})
        return None

    def moved(self, old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
        """Give the whole map old ref -> new ref."""
        unblocked = {key: ref for key, ref in new.items() if ref != BLOCKED}
        return {ref: unblocked.get(key) for key, ref in old.items() if ref != BLOCKED}

    def renumber(self, state: Json, history: Sequence[Json], numbering: Mapping[str, str] | None) -> dict[str, str]:
        """Give the refs after a restamp."""
        given = dict(numbering or {})
        blocked = {key for refs in (state["refs"], given) for key, ref in refs.items() if ref == BLOCKED}
        state["cursor"] = max((int(ref[1:]) for ref in given.values() if ref != BLOCKED), default=0) + 1
        refs = dict.fromkeys(sorted(blocked), BLOCKED)
        for message in history:
            if (key := message["id"]) not in blocked:
                refs[key] = given.get(key) or self.next_ref(state)
        return refs

    # --- binding ---

    def bind(self, state: Json, history: Sequence[Json]) -> list[str]:
        """Say for each latch the id of its message after a restamp, or `!` and the reason why it has none."""
        holders = {ref: key for key, ref in state["refs"].items() if ref != BLOCKED}
        hosts = [holders.get(latch["ref"], "") for latch in state["latches"]]
        new = {message["id"]: self.identity(message) for message in history}
        return [self.home(state, hosts, index, new, history) for index in range(len(hosts))]

    def home(
        self, state: Json, hosts: Sequence[str], index: int, new: Mapping[str, list[str]], history: Sequence[Json]
    ) -> str:
        """Say where one latch goes."""
        latch, host = state["latches"][index], hosts[index]
        identity, seen = latch["identity"], state["seen"]
        if identity is None:
            return host if host in new else "!no-identity"
        if new.get(host) == identity:
            return host
        mine: dict[str, list[Any]] = {key: [] for key, found in seen.items() if found == identity}
        for other, key in zip(state["latches"], hosts, strict=True):
            if other["identity"] == identity:
                mine.setdefault(key, []).append((other["view"], other["text"]))
        free = [key for key, found in new.items() if found == identity and key not in mine]
        places = [key for key in mine if new.get(key) != identity]
        holders = [key for key, found in new.items() if found == identity]
        if not free:
            return "!" + ((self.differs(_find(history, host), latch) or "gone") if host in new else "gone")
        lost = [key for key in places if mine[key]]
        if len(lost) == len(holders) == 1:
            return free[0]
        if len({frozenset(texts) for texts in mine.values()}) == 1:
            rank = lost.index(host)
            return free[rank] if rank < len(free) else "!gone"
        return free[places.index(host)] if len(places) == len(free) else "!ambiguous"

    def move(self, state: Json, homes: Sequence[str]) -> None:
        """Give each latch the ref of its message, or drop it."""
        for latch, home in zip(list(state["latches"]), homes, strict=True):
            if home.startswith("!"):
                self.drop(state, latch, home[1:])
            elif state["refs"][home] == BLOCKED:
                self.drop(state, latch, "blocked-ref")
            else:
                latch["ref"] = state["refs"][home]

    def differs(self, message: Json, latch: Json) -> str | None:
        """Name the first of role, kind, hash in which *message* is not what *latch* was made for."""
        if latch["identity"] is None:
            return "no-identity"
        pairs = zip(self.identity(message), latch["identity"], ("role", "kind", "hash"), strict=True)
        return next((f"{name}-mismatch" for found, wanted, name in pairs if found != wanted), None)

    # --- quarantine ---

    def drop(self, state: Json, latch: Json, reason: str) -> None:
        """Take *latch* out of service."""
        state["latches"] = [other for other in state["latches"] if other is not latch]
        state["drops"] += 1
        state["quarantine"].append({**latch, "drop": f"d{state['drops']}", "reason": reason})

    def drop_all(self, state: Json, latches: Sequence[Json], reason: str) -> None:
        """Take *latches* out of service."""
        for latch in latches:
            self.drop(state, latch, reason)

    def put_back(self, state: Json, drop: Json, ref: str) -> None:
        """Put a drop back in force."""
        state["quarantine"].remove(drop)
        state["latches"].append({"ref": ref, **{key: drop[key] for key in ("identity", "text", "view")}})

    def taken(self, state: Json, ref: str, drop: Json) -> bool:
        """Whether another latch of the same class, or for another identity, sits there."""
        return any(
            latch["ref"] == ref
            and ((latch["view"] is None) == (drop["view"] is None) or latch["identity"] != drop["identity"])
            for latch in state["latches"]
        )

    def revive(self, state: Json, fresh: Sequence[Json]) -> None:
        """Put back what is `gone` where a new message is what it was made for, and no two texts contend."""
        for message in fresh:
            ref = state["refs"][message["id"]]
            gone = [
                drop
                for drop in state["quarantine"]
                if self.revives(drop) and drop["identity"] == self.identity(message)
            ]
            for is_clip in (True, False):
                drops = [drop for drop in gone if (drop["view"] is None) == is_clip]
                alike = len({(drop["view"], drop["text"]) for drop in drops}) == 1
                if alike and ref != BLOCKED and not self.taken(state, ref, drops[0]):
                    self.put_back(state, drops[0], ref)

    def revives(self, drop: Json) -> bool:
        """Whether a drop comes back by itself."""
        return bool(drop["reason"] == "gone")

    def see(self, state: Json, history: Sequence[Json]) -> None:
        """Take note of what each message is."""
        state["seen"] = {message["id"]: self.identity(message) for message in history}


def _find(history: Sequence[Json], message_id: str) -> Json:
    return next(message for message in history if message["id"] == message_id)
