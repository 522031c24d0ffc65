"""Mode lease: Spark takes its share as a worker does, and loses nothing wherever it dies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from forebay.app.opening import open_log
from forebay.log.values import Append, Queue, Room
from forebay.model import Message, SystemClock
from forebay.spark.columns import message_schema
from forebay.spark.following import Following
from forebay.spark.holding import SPACE
from forebay.spark.leasing import LeaseStream
from forebay.spark.options import read_options
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LIMIT = ReadMaxRows(1_000)


class Queries:
    """Streams of mode lease on one queue; those that a test leaves are stopped after it."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.streams: list[LeaseStream] = []

    def start(self, **given: str) -> LeaseStream:
        given = {"url": self.shelf.url, "queue": "orders", "mode": "lease", "groupId": "g", **given}
        options = read_options(given, "stream")
        self.streams.append(LeaseStream(open_log, options, message_schema(options)))
        return self.streams[-1]

    def stop(self, stream: LeaseStream) -> None:
        self.streams.remove(stream)
        stream.stop()

    def crash(self, stream: LeaseStream) -> None:
        """Leave a stream as a kill would: it says nothing more."""
        self.streams.remove(stream)
        if stream._claims is not None:
            stream._claims._stopped.set()


@pytest.fixture
def queries(shelf: Shelf) -> "Iterator[Queries]":
    """Give a place where queries run, in this process."""
    running = Queries(shelf)
    yield running
    for stream in list(running.streams):
        running.stop(stream)


def _seqs(stream: LeaseStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def _filled(shelf: Shelf, count: int = 30, **settings: Any) -> Queue:
    queue = shelf.queue("orders", **settings)
    shelf.push(queue, [Message(b"x", f"p{i % 2}") for i in range(count)], per_block=10)
    return queue


def _beaten(shelf: Shelf, owner: str) -> bool:
    """Say that a worker is alive: one that is silent for too long loses what it has."""
    shelf(shelf.log.heartbeat(owner))
    return True


def test_spark_and_a_worker_share_a_queue(spark: "SparkSession", file_shelf: Shelf, tmp_path: Path) -> None:
    queue = _filled(file_shelf, 50)
    group = file_shelf(file_shelf.log.create_group(queue, "g"))
    claimed = file_shelf(file_shelf.log.claim(group, "worker", Room(10))).claims
    frame = file_shelf.stream(spark, queue="orders", mode="lease", groupId="g", maxOffsetsPerTrigger=25)
    writer = frame.writeStream.format("memory").queryName("leased").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    file_shelf.until(lambda: _beaten(file_shelf, "worker") and not query.isActive, 200)
    assert query.exception() is None
    assert [row["seq"] for row in spark.table("leased").orderBy("seq").collect()] == list(range(11, 51))
    books = file_shelf.group("orders", "g")
    assert (books.done, books.held, books.ready, books.difference) == (40, 10, 0, 0)
    assert file_shelf(file_shelf.log.scan(SPACE)) == []
    file_shelf(file_shelf.log.commit(settlements=[claimed[0].settle_all()]))


def test_a_batch_is_settled_when_the_next_is_asked_for(queries: Queries) -> None:
    _filled(queries.shelf)
    stream = queries.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(20))
    assert _seqs(stream, start, end) == list(range(1, 21))
    assert queries.shelf.group("orders", "g").handed == 20
    last = stream.latestOffset(end, LIMIT)
    assert queries.shelf.group("orders", "g").done == 20
    assert _seqs(stream, end, last) == list(range(21, 31))
    assert stream.latestOffset(last, LIMIT) == last
    assert queries.shelf.group("orders", "g").done == 30
    queries.stop(stream)
    assert queries.shelf(queries.shelf.log.owners()) == []


def test_what_was_planned_before_a_crash_is_read_again(queries: Queries) -> None:
    _filled(queries.shelf)
    stream = queries.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(20))
    assert len(_seqs(stream, start, end)) == 20
    queries.crash(stream)
    again = queries.start()
    assert again.latestOffset(start, LIMIT) == end  # also where the checkpoint lost it
    assert _seqs(again, start, end) == list(range(1, 21))
    again.commit(end)
    again.commit(end)
    books = queries.shelf.group("orders", "g")
    assert (books.done, books.held, books.ready) == (20, 0, 10)


