"""A process that is killed while it spools leaves files in which everything acknowledged is."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.disk import RealDisk
from forebay.model import format_id
from forebay.spool.lines import SpooledBlock
from forebay.spool.scanning import Place
from forebay.spool.spool import Spool

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[2]
ROUNDS = 12
LINES_MAX = 400


def run_and_kill(folder: Path, seed: str, lines: int) -> list[str]:
    """Let the victim run until it has said so much, and kill it; return all it said."""
    command = [sys.executable, "-m", "tests.chaos.spool_victim", str(folder), seed]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        said = [victim.stdout.readline() for _ in range(lines)]
        victim.kill()
        said.extend(victim.stdout.readlines())
    assert "" not in said, "the victim ended by itself"
    return said


def replay(spool: Spool) -> list[str]:
    """Read everything, in small pages; half a block would be a failure."""
    replayed = []
    for name in spool.reader.files():
        place: Place | None = Place()
        while place is not None:
            page = spool.reader.read(name, place, events_max=30)
            place = page.next
            for found in page.found:
                assert isinstance(found.entry, SpooledBlock)
                assert not found.entry.damaged
                block = found.entry.block
                replayed.append(f"{block.partition(0)} {format_id(block.id)} {len(block)}")
        spool.reader.done(name)
    return replayed


async def test_what_was_acknowledged_outlives_a_kill_once_and_in_order(
    tmp_path: Path, seed: int, rng: random.Random
) -> None:
    said: list[str] = []
    replayed: list[str] = []
    for number in range(ROUNDS):
        said += [
            line.strip() for line in run_and_kill(tmp_path, f"{seed}/{number}", rng.randint(1, LINES_MAX))
        ]
        if number % 3 == 2:  # what several killed processes left is read at once
            async with await Spool.open(RealDisk(tmp_path)) as spool:
                replayed += replay(spool)
    tried = [line.removeprefix("try ") for line in said if line.startswith("try ")]
    acknowledged = {line.removeprefix("ack ") for line in said if line.startswith("ack ")}
    assert acknowledged <= set(replayed) <= set(tried)
    assert len(set(replayed)) == len(replayed)
    for partition in "abcd":
        order = [line for line in tried if line.startswith(partition)]
        places = [order.index(line) for line in replayed if line.startswith(partition)]
        assert places == sorted(places)
