"""Benchmark of the Spark part: `python -m benchmarks.spark`, or `make bench-spark`.

It starts a PostgreSQL and a Spark session of its own, prints a table, and ends with one line of JSON that has
all figures. The exit status is 1 when a required figure falls short. Ratios are to Spark's own JDBC source
and sink on a table with a row for each message, in the same session, on the same messages; they need its
JDBC driver (Debian: `apt-get install libpostgresql-jdbc-java`, or POSTGRES_JDBC_JAR=file.jar), and fall short
without it. `arrow_limit_ratio` is how close a read comes to a source that has the same rows ready as Arrow
batches, and a write to a sink that throws them away; `limit_to_jdbc_ratio` is what these two would be rated.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import spark_batches, spark_latency, spark_replay, spark_start
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

PARTS: Final[Parts] = {
    "start": spark_start.run,
    "read": spark_batches.read,
    "write": spark_batches.write,
    "latency": spark_latency.run,
    "replay": spark_replay.run,
}
REQUIREMENTS: Final = (
    Requirement("read", "ratio", at_least=2.0),
    Requirement("write", "ratio", at_least=3.0),
    Requirement("replay", "events_per_second", at_least=60_000),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    return run_benchmark("spark", "Spark, in messages per second", PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
