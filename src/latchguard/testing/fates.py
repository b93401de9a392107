"""What may become of each latch: the freedom that the contract leaves, and no more.

The model's own reading of the binding cases, shared with nothing. An *identity* here is the plain tuple (role, kind,
tool name, tool call id, text): what a hash stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen

__all__ = ["UNIDENTIFIED", "Fate", "Fates", "Held", "Identity", "differs", "identity_of", "is_form", "plan_restamp"]

Identity: TypeAlias = tuple[str, str, str | None, str | None, str]

# What a latch from before identities were kept was made for: no message is that.
UNIDENTIFIED: Final[Identity] = ("", "", None, None, "")
_GONE: Final = frozenset(("gone",))
_AMBIGUOUS: Final = frozenset(("ambiguous",))
_BLOCKED: Final = frozenset(("blocked-ref",))
_NOTHING: Final = frozenset[str]()


@frozen
class Held:
    """A latch as the model knows it: the identity that it was made for, its text, the name of its view or None."""

    identity: Identity
    text: str
    view: str | None

    @property
    def shows(self) -> Identity:
        """What its message is when it shows the text."""
        return (*self.identity[:4], self.text)


@frozen
class Fate:
    """What may become of one latch: a message of *homes*, or quarantine for one of *reasons*."""

    homes: frozenset[str]
    reasons: frozenset[str]


@frozen
class Fates:
    """The fates of all latches in a restamp.

    Args:
        by_latch: (message id before, latch) -> its fate.
        quotas: sets of latches, each with how many of them must have a home.
    """

    by_latch: dict[tuple[str, Held], Fate] = field(factory=dict)
    quotas: list[tuple[frozenset[tuple[str, Held]], int]] = field(factory=list)


def identity_of(message: Mapping[str, Any]) -> Identity:
    """Give the identity of a message in the protocol's form."""
    return (message["role"], message["kind"], message["tool_name"], message["tool_call_id"], message["text"])


def differs(found: Identity, wanted: Identity) -> str:
    """Name the first of role, kind, hash in which two identities differ."""
    if wanted == UNIDENTIFIED:
        return "no-identity"
    if found[0] != wanted[0]:
        return "role-mismatch"
    return "kind-mismatch" if found[1] != wanted[1] else "hash-mismatch"


def is_form(found: Identity, wanted: Identity, latches: Iterable[Held]) -> bool:
    """Whether a message that is *found* is the one of identity *wanted*, as it was or as one of *latches* shows it."""
    return found == wanted or any(latch.identity == wanted and latch.shows == found for latch in latches)


def plan_restamp(
    known: Mapping[str, Identity],
    latches: Mapping[str, Sequence[Held]],
    new: Mapping[str, Identity],
    protected: Collection[str],
    superseded: Sequence[Held],
    shadows: Mapping[str, Identity],
    *,
    own_output: bool = True,
) -> Fates:
    """Say what may become of each latch when the history becomes *new*.

    Args:
        known: message id -> identity before, in order.
        latches: message id -> its latches before.
        new: message id -> identity now, in order.
        protected: the ids that are protected now.
        superseded: latches whose texts a message may come back with as well.
        shadows: the identity of each message that left the history earlier, and of each drop that was cleared, whose
            message may be known in another form: whether it counts as a twin is left open.
        own_output: whether a message in a form that a latch gave it must be known as that message; else it may be.
    """
    fates = Fates()
    wanted = dict.fromkeys(latch.identity for held in latches.values() for latch in held)
    unsure = {*shadows.values(), *(new[key] for key in protected if key in new)}
    echoes = _sure_echoes(known, latches, new, unsure) if own_output else {}
    if UNIDENTIFIED in wanted:
        del wanted[UNIDENTIFIED]
        _keep_unidentified(fates, latches, new, protected)
    for identity in wanted:
        hosts = {
            host: sorted((latch for latch in held if latch.identity == identity), key=lambda latch: latch.view or "")
            for host, held in latches.items()
            if any(latch.identity == identity for latch in held)
        }
        alike = frozenset(key for key, shadow in shadows.items() if shadow == identity)
        case = _Case(identity, known, hosts, new, frozenset(protected), superseded, alike, own_output, echoes)
        case.decide(fates)
    return fates


def _keep_unidentified(
    fates: Fates, latches: Mapping[str, Sequence[Held]], new: Mapping[str, Identity], protected: Collection[str]
) -> None:
    """A latch without an identity stays with the id of its message."""
    for host, held in latches.items():
        reason = "blocked-ref" if host in protected else "no-identity"
        homes = frozenset((host,)) if host in new and host not in protected else _NOTHING
        for latch in held:
            if latch.identity == UNIDENTIFIED:
                fates.by_latch[host, latch] = Fate(homes, _NOTHING if homes else frozenset((reason,)))


def _sure_echoes(
    known: Mapping[str, Identity],
    latches: Mapping[str, Sequence[Held]],
    new: Mapping[str, Identity],
    unsure: Collection[Identity],
) -> dict[str, str]:
    """Give message id before -> the new id under which our output for it, and for nothing else, was sent back."""
    wanted = [
        (host, form) for host, held in latches.items() for latch in held for form in (latch.identity, latch.shows)
    ]
    found: dict[str, str] = {}
    for host, held in latches.items():
        forms = {form for other, form in wanted if other == host}
        echoes = [key for key, identity in new.items() if identity in forms]
        if host in new or len(echoes) != 1 or len({latch.identity for latch in held}) > 1:
            continue
        echo = new[echoes[0]]
        rivals = {other for other, form in wanted if form == echo}
        if echoes[0] not in known and echo not in unsure and rivals == {host} and echo != held[0].identity:
            found[host] = echoes[0]
    return found


