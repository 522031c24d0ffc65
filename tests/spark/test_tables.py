"""Tables about queues, and dead letters that are redriven by a DataFrame."""

from typing import TYPE_CHECKING

import pytest

from forebay.app.opening import open_log
from forebay.log.values import Death, Deferral, Room
from forebay.model import Message, Rejected, bitmap
from forebay.spark.redriving import purge, redrive
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _worked(shelf: Shelf) -> None:
    """A queue of ten messages: four are done, one is deferred, three are dead, two are ready."""
    queue = shelf.queue("orders")
    messages = [Message(b"%d" % i, "p", f"t{i}", {"n": str(i)}) for i in range(10)]
    shelf.push(queue, messages, per_block=8)
    group = shelf(shelf.log.create_group(queue, "g"))
    claim = shelf(shelf.log.claim(group, "w", Room(8))).claims[0]
    settlement = claim.settle(
        done=bitmap.of([0, 1, 2, 3], 8),
        deferred=(Deferral(4, 1 << 51, 2),),
        dead=tuple(Death(i, f"reason {i % 2}", 3, messages[i]) for i in (5, 6, 7)),
        worker="w1",
    )
    shelf(shelf.log.commit(settlements=[settlement]))


def test_dead_letters_are_triaged_with_sql_and_redriven(spark: "SparkSession", shelf: Shelf) -> None:
    _worked(shelf)
    dead = shelf.read(spark, table="dead")
    dead.createOrReplaceTempView("dead")
    rows = spark.sql("SELECT * FROM dead ORDER BY seq").collect()
    assert [(row["queue"], row["group"], row["seq"], row["reason"]) for row in rows] == [
        ("orders", "g", 6, "reason 1"),
        ("orders", "g", 7, "reason 0"),
        ("orders", "g", 8, "reason 1"),
    ]
    assert (rows[0]["attempts"], rows[0]["partition"], rows[0]["key"]) == (3, "p", "t5")
    assert (bytes(rows[0]["value"]), rows[0]["headers"]) == (b"5", {"n": "5"})
    chosen = spark.sql("SELECT * FROM dead WHERE reason = 'reason 1'")
    assert redrive(chosen, shelf.url, open_log) == 2
    assert redrive(chosen, shelf.url, open_log) == 0
    assert purge(dead, shelf.url, open_log) == 1
    books = shelf.group("orders", "g")
    assert (books.dead, books.due, books.purged, books.difference) == (0, 2, 1, 0)


def test_the_outcome_log_says_what_happened_to_each_message(spark: "SparkSession", shelf: Shelf) -> None:
    _worked(shelf)
    rows = shelf.read(spark, table="outcomes", queue="orders", groupId="g").orderBy("seq").collect()
    assert [(row["seq"], row["outcome"]) for row in rows] == [
        *((seq, "done") for seq in range(1, 5)), (5, "deferred"), (6, "dead"), (7, "dead"), (8, "dead")
    ]  # fmt: skip
    assert (rows[4]["attempts"], rows[5]["reason"], rows[0]["worker"]) == (2, "reason 1", "w1")


def test_the_books_are_tables(spark: "SparkSession", file_shelf: Shelf) -> None:
    _worked(file_shelf)
    file_shelf.queue("invoices", ordered=True)
    queues = {row["queue"]: row for row in file_shelf.read(spark, table="queues").collect()}
    assert (queues["orders"]["messages"], queues["orders"]["next_seq"]) == (10, 11)
    assert queues["invoices"]["ordered"]
    (books,) = file_shelf.read(spark, table="ledger", queue="orders").collect()
    assert (books["accepted"], books["done"], books["dead"], books["lag"]) == (10, 4, 3, 3)
    assert books["difference"] == 0
    few = file_shelf.read(spark, table="ledger", columns="group,lag").collect()
    assert [tuple(row) for row in few] == [("g", 3)]


def test_redriving_wants_the_columns_of_dead_letters(spark: "SparkSession", file_shelf: Shelf) -> None:
    with pytest.raises(Rejected, match="has no column 'queue'"):
        redrive(spark.range(1), file_shelf.url, open_log)
