"""The benchmark of workers: our own program, how it is compared, and what it says without its rivals."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.work.__main__ import REQUIREMENTS
from benchmarks.work.contest import CONTESTANTS, OURS, ratios_to_the_best, run_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", OURS)
async def test_our_program_does_all_its_tasks(name: str, tmp_path: Path) -> None:
    found = await run_program(CONTESTANTS[name], str(tmp_path / "tasks.db"), 3_000)
    assert found.tasks == 3_000
    assert found.rate > 0


def test_every_rival_takes_part_and_the_best_of_a_round_is_what_counts() -> None:
    rivals = {"celery", "dramatiq", "rq", "taskiq", "arq", "huey", "procrastinate", "pgqueuer"}
    assert {name.partition("_")[0] for name in CONTESTANTS} - {"forebay"} == rivals
    rates = {"forebay": [100.0, 90.0], "celery": [10.0, 2.0], "rq": [5.0, 3.0]}
    assert ratios_to_the_best(rates, "forebay", ["celery", "rq"]) == [10.0, 30.0]
    assert {requirement.figure for requirement in REQUIREMENTS} == {"forebay_per_second", "ratio"}


async def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(CONTESTANTS["forebay"], module="benchmarks.work.nothing")
    with pytest.raises(RuntimeError, match="No module named"):
        await run_program(broken, str(tmp_path / "tasks.db"), 1)


def test_without_the_rivals_there_is_no_contest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.work", "--quick"],
        cwd=ROOT,
        env={**os.environ, "RIVALS": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "`make bench-work` does it" in done.stderr
