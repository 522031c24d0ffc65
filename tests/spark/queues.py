"""Queues for the tests on Spark: filled, read and looked at through a log of this process."""

import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.app.opening import open_log
from forebay.log.seam import Log
from forebay.log.values import Append, GroupStats, Queue
from forebay.model import Message
from forebay.spark.logs import Face, close_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Result = TypeVar("Result")


class Shelf:
    """A log and what tests do with it; called with a verb of the log, it waits for the answer."""

    def __init__(self, url: str, face: Face) -> None:
        self.url = url
        self.face = face

    @property
    def log(self) -> Log:
        """The log itself."""
        return self.face.log

    def __call__(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self.face(call)

    def queue(self, name: str, **settings: Any) -> Queue:
        """Make a queue."""
        return self(self.log.create_queue(name, settings))

    def push(self, queue: Queue, messages: Sequence[Message | bytes], *, per_block: int = 100) -> None:
        """Append messages in blocks of so many."""
        made = [each if isinstance(each, Message) else Message(each) for each in messages]
        for i in range(0, len(made), per_block):
            self(self.log.commit([Append.of(queue, made[i : i + per_block])]))

    def read(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """Read this log by `spark.read`."""
        return spark.read.format("forebay").options(url=self.url, **options).load()

    def stream(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """Read this log by `spark.readStream`."""
        return spark.readStream.format("forebay").options(url=self.url, **options).load()

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something holds."""
        deadline = monotonic() + seconds
        while not condition():
            assert monotonic() < deadline, f"not within {seconds:g} s"
            threading.Event().wait(0.02)

    def group(self, queue: str, name: str) -> GroupStats:
        """The books of a group."""
        stats = self(self.log.stats())
        found = next(each for each in stats.queues if each.queue.name == queue)
        return next(each for each in found.groups if each.group.name == name)


@contextmanager
def shelf_at(url: str, opener: Callable[..., Log] = open_log) -> Iterator[Shelf]:
    """Open the log at an address for a test."""
    face = Face(opener, url)
    try:
        yield Shelf(url, face)
    finally:
        close_all()  # what readers opened in this process
        face.close()
