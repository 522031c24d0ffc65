"""Benchmark of the store: `python -m benchmarks.store`, or `make bench-store`.

It starts a Valkey of its own, prints a table, and ends with one line of JSON that has all figures. The
exit status is 1 when a required figure falls short. A rate is the median over rounds; a ratio is the
median of the ratios of the rounds, in which a store with few messages and one with many take turns.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import cold, latency, take
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {"take": take.run, "latency": latency.run, "cold": cold.run}
REQUIREMENTS: Final = (
    Requirement("take", "memory_per_second", at_least=200_000),
    Requirement("take", "valkey_per_second", at_least=30_000),
    Requirement("latency", "put_to_take_ms_p99", at_most=5.0),
    Requirement("cold", "memory_ratio", at_least=0.8),
    Requirement("cold", "valkey_ratio", at_least=0.8),
    Requirement("cold", "put_to_take_ms_p99_ratio", at_most=1.2),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    return run_benchmark("store", "The store, in messages per second", PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
