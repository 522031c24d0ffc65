"""A process that works on a log in a file until it is killed, and says what was acknowledged.

Run as `python -m tests.chaos.sqlite_victim PATH ROUND SEED`. Every line on standard output is one
acknowledgement, as JSON: a block that was appended, or messages that were settled for good.
"""

import asyncio
import os
import random
import sys
from functools import partial

import msgspec

from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append, Claim, Death, Deferral, Group, Queue, Record, Room
from forebay.model import Block, Message, bitmap

PARTITIONS = ("red", "green", "blue")


class Line(msgspec.Struct, omit_defaults=True):
    """One acknowledgement: `opened`, or a block, or settled messages."""

    queue: str = ""
    block: str = ""
    first: int = 0
    count: int = 0
    settled: list[int] = []


def say(line: Line) -> None:
    """Write a line whole, so that a kill cuts none in two."""
    os.write(1, msgspec.json.encode(line) + b"\n")


async def push(log: SqliteLog, queue: Queue, chance: random.Random) -> None:
    """Push small blocks for ever."""
    while True:
        partition = chance.choice(PARTITIONS)
        payload = b"x" * chance.randint(1, 3000)
        block = Block.of([Message(payload, partition)] * chance.randint(1, 20))
        (appended,) = (await log.commit([Append.of(queue, block)])).appended
        say(Line(queue.name, block.id.hex(), appended.first, appended.count))


async def count(log: SqliteLog, queue: Queue) -> None:
    """Push blocks for ever, and count them in a record that is written with each."""
    found = await log.records("counts", [queue.name])
    number = found[0].version if found else 0
    while True:
        block = Block.of([Message(b"x")])
        record = Record("counts", queue.name, b"%d" % (number + 1), version=number)
        (appended,) = (await log.commit([Append.of(queue, block)], records=[record])).appended
        say(Line(queue.name, block.id.hex(), appended.first, appended.count))
        number += 1


def settlement(claim: Claim, chance: random.Random) -> tuple[bytes, tuple[Deferral, ...], int | None]:
    """Draw what becomes of a claim: which are done, which come back, and one that dies."""
    left = bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))
    back = [offset for offset in left if chance.random() < 0.2]
    dead = chance.choice(left) if chance.random() < 0.1 else None
    done = [offset for offset in left if offset not in back and offset != dead]
    deferred = tuple(Deferral(offset, 0, 1) for offset in back if offset != dead)
    return bitmap.of(done, claim.count), deferred, dead


async def settle(log: SqliteLog, queue: Queue, claim: Claim, chance: random.Random) -> None:
    """Settle a claim; say which of its messages are finished for good."""
    done, deferred, dead = settlement(claim, chance)
    deaths = () if dead is None else (Death(dead, "tired", 1, Message(b"x")),)
    commit = await log.commit(settlements=[claim.settle(done=done, deferred=deferred, dead=deaths)])
    commit.raise_for_conflicts()
    offsets = bitmap.indexes(done) + ([] if dead is None else [dead])
    say(Line(queue.name, settled=[claim.first + offset for offset in offsets]))


async def work(log: SqliteLog, queue: Queue, group: Group, round_number: int, chance: random.Random) -> None:
    """Take over what earlier rounds held, then claim and settle for ever."""
    killed = [f"{queue.name} {number}" for number in range(round_number)]
    owner = f"{queue.name} {round_number}"
    verbs = (log.claim, log.due, partial(log.reclaim, of=killed))
    while True:
        room = Room(messages=chance.randint(1, 200))
        for claim in (await chance.choice(verbs)(group, owner, room)).claims:
            await settle(log, queue, claim, chance)
        if chance.random() < 0.02:
            await log.retire(owner)
        await log.heartbeat(owner)


async def main(path: str, round_number: str, seed: str) -> None:
    """Push and work on an unordered and an ordered queue at once, and count what is pushed to a third."""
    say(Line())
    chance = random.Random(f"{seed}/{round_number}")
    async with SqliteLog(path) as log, asyncio.TaskGroup() as tasks:
        for name in ("plain", "ordered"):
            queue = await log.create_queue(name, {"ordered": name == "ordered"})
            group = await log.create_group(queue, "workers")
            tasks.create_task(push(log, queue, chance))
            tasks.create_task(push(log, queue, chance))
            tasks.create_task(work(log, queue, group, int(round_number), chance))
        counted = await log.create_queue("counted")
        await log.create_group(counted, "workers")
        tasks.create_task(count(log, counted))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
