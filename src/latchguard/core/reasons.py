"""The closed list of reasons why a latch is refused or dropped."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Why a latch is not in force. Of role, kind and hash the first that differs is named."""

    HASH_MISMATCH = "hash-mismatch"
    ROLE_MISMATCH = "role-mismatch"
    KIND_MISMATCH = "kind-mismatch"
    UNASSIGNED_REF = "unassigned-ref"
    HOLDER_ABSENT = "holder-absent"
    BLOCKED_REF = "blocked-ref"
    FORBIDDEN_KIND = "forbidden-kind"
    NO_IDENTITY = "no-identity"
    UNPROVEN = "unproven"
    AMBIGUOUS = "ambiguous"
    GONE = "gone"
    SUPERSEDED = "superseded"
    CLEARED = "cleared"
