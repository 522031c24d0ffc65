"""Benchmark of the server: `python -m benchmarks.server`, or `make bench-server`.

It starts servers and a PostgreSQL of its own, loads them from its own process on the same cores, prints a
table, and ends with one line of JSON that has all figures. The exit status is 1 when a required figure falls
short. A rate is the median over rounds; a ratio is the median of the ratios of the rounds, in which the two
that are compared take turns.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import http
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {
    "push": http.push,
    "take": http.take,
    "single": http.single,
    "polls": http.polls,
    "memory": http.memory,
}
REQUIREMENTS: Final = (
    Requirement("push", "sqlite_http_per_second", at_least=100_000),
    Requirement("push", "postgres_http_per_second", at_least=100_000),
    Requirement("push", "sqlite_ratio", at_least=0.6),
    Requirement("push", "postgres_ratio", at_least=0.6),
    Requirement("take", "json_per_second", at_least=50_000),
    Requirement("single", "per_second", at_least=5_000),
    Requirement("single", "half_rate_ms_p99", at_most=25.0),
    Requirement("polls", "push_ratio", at_least=0.9),
    Requirement("polls", "single_ratio", at_least=0.9),
    Requirement("memory", "rss_mb", at_most=250.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    return run_benchmark("server", "The server, in messages per second", PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
