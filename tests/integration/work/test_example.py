"""The example of two queues from one contract, as a new user runs it: two commands in an empty folder."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.servers.forebay import environment
from tests.servers.process import ServerProcess

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "tasks"
SECONDS = 60


def run(folder: Path, *arguments: str) -> str:
    """Run Python to its end; what it printed."""
    command = [sys.executable, "-W", "error", *arguments]
    ended = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[ServerProcess]:
    """Start the second command after the first."""
    assert "put 5 emails" in run(tmp_path, "-m", "examples.tasks.put")
    process = ServerProcess.spawn(
        [sys.executable, "-m", "forebay.app.cli", "worker", "examples.tasks.app:worker"],
        log=tmp_path / "worker.log",
        directory=tmp_path,
        environment=environment(),
    )
    yield process
    process.end(signal.SIGKILL)


def printed(folder: Path) -> list[str]:
    """What the worker has printed, without its logs."""
    lines = (folder / "worker.log").read_text().splitlines()
    return [line for line in lines if not line.startswith("{")]


def promised() -> list[str]:
    """What its README says that the worker prints."""
    (block,) = re.findall(r"```\n(✉.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    return str(block).splitlines()


def until_printed(worker: ServerProcess, folder: Path, count: int) -> list[str]:
    """What the worker has printed as soon as there are so many lines, or long after there should be."""
    deadline = monotonic() + SECONDS
    there = lambda: len(printed(folder)) >= count or monotonic() > deadline  # noqa: E731 - one condition
    worker.wait_ready(there, 2 * SECONDS, folder / "worker.log")
    return sorted(printed(folder))  # two queues take turns as it comes


def test_a_new_user_sees_what_the_readme_of_the_example_says(worker: ServerProcess, tmp_path: Path) -> None:
    once = promised()
    assert until_printed(worker, tmp_path, len(once)) == sorted(once)
    run(tmp_path, "-m", "examples.tasks.put")  # while it works: the notification isn't there a second time
    twice = [*once, *(line for line in once if "nine" not in line)]
    assert until_printed(worker, tmp_path, len(twice)) == sorted(twice)


def test_what_is_left_is_the_one_without_an_address(worker: ServerProcess, tmp_path: Path) -> None:
    until_printed(worker, tmp_path, len(promised()))
    worker.end(signal.SIGTERM)
    command = ("-m", "forebay.app.cli")
    dead = run(tmp_path, *command, "dead", "list", "emails", "--store", "sqlite:///tasks.db")
    assert dead.count("no address") == 1
    books = run(tmp_path, *command, "ledger", "--store", "sqlite:///tasks.db", "--json")
    assert '"difference":0' in books.replace(" ", "")


def test_the_generated_package_of_the_example_is_up_to_date(tmp_path: Path) -> None:
    arguments = (str(EXAMPLE / "tasks.yaml"), "--out", str(EXAMPLE / "queues"), "--check")
    run(tmp_path, "-m", "forebay.app.cli", "contract", "generate", *arguments)
