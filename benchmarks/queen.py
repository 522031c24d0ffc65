"""Benchmark of Queen's format: `python -m benchmarks.queen`, or `make bench-queen`.

It starts a server of ours on SQLite and loads it with a real client of Queen MQ (`QUEEN_CLIENT`, 0.15.0 or
2.6.0) from its own process on the same cores. With `QUEEN_URL` the same load goes to that Queen server too,
in turns, and ours must be at least as fast. It prints a table, and ends with one line of JSON.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import queen
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {"push": queen.push, "consume": queen.consume, "partitions": queen.partitions}
COMPARED: Final = (
    *(Requirement("push", f"batch_{size}_per_second_ratio", at_least=1.0) for size in queen.BATCHES),
    Requirement("consume", "batch_100_per_second_ratio", at_least=1.0),
    Requirement("consume", "in_order_per_second_ratio", at_least=1.0),
    Requirement("partitions", "made_per_second_ratio", at_least=1.0),
)
"""What must be reached where there is a Queen server to compare with."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    requirements = COMPARED if os.environ.get(queen.QUEEN_URL) else ()
    title = f"Queen's format, in messages per second (client {queen.CLIENT_VERSION})"
    return run_benchmark("queen", title, PARTS, requirements, arguments)


if __name__ == "__main__":
    sys.exit(main())
