"""One row per measurement: a ratio of two times taken in the same run, since machines are noisy."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import frozen

__all__ = ["Row", "best_ms", "exponent", "print_table"]


@frozen
class Row:
    """What was measured, against what.

    Args:
        work: what was done.
        size: at which size, in messages, bytes or files.
        took_ms: best time of the work, in milliseconds.
        against: what it is compared with; empty where the budget is a time of its own.
        base_ms: best time of that, in milliseconds, or the budget itself.
        budget: the highest ratio that meets the budget; None where the row only informs.
    """

    work: str
    size: str
    took_ms: float
    against: str
    base_ms: float
    budget: float | None = None

    @property
    def ratio(self) -> float:
        """Give how many times the base it took."""
        return self.took_ms / self.base_ms

    @property
    def verdict(self) -> str:
        """Say whether the budget is met; nothing where there is none."""
        if self.budget is None:
            return ""
        return "ok" if self.ratio <= self.budget else "OVER"


def best_ms(work: Callable[[], Any], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Run *work* *repeats* times with the collector off and give the best time by *clock* in milliseconds."""
    times: list[float] = []
    enabled = gc.isenabled()
    try:
        for _ in range(repeats):
            gc.collect()
            gc.disable()
            start = clock()
            work()
            times.append((clock() - start) * 1000)
            gc.enable()
    finally:
        (gc.enable if enabled else gc.disable)()
    return min(times)


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Fit time = c * size^k by least squares on logarithms and give k: 0 is constant, 1 is linear."""
    xs, ys = zip(*((math.log(size), math.log(took)) for size, took in points), strict=True)
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread: float = sum((x - mean_x) ** 2 for x in xs)
    covered: float = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covered / spread


def print_table(rows: Iterable[Row]) -> bool:
    """Print *rows* as they come; say whether all budgets are met."""
    met = True
    print(f"{'work':<44} {'size':>14} {'ms':>10} {'against':<34} {'ms':>10} {'ratio':>7} {'budget':>7}")
    for row in rows:
        budget = "" if row.budget is None else f"{row.budget:.2f}"
        print(
            f"{row.work:<44} {row.size:>14} {row.took_ms:>10.2f} {row.against:<34} {row.base_ms:>10.2f} "
            f"{row.ratio:>7.2f} {budget:>7} {row.verdict}",
            flush=True,
        )
        met = met and row.verdict != "OVER"
    return met
