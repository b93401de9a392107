"""Plans: what a repair would do, as values. A dry run prints the plan, the audit log is the plan."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import ClassVar

from attrs import define, field, frozen

from latchguard.core.errors import LatchguardError
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Edit
from latchguard.core.proof import MARKERS
from latchguard.sources.limits import Limits

__all__ = ["Change", "Limits", "Plan", "PlanOptions", "SourceChangedError", "Step", "digest"]


def digest(raw: bytes) -> str:
    """Give the SHA-256 of *raw* as 64 hex digits."""
    return sha256(raw).hexdigest()


@define(repr=False, str=False, eq=False)
class SourceChangedError(LatchguardError):
    """The bytes are not those that the plan was made from; *expected* and *found* are their digests."""

    code: ClassVar[str] = "source-changed"
    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: the plan was made from other bytes ({self.expected[:12]}, found {self.found[:12]})"


@frozen
class PlanOptions:
    """What a plan may do.

    Args:
        allow: the dearest repair that is made.
        only: rule slugs to look at; None for all.
        skip: rule slugs to pass over.
        markers: what stands between head and tail of a clip.
        limits: what a source may cost.
        profile: what the target of stored request bodies demands beyond its wire.
    """

    allow: Repair = Repair.PLACEHOLDER
    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    markers: tuple[re.Pattern[str], ...] = MARKERS
    limits: Limits = field(factory=Limits)
    profile: str | None = None

    def looks_at(self, rule: str) -> bool:
        """Say whether findings of *rule* are asked for."""
        return rule not in self.skip and (self.only is None or rule in self.only)


@frozen
class Change:
    """A finding and what would repair it.

    Args:
        finding: what was found; not applied yet.
        edits: the repair, at paths of the document; empty where there is none.
        record: what goes to the session's quarantine with it, as JSON bytes.
    """

    finding: Finding
    edits: tuple[Edit, ...] = ()
    record: bytes | None = None


@frozen
class Step:
    """One change of a document.

    Args:
        edit: the change, at a path of the document's JSON.
        before: digest of the JSON bytes that stand at the edit's path now.
        finding: what asks for it.
    """

    edit: Edit
    before: str
    finding: Finding


@frozen
class Plan:
    """All that was found in one document of one session, and the steps that repair it.

    Args:
        format: the format at rest (`bili`, ...).
        session: the session's id, None where the document does not say.
        before: digest of the whole source bytes the plan was made from; empty where there is no step to apply.
        steps: in order; empty where nothing is to be repaired, or may be.
        findings: every finding, check after check, in stored order; `applied` says whether a step repairs it.
    """

    format: str
    session: str | None
    before: str
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
