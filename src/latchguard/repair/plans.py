"""Plans: what a repair would do, as values. A dry run prints the plan, the audit log is the plan."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from attrs import field, frozen

from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Edit
from latchguard.core.proof import MARKERS

__all__ = ["Limits", "Plan", "PlanOptions", "Step", "digest"]

MEBIBYTE: Final = 2**20


def digest(raw: bytes) -> str:
    """Give the SHA-256 of *raw* as 64 hex digits."""
    return sha256(raw).hexdigest()


@frozen
class Limits:
    """What a source may cost; over it a source is `too-large` and left alone.

    Args:
        file_bytes: of one file as it lies on the disk.
        frame_bytes: of one decompressed frame.
        depth: of JSON nesting, in levels.
        nodes: JSON values in one document.
    """

    file_bytes: int = 256 * MEBIBYTE
    frame_bytes: int = 512 * MEBIBYTE
    depth: int = 1000
    nodes: int = 20_000_000


@frozen
class PlanOptions:
    """What a plan may do.

    Args:
        allow: the dearest repair that is made.
        only: rule slugs to look at; None for all.
        skip: rule slugs to pass over.
        markers: what stands between head and tail of a clip.
        limits: what a source may cost.
    """

    allow: Repair = Repair.PLACEHOLDER
    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    markers: tuple[re.Pattern[str], ...] = MARKERS
    limits: Limits = field(factory=Limits)


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
        before: digest of the whole source bytes the plan was made from.
        steps: in order; empty where nothing is to be repaired, or may be.
        findings: every finding, in document order; `applied` says whether a step repairs it.
    """

    format: str
    session: str | None
    before: str
    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
