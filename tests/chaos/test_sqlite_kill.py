"""A process that is killed at any moment leaves a log in which everything acknowledged holds."""

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from forebay.log.sqlite import SqliteLog
from forebay.log.values import Claim, Group, Queue, Room, StoredBlock
from forebay.model import bitmap, pack, sequence_of
from tests.chaos.sqlite_victim import Line
from tests.conformance.steps import check_ledger, counts

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[2]
ROUNDS = 12
LINES_MAX = 400


def run_and_kill(path: Path, number: int, seed: int, lines: int) -> list[Line]:
    """Let the victim run until it has acknowledged so much, and kill it; return all it said."""
    command = [sys.executable, "-m", "tests.chaos.sqlite_victim", str(path), str(number), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        said = [victim.stdout.readline() for _ in range(lines + 1)]
        victim.kill()
        said.extend(victim.stdout.readlines())
    assert b"" not in said, "the victim ended by itself"
    return [msgspec.json.decode(line, type=Line) for line in said]


async def blocks_of(log: SqliteLog, queue: Queue) -> list[StoredBlock]:
    """Read a queue from end to end; every block must be whole."""
    blocks: list[StoredBlock] = []
    while found := await log.read(queue, sequence_of(blocks[-1].last) + 1 if blocks else 1):
        blocks.extend(found)
    for block in blocks:
        block.check()
    return blocks


async def check_appends(log: SqliteLog, lines: list[Line]) -> None:
    """Every acknowledged block is there once, where it was said to be; there are no gaps."""
    for queue in await log.queues():
        blocks = await blocks_of(log, queue)
        following = 1
        for block in blocks:
            assert block.first == pack(queue.number, following)
            following += block.count
        places = {block.id.hex(): (block.first, block.count) for block in blocks}
        assert len(places) == len(blocks)
        for line in lines:
            if line.block and line.queue == queue.name:
                assert places[line.block] == (line.first, line.count)
        (stats,) = [s for s in (await log.stats()).queues if s.queue == queue]
        assert stats.next == following


async def check_counts(log: SqliteLog) -> None:
    """A record that was written with each block has counted them."""
    queues = [queue for queue in await log.queues() if queue.name == "counted"]
    blocks = sum([len(await blocks_of(log, queue)) for queue in queues])
    counted = [int(kept.value) for kept in await log.scan("counts")]
    assert counted == ([blocks] if blocks else [])


def unfinished(claim: Claim) -> set[int]:
    """The ids of the messages of a claim that are still to be done."""
    left = bitmap.minus(bitmap.full(claim.count), claim.done)
    return {claim.first + offset for offset in bitmap.indexes(left)}


async def drain(log: SqliteLog, group: Group) -> list[int]:
    """Take over, claim and finish all that is left; what it was."""
    found: list[int] = []
    room = Room(messages=1_000_000, bytes=1 << 40)
    while True:
        claims = [
            *(await log.reclaim(group, "heir", room, silent_seconds=0)).claims,
            *(await log.due(group, "heir", room)).claims,
            *(await log.claim(group, "heir", room)).claims,
        ]
        if not claims:
            return found
        for claim in claims:
            found.extend(unfinished(claim))
        receipt = await log.commit(settlements=[claim.settle_all() for claim in claims])
        assert not receipt.conflicts


async def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path, seed: int, rng: random.Random) -> None:
    path, lines = tmp_path / "log.db", list[Line]()
    for number in range(ROUNDS):
        much = 0 if number == 0 else rng.randint(1, LINES_MAX)
        lines += run_and_kill(path, number, seed, much)
        async with SqliteLog(path) as log:
            await check_appends(log, lines)
            await check_counts(log)
            await check_ledger(log)

    async with SqliteLog(path) as log:
        for queue in await log.queues():
            (group,) = await log.groups(queue)
            settled = [i for line in lines if line.queue == queue.name for i in line.settled]
            assert len(settled) == len(set(settled)), "a message was settled for good twice"
            left = await drain(log, group)
            assert len(left) == len(set(left))
            assert not set(left) & set(settled), "a message came back after it was settled"
            stats = await counts(log, group)
            assert (stats.ready, stats.held, stats.deferred, stats.difference) == (0, 0, 0, 0)
            assert stats.done + stats.dead == stats.accepted
            assert len(left) + len(settled) <= stats.accepted
