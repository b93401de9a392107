"""What can be wrong with the tables that a repair of a database is given."""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from latchguard.core.errors import LatchguardError

__all__ = ["ColumnError", "UndoClosedError"]


@define(repr=False, str=False, eq=False)
class ColumnError(LatchguardError):
    """A table lacks a column that a repair needs, or has it in a form that cannot serve.

    *name* is ours, `latches.ref`; *column* is the host's name for it.
    """

    code: ClassVar[str] = "column-unsuitable"
    table: str
    name: str
    column: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} (as {self.name}): expected {self.expected}, found {self.found}"


@define(repr=False, str=False, eq=False)
class UndoClosedError(LatchguardError):
    """The schema demands identities by now: a latch cannot lose its own again."""

    code: ClassVar[str] = "undo-closed"
    where: str
    run: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: run {self.run} can be undone at schema {self.expected}, found {self.found}"
