"""`df.write.format("forebay")`: what arrives, what is refused, and what is written once, however often."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.contract import Format, read_contract
from forebay.model import Message
from forebay.spark.sink_options import exactly_once
from tests.servers import ForebayServer
from tests.spark.sinks import ROW, Target, frame, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVERYTHING = f"{ROW}, headers MAP<STRING,STRING>, start_time TIMESTAMP".replace(
    "value STRING", "value BINARY"
)


def test_rows_arrive_with_all_that_a_message_has(spark: "SparkSession", target: Target) -> None:
    target.create("a")
    target.create("b", ordered=True)
    given = [
        (b"0", "a", "p", "k0", {"flow": "f"}, NOON),
        (b"1", "b", "p", None, None, None),
        (b"2", "a", None, None, {}, None),
        (b"3", "b", "q", "k3", None, None),
    ]
    save(frame(spark, given, EVERYTHING), target)
    noon = int(NOON.timestamp()) * 1_000_000
    assert target.messages("a") == [Message(b"0", "p", "k0", {"flow": "f"}, noon), Message(b"2")]
    assert target.messages("b") == [Message(b"1", "p"), Message(b"3", "q", "k3")]


def test_rows_keep_their_order_and_spark_partitions_theirs(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    save(spark.range(0, 25_000, 1, 4).selectExpr("string(id) AS value"), target, queue="out")
    assert target.payloads("out") == [str(n) for n in range(25_000)]
    (record,) = target.records()
    progress = target.progress(record.key)
    assert progress is not None
    assert (progress.rows, progress.bad, progress.blocks, progress.query) == (25_000, 0, 4, None)
    assert record.expires_at is not None
    assert record.expires_at > record.updated_at


def test_a_transaction_id_that_is_known_is_a_duplicate(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    some = frame(spark, [("0", "out", "", "same"), ("1", "out", "", "other")])
    save(some, target)
    save(some, target)
    assert target.payloads("out") == ["0", "1"]


def test_a_version_is_written_once_and_none_before_it(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    for version in (1, 1, 3, 2, 3, 4):
        one = frame(spark, [(str(version), "out", None, None)])
        save(one, target, **exactly_once("report", version))
    assert target.payloads("out") == ["1", "3", "4"]
    assert target.records()[0].expires_at is None


def test_an_empty_frame_is_written(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    save(frame(spark, []), target)
    assert target.payloads("out") == []


def test_a_queue_that_is_missing_is_named_or_made(spark: "SparkSession", target: Target) -> None:
    target.create("orders")
    one = frame(spark, [("0", "ordres", None, None)])
    with pytest.raises(Exception, match="there is no queue 'ordres'"):
        save(one, target)
    with pytest.raises(Exception, match=r"(?s)ordres.*createQueues"):
        save(one, target, queue="ordres")
    save(one, target, createQueues="true")
    assert target.payloads("ordres") == ["0"]
    stats = {each.queue.name: each for each in target.run(lambda log: log.stats()).queues}
    assert [g.group.name for g in stats["ordres"].groups] == ["workers"]


def test_bad_rows_fail_the_write_and_are_named(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    given = [
        ("0", "out", None, None),
        (None, "out", None, None),
        ("2", None, None, None),
        ("3", "out", None, ""),
    ]
    with pytest.raises(Exception, match="3 rows can't be messages") as caught:
        save(frame(spark, given, parts=2), target)
    for named in (
        "partition 0, row 1: value is null",
        "partition 1, row 0: queue is null",
        "1, row 1: key is",
    ):
        assert named in str(caught.value)
    assert target.payloads("out") == []
    assert target.records() == []


def test_bad_rows_go_to_their_queue_and_the_others_where_they_should(
    spark: "SparkSession", target: Target
) -> None:
    target.create("out")
    target.create("bad", ordered=True)
    given = [("0", "out", None, None), ("1", "nowhere", "p", "k"), ("2", "out", None, None)]
    save(frame(spark, given), target, badRows="bad", **exactly_once("app", 0))
    assert target.payloads("out") == ["0", "2"]
    (bad,) = target.messages("bad")
    assert bad.payload == b"1"
    error = {"error": "there is no queue 'nowhere'", "spark_partition": "0", "row": "1"}
    assert bad.headers == error | {"queue": "nowhere", "partition": "p", "key": "k"}
    progress = target.progress("app")
    assert progress is not None
    assert (progress.rows, progress.bad) == (2, 1)


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("value STRING, id INT, seq LONG", {"queue": "out"}, "columns that no message has: id, seq"),
        ("queue STRING", {}, "columns are missing: value"),
        ("value INT", {"queue": "out"}, "column 'value' is int, not binary"),
        ("value STRING", {}, "nothing says which queue"),
        ("value STRING", {"queue": "out", "badRow": "x"}, "did you mean badRows"),
        ("value STRING", {"queue": "out", "txnAppId": "x"}, "come together"),
        ("value STRING", {"queue": "out", "txnAppId": "x", "txnVersion": "-1"}, "txnVersion is '-1'"),
        ("value STRING", {"queue": " out"}, "starts or ends with whitespace"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: "SparkSession", target: Target, schema: str, options: dict[str, str], message: str
) -> None:
    empty = frame(spark, [], schema)
    with pytest.raises(Exception, match=message):
        save(empty, target, **options)


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_queue_is_not_overwritten(spark: "SparkSession", target: Target) -> None:
    target.create("out")
    write = frame(spark, [("0", "out", None, None)]).write.format("forebay").option("url", target.url)
    with pytest.raises(Exception, match="a queue can't be overwritten; use mode append"):
        write.mode("overwrite").save()
    assert target.payloads("out") == []


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_typed_columns_are_encoded_as_the_contract_says(
    spark: "SparkSession", target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text(
        "version: '1.2'\nqueues:\n- id: 7\n  name: orders\n  fields:\n"
        "  - {name: number, type: int64}\n  - {name: tags, type: '[]int'}\n"
    )
    target.create("orders")
    some = frame(spark, [(5, [1, 2], "k")], "number LONG, tags ARRAY<LONG>, key STRING")
    save(some, target, queue="orders", contract=str(path))
    (message,) = target.messages("orders")
    contract = read_contract(path)
    assert Format(contract.queues[0], "1.2").decode(message.payload, message.headers) == (5, (1, 2))
    assert message.headers == {"codec": "msgpack", "contract": "1.2"}
    assert message.transaction_id == "k"
    with pytest.raises(Exception, match="columns are missing: tags"):
        save(some.drop("tags"), target, queue="orders", contract=str(path))


def test_a_server_is_written_to_like_a_log(spark: "SparkSession", forebay_server: ForebayServer) -> None:
    target = Target(forebay_server.url)
    target.create("sink-lanes", ordered=True)
    for version in (0, 1, 1, 0):
        some = frame(spark, [(f"{version}-{n}", None, f"p{n % 2}", None) for n in range(4)])
        save(some, target, queue="sink-lanes", **exactly_once("sink-http", version))
    lanes = [["0-0", "0-2"], ["0-1", "0-3"], ["1-0", "1-2"], ["1-1", "1-3"]]
    assert target.payloads("sink-lanes") == [text for lane in lanes for text in lane]
    target.check_ledger()
