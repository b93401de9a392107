"""Hold a kernel's account of its latches against what an op may do to them, and take the account over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import define, field, frozen

from latchguard.testing.accounts import Account, Slots
from latchguard.testing.fates import Fate, Fates, Held
from latchguard.testing.laws import Violation, violation

__all__ = ["SURVIVAL", "DropRecord", "Plan", "Settlement", "alike_drops", "settle"]

# The law that is broken where a text does not survive an op.
SURVIVAL: Final = {"restamp": "view-survives", "append": "prefix-stable", "reload": "survives-reload"}


# A message and whether its view or its clip is meant, or a drop and None.
_Way: TypeAlias = tuple[str, bool | None]


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
        pairs = [
            ((key, latch), self.plan.fates.by_latch.get((key, latch)) or Fate(frozenset((key,)), frozenset()))
            for key, held in latches.items()
            for latch in held
        ]
        pairs.sort(key=lambda pair: len(pair[1].homes) + len(pair[1].reasons))
        missing = [key for key in self.old if key not in self.account.quarantine and not self.plan.forks]
        ways = [self._ways(key, latch, fate) for (key, latch), fate in pairs]
        # What looks alike is told apart by that all must get somewhere: the latches, and the drops that are no more.
        found = _match([*ways, *map(self._ways_back, missing)])
        placed = self._follow(pairs, found)
        self._revive(zip(missing, found[len(pairs) :], strict=True))
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

    def _follow(
        self, pairs: Sequence[tuple[tuple[str, Held], Fate]], found: Sequence[_Way | None]
    ) -> set[tuple[str, Held]]:
        """Take each latch to where it was found; give those that have a home."""
        placed: set[tuple[str, Held]] = set()
        for ((key, latch), _), way in zip(pairs, found, strict=False):
            if way is not None and way[1] is None:
                self.after.quarantine[way[0]] = DropRecord(latch, self.added.pop(way[0])[2])
            elif way is not None:
                self._place(latch, way[:1])
                placed.add((key, latch))
        for ((key, latch), fate), way in zip(pairs, found, strict=False):
            if way is None and key not in self.plan.may_vanish:
                raise self._lost(key, latch, fate)
        return placed

    def _ways(self, key: str, latch: Held, fate: Fate) -> list[_Way]:
        """Give where a latch may be by the account: messages, its own first, then drops."""
        content, slot = (latch.text, latch.view), latch.view is not None
        homes = sorted(fate.homes, key=lambda home: (home != key, home))
        ways: list[_Way] = [(home, slot) for home in homes if self.arrived.get(home, {}).get(slot) == content]
        for drop, (*found, reason) in self.added.items():
            if (*found,) == content and reason in fate.reasons:
                ways.append((drop, None))
        return ways

    def _ways_back(self, key: str) -> list[_Way]:
        """Give the messages on which a drop that is no more may be by the account."""
        fate = Fate(
            frozenset().union(*(self.plan.revivals.get(other, ()) for other in alike_drops(self.old, key))), frozenset()
        )
        return self._ways("", self.old[key].latch, fate)

    def _place(self, latch: Held, homes: Collection[str]) -> bool:
        for home in homes:
            slots = self.arrived.get(home, {})
            if slots.get(latch.view is not None) == (latch.text, latch.view):
                del slots[latch.view is not None]
                self.after.latches[home].append(latch)
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

    def _revive(self, found: Iterable[tuple[str, _Way | None]]) -> None:
        """Take what left the quarantine home; drops that a report cannot tell apart stand for one another."""
        revived: list[str] = []
        for key, way in found:
            drop = self.old[key]
            where = f"the dropped latch {drop.latch.text!r}"
            alike = [other for other in alike_drops(self.old, key) if other not in revived]
            if not any(other in self.plan.revivals for other in alike):
                raise violation("only-gone-returns", where, f"in quarantine, {drop.reason}", "not in quarantine")
            homes = () if way is None else way[:1]
            for other in alike:
                if self._place(self.old[other].latch, self.plan.revivals.get(other, frozenset()).intersection(homes)):
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


def _match(ways: Sequence[Sequence[_Way]]) -> list[_Way | None]:
    """Give each its first way that nobody else needs, None where there is none."""
    taken: dict[_Way, int] = {}

    def take(index: int, tried: set[_Way]) -> bool:
        for way in ways[index]:
            if way not in tried:
                tried.add(way)
                if way not in taken or take(taken[way], tried):
                    taken[way] = index
                    return True
        return False

    for index in range(len(ways)):
        take(index, set())
    found = {index: way for way, index in taken.items()}
    return [found.get(index) for index in range(len(ways))]


def alike_drops(quarantine: Mapping[str, DropRecord], key: str) -> list[str]:
    """Give the drops that a report cannot tell from *key*, which comes first."""
    alike = [other for other, drop in quarantine.items() if drop.content == quarantine[key].content]
    return sorted(alike, key=lambda other: other != key)