@frozen
class _Case:
    """The latches of one identity: *hosts* are the messages that carried them."""

    identity: Identity
    known: Mapping[str, Identity]
    hosts: Mapping[str, Sequence[Held]]
    new: Mapping[str, Identity]
    protected: frozenset[str]
    superseded: Sequence[Held]
    shadows: frozenset[str]
    own_output: bool
    echoes: Mapping[str, str]

    def decide(self, fates: Fates) -> None:
        twins = [key for key, found in self.known.items() if self._is_form(key, found)]
        kept = {key for key in twins if self._lives_on(key)}
        kept |= {host for host in self.hosts if self.new.get(host) == self.identity}
        holders = [key for key, found in self.new.items() if found == self.identity]
        free = [key for key in holders if key not in kept]
        lost = [host for host in self.hosts if host not in kept]
        for host in kept & self.hosts.keys():
            sure = self.own_output or self.new[host] == self.identity
            reasons = _NOTHING if sure else frozenset((differs(self.new[host], self.identity),))
            if host in self.protected:
                self._give(fates, host, _NOTHING, reasons | _BLOCKED)
            else:
                self._give(fates, host, frozenset((host,)), reasons)
        if not free:
            self._without_message(fates, lost, _AMBIGUOUS | _GONE if kept else _NOTHING)
        elif not self.protected.isdisjoint(free):
            for host in lost:
                homes = frozenset(free) - self.protected
                absent = self._absence(host) if self.shadows else _NOTHING
                self._give(fates, host, homes, _BLOCKED | _AMBIGUOUS | absent | (_GONE if homes else _NOTHING))
        else:
            self._among(fates, lost, free, twins, kept)

    def _lives_on(self, key: str) -> bool:
        return key in self.new and self._is_form(key, self.new[key])

    def _is_form(self, key: str, found: Identity) -> bool:
        latches = [*self.hosts[key], *self.superseded] if key in self.hosts else ()
        return is_form(found, self.identity, latches)

    def _give(self, fates: Fates, host: str, homes: frozenset[str], reasons: frozenset[str]) -> None:
        for latch in self.hosts[host]:
            fates.by_latch[host, latch] = Fate(homes, reasons)

    def _without_message(self, fates: Fates, lost: Sequence[str], also: frozenset[str]) -> None:
        """No message newly has the identity: `gone`, or what differs where the id lives on.

        Our own output under a new id may be known as the message, and must be where it can be nothing else. Where a
        twin lives on with its own decision, a kernel may as well say that it could not tell (*also*).
        """
        for host in lost:
            if host in self.echoes:
                self._give(fates, host, frozenset((self.echoes[host],)), _NOTHING)
                continue
            shown = {latch.shows for latch in self.hosts[host]}
            echoes = frozenset(key for key, found in self.new.items() if found in shown)
            reasons = {*self._absence(host), *also}
            if not echoes.isdisjoint(self.protected):
                reasons.add("blocked-ref")
            self._give(fates, host, echoes - self.protected, frozenset(reasons))

    def _among(
        self, fates: Fates, lost: Sequence[str], free: Sequence[str], twins: Sequence[str], kept: Collection[str]
    ) -> None:
        """Some messages newly have the identity, none of them protected."""
        shown = {frozenset((latch.view, latch.text) for latch in held) for held in self.hosts.values()}
        alike = len(shown) == 1 and all(twin in self.hosts for twin in twins)
        everywhere = frozenset(free)
        if len(lost) == 1 and len(free) == 1 and not kept:
            self._give(fates, lost[0], everywhere, self._absence(lost[0]) if free[0] in self.shadows else _NOTHING)
        elif self.shadows:
            for host in lost:
                self._give(fates, host, everywhere, _AMBIGUOUS | _GONE | self._absence(host))
        elif alike:
            for host in lost:
                self._give(fates, host, everywhere, _GONE)
            for index in range(max(len(self.hosts[host]) for host in lost) if lost else 0):
                group = frozenset((host, self.hosts[host][index]) for host in lost if index < len(self.hosts[host]))
                fates.quotas.append((group, min(len(group), len(free))))
        else:
            self._by_rank(fates, lost, free, twins, kept)

    def _by_rank(
        self, fates: Fates, lost: Sequence[str], free: Sequence[str], twins: Sequence[str], kept: Collection[str]
    ) -> None:
        """Twins that showed different texts: as many as before go by rank, else nobody can tell."""
        places = [twin for twin in twins if twin not in kept]
        waiting = [host for host in lost if host not in twins]
        holders = [key for key, found in self.new.items() if found == self.identity]
        for host in lost:
            if waiting:  # a latch that waits for its message to come back has no rank
                homes, reasons = frozenset(free), _AMBIGUOUS | _GONE | self._absence(host)
            elif len(free) == 1 and len(holders) == 1:  # one message, several who want it
                homes, reasons = frozenset(free), _AMBIGUOUS | _GONE
            elif len(places) == len(free):
                ranked = {free[places.index(host)]}
                literal = {holders[twins.index(host)]} if len(holders) == len(twins) else set[str]()
                sure = literal == ranked
                homes, reasons = frozenset(ranked), _NOTHING if sure else _AMBIGUOUS
            else:
                homes, reasons = _NOTHING, _AMBIGUOUS
            self._give(fates, host, homes, reasons)

    def _absence(self, host: str) -> frozenset[str]:
        """Why a latch of *host* is dropped where no message has its identity."""
        return frozenset((differs(self.new[host], self.identity),)) if host in self.new else _GONE
