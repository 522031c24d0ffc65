"""A program ends with its status, also where its event loop doesn't close."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forebay.app import event_loop

STUCK = """
import logging, sys, threading
import uvloop
from forebay.app import event_loop

class Stuck(uvloop.Loop):
    def close(self):
        threading.Event().wait()

async def main():
    if sys.argv[1] == "fails":
        raise RuntimeError("for this reason")

logging.basicConfig(format="%(message)s")
event_loop.run(main(), loop_factory=Stuck, close_seconds=0.05)
"""


@pytest.mark.parametrize(("how", "status"), [("ends", 0), ("fails", 1)])
def test_a_loop_that_does_not_close_keeps_no_process(how: str, status: int) -> None:
    command = [sys.executable, "-c", STUCK, how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == status
    assert "hasn't closed for 0.05 seconds" in ended.stderr
    assert ("for this reason" in ended.stderr) == (how == "fails")


def test_a_program_ends_with_its_result_or_its_error() -> None:
    async def good() -> int:
        return 7

    async def bad() -> None:
        raise ValueError("bad")

    assert event_loop.run(good(), close_seconds=600) == 7
    with pytest.raises(ValueError, match="bad"):
        event_loop.run(bad(), close_seconds=600)
