"""Benchmark of failover: `python -m benchmarks.failover`, or `make bench-failover`.

It starts a PostgreSQL of its own and stops it again and again, prints a table, and ends with one line of JSON
that has all figures. The exit status is 1 when a required figure falls short. A rate is the median over
rounds; a ratio is the median of the ratios of the rounds.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import failing, outage, recovering, spooling
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {
    "spooling": spooling.run,
    "failing": failing.run,
    "recovering": recovering.run,
    "outage": outage.run,
}
REQUIREMENTS: Final = (
    Requirement("failing", "down_to_up_ratio", at_least=1.0),
    Requirement("failing", "down_per_second", at_least=150_000),
    Requirement("failing", "replay_per_second", at_least=100_000),
    Requirement("failing", "live_beside_replay_ratio", at_least=0.5),
    Requirement("failing", "replay_to_bound_ratio", at_most=1.0),
    Requirement("recovering", "memory_growth_mb", at_most=100.0),
    Requirement("outage", "outage_first_push_seconds", at_most=2.5),
    Requirement("outage", "outage_push_p99_ms", at_most=50.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    title = "Failover, in messages per second"
    return run_benchmark("failover", title, PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
