"""Benchmark of many queues: `python -m benchmarks.queues`, or `make bench-queues`.

Two servers, one with few queues and one with very many that are idle, do the same in turn: make queues, push
and take, and are left alone. It prints a table, and ends with one line of JSON that has all figures. The exit
status is 1 when a required figure falls short. A ratio is that of the medians of one run.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import many_queues
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {"sqlite": many_queues.run_sqlite, "postgres": many_queues.run_postgres}
REQUIREMENTS: Final = tuple(
    requirement
    for part in PARTS
    for requirement in (
        Requirement(part, "create_ratio", at_least=0.5),
        Requirement(part, "push_and_take_ratio", at_most=2.0),
        Requirement(part, "idle_cpu_percent", at_most=10.0),
        Requirement(part, "stall_ms", at_most=500.0),
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    title = "Many queues: what one costs among them"
    return run_benchmark("queues", title, PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
