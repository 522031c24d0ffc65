"""Streams: each message once, whatever is restarted; the group goes along; a plan is kept."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from forebay.app.opening import open_log
from forebay.log.values import Position
from forebay.model import Rejected, UnknownQueue
from forebay.spark.columns import message_schema
from forebay.spark.following import follow
from forebay.spark.options import read_options
from forebay.spark.planning import SPACE
from forebay.spark.ranges import DataLoss
from forebay.spark.reading import Task
from forebay.spark.skipping import skipped
from forebay.spark.streaming import MessageStream
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = ReadAllAvailable()


def _stream(shelf: Shelf, **given: str) -> MessageStream:
    options = read_options({"url": shelf.url, "startingOffsets": "earliest", **given}, "stream")
    return MessageStream(open_log, options, message_schema(options))


def _ranges(stream: MessageStream, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    tasks = [task for task in stream.partitions(start, end) if isinstance(task, Task)]
    return [(task.queue.name, task.first, task.end) for task in tasks]


def _available_now(frame: "DataFrame", table: str, checkpoint: Path) -> list[int]:
    """Run a query until nothing is left; the rows of its batches."""
    writer = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    assert query.awaitTermination(120)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_reads_what_is_there_in_batches_and_its_group_is_at_the_end(
    spark: "SparkSession", shelf: Shelf, tmp_path: Path
) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 250, per_block=40)
    options = {"queue": "orders", "startingOffsets": "earliest", "groupId": "spark"}
    frame = shelf.stream(spark, maxOffsetsPerTrigger=100, **options)
    assert _available_now(frame, "first", tmp_path / "checkpoint") == [100, 100, 50]
    assert [row["seq"] for row in spark.table("first").orderBy("seq").collect()] == list(range(1, 251))
    books = shelf.group("orders", "spark")
    assert (books.done, books.ready, books.difference) == (250, 0, 0)  # also the last batch

    shelf.push(queue, [b"y"] * 30)
    assert shelf.group("orders", "spark").ready == 30
    again = shelf.stream(spark, **options).writeStream.format("noop").trigger(availableNow=True)
    query = again.option("checkpointLocation", str(tmp_path / "other")).start()
    assert query.awaitTermination(120)
    assert sum(progress.numInputRows for progress in query.recentProgress) == 280  # it is a new query
    assert shelf.group("orders", "spark").done == 280


def test_a_listener_counts_a_batch_as_soon_as_it_is_done(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 20)
    listener = follow(spark, file_shelf.url, open_log)
    try:
        frame = file_shelf.stream(spark, queue="orders", startingOffsets="earliest", groupId="spark")
        writer = frame.writeStream.format("noop").trigger(processingTime="1 hour")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        file_shelf.until(lambda: query.lastProgress is not None)
        file_shelf.until(lambda: file_shelf.group("orders", "spark").done == 20)  # the next batch is far away
        query.stop()
    finally:
        spark.streams.removeListener(listener)


def test_nothing_new_changes_and_writes_nothing(shelf: Shelf) -> None:
    shelf.push(shelf.queue("orders"), [b"x"] * 10)
    stream = _stream(shelf, queue="orders", groupId="g", startingOffsets="latest")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start
    assert stream.partitions(start, start) == []
    assert shelf(shelf.log.scan(SPACE)) == []


def test_a_batch_that_was_planned_is_planned_the_same_way_again(shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 10)
    stream = _stream(shelf, queue="orders", groupId="g")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    shelf.push(queue, [b"y"] * 10)
    restarted = _stream(shelf, queue="orders", groupId="g")  # its checkpoint lost what was planned
    assert restarted.latestOffset(start, ALL) == end
    assert restarted.latestOffset(end, ALL)["queues"] == {"orders": 21}
    assert _stream(shelf, queue="orders").latestOffset(start, ALL)["queues"] == {"orders": 21}


def test_queries_of_a_group_that_read_other_queues_do_not_follow_each_other(shelf: Shelf) -> None:
    shelf.push(shelf.queue("orders"), [b"x"] * 10)
    wide = _stream(shelf, subscribePattern="orders.*", groupId="g")
    start = wide.initialOffset()
    shelf.push(shelf.queue("orders-b"), [b"y"] * 5)
    assert wide.latestOffset(start, ALL)["queues"] == {"orders": 11, "orders-b": 6}
    narrow = _stream(shelf, queue="orders", groupId="g")
    assert narrow.latestOffset(start, ALL)["queues"] == {"orders": 11}


def test_of_two_drivers_that_plan_from_one_place_one_follows_the_other(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 10)
    first, second = _stream(shelf, queue="orders", groupId="g"), _stream(shelf, queue="orders", groupId="g")
    start = first.initialOffset()
    assert second.latestOffset(start, ReadMaxRows(1))["queues"] == {"orders": 2}
    # The other one looked before that was written.
    first.latestOffset(second.latestOffset(start, ALL), ALL)
    plans = first._plans
    assert plans is not None
    monkeypatch.setattr(plans, "_planned", _once_blind(plans._planned))
    assert first.latestOffset(start, ALL)["queues"] == {"orders": 2}


def _once_blind(look: Any) -> Any:
    """Look, and see nothing the first time."""
    seen: list[str] = []

    def looking(key: str) -> Any:
        seen.append(key)
        return None if len(seen) == 1 else look(key)

    return looking


def test_a_restarted_query_brings_its_group_to_where_it_is(shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 10)
    stream = _stream(shelf, queue="orders", groupId="g")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(6))
    assert (shelf.group("orders", "g").ready, shelf.group("orders", "g").done) == (10, 0)
    _stream(shelf, queue="orders", groupId="g").latestOffset(
        end, ALL
    )  # the batch was done, and nobody said it
    assert (shelf.group("orders", "g").ready, shelf.group("orders", "g").done) == (4, 6)
    stream.commit(end)
    stream.commit(start)
    assert shelf.group("orders", "g").done == 6


def test_available_now_ends_where_the_log_ended_when_it_began(shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 10)
    stream = _stream(shelf, queue="orders")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    shelf.push(queue, [b"y"] * 10)
    end = stream.latestOffset(start, ALL)
    assert end["queues"] == {"orders": 11}
    assert stream.latestOffset(end, ALL) == end


def test_a_limit_is_shared_by_the_queues(file_shelf: Shelf) -> None:
    for name, count in (("a", 100), ("b", 3), ("c", 100)):
        file_shelf.push(file_shelf.queue(name), [b"x"] * count)
    stream = _stream(file_shelf, subscribe="a,b,c", maxOffsetsPerTrigger="21")
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(21)
    end = stream.latestOffset(start, limit)
    assert end["queues"] == {"a": 10, "b": 4, "c": 10}
    assert _ranges(stream, start, end) == [("a", 1, 10), ("b", 1, 4), ("c", 1, 10)]
    assert stream.reportLatestOffset() == {"queues": {"a": 101, "b": 4, "c": 101}}


def test_a_pattern_finds_queues_that_are_made_later(shelf: Shelf) -> None:
    shelf.push(shelf.queue("orders-1"), [b"x"] * 5)
    shelf.queue("invoices")
    stream = _stream(shelf, subscribePattern="orders-.*", startingOffsets="latest", groupId="g")
    start = stream.initialOffset()
    shelf.push(shelf.queue("orders-2"), [b"y"] * 7)
    end = stream.latestOffset(start, ALL)
    assert _ranges(stream, start, end) == [("orders-2", 1, 8)]
    assert _ranges(_stream(shelf, subscribePattern="orders-.*"), start, end) == [("orders-2", 1, 8)]
    stream.latestOffset(end, ALL)
    books = shelf.group("orders-2", "g")
    assert books.ready == 0


def test_a_queue_that_is_deleted_is_an_error_even_if_it_is_made_again(file_shelf: Shelf) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 5)
    stream = _stream(file_shelf, queue="orders")
    start = stream.initialOffset()
    file_shelf(file_shelf.log.delete_queue("orders"))
    with pytest.raises(UnknownQueue, match="'orders', which this query reads, was deleted;"):
        stream.latestOffset(start, ALL)
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 9)
    with pytest.raises(DataLoss, match="messages 1 to 5 of queue 'orders'"):  # its numbers go on
        stream.latestOffset(start, ALL)
    quiet = _stream(file_shelf, queue="orders", failOnDataLoss="false")
    end = quiet.latestOffset(start, ALL)
    assert (end["queues"], end["skipped"]) == ({"orders": 15}, {"orders": 5})


def test_a_checkpoint_that_is_ahead_of_the_log_is_refused(file_shelf: Shelf) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 5)
    stream = _stream(file_shelf, queue="orders")
    start = stream.initialOffset() | {"queues": {"orders": 50}}
    with pytest.raises(Rejected, match="at message 50 of queue 'orders', whose next message will be 6"):
        stream.latestOffset(start, ALL)


def test_what_retention_took_is_an_error_or_counted_in_the_offsets(
    file_shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = file_shelf.queue("orders")
    file_shelf.push(queue, [b"x"] * 30, per_block=10)
    loud = _stream(file_shelf, queue="orders")
    quiet = _stream(file_shelf, queue="orders", failOnDataLoss="false")
    start = loud.initialOffset()
    real = file_shelf(file_shelf.log.stats()).queues[0]
    import msgspec  # noqa: PLC0415 - a log that has dropped its first block, without waiting for it

    dropped = [msgspec.structs.replace(real, floor=11)]
    monkeypatch.setattr("forebay.spark.streaming.kept_queues", lambda _: dropped)
    with pytest.raises(DataLoss, match="messages 1 to 10 of queue 'orders'"):
        loud.latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING, "forebay.spark"):
        end = quiet.latestOffset(start, ALL)
    assert end["skipped"] == {"orders": 10}
    assert "messages 1 to 10" in caplog.text
    # More of it goes before the batch is run.
    dropped[0] = msgspec.structs.replace(real, floor=21)
    assert _ranges(quiet, start, end) == [("orders", 21, 31)]
    assert [(each.first, each.last) for each in skipped(file_shelf.face)] == [(1, 10), (11, 20)]


def test_a_group_that_is_there_is_not_sent_back(shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 10)
    shelf(shelf.log.create_group(queue, "g", Position(8)))
    stream = _stream(shelf, queue="orders", groupId="g")
    stream.latestOffset(stream.initialOffset(), ALL)
    assert shelf.group("orders", "g").ready == 3
