"""Kernels that are broken on purpose, one bug each: what proves that the laws bite."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from unicodedata import normalize

from latchguard.testing.plain import PlainKernel
from latchguard.testing.protocol import BLOCKED, Json, Kernel, check_op

__all__ = ["ALL"]


class _IdentityLess(PlainKernel):
    """The report's own: a latch is `{ref, text}`, shown on whatever holds the ref, and a restamp leaves it alone."""

    capabilities = tuple(name for name in PlainKernel.capabilities if name != "adopt")  # all its latches are such

    def applies(self, latch: Json, message: Json) -> bool:
        return True

    def move(self, state: Json, homes: Sequence[str]) -> None:
        refs = set(state["refs"].values()) - {BLOCKED}
        state["latches"] = [latch for latch in state["latches"] if latch["ref"] in refs]


class _LatchesNotMoved(PlainKernel):
    """Identity is checked, but a restamp leaves the latches at their old refs."""

    def move(self, state: Json, homes: Sequence[str]) -> None:
        refs = set(state["refs"].values()) - {BLOCKED}
        self.drop_all(state, [latch for latch in state["latches"] if latch["ref"] not in refs], "gone")


class _MovedNotDropped(PlainKernel):
    """A restamp moves the latches that have a home, and leaves the others where they were."""

    def move(self, state: Json, homes: Sequence[str]) -> None:
        refs = set(state["refs"].values()) - {BLOCKED}
        stay = [
            latch for latch, home in zip(state["latches"], homes, strict=True)
            if home.startswith("!") and latch["ref"] in refs
        ]  # fmt: skip
        rest = [pair for pair in zip(state["latches"], homes, strict=True) if pair[0] not in stay]
        state["latches"] = [latch for latch, _ in rest]
        super().move(state, [home for _, home in rest])
        state["latches"] += stay


class _HashWithoutRole(PlainKernel):
    """Identity leaves the role out."""

    def identity(self, message: Mapping[str, Any]) -> list[str]:
        return ["", *super().identity(message)[1:]]


class _HashWithoutKind(PlainKernel):
    """Identity leaves the kind out, and replay trusts it."""

    def identity(self, message: Mapping[str, Any]) -> list[str]:
        role, _, digest = super().identity(message)
        return [role, "", digest]

    def applies(self, latch: Json, message: Json) -> bool:
        return bool(latch["identity"] == self.identity(message))


class _HashWithoutLengths(PlainKernel):
    """The hash is over the fields' letters, one after the other: where a field ends is left out."""

    def identity(self, message: Mapping[str, Any]) -> list[str]:
        letters = "".join(message[key] or "" for key in ("tool_name", "tool_call_id", "text"))
        return [*super().identity(message)[:2], letters]


class _HashOfTidiedText(PlainKernel):
    """The text is trimmed and normalised before it is hashed."""

    def identity(self, message: Mapping[str, Any]) -> list[str]:
        return super().identity({**message, "text": normalize("NFC", message["text"].strip())})