def test_a_follower_settles_a_batch_that_the_query_then_settles_again(
    queries: Queries, caplog: pytest.LogCaptureFixture
) -> None:
    _filled(queries.shelf)
    stream = queries.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(20))
    assert len(_seqs(stream, start, end)) == 20
    Following(open_log, queries.shelf.url, {})._done(end)
    assert queries.shelf.group("orders", "g").done == 20
    stream.commit(end)
    assert queries.shelf.group("orders", "g").done == 20
    assert "other workers" not in caplog.text
    assert _seqs(queries.start(), start, end) == []  # a checkpoint that lost the batch finds it done


def test_what_was_claimed_and_not_written_down_is_found_again(queries: Queries) -> None:
    queue = _filled(queries.shelf, 10)
    stream = queries.start()
    start = stream.initialOffset()
    group = queries.shelf(queries.shelf.log.create_group(queue, "g"))
    queries.shelf(queries.shelf.log.claim(group, start["owner"], Room(10)))  # and then it died
    end = stream.latestOffset(start, LIMIT)
    assert _seqs(stream, start, end) == list(range(1, 11))


def test_what_others_took_over_is_left_to_them_and_counts_as_an_attempt(queries: Queries) -> None:
    queue = _filled(queries.shelf, 20)
    stream = queries.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert len(_seqs(stream, start, end)) == 20
    group = queries.shelf(queries.shelf.log.create_group(queue, "g"))
    log = queries.shelf.log
    taken = queries.shelf(log.reclaim(group, "worker", Room(10), of=[start["owner"]])).claims
    assert sum(claim.count for claim in taken) == 10
    assert any(taken[0].handed)  # whoever takes it over sees that it was out
    assert _seqs(stream, start, end) == list(range(11, 21))
    stream.commit(end)
    books = queries.shelf.group("orders", "g")
    assert (books.done, books.held) == (10, 10)


def test_what_starts_later_waits_and_what_came_back_too_often_is_given_up(queries: Queries) -> None:
    shelf = queries.shelf
    queue = shelf.queue("orders", retries_max=0)
    later = SystemClock().now() + 3_600_000_000
    messages = [Message(b"now"), Message(b"later", start_time=later), Message(b"now")]
    shelf(shelf.log.commit([Append.of(queue, messages)]))
    group = shelf(shelf.log.create_group(queue, "g"))
    claim = shelf(shelf.log.claim(group, "dead", Room(1))).claims[0]
    shelf(shelf.log.mark([claim.mark(handed=b"\x01")]))
    shelf(shelf.log.retire("dead"))
    stream = queries.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert _seqs(stream, start, end) == [3]
    stream.commit(end)
    books = shelf.group("orders", "g")
    assert (books.done, books.deferred, books.dead, books.difference) == (1, 1, 1, 0)


def test_in_an_ordered_queue_a_partition_is_in_one_task(queries: Queries) -> None:
    queue = queries.shelf.queue("orders", ordered=True)
    for i in range(4):
        queries.shelf.push(queue, [Message(b"x", f"p{i % 2}")] * 10)
    stream = queries.start(minPartitions="2")
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    seen: dict[str, list[int]] = {}
    for task in stream.partitions(start, end):
        rows = [row for batch in stream.read(task) for row in batch.to_pylist()]
        for partition in {row["partition"] for row in rows}:
            assert partition not in seen
            seen[partition] = [row["seq"] for row in rows if row["partition"] == partition]
    assert sorted(seen) == ["p0", "p1"]
    assert all(seqs == sorted(seqs) for seqs in seen.values())


def test_a_paused_queue_is_left_alone(queries: Queries) -> None:
    _filled(queries.shelf)
    queries.shelf(queries.shelf.log.configure_queue("orders", {"paused": True}))
    stream = queries.start()
    start = stream.initialOffset()
    assert stream.latestOffset(start, LIMIT) == start
