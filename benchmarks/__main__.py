"""Run every benchmark of this folder and print one table; the status is 1 where a budget is exceeded."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.table import print_table

NOT_BENCHMARKS = {"__init__", "__main__", "databases", "table"}


def main(names: list[str]) -> int:
    """Run the benchmarks called *names*, or all."""
    found = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    if unknown := [name for name in names if name not in found]:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(found)}", file=sys.stderr)
        return 2
    met = [print_table(import_module(f"benchmarks.{name}").rows()) for name in names or found]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
