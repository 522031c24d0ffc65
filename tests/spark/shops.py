"""Flows of tests: a log, and flows on it that run until nothing is left."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.app.opening import open_log
from forebay.log.sqlite import SqliteLog
from forebay.log.values import Append, DeadLetter, GroupStats
from forebay.model import ManualClock, Message, SystemClock
from forebay.spark.flows.keeping import Keeping
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.values import FlowSpec
from forebay.spark.logs import Face

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.flows.running import Surroundings

FUNCTIONS = "tests.spark.flow_functions"


def wait_until(check: Callable[[], bool], seconds: float) -> None:
    """Ask again and again, up to a deadline."""
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it takes too long"
        threading.Event().wait(0.02)


@contextmanager
def killed_after_publishing() -> Iterator[None]:
    """Let the second batch of a flow fail between publishing its rows and telling the group."""

    async def killed(_: Keeping) -> int:
        raise RuntimeError("killed here")

    calls = iter([Keeping.settle, killed])

    async def settle(keeping: Keeping) -> int:
        return await next(calls)(keeping)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeping, "settle", settle)
        yield


class Shop:
    """A log, and flows on it that run until nothing is left."""

    def __init__(self, spark: "SparkSession", folder: Path, url: str) -> None:
        self.spark = spark
        self.folder = folder
        self.url = url
        self.face = Face(open_log, self.url)
        self.numbers = FlowNumbers()

    def around(self) -> "Surroundings":
        from forebay.spark.flows.running import Surroundings  # noqa: PLC0415 - without Spark there is none

        return Surroundings(
            opener=open_log,
            url=self.url,
            credentials={},
            checkpoints=self.folder / "checkpoints",
            folder=self.folder,
        )

    def push(self, queue: str, messages: Sequence[Message]) -> None:
        made = self.face(self.face.log.create_queue(queue))
        self.face(self.face.log.commit([Append.of(made, messages)]))

    def run(self, flow: FlowSpec, tries: int = 3) -> BaseException | None:
        """Run a flow until it is done; what it failed with."""
        from forebay.spark.flows.starting import start  # noqa: PLC0415 - likewise

        running = start(self.spark, flow, self.around(), self.numbers)
        wait_until(lambda: not running.is_active(), 250)
        error = running.error()
        running.stop()
        # Spark gives a process ten seconds to start: little on a busy machine. A pipeline tries again, too.
        again = tries > 1 and "failed to connect back" in str(error)
        return self.run(flow, tries - 1) if again else error

    def read(self, queue: str) -> list[Message]:
        found = self.face(self.face.log.queue(queue))
        return [m for block in self.face(self.face.log.read(found)) for m in block.decode()]

    def trim_later(self, seconds: float) -> None:
        """Drop what will have expired after a time."""

        async def trim() -> None:
            async with SqliteLog(self.folder / "shop.db", clock=clock) as late:
                await late.trim()
                await late.trim()

        clock = ManualClock(SystemClock().now())
        clock.advance(seconds=seconds)
        asyncio.run(trim())

    def dead(self, queue: str, group: str) -> list[DeadLetter]:
        found = self.face(self.face.log.dead_letters(self.stats(queue, group).group))
        return list(found)

    def stats(self, queue: str, group: str) -> GroupStats:
        stats = self.face(self.face.log.stats())
        (found,) = (
            g for q in stats.queues if q.queue.name == queue for g in q.groups if g.group.name == group
        )
        return found


def orders(count: int, first: int = 1) -> list[Message]:
    return [
        Message(
            json.dumps({"order": number, "price": 2.5, "count": 4}).encode(),
            partition=f"p{number % 2}",
            transaction_id=f"order-{number}",
            headers={"trace": "t1", "flow": "shop"},
        )
        for number in range(first, first + count)
    ]
