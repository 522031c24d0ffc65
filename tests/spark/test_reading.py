"""Batch reads: every message once, what filters and options leave, and what is gone."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from forebay.app.opening import open_log
from forebay.contract import Format, read_contract
from forebay.model import Corrupt, Message, Rejected, UnknownQueue, pack, to_datetime
from forebay.spark.columns import message_schema
from forebay.spark.options import read_options
from forebay.spark.ranges import DataLoss, Kept, first_since
from forebay.spark.reading import MessageReader, Task
from forebay.spark.skipping import skipped
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = """
version: 2
queues:
  - id: 1
    name: orders
    fields:
      - {name: customer, type: string}
      - {name: amount, type: int64}
      - {name: paid, type: bool}
      - {name: seq, type: int}
      - {name: lines, type: "[]int"}
"""


def _reader(shelf: Shelf, **given: str) -> MessageReader:
    options = read_options({"url": shelf.url, **given}, "batch")
    return MessageReader(open_log, options, message_schema(options))


def _read(reader: MessageReader) -> list[int]:
    """The sequence numbers that a reader finds, in this process."""
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def test_every_message_is_read_once_with_all_that_it_has(spark: "SparkSession", shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    messages = [
        Message(b"%d" % i, f"p{i % 3}", f"t{i}" if i % 2 else None, {"n": str(i % 4)} if i % 5 else None)
        for i in range(1_050)
    ]
    shelf.push(queue, messages, per_block=97)
    frame = shelf.read(spark, queue="orders", includeHeaders=True, minPartitions=4)
    rows = frame.orderBy("seq").collect()
    assert frame.rdd.getNumPartitions() >= 4
    assert [row["seq"] for row in rows] == list(range(1, 1_051))
    assert {row["queue"] for row in rows} == {"orders"}
    assert [bytes(row["value"]) for row in rows] == [each.payload for each in messages]
    assert [row["partition"] for row in rows] == [each.partition for each in messages]
    assert [row["key"] for row in rows] == [each.transaction_id for each in messages]
    assert [row["headers"] for row in rows] == [each.headers for each in messages]
    times = [row["created_at"] for row in rows]
    assert times == sorted(times)


def test_filters_leave_the_right_rows(spark: "SparkSession", file_shelf: Shelf) -> None:
    for name in ("orders", "invoices"):
        queue = file_shelf.queue(name)
        file_shelf.push(queue, [Message(b"x", f"p{i % 3}") for i in range(90)], per_block=10)
    frame = file_shelf.read(spark, subscribe="orders,invoices")
    when = file_shelf(file_shelf.log.read(file_shelf.queue("orders"), 41, messages=1))[0].accepted_at
    wanted = frame.where(
        (F.col("queue") == "orders")
        & (F.col("seq") > 35)
        & (F.col("seq") <= 70)
        & F.col("partition").isin("p1", "p2")
        & (F.col("created_at") >= F.lit(to_datetime(when)))
        & (F.length("value") > 0)
    )
    found = [row["seq"] for row in wanted.orderBy("seq").collect()]
    assert found == [seq for seq in range(41, 71) if (seq - 1) % 3]
    assert frame.where("partition like 'p2%' and queue in ('invoices', 'none')").count() == 30


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"startingOffsets": '{"orders": 35}'}, range(35, 101)),
        ({"startingOffsets": '{"orders": -2}', "endingOffsets": '{"orders": 12}'}, range(1, 12)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"endingTimestamp": "0"}, range(0)),
        ({"startingTimestamp": "2020-01-01T00:00:00Z"}, range(1, 101)),
    ],
)
def test_offsets_and_times_bound_a_read(file_shelf: Shelf, given: dict[str, str], found: range) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 100, per_block=30)
    assert _read(_reader(file_shelf, queue="orders", **given)) == list(found)


def test_partitions_are_chosen_by_name_or_by_how_it_begins(shelf: Shelf) -> None:
    names = ["", "p1", "p10", "q1"]
    shelf.push(shelf.queue("orders"), [Message(b"x", names[i % 4]) for i in range(40)], per_block=7)
    for given, kept in (
        ({"partition": "p1"}, {1}),
        ({"partition": ""}, {0}),
        ({"partition": "none"}, set()),
        ({"partitionPrefix": "p1"}, {1, 2}),
        ({"partitionPrefix": "p1", "columns": "seq"}, {1, 2}),
    ):
        read = _read(_reader(shelf, queue="orders", **given))
        assert read == [seq for seq in range(1, 41) if (seq - 1) % 4 in kept], given


def test_ranges_that_begin_and_end_within_blocks_are_exact(shelf: Shelf) -> None:
    shelf.push(shelf.queue("orders"), [b"x"] * 100, per_block=7)
    for least in range(1, 40, 7):
        reader = _reader(
            shelf, queue="orders", minPartitions=str(least), startingOffsets='{"orders": 5}',
            endingOffsets='{"orders": 98}',
        )  # fmt: skip
        assert _read(reader) == list(range(5, 98))


def test_a_time_is_found_by_halving(shelf: Shelf) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 60, per_block=4)
    blocks = shelf(shelf.log.read(queue))
    kept = Kept(queue, 1, 61)
    for block in blocks:
        expected = next(b.first for b in blocks if b.appended_at >= block.appended_at) - blocks[0].first + 1
        assert first_since(shelf.face, kept, block.appended_at) == expected
    assert first_since(shelf.face, kept, blocks[-1].appended_at + 1) == 61


def test_what_is_gone_is_an_error_that_names_it_or_is_skipped(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    queue = shelf.queue("orders")
    shelf.push(queue, [b"x"] * 30, per_block=10)
    loud, quiet = _reader(shelf, queue="orders"), _reader(shelf, queue="orders", failOnDataLoss="false")
    gone = Task(queue, 25, 41)  # as if retention had taken the rest between plan and read
    with pytest.raises(DataLoss, match="messages 31 to 40 of queue 'orders' are gone: 10 in all"):
        list(loud.read(gone))
    with caplog.at_level(logging.WARNING, "forebay.spark"):
        assert [seq for batch in quiet.read(gone) for seq in batch.column("seq").to_pylist()] == list(
            range(25, 31)
        )
    assert "messages 31 to 40" in caplog.text
    list(quiet.read(gone))  # a task that is tried again
    assert _skipped(shelf) == [("orders", 31, 40, "gone")]


def test_a_damaged_block_is_named(file_shelf: Shelf) -> None:
    queue = file_shelf.queue("orders")
    file_shelf.push(queue, [b"x" * 50] * 30, per_block=10)
    import apsw  # noqa: PLC0415 - only here: it damages a block

    connection = apsw.Connection(file_shelf.url.removeprefix("sqlite:///"))
    connection.execute(
        "UPDATE block SET body = substr(body, 1, 60) WHERE last = ?", (pack(queue.number, 20),)
    )
    connection.close()
    with pytest.raises(Corrupt, match="'orders' at messages 11 to 20"):
        _read(_reader(file_shelf, queue="orders"))
    assert _read(_reader(file_shelf, queue="orders", failOnDataLoss="false")) == [
        *range(1, 11), *range(21, 31)
    ]  # fmt: skip
    assert _skipped(file_shelf) == [("orders", 11, 20, "damaged")]


def test_what_a_plan_skips_is_a_table(spark: "SparkSession", file_shelf: Shelf) -> None:
    shelf, queue = file_shelf, file_shelf.queue("orders", keep_seconds=0)
    shelf.push(queue, [b"x"] * 30, per_block=10)
    assert shelf(shelf.log.trim()).blocks
    shelf.push(queue, [b"x"] * 10)
    shelf.queue("invoices")
    given = {"queue": "orders", "startingOffsets": '{"orders": 11}'}
    with pytest.raises(DataLoss, match="messages 11 to 30 of queue 'orders' are gone"):
        _reader(shelf, **given).partitions()
    assert shelf.read(spark, **given, failOnDataLoss="false").count() == 10
    (row,) = shelf.read(spark, table="skipped").collect()
    assert (row["queue"], row["first_seq"], row["last_seq"], row["messages"], row["reason"]) == (
        "orders", 11, 30, 20, "gone",
    )  # fmt: skip
    assert shelf.read(spark, table="skipped", queue="invoices").count() == 0


def _skipped(shelf: Shelf) -> list[tuple[str, int, int, str]]:
    return [(each.queue, each.first, each.last, each.reason) for each in skipped(shelf.face)]


def test_places_that_are_not_there_are_refused(file_shelf: Shelf) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 10)
    with pytest.raises(UnknownQueue, match="no queue 'order'"):
        _reader(file_shelf, queue="order").partitions()
    with pytest.raises(Rejected, match="says 12 for 'orders', whose next message will be 11"):
        _reader(file_shelf, queue="orders", startingOffsets='{"orders": 12}').partitions()
    with pytest.raises(Rejected, match="'invoices' is not read here"):
        _reader(file_shelf, queue="orders", startingOffsets='{"orders": 1, "invoices": 1}').partitions()


def test_the_fields_of_a_contract_are_columns(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path
) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text(CONTRACT)
    form = Format(read_contract(path).queues[0], "2")
    good = form.encode(["Ada", 12, True, 7, [1, 2]])
    file_shelf.push(file_shelf.queue("orders"), [Message(good, "", None, form.headers), b"junk"])
    frame = file_shelf.read(spark, queue="orders", contract=str(path))
    assert frame.columns[6:] == ["customer", "amount", "paid", "field_seq", "lines", "_error"]
    first, second = frame.orderBy("seq").collect()
    assert first[6:] == ("Ada", 12, True, 7, [1, 2], None)
    assert second[6:11] == (None,) * 5
    assert second["_error"]
    few = file_shelf.read(spark, queue="orders", contract=str(path), columns="amount, seq")
    assert [tuple(row) for row in few.orderBy("seq").collect()] == [(12, 1), (None, 2)]
    strict = file_shelf.read(spark, queue="orders", contract=str(path), onUndecodable="fail")
    with pytest.raises(PySparkException, match="message 2 of queue 'orders' is not as the contract says"):
        strict.collect()


def test_a_wrong_option_is_told_before_anything_is_read(spark: "SparkSession", file_shelf: Shelf) -> None:
    with pytest.raises(PySparkException, match="did you mean `queue`"):
        file_shelf.read(spark, queu="orders")
    with pytest.raises(PySparkException, match=r"names 'headers', which is no column here.*includeHeaders"):
        file_shelf.read(spark, queue="orders", columns="headers")


def test_a_queue_without_messages_is_an_empty_frame(spark: "SparkSession", shelf: Shelf) -> None:
    shelf.queue("orders")
    frame = shelf.read(spark, queue="orders", startingTimestamp=str(datetime.now(UTC) - timedelta(days=1)))
    assert frame.count() == 0
