"""Benchmark of the logs: `python -m benchmarks.log`, or `make bench-log`.

It starts servers of its own, prints a table, and ends with one line of JSON that has all
figures. The exit status is 1 when a required figure falls short. A rate is the median over rounds;
a ratio is the median of the ratios of the rounds, in which the contestants take turns.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import append, backlog, cycle, snapshot, sqlite, tarantool
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import REQUIREMENTS

PARTS: Final[Parts] = {
    "append": append.run,
    "cycle": cycle.run,
    "sqlite": sqlite.run,
    "tarantool": tarantool.run,
    "idle_in_transaction": snapshot.run,
    "backlog": backlog.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    return run_benchmark("log", "The logs, in messages per second", PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
