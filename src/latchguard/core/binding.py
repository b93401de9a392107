"""Where each latch goes when messages come, go or change ids.

For the latches of one identity X (DESIGN words; an *old twin* is a message that had X before, though it may be known
as what its latch for X shows):

1. A message whose id lives on with X keeps what it showed, latched or not. A latched one may live on in another
   form, as what its latches show.
2. The latches of the other old twins look among the messages that newly have X: one latched twin and one message
   with X: there; all old twins showed the same: any pairing, and what is over is `gone`; as many newly have X as did
   not live on: by rank, unlatched twins taking their place too; else `ambiguous`.
3. Where nothing newly has X, a message that newly shows what the latch shows takes it: our output, stored and sent
   back. That is looked for last: what another latch was made for is that one's.
4. Where there is none either: a latch whose id lives on with another identity is dropped with what differs; one
   whose id is gone too is `gone`.
5. A protected message takes no latch: `blocked-ref`.
6. `gone`, and only it, is undone when a message that was not known before has X.
7. A latch without an identity stays with the message id that has it; where that is gone: `no-identity`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import TypeAlias

from attrs import define, field, frozen

from latchguard.core.identity import Identity
from latchguard.core.latches import NO_IDENTITY, Drop, Latch, misfit, mismatch
from latchguard.core.reasons import Reason

__all__ = ["Bindings", "Twins", "bind_latches", "forms_of", "revive", "shown_identity"]


@frozen
class Bindings:
    """Where the latches go.

    Args:
        homes: each bound latch with the id of its message now.
        dropped: each latch that has none, with its reason.
        revived: each quarantined drop that is undone, with the id of its message.
    """

    homes: Sequence[tuple[Latch, str]]
    dropped: Sequence[Drop]
    revived: Sequence[tuple[Drop, str]]


@frozen
class Twins:
    """Messages before and after, as far as a latch can care.

    Args:
        old: message id -> identity before, in the old order. Only messages that carry a latch, have the identity of
            one, or show what one shows, need to be here.
        new: message id -> identity now, in the new order; likewise.
        known: the ids that were known before.
        blocked: the ids that are protected now.
        forms: identity -> its other forms, of latches that were cleared: a message that goes from what such a one was
            made for to what it showed, or back, is held in another form, and is no other message.
    """

    old: Mapping[str, Identity]
    new: Mapping[str, Identity]
    known: Container[str]
    blocked: Container[str]
    forms: Mapping[Identity, Collection[Identity]] = field(factory=dict)

    def was(self, message_id: str, identity: Identity) -> bool:
        """Say whether the message had *identity* before, or was another form of it."""
        old = self.old.get(message_id)
        return old == identity or old in self.forms.get(identity, ())


@define
class _Placed:
    """What is decided so far."""

    homes: list[tuple[Latch, str]] = field(factory=list)
    dropped: list[Drop] = field(factory=list)
    taken: set[str] = field(factory=set)

    def put(self, latches: Iterable[Latch], message_id: str) -> None:
        self.homes += ((latch, message_id) for latch in latches)
        self.taken.add(message_id)

    def drop(self, latches: Iterable[Latch], reason: Reason) -> None:
        self.dropped += (Drop(latch, reason) for latch in latches)


# An old twin that did not live on: its id (None: the latch's ref had no holder) and its latches, perhaps none.
_Orphan: TypeAlias = tuple[str | None, Sequence[Latch]]


@frozen
class _Search:
    """The old twins of one identity that did not live on.

    Args:
        identity: what they were.
        kept: the ids of the twins that did live on.
        orphans: the others, in the old order.
        alike: whether all old twins, kept ones too, showed the same.
    """

    identity: Identity
    kept: AbstractSet[str]
    orphans: Sequence[_Orphan]
    alike: bool

    @property
    def lost(self) -> Sequence[_Orphan]:
        """Those that have latches."""
        return [orphan for orphan in self.orphans if orphan[1]]


def bind_latches(
    hosted: Iterable[tuple[str | None, Latch]], gone: Iterable[Drop], twins: Twins, superseded: Collection[Latch] = ()
) -> Bindings:
    """Say where each latch and each `gone` drop goes.

    Args:
        hosted: the latches in force, each with the id of its message before, None where its ref had no holder.
        gone: the drops in quarantine whose reason is `gone`, oldest first.
        twins: the messages before and after.
        superseded: latches in quarantine that a later one replaced.

    Guarantees:
        Pure. Every latch of *hosted* is in `homes` or in `dropped`, once (I3). Two latches of one class never
        share a message.
    """
    groups: dict[Identity, dict[str | None, list[Latch]]] = defaultdict(lambda: defaultdict(list))
    for host, latch in hosted:
        groups[latch.identity][host].append(latch)
    placed = _Placed()
    for host, latches in groups.pop(NO_IDENTITY, {}).items():
        _keep_unidentified(host, latches, twins, placed)
    old, new = _old_twins(twins.old, groups), _invert(twins.new)
    kept = [
        _keep(identity, by_host, old.get(identity, ()), twins, superseded, placed)
        for identity, by_host in groups.items()
    ]
    searches = [search for search in kept if search.lost]
    carriers = [_carriers(search.identity, new, twins, placed.taken, search.kept) for search in searches]
    for search, found in zip(searches, carriers, strict=True):
        if found:
            _find(search, found, len(new[search.identity]), twins, placed)
    for search, found in zip(searches, carriers, strict=True):
        if not found:
            for orphan in search.lost:
                _find_output(orphan, search.identity, new, twins, placed)
    return Bindings(placed.homes, placed.dropped, revive(gone, placed.homes, twins))


def _keep_unidentified(host: str | None, latches: Iterable[Latch], twins: Twins, placed: _Placed) -> None:
    if host is None or host not in twins.new:
        placed.drop(latches, Reason.NO_IDENTITY)
    elif host in twins.blocked:
        placed.drop(latches, Reason.BLOCKED_REF)
    else:
        placed.put(latches, host)


def _invert(identities: Mapping[str, Identity]) -> Mapping[Identity, Sequence[str]]:
    inverse: defaultdict[Identity, list[str]] = defaultdict(list)
    for message_id, identity in identities.items():
        inverse[identity].append(message_id)
    return inverse


def _old_twins(
    old: Mapping[str, Identity], groups: Mapping[Identity, Iterable[str | None]]
) -> Mapping[Identity, Sequence[str]]:
    """Give the messages that had an identity, or carried a latch made for it: those may be known as what it showed."""
    carried: defaultdict[str | None, list[Identity]] = defaultdict(list)
    for identity, hosts in groups.items():
        for host in hosts:
            carried[host].append(identity)
    twins: defaultdict[Identity, list[str]] = defaultdict(list)
    for message_id, found in old.items():
        for identity in {found, *carried.get(message_id, ())}:
            twins[identity].append(message_id)
    return twins


def _keep(
    identity: Identity,
    by_host: Mapping[str | None, Sequence[Latch]],
    old_twins: Iterable[str],
    twins: Twins,
    superseded: Iterable[Latch],
    placed: _Placed,
) -> _Search:
    """Leave the latches of the messages that live on where they are; give the rest as a search."""
    strays = by_host.get(None, ())
    latched = {host: latches for host, latches in by_host.items() if host is not None}
    latches_of: dict[str, Sequence[Latch]] = dict.fromkeys(old_twins, ()) | latched
    kept = {host for host in latches_of if twins.new.get(host) == identity == twins.old.get(host)}
    for host, latches in latched.items():
        found = twins.new.get(host)
        if found and misfit(found, identity, chain(latches, superseded)) is None:
            kept.add(host)
            if host in twins.blocked:
                placed.drop(latches, Reason.BLOCKED_REF)
            else:
                placed.put(latches, host)
    orphans: list[_Orphan] = [pair for pair in latches_of.items() if pair[0] not in kept]
    orphans += ((None, (latch,)) for latch in strays)
    looks = {_look(latches) for latches in (*latches_of.values(), *((latch,) for latch in strays))}
    return _Search(identity, kept, orphans, len(looks) == 1)


def _look(latches: Iterable[Latch]) -> frozenset[tuple[str | None, str]]:
    return frozenset((getattr(latch, "view", None), latch.text) for latch in latches)


def _carriers(
    identity: Identity,
    new: Mapping[Identity, Sequence[str]],
    twins: Twins,
    taken: Container[str],
    kept: Container[str] = (),
) -> Sequence[str]:
    """Give the messages that newly have *identity*, in the new order, but for those that have a latch or need none."""
    hosts = (host for host in new.get(identity, ()) if host not in taken and host not in kept)
    return [host for host in hosts if not twins.was(host, identity)]


def _find(search: _Search, carriers: Sequence[str], holders: int, twins: Twins, placed: _Placed) -> None:
    """Find a home for each latch of *search* among the *carriers*, those of its *holders* that are new, or drop it."""
    lost = search.lost
    free = [host for host in carriers if host not in twins.blocked]
    if not free:
        for _, latches in lost:
            placed.drop(latches, Reason.BLOCKED_REF)
        return
    paired: Sequence[_Orphan]
    if search.alike or len(lost) == holders == 1:
        paired, reason = lost, Reason.GONE
    elif len(search.orphans) == len(free):
        paired, reason = search.orphans, Reason.GONE
    else:
        paired, reason = (), Reason.AMBIGUOUS
    for (_, latches), host in zip(paired, free, strict=False):
        if latches:  # an unlatched twin takes its place in the order, no more
            placed.put(latches, host)
    for _, latches in lost[min(len(paired), len(free)) :]:
        placed.drop(latches, reason)


def _find_output(
    orphan: _Orphan, identity: Identity, new: Mapping[Identity, Sequence[str]], twins: Twins, placed: _Placed
) -> None:
    """Put the latches of *orphan* on a message that newly shows what they show, or drop them."""
    old_host, latches = orphan
    forms = map(shown_identity, latches)
    carriers = [host for shown in forms for host in _carriers(shown, new, twins, placed.taken)]
    free = [host for host in carriers if host not in twins.blocked]
    if free:
        placed.put(latches, free[0])
    else:
        placed.drop(latches, Reason.BLOCKED_REF if carriers else _absence(identity, old_host, twins))


def forms_of(latches: Iterable[Latch]) -> Mapping[Identity, Collection[Identity]]:
    """Give identity -> its other forms: what each of *latches* was made for, and what it shows."""
    forms: defaultdict[Identity, set[Identity]] = defaultdict(set)
    for latch in latches:
        shown = shown_identity(latch)
        forms[latch.identity].add(shown)
        forms[shown].add(latch.identity)
    return forms


def shown_identity(latch: Latch) -> Identity:
    """Give the identity that the message of *latch* has when it shows the latch's text."""
    return Identity(latch.shown, latch.identity.role, latch.identity.kind)


