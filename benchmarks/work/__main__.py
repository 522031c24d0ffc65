"""Benchmark of workers: `python -m benchmarks.work`, or `make bench-work`, which fetches the rivals first.

Everybody has a no-op task. All tasks are put, then worked, by one process; every contestant has a program of
its own, which is started anew for each turn, and so many tasks that a turn takes about as long for all. It
starts a Valkey and a PostgreSQL, prints a table, and ends with one line of JSON that has all figures. The
exit status is 1 when a required figure falls short. A rate is the median over rounds; the ratio is the median
of the ratios of the rounds, each to the rival that was best in it.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement
from benchmarks.work import contest

PARTS: Final[Parts] = {"tasks": contest.run}
REQUIREMENTS: Final = (
    Requirement("tasks", "forebay_per_second", at_least=50_000),
    Requirement("tasks", "ratio", at_least=10.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the contest; return the exit status."""
    title = "Workers, in tasks per second: put, taken, handled, done"
    return run_benchmark("work", title, PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
