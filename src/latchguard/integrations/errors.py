"""What the door raises instead of letting a request out. Both are raised before a byte is sent."""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from latchguard.core.errors import LatchguardError, cut
from latchguard.core.findings import Finding

__all__ = ["SignedBodyError", "UncleanRequestError"]

_SHOWN_FINDINGS = 5


@define(repr=False, str=False, eq=False)
class SignedBodyError(LatchguardError):
    """A body needs a repair, but a header of the request is bound to its bytes: repair the messages before signing."""

    code: ClassVar[str] = "signed-body"
    url_path: str
    header: str
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        return (
            f"{cut(self.url_path)}: expected a body that needs no repair, as the header {self.header!r} is bound to "
            f"its bytes; found {_list(self.findings)}: harden the messages before the request is signed"
        )


@define(repr=False, str=False, eq=False)
class UncleanRequestError(LatchguardError):
    """A body has findings that were not repaired, and the guard was told to raise on those."""

    code: ClassVar[str] = "unclean-request"
    url_path: str
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        return f"{cut(self.url_path)}: expected a clean body, found {_list(self.findings)}"


def _list(findings: tuple[Finding, ...]) -> str:
    shown = ", ".join(f"{finding.rule} at {finding.path}" for finding in findings[:_SHOWN_FINDINGS])
    rest = len(findings) - _SHOWN_FINDINGS
    return f"{shown} and {rest} more" if rest > 0 else shown
