"""The benchmark of the store: a smoke run, and what it must reach."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.store import REQUIREMENTS
from benchmarks.verdict import exit_status, shortfalls
from benchmarks.workload import percentile

ROOT = Path(__file__).resolve().parents[2]


def test_a_smoke_run_ends_with_all_figures_in_one_line_and_a_status_that_agrees() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--quick"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (report["benchmark"], report["quick"]) == ("store", True)
    parts = {name: report[name] for name in ("take", "latency", "cold")}
    for requirement in REQUIREMENTS:
        assert parts[requirement.part][requirement.figure] > 0
    assert report["shortfalls"] == shortfalls(parts, REQUIREMENTS)
    assert done.returncode == exit_status(report["shortfalls"])


@pytest.mark.parametrize(("part", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(part: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], part) == value
