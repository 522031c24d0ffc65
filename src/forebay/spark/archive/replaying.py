"""A range of a queue, archived or live, back into a queue: through the sink, exactly once.

The application of the write is made of what is replayed, so that the same replay, repeated after a crash or
by mistake, publishes nothing twice. `again` makes it another one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.model import Rejected, UnknownQueue
from forebay.spark.logs import Opener, face
from forebay.spark.options import Options, read_options
from forebay.spark.publishing import SPACE
from forebay.spark.ranges import ends, kept_queues, starts, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: Final = ("value", "partition", "key", "headers")


class RangeWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be replayed, and where to."""

    url: str
    archive: str
    queue: str
    into: str
    begin: Mapping[str, str]
    """Options of the source that say where to begin, and to end."""
    end: Mapping[str, str]
    again: str = ""
    credentials: Mapping[str, str] = {}

    def options(self) -> dict[str, str]:
        """The options of the source."""
        asked = {"url": self.url, "queue": self.queue, "archive": self.archive, "includeHeaders": "true"}
        return asked | dict(self.begin) | dict(self.end) | dict(self.credentials)


class RangePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would read."""

    first: int
    end: int
    lost: int
    """Messages of it that were dropped before they were archived."""
    archived: int
    """How many come from the archive; the rest is in the log."""
    app: str
    done: bool
    """It was replayed before."""

    @property
    def messages(self) -> int:
        """How many."""
        return self.end - self.first - self.lost


def plan(opener: Opener, wish: RangeWish) -> RangePlan:
    """Say what would be replayed, and change nothing."""
    options: Options = read_options(wish.options(), "batch")
    opened = face(opener, wish.url, **wish.credentials)
    found = kept_queues(opened)
    kept = subscribed(found, options)
    if not any(queue.queue.name == wish.into for queue in found):
        text = f"there is no queue {wish.into!r} to replay into"
        raise UnknownQueue(text, hint=f"make it first: forebay queues create {shlex.quote(wish.into)}")
    each = kept[wish.queue]
    first = starts(opened, kept, options, default="earliest")[wish.queue]
    end = ends(opened, kept, options)[wish.queue]
    if end <= first:
        text = f"there is nothing of {wish.queue!r} in that range"
        raise Rejected(text, hint=f"it has messages {each.floor} to {each.next - 1}")
    lost = sum(high - low for low, high in each.span.lost(first, end)) if each.span is not None else 0
    app = _application(wish, each.queue.number, first, end)
    done = bool(opened(opened.log.records(SPACE, [app])))
    archived = max(0, min(end, each.live) - first) if each.span is not None else 0
    return RangePlan(first=first, end=end, lost=lost, archived=archived - lost, app=app, done=done)


def _application(wish: RangeWish, number: int, first: int, end: int) -> str:
    key = f"{number}\0{first}\0{end}\0{wish.into}\0{wish.again}"
    return f"archive-replay/{blake2b(key.encode(), digest_size=16).hexdigest()}"


def replay(spark: SparkSession, wish: RangeWish, planned: RangePlan) -> None:
    """Replay a range as planned; messages keep their order, partition, transaction id and headers."""
    places = {
        "startingOffsets": msgspec.json.encode({wish.queue: planned.first}).decode(),
        "endingOffsets": msgspec.json.encode({wish.queue: planned.end}).decode(),
        "failOnDataLoss": "false" if planned.lost else "true",
    }
    options = msgspec.structs.replace(wish, begin=places, end={}).options()
    frame = spark.read.format("forebay").options(**options).load().select(*COLUMNS)
    target = {"url": wish.url, "queue": wish.into, "txnAppId": planned.app, "txnVersion": "1"}
    frame.write.format("forebay").options(**target, **wish.credentials).mode("append").save()
