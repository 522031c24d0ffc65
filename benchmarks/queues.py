"""Benchmark of many queues and partitions: `python -m benchmarks.queues`, or `make bench-queues`.

Two servers, one with few queues and one with very many that are idle, do the same in turn: make queues, push
and take, and are left alone. So do two with few partitions and with very many. It prints a table, and ends
with one line of JSON that has all figures. The exit status is 1 when a required figure falls short. A ratio
is that of the medians of one run.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import many_partitions, many_queues
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

_QUEUES: Final[Parts] = {"sqlite": many_queues.run_sqlite, "postgres": many_queues.run_postgres}
_PARTITIONS: Final[Parts] = {
    "sqlite_partitions": many_partitions.run_sqlite,
    "postgres_partitions": many_partitions.run_postgres,
}
PARTS: Final[Parts] = {**_QUEUES, **_PARTITIONS}
REQUIREMENTS: Final = (
    *(
        requirement
        for part in _QUEUES
        for requirement in (
            Requirement(part, "create_ratio", at_least=0.5),
            Requirement(part, "push_and_take_ratio", at_most=2.0),
            Requirement(part, "idle_cpu_percent", at_most=10.0),
            Requirement(part, "stall_ms", at_most=500.0),
        )
    ),
    *(
        requirement
        for part in _PARTITIONS
        for requirement in (
            Requirement(part, "push_and_take_ratio", at_most=2.0),
            Requirement(part, "take_any_ratio", at_most=2.0),
            Requirement(part, "idle_cpu_percent", at_most=10.0),
        )
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    title = "Many queues: what one costs among them"
    return run_benchmark("queues", title, PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
