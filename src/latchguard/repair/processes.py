"""Look at sources in several processes, in order."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Final, TypeAlias

from latchguard.repair.errors import WorkerLostError
from latchguard.repair.files import FileSource
from latchguard.repair.looking import Outcome

__all__ = ["look_in_processes"]

_BATCH: Final = 16  # files per task: what a task costs is then nothing beside them
_AHEAD: Final = 4  # tasks per process that may wait for the reader: bounds what is held
_Look: TypeAlias = Callable[[FileSource], Outcome]


def look_in_processes(sources: Iterable[FileSource], look: _Look, jobs: int) -> Iterator[tuple[FileSource, Outcome]]:
    """Give each of *sources* with what *look* says of it, in their order; *jobs* processes look.

    Raises:
        WorkerLostError: one of the processes was killed.

    Guarantees:
        Lazy: never more outcomes are held than a few per process.
    """
    waiting: deque[Future[list[tuple[FileSource, Outcome]]]] = deque()
    try:
        with ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker) as pool:
            remaining = iter(sources)
            while batch := tuple(islice(remaining, _BATCH)):
                waiting.append(pool.submit(_look_at_batch, batch, look))
                if len(waiting) >= jobs * _AHEAD:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    except BrokenProcessPool as error:
        raise WorkerLostError(jobs) from error


def _start_worker() -> None:
    """Leave an interrupt to the parent, and end when it ends: a pool's worker would wait for its next task for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGKILL)


def _look_at_batch(batch: Iterable[FileSource], look: _Look) -> list[tuple[FileSource, Outcome]]:
    return [(source, look(source)) for source in batch]
