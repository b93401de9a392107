"""The host that a machine plays: it holds a history, and does to it what hosts do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from attrs import define, field

from latchguard.testing.dice import Dice
from latchguard.testing.fates import Held, identity_of
from latchguard.testing.faults import MALFORMED
from latchguard.testing.messages import SHAPES, make_clip, make_message, make_near, make_text
from latchguard.testing.protocol import BLOCKED, LATCHABLE_KINDS, Json
from latchguard.testing.run import Run

__all__ = ["Host"]

# What a host does, simplest first, as often as it stands here.
_MENU: Final = (
    *("append",) * 5, *("latch",) * 6, *("restamp",) * 7, *("resend",) * 4, *("edit",) * 2, *("unlatch",) * 2,
    "reload", "release", "fork", "malformed", "undeclared", "adopt",
)  # fmt: skip
_SHORT: Final = 5
_MOST_WRITES: Final = 64
_STARTS: Final = (1, 7, 99_998)
_NOBODYS: Final = "m77777"  # a ref that no run issues


@define
class Host:
    """The host of one run.

    Args:
        run: the kernel under test and its laws.
    """

    run: Run
    history: list[Json] = field(factory=list)
    removed: dict[str, Json] = field(factory=dict)
    originals: dict[str, Json] = field(factory=dict)
    events: set[str] = field(factory=set)
    _count: int = 0
    _moved: bool = False

    def turn(self, dice: Dice) -> None:
        """Do one thing, as *dice* decides."""
        more, action = dice.once_in(2), dice.pick(_MENU)
        if not self.history or (more and len(self.history) < _SHORT):
            action = "append"
        getattr(self, f"_{action}")(dice)
        self._note(action)

    def _has(self, capability: str) -> bool:
        return capability in self.run.capabilities

    def new_id(self) -> str:
        """Give a message id that was never used."""
        self._count += 1
        return f"h{self._count}"

    def _do(self, op: Json, history: Sequence[Json] | None = None) -> Json | None:
        """Do a step; give the reply, or None where it was refused."""
        reply = self.run.step(self.history if history is None else history, op)
        return None if any(event["event"] == "refused" for event in reply["events"]) else reply

    # --- what a host does ---

    def _append(self, dice: Dice) -> None:
        new: list[Json] = []
        for _ in range(1 + dice.below(3)):
            new += self.draw_messages(dice, new)
        history = self.history + new
        op: Json = {"op": "append", "ids": [entry["id"] for entry in new]}
        if dice.once_in(4) and self._holds_what_is_known():  # a retry: what is known is sent again
            op["ids"] = [entry["id"] for entry in history]
        if self._has("protect") and dice.once_in(8):
            if self.history and dice.once_in(2):  # nothing new, and the latest is protected from now on
                history, op["ids"] = self.history, []
            op["protected"] = [history[self.position(dice, history)]["id"]]
        if self._do(op, history) is not None:
            self._take(history)

    def _holds_what_is_known(self) -> bool:
        latches = self.run.model.latches
        return all(latches.get(entry["id"]) or entry == self.originals[entry["id"]] for entry in self.history)

    def _latch(self, dice: Dice) -> None:
        if dice.once_in(24):  # a message that was never appended
            stray = make_message(self.new_id(), "user", "text", "done")
            self._do({"op": "latch", "id": stray["id"], "text": "x", "view": None}, [*self.history, stray])
            return
        target = self._pick(dice, self._latch_targets(dice))
        text = make_clip(dice, self.originals[target["id"]]["text"])
        view = dice.pick(_VIEWS) if self._has("view-latch") else None
        self._do({"op": "latch", "id": target["id"], "text": text, "view": view})

    def _latch_targets(self, dice: Dice) -> Sequence[Json]:
        """Give the messages that may carry a latch; now and then protected ones, or any."""
        refs = self.run.model.refs
        unprotected = [entry for entry in self.history if refs.get(entry["id"]) not in (None, BLOCKED)]
        able = [entry for entry in unprotected if entry["kind"] in LATCHABLE_KINDS]
        protected = [entry for entry in self.history if refs.get(entry["id"]) == BLOCKED]
        return dice.pick((*(able,) * 8, protected, self.history)) or self.history

    def _restamp(self, dice: Dice) -> None:
        history = list(self.history)
        for _ in range(dice.pick(_FEW)):
            history = _CHANGES[dice.pick(tuple(_CHANGES))](self, dice, history)
        op: Json = {"op": "restamp"}
        if self._has("numbering") and dice.once_in(3):
            op["numbering"] = self._draw_numbering(dice, history)
        crash = 1 if self._has("crash") and dice.once_in(3) else None
        while crash and crash <= _MOST_WRITES:
            reply = self._do({**op, "crash": crash}, history)
            crash = crash + 1 if reply and any(event["event"] == "crashed" for event in reply["events"]) else None
        before, latched = self._latched_refs(), {key for key, held in self.run.model.latches.items() if held}
        if self._do(op, history) is not None:
            self._take(history)
            # What a latch showed that is cleared by now is from here on the message's own text.
            self.originals |= {entry["id"]: entry for entry in history if entry["id"] not in latched}
            self._note_moves(before)

    def _resend(self, dice: Dice) -> None:
        head, tail = (dice.below(len(self.history)) if dice.once_in(3) else 0 for _ in range(2))
        history = self.history[head : len(self.history) - tail] or self.history
        reply = self._do({"op": "resend"}, history)
        if reply is None or not self._has("own-output") or not dice.once_in(3):
            return
        shown = {entry["id"]: entry["text"] for entry in reply["view"]}
        echo = [{**entry, "text": shown.get(entry["id"], entry["text"])} for entry in self.history]
        self._do({"op": "resend"}, echo)
        if dice.once_in(2):  # from now on the host holds what it was shown
            self.history = echo
        else:
            self._forget_shown()

    def _edit(self, dice: Dice) -> None:
        position = self.position(dice, self.history)
        history = list(self.history)
        history[position] = self.draw_edit(dice, history[position])
        if self._do({"op": "edit", "id": history[position]["id"]}, history) is not None:
            self._take(history)

    def _reload(self, _: Dice) -> None:
        self._forget_shown()  # what is stored is the messages
        self._do({"op": "reload"})

    def _unlatch(self, dice: Dice) -> None:
        latched = [entry for entry in self.history if self.run.model.latches.get(entry["id"])]
        target = self._pick(dice, latched or self.history)
        self._do({"op": "unlatch", "id": target["id"]})

    def _fork(self, dice: Dice) -> None:
        upto = max(1, len(self.history) - dice.below(4))
        if self._do({"op": "fork", "upto": upto}, self.history[:upto]) is not None:
            self._take(self.history[:upto])

    def _release(self, dice: Dice) -> None:
        self._forget_shown()  # who puts a drop back looks at the messages, not at what was shown of them
        drops = list(self.run.model.quarantine)
        self._do({"op": "release", "drop": dice.pick(drops) if drops else "none"})

    def _adopt(self, dice: Dice) -> None:
        refs = [ref for ref in self.run.model.refs.values() if ref != BLOCKED]
        ref = dice.pick([*reversed(refs), _NOBODYS, BLOCKED])
        view = dice.pick(_VIEWS) if self._has("view-latch") else None
        self._do({"op": "adopt", "ref": ref, "text": "[clip] old", "view": view})

    def _malformed(self, dice: Dice) -> None:
        make = MALFORMED[dice.pick(tuple(MALFORMED))]
        history, op = make(self.history, self.run.model.refs)
        self._do(op, history)

    def _undeclared(self, dice: Dice) -> None:
        first = self.history[0]["id"]
        ops: dict[str, Json] = {
            "view-latch": {"op": "latch", "id": first, "text": "x", "view": "crushed"},
            "protect": {"op": "append", "ids": [], "protected": [first]},
            "numbering": {"op": "restamp", "numbering": {first: "m00009"}},
            "crash": {"op": "restamp", "crash": 1},
        }
        missing = [op for name, op in ops.items() if not self._has(name)]
        self._do(dice.pick(missing) if missing else {"op": "reload"})

    # --- what it draws ---

    @staticmethod
    def _pick(dice: Dice, entries: Sequence[Json]) -> Json:
        return entries[dice.from_end(len(entries))]

    def position(self, dice: Dice, history: Sequence[Json]) -> int:
        """Choose a message of *history*: half of the time one that carries a latch."""
        latched = [at for at, entry in enumerate(history) if self.run.model.latches.get(entry["id"])]
        if dice.once_in(2) and latched:
            return latched[dice.from_end(len(latched))]
        return dice.from_end(len(history))

    def draw_messages(self, dice: Dice, new: Sequence[Json]) -> list[Json]:
        """Give new messages: a shape of its own, a twin of one in the history or in *new*, or what was removed."""
        shape = dice.pick(_SHAPE_NAMES)
        pool = [*self.history, *new]
        if shape == "back":  # what was removed comes again, best what a dropped latch waits for
            gone = {drop.latch.identity for drop in self.run.model.quarantine.values() if drop.reason == "gone"}
            removed = list(self.removed.values())
            protected = self.run.model.protected
            missed = [entry for entry in removed if identity_of(entry) in gone or entry["id"] in protected]
            pool, shape = missed or removed or pool, "twin"
        if shape == "twin" and pool:
            entry = self._pick(dice, pool)
            taken = {other["id"] for other in (*self.history, *new)}
            free = entry["id"] not in taken and dice.once_in(2)
            return [{**self.originals.get(entry["id"], entry), "id": entry["id"] if free else self.new_id()}]
        made, call_id = [], f"call{self._count}"
        for role, kind in SHAPES.get(shape, SHAPES["user"]):
            made.append(make_message(self.new_id(), role, kind, self._draw_text(dice, kind), call_id))
        return made

    def _draw_text(self, dice: Dice, kind: str) -> str:
        return make_text(dice, kind, lone_surrogates=self._has("lone-surrogates"))

    def draw_edit(self, dice: Dice, entry: Json) -> Json:
        """Give *entry* with one thing changed, its original form the start."""
        original = self.originals[entry["id"]]
        what = dice.pick(_EDITS)
        if what == "text":
            return {**original, "text": self._draw_text(dice, entry["kind"])}
        if what == "near":
            return {**original, "text": make_near(dice, original["text"])}
        if what == "shift":  # the same letters, cut elsewhere
            joined = (original["tool_call_id"] or "") + original["text"]
            return {**original, "tool_call_id": joined[:-1], "text": joined[-1:]}
        if what == "swap":
            return {**original, "tool_name": original["tool_call_id"], "tool_call_id": original["tool_name"]}
        if what == "twin":
            return {**dice.pick(list(self.originals.values())), "id": entry["id"]}
        values = {"role": ("user", "assistant", "tool"), "kind": ("tool-result", "text", "tool-call")}
        return {**original, what: dice.pick(values.get(what, (None, "", "other", "call1")))}

    def _draw_numbering(self, dice: Dice, history: Sequence[Json]) -> dict[str, str]:
        ids = [entry["id"] for entry in history]
        named = ids if dice.once_in(2) else ids[: dice.below(len(ids) + 1)]
        start, gap = dice.pick(_STARTS), 1 + dice.below(3)
        numbers = [start + gap * index for index in range(len(named))]
        if dice.once_in(2):
            numbers.reverse()
        numbering = {key: f"m{number:05d}" for key, number in zip(named, numbers, strict=True)}
        if self._has("protect") and named and dice.once_in(16):
            numbering[named[self.position(dice, history[: len(named)])]] = BLOCKED
        if dice.once_in(8):
            numbering["elsewhere"] = f"m{start + gap * len(named):05d}"
        return numbering

    # --- what it remembers ---

    def _forget_shown(self) -> None:
        """Hold the messages in their own form again."""
        self.history = [self.originals[entry["id"]] for entry in self.history]

    def _take(self, history: Sequence[Json]) -> None:
        """Hold *history* from now on."""
        present = {entry["id"] for entry in history}
        gone = [entry["id"] for entry in self.history if entry["id"] not in present]
        self.removed |= {key: self.originals[key] for key in gone}
        held = {entry["id"]: entry for entry in self.history}
        for entry in history:
            if entry["id"] not in self.originals or entry != held.get(entry["id"]):
                self.originals[entry["id"]] = entry
        self.history = list(history)

    def _note(self, action: str) -> None:
        self._moved_and_replayed(action)
        if "holds twins" not in self.events:
            found = [identity_of(entry) for entry in self.history]
            if len(set(found)) < len(found):
                self.events.add("holds twins")

    def _moved_and_replayed(self, action: str) -> None:
        if action == "resend" and self._moved:
            self.events.add("latch, restamp that moves its ref, replay")

    def _latched_refs(self) -> set[tuple[str, Held]]:
        model = self.run.model
        return {(model.refs[key], latch) for key, held in model.latches.items() if key in model.refs for latch in held}

    def _note_moves(self, before: set[tuple[str, Held]]) -> None:
        after = self._latched_refs()
        old, new = ({latch for _, latch in side} for side in (before - after, after - before))
        self._moved = self._moved or not old.isdisjoint(new)
        refs = self.run.model.refs
        calls = {refs.get(entry["id"]) for entry in self.history if entry["kind"] == "tool-call"}
        if any(ref in calls for ref, _ in before - after):
            self.events.add("the old ref on a tool call")


# --- what a restamp finds in place of the old history ---

_Change: TypeAlias = Callable[[Host, Dice, list[Json]], list[Json]]


def _rotate(_: Host, dice: Dice, history: list[Json]) -> list[Json]:
    cut = 1 + dice.below(len(history) - 1)
    return history[cut:] + history[:cut]


def _reverse(_host: Host, _: Dice, history: list[Json]) -> list[Json]:
    return history[::-1]


def _drop_head(_: Host, dice: Dice, history: list[Json]) -> list[Json]:
    return history[1 + dice.below(2) :] or history


def _drop_tail(_: Host, dice: Dice, history: list[Json]) -> list[Json]:
    return history[: len(history) - 1 - dice.below(2)] or history


def _drop_one(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    position = host.position(dice, history)
    return history[:position] + history[position + 1 :] or history


def _insert(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    position = dice.from_end(len(history) + 1)
    return history[:position] + host.draw_messages(dice, history) + history[position:]


def _rename(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    """Give ids anew from some message on, as a client does that does not store them."""
    start = dice.from_end(len(history))
    return [*history[:start], *({**entry, "id": host.new_id()} for entry in history[start:])]


def _rename_one(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    position = host.position(dice, history)
    renamed = {**history[position], "id": host.new_id()}
    return [*history[:position], renamed, *history[position + 1 :]]


def _regroup(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    """Give new ids to all that are equal to one message, and lose or repeat one of them."""
    found = identity_of(history[host.position(dice, history)])
    equal = [at for at, entry in enumerate(history) if identity_of(entry) == found]
    renamed = [{**entry, "id": host.new_id()} if at in equal else entry for at, entry in enumerate(history)]
    if dice.once_in(2) and len(history) > 1:
        return renamed[: equal[-1]] + renamed[equal[-1] + 1 :]
    return [*renamed, {**renamed[equal[-1]], "id": host.new_id()}]


def _change_one(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    position = host.position(dice, history)
    if history[position]["id"] not in host.originals:
        return history
    return [*history[:position], host.draw_edit(dice, history[position]), *history[position + 1 :]]


def _echo_one(host: Host, dice: Dice, history: list[Json]) -> list[Json]:
    """Give our output for a message back under a new id, as a client does that stored what it was sent."""
    position = host.position(dice, history)
    entry = history[position]
    shown = min(host.run.model.shown(entry))
    return [*history[:position], {**entry, "text": shown, "id": host.new_id()}, *history[position + 1 :]]


def _nothing(_host: Host, _: Dice, history: list[Json]) -> list[Json]:
    return history


_CHANGES: Final[dict[str, _Change]] = {
    "rotate": _rotate, "insert": _insert, "drop head": _drop_head, "drop one": _drop_one, "reverse": _reverse,
    "rename one": _rename_one, "rename": _rename, "change one": _change_one, "drop tail": _drop_tail,
    "nothing": _nothing, "echo one": _echo_one, "regroup": _regroup,
}  # fmt: skip

_SHAPE_NAMES: Final = ("pair", "user", "twin", *SHAPES, "pair", "twin", "back")
_EDITS: Final = ("text", "near", "kind", "role", "tool_call_id", "near", "tool_name", "twin", "near", "swap", "shift")
_VIEWS: Final = (None, None, None, "crushed", "hidden")
_FEW: Final = (1, 1, 1, 2, 3)
