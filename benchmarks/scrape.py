"""Benchmark of metrics: `python -m benchmarks.scrape`, or `make bench-scrape`.

What a scrape of `/metrics` takes, and what it takes to make the snapshot that is scraped, beside a thousand
messages that wait and beside five million; and what a refresh of the rich series takes on Spark. It prints a
table, and ends with one line of JSON that has all figures. The exit status is 1 when a required figure falls
short. A ratio is that of the medians of one run.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.parts import refreshing, rich_refresh, scraping
from benchmarks.report import Parts, run_benchmark
from benchmarks.verdict import Requirement

_REFRESHES: Final[Parts] = {
    "sqlite_refresh": refreshing.run_sqlite,
    "postgres_refresh": refreshing.run_postgres,
}
PARTS: Final[Parts] = {"scrape": scraping.run, **_REFRESHES, "rich_refresh": rich_refresh.run}
REQUIREMENTS: Final = (
    Requirement("scrape", "series", at_least=scraping.SERIES),
    Requirement("scrape", "p99_ms", at_most=50.0),
    Requirement("scrape", "ratio", at_most=1.2),
    Requirement("scrape", "statements", at_most=0.0),
    *(
        requirement
        for part in _REFRESHES
        for requirement in (
            Requirement(part, "ratio", at_most=1.5),
            Requirement(part, "loop_ms", at_most=10.0),
        )
    ),
    Requirement("rich_refresh", "refresh_seconds", at_most=1.0),
    Requirement("rich_refresh", "database_ratio", at_least=10.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for; return the exit status."""
    title = "Metrics: what it takes to scrape them, and to count"
    return run_benchmark("scrape", title, PARTS, REQUIREMENTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
