"""`python bench/run.py [--runs N] [NAME …]`: run the benchmarks, print a table; exit 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import crowd
import forks
import imports
import large
import startup
import steps
import streams
import turns
from tabulate import tabulate
from timing import Row

BENCHMARKS: dict[str, Callable[[int], list[Row]]] = {
    "startup": startup.run,
    "steps": steps.run,
    "streams": streams.run,
    "resume": large.run_resume,
    "continue": large.run_continue,
    "crowd": crowd.run,
    "forks": forks.run,
    "turns": turns.run,
    "imports": imports.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; default all"
    )
    parser.add_argument("--runs", type=int, default=20, help="repetitions that medians are taken of")
    given = parser.parse_args()
    if unknown := set(given.names) - BENCHMARKS.keys():
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    for name in given.names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += BENCHMARKS[name](given.runs)
    verdicts = {True: "met", False: "MISSED", None: ""}
    table = [[row.what, row.measured, row.target, verdicts[row.is_met]] for row in rows]
    print(tabulate(table, headers=["what", "measured (median)", "target", ""], disable_numparse=True))
    return 1 if any(row.is_met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
