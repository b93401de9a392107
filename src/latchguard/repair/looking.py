"""Look at sources, in order, in one process or several: each gives one outcome, whatever is wrong with it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from attrs import frozen

from latchguard.core.errors import LatchguardError
from latchguard.core.findings import Finding
from latchguard.repair.errors import BugError
from latchguard.repair.files import FileSource, open_file, read_file
from latchguard.repair.planning import plan_bytes
from latchguard.repair.plans import Plan, PlanOptions

__all__ = ["Outcome", "look_at_file", "look_at_files", "outcome_of"]


@frozen
class Outcome:
    """What became of one source.

    Args:
        source: its path, as named or found.
        named: whether the command line named it, or only a directory it lies in.
        plan: what was found and what repairs it; None where the source could not be looked at.
        error: why not, or why its repair was not made.
        repaired: whether it holds the repaired bytes now.
        left: what a second look at the repaired bytes finds.
    """

    source: str
    named: bool
    plan: Plan | None = None
    error: LatchguardError | None = None
    repaired: bool = False
    left: tuple[Finding, ...] = ()


def outcome_of(source: FileSource, work: Callable[[], Outcome]) -> Outcome:
    """Give the outcome of *work* on *source*; what it raises becomes the outcome's error."""
    try:
        return work()
    except LatchguardError as error:
        return Outcome(source.path, source.named, error=error)
    except Exception:  # noqa: BLE001  # one source must not keep the others from being looked at
        return Outcome(source.path, source.named, error=BugError(source.path, traceback.format_exc()))


def look_at_file(source: FileSource, *, format_name: str | None, options: PlanOptions) -> Outcome:
    """Read one file and plan its repair. Never writes, never raises a `LatchguardError`."""

    def look() -> Outcome:
        if source.error is not None:
            raise source.error
        with open_file(source.path) as handle:
            raw = read_file(handle, options.limits.file_bytes).raw
        return Outcome(source.path, source.named, plan_bytes(raw, format=format_name, options=options))

    return outcome_of(source, look)


def look_at_files(
    sources: Iterable[FileSource], *, format_name: str | None, options: PlanOptions, jobs: int = 1
) -> Iterator[tuple[FileSource, Outcome]]:
    """Look at many files.

    Args:
        sources: what to look at.
        format_name: the format of them all; None to detect it.
        options: what a plan may do.
        jobs: how many processes look.

    Returns:
        Each source with its outcome, in the order of *sources*.

    Raises:
        WorkerLostError: one of the processes was killed.

    Guarantees:
        Lazy, and bounded: never more outcomes are held than a few per process.
    """
    look = partial(look_at_file, format_name=format_name, options=options)
    if jobs == 1:
        return ((source, look(source)) for source in sources)
    from latchguard.repair.processes import look_in_processes  # noqa: PLC0415  # 40 ms, for several processes only

    return look_in_processes(sources, look, jobs)
