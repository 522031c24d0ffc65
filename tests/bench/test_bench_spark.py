"""The benchmark of the Spark part: a smoke run, and what it must reach."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.verdict import exit_status, shortfalls

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_smoke_run_ends_with_all_figures_in_one_line_and_a_status_that_agrees() -> None:
    pytest.importorskip("pyspark")
    from benchmarks.spark import PARTS, REQUIREMENTS  # noqa: PLC0415 - needs Spark

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark", "--quick"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (report["benchmark"], report["quick"]) == ("spark", True)
    parts = {name: report[name] for name in PARTS}
    assert parts["replay"]["events"] > 40_000 > parts["replay"]["written"]  # some are there twice
    assert all(parts[name]["arrow_limit_ratio"] > 0 for name in ("read", "write"))
    assert parts["latency"]["batch_p50_ms"] > 0
    assert parts["latency"]["group_batch_p50_ms"] > 0
    assert report["shortfalls"] == shortfalls(parts, REQUIREMENTS)
    assert done.returncode == exit_status(report["shortfalls"])
