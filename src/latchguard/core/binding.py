"""Where each latch goes when messages come, go or change ids.

For the latches of one identity X (DESIGN words; an *old twin* is a message that had X before):

1. A message whose id lives on with X keeps what it showed, latched or not.
2. The latches of the other old twins look among the messages that newly have X: where X is unique they go there;
   where all of them showed the same text any pairing does, and what is over is `gone`; where as many have X as
   before they go by rank; else `ambiguous`.
3. Where nothing has X: a latch whose id lives on with another identity is dropped with what differs; one whose id
   is gone too is `gone`.
4. A protected message takes no latch: `blocked-ref`.
5. `gone`, and only it, is undone when a message that was not known before has X.
6. A latch without an identity stays with the message id that has it; where that is gone: `no-identity`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import itemgetter

from attrs import frozen

from latchguard.core.identity import Identity
from latchguard.core.latches import NO_IDENTITY, Drop, Latch, ViewLatch, forms, mismatch
from latchguard.core.reasons import Reason

__all__ = ["Bindings", "Twins", "bind_latches", "revive"]


@frozen
class Bindings:
    """Where the latches go.

    Args:
        homes: each bound latch with the id of its message now.
        dropped: each latch that has none, with its reason.
        revived: each quarantined drop that is undone, with the id of its message.
    """

    homes: tuple[tuple[Latch, str], ...]
    dropped: tuple[Drop, ...]
    revived: tuple[tuple[Drop, str], ...]


@frozen
class Twins:
    """Messages before and after, as far as a latch can care.

    Args:
        old: message id -> identity before, in the old order. Only messages that have the identity of a latch, or
            carry one, need to be here.
        new: message id -> identity now, in the new order; likewise.
        known: the ids that were known before.
        blocked: the ids that are protected now.
    """

    old: Mapping[str, Identity]
    new: Mapping[str, Identity]
    known: Container[str]
    blocked: Container[str]


def bind_latches(hosted: Sequence[tuple[str | None, Latch]], gone: Sequence[Drop], twins: Twins) -> Bindings:
    """Say where each latch and each `gone` drop goes.

    Args:
        hosted: the latches in force, each with the id of its message before, None where its ref had no holder.
        gone: the drops in quarantine whose reason is `gone`, oldest first.
        twins: the messages before and after.

    Guarantees:
        Pure. Every latch of *hosted* is in `homes` or in `dropped`, once (I3). Two latches of one class never
        share a message.
    """
    by_identity: dict[Identity, list[tuple[str | None, Latch]]] = defaultdict(list)
    for host, latch in hosted:
        by_identity[latch.identity].append((host, latch))
    index = _Index.of(twins, by_identity)
    homes: list[tuple[Latch, str]] = []
    dropped: list[Drop] = []
    _keep_unidentified(by_identity.pop(NO_IDENTITY, []), twins, homes, dropped)
    for identity, group in by_identity.items():
        _bind_identity(identity, group, index, homes, dropped)
    return Bindings(tuple(homes), tuple(dropped), revive(gone, homes, twins))


def _keep_unidentified(
    group: list[tuple[str | None, Latch]], twins: Twins, homes: list[tuple[Latch, str]], dropped: list[Drop]
) -> None:
    for host, latch in group:
        if host is None or host not in twins.new:
            dropped.append(Drop(latch, Reason.NO_IDENTITY))
        elif host in twins.blocked:
            dropped.append(Drop(latch, Reason.BLOCKED_REF))
        else:
            homes.append((latch, host))


@frozen
class _Index:
    twins: Twins
    old_ids: defaultdict[Identity, list[str]]
    new_ids: defaultdict[Identity, list[str]]
    rank: Mapping[str | None, int]

    @classmethod
    def of(cls, twins: Twins, wanted: Mapping[Identity, Sequence[tuple[str | None, Latch]]]) -> _Index:
        shown = {
            Identity(latch.shown, identity.role, identity.kind): None
            for identity, group in wanted.items()
            for _, latch in group
        }
        keys = wanted.keys() | shown.keys()
        rank: dict[str | None, int] = {message_id: position for position, message_id in enumerate(twins.old)}
        return cls(twins, _group(twins.old, keys), _group(twins.new, keys), rank)


def _group(identities: Mapping[str, Identity], wanted: Container[Identity]) -> defaultdict[Identity, list[str]]:
    grouped: defaultdict[Identity, list[str]] = defaultdict(list)
    for message_id, identity in identities.items():
        if identity in wanted:
            grouped[identity].append(message_id)
    return grouped


@frozen
class _Lost:
    """The latches of one old twin that did not live on, by its old id."""

    host: str | None
    latches: list[Latch]


def _showed(latches: Iterable[Latch]) -> frozenset[tuple[str | None, str]]:
    return frozenset((getattr(latch, "view", None), latch.text) for latch in latches)


def _bind_identity(
    identity: Identity,
    group: list[tuple[str | None, Latch]],
    index: _Index,
    homes: list[tuple[Latch, str]],
    dropped: list[Drop],
) -> None:
    by_host: dict[str | None, list[Latch]] = defaultdict(list)
    for host, latch in group:
        by_host[host].append(latch)
    kept = _kept(identity, by_host, index)
    lost: list[_Lost] = []
    for host, latches in sorted(by_host.items(), key=lambda item: index.rank.get(item[0], len(index.rank))):
        if host is None:
            lost += (_Lost(None, [latch]) for latch in latches)
        elif host not in kept:
            lost.append(_Lost(host, latches))
        elif host in index.twins.blocked:
            dropped += (Drop(latch, Reason.BLOCKED_REF) for latch in latches)
        else:
            homes += ((latch, host) for latch in latches)
    if lost:
        unlatched = [host for host in index.old_ids[identity] if host not in by_host]
        texts = {_showed(latches) for latches in by_host.values()} | {_showed(()) for _ in unlatched}
        missing = [host for host in unlatched if host not in kept]
        _bind_lost(_Search(identity, lost, kept, missing, len(texts) == 1), index, homes, dropped)


@frozen
class _Search:
    """The lost latches of one identity, the twins that live on, the unlatched ones that do not."""

    identity: Identity
    lost: list[_Lost]
    kept: frozenset[str]
    missing: list[str]
    alike: bool


def _kept(identity: Identity, by_host: Mapping[str | None, list[Latch]], index: _Index) -> frozenset[str]:
    """Give the ids that live on with *identity*, in whatever form: what they show does not change."""
    new, old = index.twins.new, index.twins.old
    kept = {host for host in index.new_ids[identity] if old.get(host) == identity}
    for host, latches in by_host.items():
        if host is not None and (found := new.get(host)) and (before := old.get(host)):
            own = forms(identity, latches)
            if mismatch(found, identity) in _SAME_BUT_HASH and found.hash in own and before.hash in own:
                kept.add(host)
    return frozenset(kept)


_SAME_BUT_HASH = (None, Reason.HASH_MISMATCH)


def _bind_lost(search: _Search, index: _Index, homes: list[tuple[Latch, str]], dropped: list[Drop]) -> None:
    lost, holders = search.lost, index.new_ids[search.identity]
    carriers = [host for host in holders if host not in search.kept] if holders else _showing(lost, index)
    free = [host for host in carriers if host not in index.twins.blocked]
    if not free:
        for twin in lost:
            reason = Reason.BLOCKED_REF if carriers else _absence(search.identity, twin, index)
            dropped += (Drop(latch, reason) for latch in twin.latches)
        return
    if search.alike or (len(lost) == 1 and len(holders) <= 1):
        pairs = list(zip(lost, free, strict=False))
    elif len(lost) + len(search.missing) == len(free):
        pairs = _by_rank(search, free, index)
    else:
        dropped += (Drop(latch, Reason.AMBIGUOUS) for twin in lost for latch in twin.latches)
        return
    homes += ((latch, host) for twin, host in pairs for latch in twin.latches)
    dropped += (Drop(latch, Reason.GONE) for twin in lost[len(pairs) :] for latch in twin.latches)


def _showing(lost: list[_Lost], index: _Index) -> list[str]:
    """Give the messages that newly are what the *lost* latches show: our own output, stored and sent back."""
    shown = {
        Identity(latch.shown, latch.identity.role, latch.identity.kind): None for twin in lost for latch in twin.latches
    }
    return [host for identity in shown for host in index.new_ids[identity] if index.twins.old.get(host) != identity]


def _absence(identity: Identity, twin: _Lost, index: _Index) -> Reason:
    found = index.twins.new.get(twin.host) if twin.host is not None else None
    return (found and mismatch(found, identity)) or Reason.GONE


def _by_rank(search: _Search, free: list[str], index: _Index) -> list[tuple[_Lost, str]]:
    """Pair the old twins that did not live on with the free messages by rank; unlatched ones take a place too."""
    places: list[tuple[int, _Lost | None]] = [(index.rank[host], None) for host in search.missing]
    places += ((index.rank.get(twin.host, len(index.rank)), twin) for twin in search.lost)
    places.sort(key=itemgetter(0))
    return [(twin, host) for (_, twin), host in zip(places, free, strict=True) if twin]


def revive(gone: Sequence[Drop], homes: Iterable[tuple[Latch, str]], twins: Twins) -> tuple[tuple[Drop, str], ...]:
    """Say which `gone` drops are undone: a message that was not known before has their identity.

    Where several drops of one class want the same identity with different texts, none is undone: which is right
    cannot be told.
    """
    fresh: dict[Identity, list[str]] = defaultdict(list)
    for message_id, identity in twins.new.items():
        if message_id not in twins.known and message_id not in twins.blocked:
            fresh[identity].append(message_id)
    taken = {(message_id, isinstance(latch, ViewLatch)) for latch, message_id in homes}
    groups: dict[tuple[Identity, bool], list[Drop]] = defaultdict(list)
    for drop in gone:
        groups[drop.latch.identity, isinstance(drop.latch, ViewLatch)].append(drop)
    revived: list[tuple[Drop, str]] = []
    for (identity, is_view), drops in groups.items():
        if len({(getattr(drop.latch, "view", None), drop.latch.text) for drop in drops}) == 1:
            free = [host for host in fresh[identity] if (host, is_view) not in taken]
            revived += zip(drops, free, strict=False)
    return tuple(revived)
