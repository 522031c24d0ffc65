"""The benchmark of many queues: a smoke run, and what it must reach."""

import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.queues import PARTS, REQUIREMENTS
from benchmarks.verdict import exit_status, shortfalls

ROOT = Path(__file__).resolve().parents[2]


def test_a_smoke_run_ends_with_all_figures_in_one_line_and_a_status_that_agrees() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.queues", "--quick"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1])
    assert (report["benchmark"], report["quick"]) == ("queues", True)
    parts = {name: report[name] for name in PARTS}
    for requirement in REQUIREMENTS:
        assert parts[requirement.part][requirement.figure] >= 0
    assert report["shortfalls"] == shortfalls(parts, REQUIREMENTS)
    assert done.returncode == exit_status(report["shortfalls"])