class _BlockedAsKey(PlainKernel):
    """`BLOCKED` is taken for a ref like any other."""

    def latch(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        key = op["id"]
        blocked = state["refs"].get(key) == BLOCKED
        if blocked:
            state["refs"][key] = "blocked"
        reason = super().latch(state, history, op, events)
        if blocked:
            state["refs"][key] = BLOCKED
            for latch in state["latches"]:
                latch["ref"] = BLOCKED if latch["ref"] == "blocked" else latch["ref"]
        return reason

    def on(self, state: Json, message: Json) -> list[Json]:
        ref = state["refs"].get(message["id"])
        found = [latch for latch in state["latches"] if latch["ref"] == ref and self.applies(latch, message)]
        return sorted(found, key=lambda latch: latch["view"] or "")

    def bind(self, state: Json, history: Sequence[Json]) -> list[str]:
        state["latches"] = [latch for latch in state["latches"] if latch["ref"] != BLOCKED]
        return super().bind(state, history)


class _NonAtomicRestamp(PlainKernel):
    """A restamp writes the refs first and the latches after."""

    def restamp(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        if op.get("crash") != 2:  # noqa: PLR2004  # between the two writes
            return super().restamp(state, history, op, events)
        state["refs"] = self.renumber(state, history, op.get("numbering"))
        refs = set(state["refs"].values()) - {BLOCKED}
        state["latches"] = [latch for latch in state["latches"] if latch["ref"] in refs]
        events.append({"event": "crashed"})
        return None


class _TwinsMerged(PlainKernel):
    """Latches are looked up by identity alone: equal messages are one."""

    def on(self, state: Json, message: Json) -> list[Json]:
        if state["refs"].get(message["id"]) == BLOCKED:
            return []
        found = [latch for latch in state["latches"] if self.applies(latch, message)]
        return sorted(found, key=lambda latch: latch["view"] or "")


class _ClipLostOnReload(PlainKernel):
    """Clips are not stored, views are."""

    def reload(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        state["latches"] = [latch for latch in state["latches"] if latch["view"] is not None]
        return None


class _OrderDependentBytes(PlainKernel):
    """What comes out depends on the order of a set of strings, which another process has otherwise."""

    def report(self, state: Json) -> Json:
        names = dict.fromkeys(frozenset(state["refs"]))
        return {**super().report(state), "refs": {key: state["refs"][key] for key in names}}


class _LatchByRefRace(PlainKernel):
    """A latch is made for a ref; which message that is, is looked up one step later."""

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        pending = dict((state or {}).get("pending") or {})
        if pending and not self.refuse(history, op) and op["op"] == "restamp" and "crash" not in op:
            state = {**state, "latches": [latch for latch in state["latches"] if latch["ref"] != pending["ref"]]}
            reply = super().step({**state, "pending": None}, history, op)
            self._finish(reply, history, pending)
            return reply
        return super().step(state, history, op)

    def latch(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        reason = super().latch(state, history, op, events)
        if reason is None:
            state["pending"] = {"ref": state["refs"][op["id"]], "text": op["text"], "view": op.get("view")}
        return reason

    def _finish(self, reply: Json, history: Sequence[Json], pending: Json) -> None:
        after = reply["state"]
        holder = next((entry for entry in history if after["refs"].get(entry["id"]) == pending["ref"]), None)
        if holder is not None and self.latchable(holder):
            after["latches"].append({**pending, "identity": self.identity(holder)})
        reply.update(self.reply(after, history, reply["events"][:-2]))


class _ReplayDrops(PlainKernel):
    """A replay drops the latches whose message is not in the part of the history that it was given."""

    def resend(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        present = {state["refs"].get(message["id"]) for message in history}
        self.drop_all(state, [latch for latch in state["latches"] if latch["ref"] not in present], "holder-absent")
        return None


class _RefsFromTheHighest(PlainKernel):
    """A new ref is the highest in use plus one, not the cursor."""

    def next_ref(self, state: Json) -> str:
        used = [int(ref[1:]) for ref in state["refs"].values() if ref != BLOCKED]
        return f"m{max(used, default=0) + 1:05d}"

    def renumber(self, state: Json, history: Sequence[Json], numbering: Mapping[str, str] | None) -> dict[str, str]:
        fixed = PlainKernel()
        return fixed.renumber(state, history, numbering)


class _UnknownFieldsDropped(PlainKernel):
    """What a newer release wrote into the state is gone after a reload."""

    def reload(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        known = ("refs", "cursor", "seen", "latches", "quarantine", "drops", "version", "epoch")
        for key in state.keys() - set(known):
            del state[key]
        return None


class _ProtectionForgotten(PlainKernel):
    """A restamp gives protected messages refs of their own."""

    def renumber(self, state: Json, history: Sequence[Json], numbering: Mapping[str, str] | None) -> dict[str, str]:
        unprotected = {key: ref for key, ref in state["refs"].items() if ref != BLOCKED}
        renumbered = {**state, "refs": unprotected}
        refs = super().renumber(renumbered, history, numbering)
        state["cursor"] = renumbered["cursor"]
        return refs


class _Guesses(PlainKernel):
    """Where two messages could be the one, the first is taken."""

    def home(
        self, state: Json, hosts: Sequence[str], index: int, new: Mapping[str, list[str]], history: Sequence[Json]
    ) -> str:
        home = super().home(state, hosts, index, new, history)
        equal = [key for key, found in new.items() if found == state["latches"][index]["identity"]]
        return equal[0] if home == "!ambiguous" else home


class _ClearedComesBack(PlainKernel):
    """Whatever is in quarantine comes back with its message, not only what was gone."""

    def revives(self, drop: Json) -> bool:
        return bool(drop["reason"] in ("gone", "cleared"))


class _HalfOfABadNumbering(PlainKernel):
    """A bad numbering is refused when its bad entry is reached; by then the good ones are written."""

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        reply = super().step(state, history, op)
        numbering = op.get("numbering")
        if state and op.get("op") == "restamp" and isinstance(numbering, dict) and check_op(history, op):
            good = {key: ref for key, ref in numbering.items() if key in reply["state"]["refs"]}
            reply["state"]["refs"].update(good)
            reply["events"][-1] = self.report(reply["state"])
        return reply


class _MovedIsPartial(PlainKernel):
    """`moved` names the refs that changed, and says nothing of those that have no message any more."""

    def moved(self, old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
        return {ref: to for ref, to in super().moved(old, new).items() if to not in (ref, None)}


class _RefusedAsApplied(PlainKernel):
    """A latch that a replay skips is reported as applied, wherever a message holds its ref."""

    def replayed(self, state: Json, history: Sequence[Json]) -> Json:
        told = super().replayed(state, history)
        skipped = [entry for entry in told["refused"] if entry["holder"] is not None]
        told["applied"] += [{key: entry[key] for key in ("ref", "text", "view", "holder")} for entry in skipped]
        told["refused"] = [entry for entry in told["refused"] if entry not in skipped]
        return told


class _WrongRefusal(PlainKernel):
    """Whatever a message differs in, a replay says that its hash does."""

    def replayed(self, state: Json, history: Sequence[Json]) -> Json:
        told = super().replayed(state, history)
        for entry in told["refused"]:
            entry["reason"] = "holder-absent" if entry["holder"] is None else "hash-mismatch"
        return told


class _ChangesItsInput(PlainKernel):
    """The state that was given is changed in place."""

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        reply = super().step(state, history, op)
        if state and op.get("op") == "latch":
            state["latches"] = json.loads(json.dumps(reply["state"]["latches"]))
        return reply


ALL: Final[Mapping[str, Callable[[], Kernel]]] = {
    "identity-less": _IdentityLess,
    "latches-not-moved": _LatchesNotMoved,
    "moved-not-dropped": _MovedNotDropped,
    "hash-without-role": _HashWithoutRole,
    "hash-without-kind": _HashWithoutKind,
    "blocked-as-key": _BlockedAsKey,
    "non-atomic-restamp": _NonAtomicRestamp,
    "twins-merged": _TwinsMerged,
    "clip-lost-on-reload": _ClipLostOnReload,
    "order-dependent-bytes": _OrderDependentBytes,
    "latch-by-ref-race": _LatchByRefRace,
    "replay-that-drops": _ReplayDrops,
    "refs-from-the-highest": _RefsFromTheHighest,
    "unknown-fields-dropped": _UnknownFieldsDropped,
    "protection-forgotten": _ProtectionForgotten,
    "guesses-between-twins": _Guesses,
    "cleared-comes-back": _ClearedComesBack,
    "half-of-a-bad-numbering": _HalfOfABadNumbering,
    "moved-is-partial": _MovedIsPartial,
    "changes-its-input": _ChangesItsInput,
    "refused-as-applied": _RefusedAsApplied,
    "wrong-refusal": _WrongRefusal,
    "hash-without-lengths": _HashWithoutLengths,
    "hash-of-tidied-text": _HashOfTidiedText,
}
