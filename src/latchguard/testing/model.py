"""The model: reads a trace of ops and replies and raises a `Violation` where a reply breaks a law.

1. It keeps ids, refs, latches and quarantine of its own, and imports nothing of what it judges.
2. What must be so is demanded; where the contract leaves freedom (`fates.py`) any choice is taken over from the
   kernel's report, and the view is then held against it.
3. The gravest is looked at first: a text on a message that it was not made for, before any book-keeping.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, evolve, field

from latchguard.testing.accounts import (
    Account,
    check_kept_refs,
    check_moved,
    check_new_refs,
    read_account,
    stray_key,
    stray_ref,
)
from latchguard.testing.fates import (
    UNIDENTIFIED,
    Fate,
    Fates,
    Held,
    Identity,
    differs,
    identity_of,
    is_form,
    plan_restamp,
)
from latchguard.testing.laws import violation
from latchguard.testing.protocol import (
    BLOCKED,
    LATCHABLE_KINDS,
    REASONS,
    Json,
    check_op,
    needed_capabilities,
)
from latchguard.testing.replays import APPLIED, HIDDEN, Expected, check_replayed
from latchguard.testing.settling import SURVIVAL, DropRecord, Plan, alike_drops, settle

__all__ = ["Model"]

_SUPERSEDED: Final = frozenset(("superseded",))
_FREE: Final = (APPLIED, HIDDEN, "hash-mismatch")


@define
class Model:
    """What the laws know of one conversation, from its ops and replies alone.

    Args:
        capabilities: what the kernel declares.
        known: message id -> identity, of the history as it was last seen whole, in order.
        shadows: likewise of those that are not in it, but have a row with the kernel.
        refs: message id -> ref, as reported.
        latches: message id -> the latches in force on it.
        quarantine: drop id -> the latch and why.
        issued: the refs since the last restamp.
        protected: the ids that were ever protected.
        ever: identity -> every text that was ever latched for it.
        counts: version and epoch, as reported.
    """

    capabilities: Collection[str]
    known: dict[str, Identity] = field(factory=dict)
    shadows: dict[str, Identity] = field(factory=dict)
    refs: dict[str, str] = field(factory=dict)
    latches: dict[str, list[Held]] = field(factory=dict)
    quarantine: dict[str, DropRecord] = field(factory=dict)
    issued: set[str] = field(factory=set)
    protected: set[str] = field(factory=set)
    ever: dict[Identity, set[str]] = field(factory=lambda: defaultdict(set))
    counts: tuple[int, int] = (0, 0)

    def observe(self, history: Sequence[Json], op: Json, reply: Mapping[str, Any], *, changed: bool) -> None:
        """Hold one reply against the laws and take over what it says.

        Args:
            history: as it was given to the kernel.
            op: likewise.
            reply: of a shape that `check_reply` takes.
            changed: whether the reply's state differs from the one that was given.

        Raises:
            Violation: a law is broken; the model is of no use afterwards.
        """
        events = {event["event"]: event for event in reply["events"]}
        refused = events.get("refused")
        if problem := check_op(history, op):
            self._expect_refusal(op, problem, refused, changed=changed)
            return
        if missing := needed_capabilities(op) - set(self.capabilities):
            if refused is None or changed:
                raise violation("capabilities", op["op"], f"a refusal, {sorted(missing)} being undeclared", "none")
            return
        if "crashed" in events:
            self._observe_crash(history, op, events, changed=changed)
            self._check_versions(op, events["report"], changed=changed)
            return
        self._check_texts(history, op, reply["view"])
        if refused is not None:
            self._check_refused(history, op, refused["reason"], changed=changed)
        else:
            self._check_change(history, op, changed=changed)
            self._apply(history, op, events)
        self._check_view(history, op, reply["view"])
        if "replay-report" in self.capabilities:
            check_replayed(events.get("replayed"), self._expect_of_replay(history), reply["view"])
        self._check_versions(op, events["report"], changed=changed)

    def _check_versions(self, op: Json, report: Mapping[str, Any], *, changed: bool) -> None:
        if "versions" not in self.capabilities:
            return
        if not {"version", "epoch"} <= report.keys():
            raise violation("capabilities", "versions", "version and epoch in the report", "neither or one")
        found = (report["version"], report["epoch"])
        wanted = (self.counts[0] + changed, self.counts[1] + (changed and op["op"] == "restamp"))
        if found != wanted and op["op"] != "fork":
            raise violation("versions", op["op"], f"version and epoch {wanted}", found)
        self.counts = found

    def fork(self) -> Model:
        """Give a model that goes on from here on its own."""
        ever = defaultdict(set, {identity: set(texts) for identity, texts in self.ever.items()})
        return evolve(self, issued=set(self.issued), ever=ever)

    def shown(self, message: Mapping[str, Any]) -> frozenset[str]:
        """Give the texts that *message*, in the form given, may show: one, but where the contract is silent."""
        found, held = identity_of(message), self.latches.get(message["id"], ())
        if found[1] not in LATCHABLE_KINDS or self.refs.get(message["id"]) in (None, BLOCKED):
            return frozenset((message["text"],))
        if live := self._live(message, held):
            text = min(live, key=lambda latch: latch.view is not None).text
            sure = self._own_output or any(latch.identity == found for latch in live)
            return frozenset((text,)) if sure else frozenset((text, message["text"]))
        return frozenset((message["text"], *(latch.text for latch in self._stale(message, held))))

    def _live(self, message: Mapping[str, Any], held: Sequence[Held]) -> list[Held]:
        """Give those of *held* that *message* is a form for."""
        return [latch for latch in held if is_form(identity_of(message), latch.identity, self._forms(held))]

    def _stale(self, message: Mapping[str, Any], held: Sequence[Held]) -> list[Held]:
        """Give those of which *message* is a form that is cleared by now: to know it or not is the kernel's choice."""
        *rest, text = identity_of(message)
        return [latch for latch in held if rest == [*latch.identity[:4]] and text in self.ever[latch.identity]]

    @property
    def _own_output(self) -> bool:
        return "own-output" in self.capabilities

    def _forms(self, held: Sequence[Held]) -> Sequence[Held]:
        """Give the latches whose texts a message may come back with: its own, and those that they superseded."""
        return [*held, *(drop.latch for drop in self.quarantine.values() if drop.reason == "superseded")]

    # --- refusals ---

    def _expect_refusal(self, op: Json, problem: str, refused: Json | None, *, changed: bool) -> None:
        if refused is None:
            raise violation("malformed-refused", str(op.get("op")), f"a refusal: {problem}", "no refusal")
        if changed:
            raise violation("malformed-refused", str(op.get("op")), "an unchanged state", "another state")

    def _refusable(self, history: Sequence[Json], op: Json) -> frozenset[str]:
        """Give the reasons for which *op*, well-formed, has to be refused; empty where it must be done."""
        if op["op"] == "latch":
            message = next(message for message in history if message["id"] == op["id"])
            reasons = {"forbidden-kind"} if message["kind"] not in LATCHABLE_KINDS else set()
            ref = self.refs.get(op["id"])
            if ref is None:
                return frozenset(reasons | {"unassigned-ref", "unknown-message"})
            return frozenset(reasons | {"blocked-ref"} if ref == BLOCKED else reasons)
        if op["op"] == "adopt":
            slots = {latch.view is None for latch in self.latches.get(self._holder(op["ref"]), ())}
            return frozenset(("superseded",)) if (op.get("view") is None) in slots else frozenset()
        if op["op"] == "release":
            alike = alike_drops(self.quarantine, op["drop"]) if op["drop"] in self.quarantine else []
            homes = [self._release_homes(history, self.quarantine[drop]) for drop in alike]
            return frozenset() if homes and all(len(found) == 1 for found in homes) else REASONS
        return frozenset()

    def _check_refused(self, history: Sequence[Json], op: Json, reason: str, *, changed: bool) -> None:
        if changed:
            raise violation("malformed-refused", op["op"], "an unchanged state after a refusal", "another state")
        allowed = self._refusable(history, op)
        if op["op"] == "release" and not allowed and self._slot_taken(history, op):
            return
        if op["op"] == "unlatch" and not self.latches.get(op["id"]):
            return
        if op["op"] in ("latch", "unlatch") and reason == "identity-mismatch" and self._is_old_output(history, op):
            return
        if not allowed:
            raise violation("capabilities", op["op"], "what is declared and well-formed is done", f"refused: {reason}")
        if reason not in allowed and op["op"] != "release":
            raise violation("right-reason", op["op"], f"one of {sorted(allowed)}", reason)

    def _is_old_output(self, history: Sequence[Json], op: Json) -> bool:
        """Whether the host holds a text that a latch once showed: a store may hold the message's own all the while."""
        found = identity_of(next(message for message in history if message["id"] == op["id"]))
        return any(found[:4] == identity[:4] and found[4] in texts for identity, texts in self.ever.items())

    def _check_change(self, history: Sequence[Json], op: Json, *, changed: bool) -> None:
        if op["op"] == "release" and op["drop"] in self.quarantine:
            return  # whether it may come back is looked at where it comes back
        if allowed := self._refusable(history, op):
            law = "not-into-arguments" if "forbidden-kind" in allowed and op["op"] == "latch" else "right-reason"
            raise violation(law, op["op"], f"a refusal for one of {sorted(allowed)}", "it was done")
        same = op["op"] in ("resend", "reload") and bool(self.refs)
        if op["op"] == "append":
            same = all(self.known.get(m["id"]) == identity_of(m) for m in history) and not (
                set(op.get("protected") or ()) - self.protected
            )
        if op["op"] == "latch":
            same = self._latch_exists(history, op) and all(self.known.get(m["id"]) == identity_of(m) for m in history)
        if op["op"] == "unlatch":
            same = not self.latches.get(op["id"])
        if same and changed:
            raise violation(
                "survives-reload" if op["op"] == "reload" else "idempotent",
                op["op"],
                "the very state that was given",
                "another state",
            )

    def _latch_exists(self, history: Sequence[Json], op: Json) -> bool:
        found = identity_of(next(message for message in history if message["id"] == op["id"]))
        held = self.latches.get(op["id"], ())
        return any(
            (latch.text, latch.view) == (op["text"], op.get("view"))
            and is_form(found, latch.identity, self._forms(held))
            for latch in held
        )

    # --- texts ---

    def _check_texts(self, history: Sequence[Json], op: Json, view: Sequence[Json]) -> None:
        """Look for a text where it can never be right, whatever the kernel reports."""
        if [entry["id"] for entry in view] != [message["id"] for message in history]:
            raise violation("view-is-history", op["op"], "the messages of the history", [entry["id"] for entry in view])
        for message, entry in zip(history, view, strict=True):
            for name in entry.keys() & message.keys() - {"text"}:
                if entry[name] != message[name]:
                    raise violation("view-is-history", f"{message['id']}.{name}", message[name], entry[name])
            if entry["text"] == message["text"]:
                continue
            if message["kind"] not in LATCHABLE_KINDS:
                raise violation("not-into-arguments", message["id"], repr(message["text"]), repr(entry["text"]))
            if entry["text"] not in self._possible(message, op):
                raise violation("right-message", message["id"], repr(message["text"]), repr(entry["text"]))

    def _possible(self, message: Mapping[str, Any], op: Json) -> Iterator[str]:
        found = identity_of(message)
        if op["op"] == "latch" and (op["id"] == message["id"] or found == self.known.get(op["id"])):
            yield op["text"]
        for identity, texts in self.ever.items():
            if found == identity or (found[:4] == identity[:4] and found[4] in texts):
                yield from texts

    def _check_view(self, history: Sequence[Json], op: Json, view: Sequence[Json]) -> None:
        for message, entry in zip(history, view, strict=True):
            allowed = self.shown(message)
            if entry["text"] in allowed:
                continue
            name = SURVIVAL.get(op["op"], "latch-shows")
            if entry["text"] != message["text"]:
                twin = any(
                    latch.text == entry["text"] and latch.identity == identity_of(message)
                    for key, held in self.latches.items()
                    for latch in held
                    if key != message["id"]
                )
                name = "twins-stay-two" if twin else "right-message"
            raise violation(name, message["id"], " or ".join(map(repr, sorted(allowed))), repr(entry["text"]))

    # --- what a replay tells ---

    def _expect_of_replay(self, history: Sequence[Json]) -> dict[tuple[str, bool], Expected]:
        messages = {message["id"]: message for message in history}
        return {
            (self.refs.get(key) or stray_ref(key) or "", latch.view is not None): Expected(
                latch, key if key in messages else None, self._outcomes(key, messages.get(key), latch, held)
            )
            for key, held in self.latches.items()
            for latch in held
        }

    def _outcomes(self, key: str, message: Json | None, latch: Held, held: Sequence[Held]) -> Collection[str]:
        """Say what a replay may do with *latch*, one of those *held* by the message *key*."""
        if message is None:
            ref = stray_ref(key)
            return ("blocked-ref" if ref == BLOCKED else "unassigned-ref" if ref else "holder-absent",)
        found, live = identity_of(message), self._live(message, held)
        if latch in live:
            sure = self._own_output or any(other.identity == found for other in live)
            shows = latch == min(live, key=lambda other: other.view is not None)
            return (APPLIED if shows else HIDDEN,) if sure else _FREE
        if not live and latch in self._stale(message, held):
            return _FREE
        reason = differs(found, latch.identity)
        return (reason,) if found[1] in LATCHABLE_KINDS else (reason, "forbidden-kind")

    # --- changes ---

    def _apply(self, history: Sequence[Json], op: Json, events: Mapping[str, Json]) -> None:
        strays = self._strays() | ({op["ref"]} if op["op"] == "adopt" else set())
        account, protected = read_account(events["report"], strays), self._protected_after(op)
        if op["op"] == "restamp":
            check_new_refs(account.refs, history, op.get("numbering"), protected)
            if "crash" not in op:
                check_moved(events.get("moved"), self.refs, account.refs)
        else:
            self._check_rows(history, op, account)
            check_kept_refs(self.refs, account.refs, history, protected, self.issued)
        plan = self._plan(history, op, protected)
        settled = settle(self.latches, self.quarantine, plan, account, op["op"])
        self.latches, self.quarantine = dict(settled.latches), settled.quarantine
        self._remember(history, op, account, protected)

    def _check_rows(self, history: Sequence[Json], op: Json, account: Account) -> None:
        """A known message keeps its row, but that a fork leaves behind what it does not take along."""
        present = {message["id"] for message in history}
        for message_id, ref in self.refs.items():
            if message_id not in account.refs and (op["op"] != "fork" or message_id in present):
                raise violation("refs", message_id, ref, "none")

    def _protected_after(self, op: Json) -> set[str]:
        new = set(op.get("protected") or ())
        new |= {key for key, ref in (op.get("numbering") or {}).items() if ref == BLOCKED}
        return self.protected | new

    # --- plans: what an op may do to the latches ---

    def _plan(self, history: Sequence[Json], op: Json, protected: Collection[str]) -> Plan:
        planner: Callable[[Sequence[Json], Json, Collection[str]], Plan] | None
        planner = getattr(self, f"_plan_{op['op']}", None)
        return planner(history, op, protected) if planner else Plan()

    def _plan_append(self, history: Sequence[Json], op: Json, protected: Collection[str]) -> Plan:
        blocked = protected - self.protected  # type: ignore[operator]  # sets both
        fates = Fates()
        for message_id in blocked & self.latches.keys():
            for latch in self.latches[message_id]:
                fates.by_latch[message_id, latch] = Fate(frozenset(), frozenset(("blocked-ref",)))
        new = {message["id"]: identity_of(message) for message in history if message["id"] not in self.refs}
        return Plan(fates, None, *self._revivals(new, new, protected, fates))

    def _plan_latch(self, history: Sequence[Json], op: Json, _: Collection[str]) -> Plan:
        if self._latch_exists(history, op):
            return Plan()
        message = next(message for message in history if message["id"] == op["id"])
        found, held = identity_of(message), self.latches.get(op["id"], ())
        live = self._live(message, held)
        known = self._own_output and not any(latch.identity == found for latch in live)
        made = Held(live[0].identity if live and known else found, op["text"], op.get("view"))
        fates = Fates()
        for latch in held:
            if latch not in live:  # it waits for what the message was; one of the other class may go on waiting
                homes = frozenset() if (latch.view is None) == (made.view is None) else frozenset((op["id"],))
                fates.by_latch[op["id"], latch] = Fate(homes, frozenset((differs(found, latch.identity),)))
            elif (latch.view is None) == (made.view is None):
                fates.by_latch[op["id"], latch] = Fate(frozenset(), _SUPERSEDED)
        return Plan(fates, (op["id"], made))

    def _plan_adopt(self, _: Sequence[Json], op: Json, _protected: Collection[str]) -> Plan:
        return Plan(made=(self._holder(op["ref"]), Held(UNIDENTIFIED, op["text"], op.get("view"))))

    def _holder(self, ref: str) -> str:
        return next((key for key, held in self.refs.items() if held == ref != BLOCKED), stray_key(ref))

    def _strays(self) -> set[str]:
        """Give the refs of the adopted latches that no message holds."""
        return {ref for key, held in self.latches.items() if held and (ref := stray_ref(key))}

    def _plan_unlatch(self, history: Sequence[Json], op: Json, _: Collection[str]) -> Plan:
        message = next(message for message in history if message["id"] == op["id"])
        held = self.latches.get(op["id"], ())
        live = self._live(message, held)
        fates, cleared = Fates(), frozenset(("cleared",))
        if live:
            showing = min(live, key=lambda latch: latch.view is not None)
            fates.by_latch[op["id"], showing] = Fate(frozenset(), cleared)
            for latch in live:  # a view under the clip may be cleared with it
                fates.by_latch.setdefault((op["id"], latch), Fate(frozenset((op["id"],)), cleared))
        else:  # the latch that waits on the message may be cleared
            for latch in held:
                fates.by_latch[op["id"], latch] = Fate(frozenset((op["id"],)), cleared)
        return Plan(fates)

    def _plan_edit(self, history: Sequence[Json], op: Json, _: Collection[str]) -> Plan:
        message = next(message for message in history if message["id"] == op["id"])
        found, held = identity_of(message), self.latches.get(op["id"], ())
        fates = Fates()
        for latch in held:
            if found != latch.identity and not (self._own_output and is_form(found, latch.identity, self._forms(held))):
                reasons = frozenset((differs(found, latch.identity), "superseded"))
                fates.by_latch[op["id"], latch] = Fate(frozenset((op["id"],)), reasons)
        return Plan(fates)

    def _plan_fork(self, history: Sequence[Json], _op: Json, _: Collection[str]) -> Plan:
        present = {message["id"] for message in history}
        return Plan(may_vanish=frozenset(self.latches.keys() - present), forks=True)

    def _plan_release(self, history: Sequence[Json], op: Json, _: Collection[str]) -> Plan:
        found = {
            drop: self._release_homes(history, self.quarantine[drop])
            for drop in alike_drops(self.quarantine, op["drop"])
        }
        revivals = {drop: homes for drop, homes in found.items() if len(homes) == 1}
        homes, is_view = frozenset().union(*revivals.values()), self.quarantine[op["drop"]].latch.view is not None
        fates = Fates()
        for key in homes:
            for latch in self.latches.get(key, ()):
                waits = latch.identity != self.known[key]
                reasons = {"superseded"} | ({differs(self.known[key], latch.identity)} if waits else set())
                gives_way = len(homes) == 1 and (latch.view is not None) == is_view
                fates.by_latch[key, latch] = Fate(frozenset(() if gives_way else (key,)), frozenset(reasons))
        return Plan(fates, revivals=revivals, must_revive=[(frozenset(found), 1)])

    def _plan_restamp(self, history: Sequence[Json], _op: Json, protected: Collection[str]) -> Plan:
        new = {message["id"]: identity_of(message) for message in history}
        # What showed a text that is cleared by now may be known in that form, whatever the host holds: perhaps a twin.
        cleared = {key: drop.latch.identity for key, drop in self.quarantine.items() if drop.reason == "cleared"}
        fates = plan_restamp(
            self.known,
            self.latches,
            new,
            protected,
            self._forms(()),
            {**cleared, **self.shadows},
            own_output=self._own_output,
        )
        fresh = {key: found for key, found in new.items() if key not in self.refs}
        changed = {key: found for key, found in new.items() if self.known.get(key) != found}
        return Plan(fates, None, *self._revivals(fresh, changed, protected, fates))

    def _release_homes(self, history: Sequence[Json], drop: DropRecord) -> frozenset[str]:
        return frozenset(
            message["id"]
            for message in history
            if identity_of(message) == drop.latch.identity and self.refs.get(message["id"]) not in (None, BLOCKED)
        )

    def _slot_taken(self, history: Sequence[Json], op: Json) -> bool:
        homes = self._release_homes(history, self.quarantine[op["drop"]])
        return any(self.latches.get(key) for key in homes)

    def _revivals(
        self,
        fresh: Mapping[str, Identity],
        possible: Mapping[str, Identity],
        protected: Collection[str],
        fates: Fates,
    ) -> tuple[dict[str, frozenset[str]], list[tuple[frozenset[str], int]]]:
        """Say which `gone` drops may come back where, and how many of them must."""
        groups: dict[tuple[Identity, bool], list[str]] = defaultdict(list)
        for drop_id, drop in self.quarantine.items():
            if drop.reason == "gone":
                groups[drop.latch.identity, drop.latch.view is not None].append(drop_id)
        contested = {latch.identity for (_, latch), fate in fates.by_latch.items() if fate.homes}
        taken = frozenset().union(*(fate.homes for fate in fates.by_latch.values()))
        may: dict[str, frozenset[str]] = {}
        must: list[tuple[frozenset[str], int]] = []
        for (identity, _), drops in groups.items():
            homes = frozenset(key for key, found in possible.items() if found == identity and key not in protected)
            may |= dict.fromkeys(drops, homes)
            alike = len({(self.quarantine[drop].latch.view, self.quarantine[drop].latch.text) for drop in drops}) == 1
            certain = homes & fresh.keys() - taken
            if alike and certain and identity not in contested:
                must.append((frozenset(drops), min(len(drops), len(certain))))
        return may, must

    def _remember(self, history: Sequence[Json], op: Json, account: Account, protected: set[str]) -> None:
        if op["op"] == "resend":
            return
        present = {message["id"]: identity_of(message) for message in history}
        if op["op"] in ("restamp", "fork"):
            self.issued = set()
        seen = {**self.shadows, **self.known}
        self.shadows = {key: seen[key] for key in account.refs if key in seen and key not in present}
        self.known = present
        self.refs = dict(account.refs)
        self.issued |= {ref for ref in self.refs.values() if ref != BLOCKED}
        forgotten = op["op"] == "fork"
        self.protected = {key for key in protected if not forgotten or account.refs.get(key) == BLOCKED}
        for held in self.latches.values():
            for latch in held:
                self.ever[latch.identity].add(latch.text)

    # --- crashes ---

    def _observe_crash(self, history: Sequence[Json], op: Json, events: Mapping[str, Json], *, changed: bool) -> None:
        """A restamp that was cut short: the state is as before, or the whole restamp was made."""
        if not changed:
            return
        try:
            self._apply(history, op, events)
        except AssertionError as broken:
            raise violation("atomic", "the state after a crash", "as before or as after", str(broken)) from broken
