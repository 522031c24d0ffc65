"""Logs that the tests of the sink write to, and how they look at what came there."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import Kept
from forebay.model import Message
from forebay.spark.publishing import SPACE, Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")

ROW: Final = "value STRING, queue STRING, partition STRING, key STRING"


class Target:
    """A log with queues, opened anew for each look at it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, call: Callable[[Log], Coroutine[Any, Any, Result]]) -> Result:
        """Make calls on the log, opened for them."""

        async def opened() -> Result:
            async with open_log(self.url) as log:
                return await call(log)

        return asyncio.run(opened())

    def create(self, name: str, **settings: Any) -> str:
        """Make a queue with a group."""

        async def make(log: Log) -> None:
            await log.create_group(await log.create_queue(name, settings), "workers")

        self.run(make)
        return name

    def messages(self, name: str) -> list[Message]:
        """Everything that was published to a queue, in its order."""

        async def read(log: Log) -> list[Message]:
            queue, found, first = await log.queue(name), list[Message](), 1
            while blocks := await log.read(queue, first):
                found += [message for block in blocks for message in block.decode(name)]
                first = (blocks[-1].last & ((1 << 40) - 1)) + 1
            return found

        return self.run(read)

    def payloads(self, name: str) -> list[str]:
        """The same, as text."""
        return [message.payload.decode() for message in self.messages(name)]

    def progress(self, app: str) -> Progress | None:
        """What the log remembers of an application."""
        kept = self.run(lambda log: log.records(SPACE, [app]))
        return msgspec.json.decode(kept[0].value, type=Progress) if kept else None

    def records(self) -> list[Kept]:
        """All records of the sink."""
        return self.run(lambda log: log.scan(SPACE))

    def check_ledger(self) -> None:
        """Every message is accounted for."""
        stats = self.run(lambda log: log.stats())
        assert [g.difference for q in stats.queues for g in q.groups if g.difference] == []


def frame(
    spark: "SparkSession", given: Sequence[Sequence[Any]], schema: str = ROW, parts: int = 1
) -> "DataFrame":
    """A DataFrame of these rows, in this order, in so many Spark partitions."""
    rows = spark.sparkContext.parallelize([tuple(row) for row in given], parts)
    return spark.createDataFrame(rows, schema)


def save(frame: "DataFrame", target: Target, **options: str) -> None:
    """Append a DataFrame to queues."""
    frame.write.format("forebay").options(url=target.url, **options).mode("append").save()
