"""From what a file says to what is kept running."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from forebay.log.values import GroupStats
from forebay.spark.archive.job import ArchiveJob
from forebay.spark.archive.numbers import ArchiveNumbers
from forebay.spark.archive.planning import ArchiveSettings
from forebay.spark.archive.upkeep import compact
from forebay.spark.flows.letters import LetterFlow
from forebay.spark.flows.numbers import FlowNumbers, PipelineNumbers
from forebay.spark.flows.parsing import matches
from forebay.spark.flows.pipeline import Unit
from forebay.spark.flows.redriven import push_again
from forebay.spark.flows.running import QueueFlow, Running, Surroundings
from forebay.spark.flows.ticking import Ticking
from forebay.spark.flows.timed import TimedFlow
from forebay.spark.flows.values import (
    ArchiveSpec,
    DestinationSink,
    FlowSpec,
    LetterSource,
    PipelineSpec,
    QueueSink,
    QueueSource,
    TimedSource,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = "the archive"
"""No flow can be called so."""
_FEWER_MIN: Final = 100
"""The archive is compacted when so many files go by it: each run leaves some, and reads all their names."""


def units(
    spark: SparkSession, spec: PipelineSpec, around: Surroundings, numbers: PipelineNumbers
) -> list[Unit]:
    """Every flow, with how it is started."""
    return [
        Unit(
            name=flow.name,
            type=flow.type,
            start=partial(start, spark, flow, around, numbers.of(flow.name, flow.type)),
            numbers=numbers.of(flow.name, flow.type),
            after=tuple(other.name for other in spec.flows[:place] if feeds(other, flow)),
        )
        for place, flow in enumerate(spec.flows)
    ]


def archiving(
    spark: SparkSession,
    archive: ArchiveSpec,
    around: Surroundings,
    numbers: PipelineNumbers,
    archived: ArchiveNumbers,
    *,
    once: bool,
) -> Unit:
    """The archive, on its schedule, kept running like a flow."""
    settings = ArchiveSettings(
        path=archive.path, queues=archive.queues, after=archive.after, wait_max=archive.wait_max
    )
    job = ArchiveJob(settings, around.opener, around.url, **around.credentials)
    counts = numbers.of(ARCHIVE, "ARCHIVE")

    def work(_: int) -> None:
        began = time.monotonic()
        try:
            ran = job.run_once(spark)
        except BaseException:
            archived.fail()
            raise
        archived.add(ran)
        compact(job.folder, spark, fewer_min=_FEWER_MIN)
        counts.batch(ran.messages, ran.messages, 0, time.monotonic() - began)

    start_ = partial(Ticking, ARCHIVE, archive.every, work, once=once)
    return Unit(name=ARCHIVE, type="ARCHIVE", start=start_, numbers=counts)


def feeds(other: FlowSpec, flow: FlowSpec) -> bool:
    """Whether one flow that ends by itself gives another such one what to do: then it comes first."""
    if not (other.once and flow.once):
        return False
    if isinstance(flow.source, QueueSource):
        return isinstance(other.sink, QueueSink) and other.sink.queue == flow.source.queue
    if isinstance(flow.source, LetterSource) and isinstance(other.source, QueueSource):
        return matches(other.source.queue, flow.source.dead) and matches(
            other.source.group, flow.source.group
        )
    return False


def start(spark: SparkSession, flow: FlowSpec, around: Surroundings, numbers: FlowNumbers) -> Running:
    """Start one flow."""
    if isinstance(flow.source, QueueSource):
        return QueueFlow(spark, flow, around, numbers)
    kind = TimedFlow if isinstance(flow.source, TimedSource) else LetterFlow
    # A session of its own: SQL finds its rows by the name of a view, and flows run at the same time.
    work = kind(spark.newSession(), flow, around, numbers)
    return Ticking(flow.name, max(flow.every, 0.1), work, once=flow.once)


def tend(around: Surroundings, spec: PipelineSpec) -> dict[str, int]:
    """Push redriven letters again; by flow and delivery, how many messages it has not read, or sent, yet."""
    face = around.face()
    stats = face(face.log.stats())
    groups = {(q.queue.name, g.group.name): (q.queue, g) for q in stats.queues for g in q.groups}
    found = dict.fromkeys((f.name for f in spec.flows if isinstance(f.source, QueueSource)), 0)
    for flow in spec.flows:
        if isinstance(flow.source, QueueSource) and (flow.source.queue, flow.source.group) in groups:
            queue, books = groups[flow.source.queue, flow.source.group]
            found[flow.name] = books.unclaimed
            if books.due or books.held:
                found[flow.name] += face(push_again(face.log, queue, books.group, flow.name))
        if isinstance(flow.sink, DestinationSink):
            known = groups.get((flow.sink.queue, flow.sink.group))
            found[flow.delivery_name] = 0 if known is None else _unsent(known[1])
    return found


def _unsent(books: GroupStats) -> int:
    return books.unclaimed + books.held + books.deferred
