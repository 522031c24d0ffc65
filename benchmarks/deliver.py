"""Benchmark of deliveries: `python -m benchmarks.deliver`, or `make bench-deliver`.

It prints a table, and ends with one line of JSON that has all figures. The exit status is 1 when a required
figure falls short. A rate is the median over rounds, FastQueue's the best of them; a ratio is the median of
the ratios of the rounds.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import fastqueue, relay
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {
    "fastqueue": fastqueue.run,
    "relay": relay.run,
}
REQUIREMENTS: Final = (
    *fastqueue.REQUIREMENTS,
    Requirement("relay", "requests_per_second", at_least=10_000),
    Requirement("relay", "ratio", at_least=2.0),
    Requirement("relay", "added_p50_ms", at_most=5.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    return run_benchmark("deliver", "Deliveries", PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
