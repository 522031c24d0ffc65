"""The benchmark of metrics: a smoke run, and what it must reach."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.parts.scraping import surplus
from benchmarks.scrape import PARTS, REQUIREMENTS
from benchmarks.verdict import exit_status, shortfalls

ROOT = Path(__file__).resolve().parents[2]


RICH = "rich_refresh"
"""The part that needs Spark."""


def report_of(*parts: str) -> None:
    """Run some parts, and look at the last line and the status."""
    only = [word for part in parts for word in ("--only", part)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scrape", "--quick", *only],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (report["benchmark"], report["quick"]) == ("scrape", True)
    found = {name: report[name] for name in parts}
    required = [requirement for requirement in REQUIREMENTS if requirement.part in found]
    for requirement in required:
        assert found[requirement.part][requirement.figure] >= 0
    assert report["shortfalls"] == shortfalls(found, required)
    assert done.returncode == exit_status(report["shortfalls"])


def test_a_smoke_run_ends_with_all_figures_in_one_line_and_a_status_that_agrees() -> None:
    report_of(*(part for part in PARTS if part != RICH))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_smoke_run_on_spark_says_what_a_refresh_takes() -> None:
    report_of(RICH)


def test_statements_that_upkeep_explains_are_no_scrape_s() -> None:
    idle = {"SELECT 1": 3, "SELECT 2": 1}
    assert surplus(idle, {"SELECT 1": 7, "SELECT 2": 2, "SELECT 3": 1}) == {}
    assert surplus(idle, {"SELECT 1": 8, "SELECT 3": 2}) == {"SELECT 1": 8, "SELECT 3": 2}
