"""Hold a kernel's account of its latches against what an op may do to them, and take the account over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from latchguard.testing.accounts import Account, Slots
from latchguard.testing.fates import Fate, Fates, Held
from latchguard.testing.laws import Violation, violation

__all__ = ["SURVIVAL", "DropRecord", "Plan", "Settlement", "alike_drops", "settle"]

# The law that is broken where a text does not survive an op.
SURVIVAL: Final = {"restamp": "view-survives", "append": "prefix-stable", "reload": "survives-reload"}


@frozen
class DropRecord:
    """A drop as the model knows it."""

    latch: Held
    reason: str

    @property
    def content(self) -> tuple[str, str | None, str]:
        """What a report says of it."""
        return self.latch.text, self.latch.view, self.reason


@frozen
class Plan:
    """What an op may do to the latches.

    Args:
        fates: of each latch that need not stay where it is.
        made: the new latch with its message.
        revivals: drop id -> the messages that it may come back to.
        must_revive: sets of drop ids, each with how many of them must come back.
        may_vanish: the messages whose latches may go without trace (those that a fork leaves behind).
        forks: whether the quarantine may stay behind, or come along under other names.
    """

    fates: Fates = field(factory=Fates)
    made: tuple[str, Held] | None = None
    revivals: Mapping[str, frozenset[str]] = field(factory=dict)
    must_revive: Sequence[tuple[frozenset[str], int]] = ()
    may_vanish: frozenset[str] = frozenset()
    forks: bool = False


@define
class Settlement:
    """Where everything is after an op.

    Args:
        latches: message id -> the latches in force on it.
        quarantine: drop id -> the drop.
    """

    latches: defaultdict[str, list[Held]] = field(factory=lambda: defaultdict(list))
    quarantine: dict[str, DropRecord] = field(factory=dict)


def settle(
    latches: Mapping[str, Sequence[Held]],
    quarantine: Mapping[str, DropRecord],
    plan: Plan,
    account: Account,
    op_name: str,
) -> Settlement:
    """Find each latch of before in the account of after.

    Args:
        latches: message id -> the latches in force on it, before.
        quarantine: drop id -> the drop, before.
        plan: what the op may do.
        account: what the kernel reports.
        op_name: the op, for the name of the law.

    Raises:
        Violation: a latch is where it may not be, nowhere, or there is one that was never made.
    """
    return _Search(quarantine, plan, account, op_name).run(latches)


class _Search:
    def __init__(self, quarantine: Mapping[str, DropRecord], plan: Plan, account: Account, op_name: str) -> None:
        self.old, self.plan, self.account, self.op_name = quarantine, plan, account, op_name
        self.arrived: dict[str, Slots] = {key: dict(slots) for key, slots in account.bound.items()}
        self.added = {key: entry for key, entry in account.quarantine.items() if key not in quarantine}
        self.after = Settlement()

    def run(self, latches: Mapping[str, Sequence[Held]]) -> Settlement:
        self._keep_drops()
        if self.plan.made:
            home, made = self.plan.made
            if not self._place(made, (home,)):
                raise violation("latch-shows", home, f"the latch {made.text!r} in the report", "none")
        placed = self._follow(latches)
        self._revive()
        self._expect_nothing_else()
        for group, least in self.plan.fates.quotas:
            if len(group & placed) < least:
                raise violation("right-home", f"{len(group)} equal latches", f"{least} bound", len(group & placed))
        return self.after

    def _keep_drops(self) -> None:
        for key, drop in self.old.items():
            if key in self.account.quarantine:
                if self.account.quarantine[key] != drop.content:
                    raise violation("right-reason", f"drop {key}", drop.content, self.account.quarantine[key])
                self.after.quarantine[key] = drop
        if self.plan.forks:
            left = [drop for key, drop in self.old.items() if key not in self.after.quarantine]
            for key, content in list(self.added.items()):
                for drop in left:
                    if drop.content == content:
                        self.after.quarantine[key] = drop
                        left.remove(drop)
                        del self.added[key]
                        break

    def _follow(self, latches: Mapping[str, Sequence[Held]]) -> set[tuple[str, Held]]:
        """Follow each latch to its home or into quarantine, those with the least freedom first."""
        placed: set[tuple[str, Held]] = set()
        pairs = [
            ((key, latch), self.plan.fates.by_latch.get((key, latch)) or Fate(frozenset((key,)), frozenset()))
            for key, held in latches.items()
            for latch in held
        ]
        pairs.sort(key=lambda pair: len(pair[1].homes) + len(pair[1].reasons))
        for (key, latch), fate in pairs:
            if self._place(latch, sorted(fate.homes, key=lambda home: (home != key, home))):
                placed.add((key, latch))
            elif not self._drop(latch, fate.reasons) and key not in self.plan.may_vanish:
                raise self._lost(key, latch, fate)
        return placed

    def _place(self, latch: Held, homes: Collection[str]) -> bool:
        for home in homes:
            slots = self.arrived.get(home, {})
            if slots.get(latch.view is not None) == (latch.text, latch.view):
                del slots[latch.view is not None]
                self.after.latches[home].append(latch)
                return True
        return False

    def _drop(self, latch: Held, reasons: Collection[str]) -> bool:
        for key, (text, view, reason) in self.added.items():
            if (text, view) == (latch.text, latch.view) and reason in reasons:
                del self.added[key]
                self.after.quarantine[key] = DropRecord(latch, reason)
                return True
        return False

    def _lost(self, key: str, latch: Held, fate: Fate) -> Violation:
        """Name the law that is broken where a latch is neither in a home that it may have nor rightly dropped."""
        wanted = " or ".join([f"on {home}" for home in sorted(fate.homes)] + sorted(fate.reasons))
        where = f"the latch {latch.text!r} of {key}"
        for text, view, reason in self.added.values():
            if (text, view) == (latch.text, latch.view):
                law = "right-reason" if fate.reasons else SURVIVAL.get(self.op_name, "nothing-vanishes")
                return violation(law, where, wanted, f"dropped: {reason}")
        for home, slots in self.arrived.items():
            if slots.get(latch.view is not None) == (latch.text, latch.view):
                law = "right-home" if self.op_name == "restamp" else "nothing-vanishes"
                return violation(law, where, wanted, f"on {home}")
        return violation("nothing-vanishes", where, wanted, "neither in force nor in quarantine")

    def _revive(self) -> None:
        """Find what left the quarantine; drops that a report cannot tell apart stand for one another."""
        revived: list[str] = []
        for key, drop in self.old.items():
            if key in self.account.quarantine or self.plan.forks:
                continue
            where = f"the dropped latch {drop.latch.text!r}"
            alike = [other for other in alike_drops(self.old, key) if other not in revived]
            if not any(other in self.plan.revivals for other in alike):
                raise violation("only-gone-returns", where, f"in quarantine, {drop.reason}", "not in quarantine")
            for other in alike:
                if self._place(self.old[other].latch, self.plan.revivals.get(other, ())):
                    revived.append(other)
                    if other in self.after.quarantine:
                        self.after.quarantine[other] = drop
                    break
            else:
                raise violation("nothing-vanishes", where, "in force or in quarantine", "neither")
        for group, least in self.plan.must_revive:
            if len(group.intersection(revived)) < least:
                text = self.old[min(group)].latch.text
                raise violation("only-gone-returns", f"the dropped latch {text!r}", "back in force", "in quarantine")

    def _expect_nothing_else(self) -> None:
        for key, slots in self.arrived.items():
            for text, _ in slots.values():
                raise violation("nothing-from-nothing", key, "no such latch", repr(text))
        for text, _, _ in self.added.values():
            raise violation("nothing-from-nothing", "report.quarantine", "no such drop", repr(text))


def alike_drops(quarantine: Mapping[str, DropRecord], key: str) -> list[str]:
    """Give the drops that a report cannot tell from *key*, which comes first."""
    alike = [other for other, drop in quarantine.items() if drop.content == quarantine[key].content]
    return sorted(alike, key=lambda other: other != key)