def _absence(identity: Identity, host: str | None, twins: Twins) -> Reason:
    found = twins.new.get(host) if host is not None else None
    return (found and mismatch(found, identity)) or Reason.GONE


def revive(gone: Iterable[Drop], homes: Iterable[tuple[Latch, str]], twins: Twins) -> list[tuple[Drop, str]]:
    """Say which `gone` drops are undone: a message that was not known before has their identity.

    Where several drops of one class want the same identity with different texts, none is undone: which is right
    cannot be told.
    """
    fresh: dict[Identity, list[str]] = defaultdict(list)
    for message_id, identity in twins.new.items():
        if message_id not in twins.known and message_id not in twins.blocked:
            fresh[identity].append(message_id)
    taken: dict[str, list[Latch]] = defaultdict(list)
    for latch, message_id in homes:
        taken[message_id].append(latch)
    groups: dict[tuple[Identity, type[Latch]], list[Drop]] = defaultdict(list)
    for drop in gone:
        groups[drop.latch.identity, type(drop.latch)].append(drop)
    revived: list[tuple[Drop, str]] = []
    for (identity, latch_class), drops in groups.items():
        if len({_look((drop.latch,)) for drop in drops}) == 1:
            free = [
                host
                for host in fresh.get(identity, ())
                if all(latch.identity == identity and type(latch) is not latch_class for latch in taken.get(host, ()))
            ]
            revived += zip(drops, free, strict=False)
    return revived
