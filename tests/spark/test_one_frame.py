"""One DataFrame in several queries: none of them changes what another one finds.

Spark 4.3 keeps the filters that a Python source has taken for all later queries of the same DataFrame.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.datasource import DataSourceReader

from forebay.app.opening import open_log
from forebay.log.values import Death, Room
from forebay.model import Message, bitmap
from forebay.spark.archive.job import ArchiveJob
from forebay.spark.archive.planning import ArchiveSettings
from forebay.spark.java import java_home
from forebay.spark.reading import MessageReader
from forebay.spark.skipping import skip
from forebay.spark.tables import TableReader
from tests.servers.spark import QUICK_START
from tests.spark.queues import Shelf, shelf_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shelf, Path]]:
    """Give two queues with outcomes, dead letters and skipped ranges, and an archive of half of one."""
    folder = tmp_path_factory.mktemp("one-frame")
    with shelf_at(f"sqlite:///{folder / 'log.db'}") as shelf:
        for name in ("orders", "invoices"):
            queue = shelf.queue(name)
            messages = [Message(b"%d" % i, f"p{i % 3}", f"t{i}") for i in range(120)]
            shelf.push(queue, messages, per_block=20)
            group = shelf(shelf.log.create_group(queue, "g"))
            for claim in shelf(shelf.log.claim(group, "w", Room(40))).claims:
                first = claim.settle(
                    done=bitmap.of(range(15), 20),
                    dead=tuple(Death(i, "bad", 1, messages[i]) for i in range(15, 20)),
                )
                shelf(shelf.log.commit(settlements=[first]))
            skip(shelf.face, queue, 1, 5, "a test", reason="gone")
        settings = ArchiveSettings(
            path=str(folder / "archive"), after=0.0, wait_max=0.0, run_messages_max=60, queues=("orders",)
        )
        ArchiveJob(settings, open_log, shelf.url).run_once()
        yield shelf, folder / "archive"


SOURCES: dict[str, tuple[dict[str, Any], str, int, int, str]] = {
    "messages": ({"subscribe": "orders,invoices"}, "seq <= 12 and queue = 'orders'", 240, 12, "seq"),
    "times": ({"queue": "orders"}, "created_at < timestamp'2000-01-01'", 120, 0, "seq"),
    "partitions": ({"queue": "orders", "partitionPrefix": "p"}, "partition = 'p1'", 120, 40, "seq"),
    "archive": ({"queue": "orders", "archive": "ARCHIVE"}, "seq between 50 and 70", 120, 21, "seq"),
    "archived outcomes": (
        {"table": "outcomes", "queue": "orders", "archive": "ARCHIVE"}, "seq <= 20", 40, 20, "seq"
    ),
    "outcomes": ({"table": "outcomes"}, "outcome = 'dead' and queue = 'orders'", 80, 10, "seq"),
    "dead": ({"table": "dead"}, "queue = 'orders' and seq <= 20", 20, 5, "seq"),
    "queues": ({"table": "queues"}, "queue = 'orders'", 2, 1, "queue"),
    "ledger": ({"table": "ledger", "groupId": "g"}, "queue = 'orders'", 2, 1, "queue"),
    "skipped": ({"table": "skipped"}, "queue = 'orders'", 2, 1, "queue"),
}  # fmt: skip
"""By name: options, a filter, how many rows there are without it and with it, and a column to join by."""


@pytest.mark.parametrize(
    ("source", "pushdown"),
    [
        *((source, "false") for source in SOURCES),
        *((source, "true") for source in ("messages", "archive", "dead")),
    ],
)
def test_a_frame_that_was_filtered_once_has_all_its_rows_again(
    spark: "SparkSession", filled: tuple[Shelf, Path], source: str, pushdown: str
) -> None:
    shelf, archive = filled
    options, condition, everything, some, column = SOURCES[source]
    options = {name: str(archive) if value == "ARCHIVE" else value for name, value in options.items()}
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        _in_every_order(spark, lambda: shelf.read(spark, **options), condition, (everything, some), column)
    finally:
        spark.conf.unset(PUSHDOWN)


def _in_every_order(
    spark: "SparkSession",
    load: "Callable[[], DataFrame]",
    condition: str,
    counts: tuple[int, int],
    column: str,
) -> None:
    everything, some = counts
    frame = load()
    assert [frame.where(condition).count(), frame.count(), frame.where(condition).count()] == [
        some, everything, some
    ]  # fmt: skip

    # A plan that is only looked at leaves nothing behind, either.
    frame = load()
    frame.where(condition).explain(extended=True)
    assert frame.count() == everything

    frame.createOrReplaceTempView("one_frame")
    sql = "select count(*) n from one_frame"
    found = [spark.sql(text).first()["n"] for text in (f"{sql} where {condition}", sql)]  # type: ignore[index]  # it is there
    assert found == [some, everything]

    # Both sides of a join are one relation: each has its own filter, or none.
    frame = load()
    rest = frame.join(frame.where(condition), list({"queue", column}), "left_anti")
    assert rest.count() == everything - some
    assert frame.where(condition).union(frame).count() == everything + some


@pytest.mark.parametrize("mode", ["log", "lease"])
def test_a_batch_of_a_stream_has_all_its_rows_after_it_was_filtered(
    spark: "SparkSession", file_shelf: Shelf, tmp_path: Path, mode: str
) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 100, per_block=10)
    counts: list[int] = []

    def look(batch: "DataFrame", _number: int) -> None:
        counts.extend([batch.count(), batch.where("seq <= 10").count(), batch.count()])
        some = batch.where("seq <= 10").select("seq")
        counts.append(batch.join(some, "seq", "left_anti").count())

    more = {"mode": "lease", "groupId": "g"} if mode == "lease" else {"startingOffsets": "earliest"}
    writer = file_shelf.stream(spark, queue="orders", **more).writeStream.foreachBatch(look)
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert counts == [100, 10, 100, 90]


def test_a_frame_ends_where_its_first_query_found_the_end(spark: "SparkSession", file_shelf: Shelf) -> None:
    queue = file_shelf.queue("orders")
    file_shelf.push(queue, [b"x"] * 10)
    frame = file_shelf.read(spark, queue="orders")
    assert frame.count() == 10
    file_shelf.push(queue, [b"x"] * 5)
    assert frame.agg(F.max("seq")).first()[0] == 10  # type: ignore[index]  # it is there
    assert file_shelf.read(spark, queue="orders").count() == 15


@pytest.mark.parametrize("reader", [MessageReader, TableReader])
def test_no_reader_takes_filters(reader: type[DataSourceReader]) -> None:
    """A reader that does, whatever it makes of them, fails in a session without a setting."""
    assert reader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.timeout(900)  # a Java of its own, on a machine that others keep busy
def test_a_session_without_any_setting_reads_and_writes(file_shelf: Shelf, tmp_path: Path) -> None:
    file_shelf.push(file_shelf.queue("orders"), [b"x"] * 25)
    file_shelf.queue("copied")
    root = Path(__file__).parents[2]
    known = {"JAVA_HOME": str(java_home()), "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    known |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    known["JAVA_TOOL_OPTIONS"] = QUICK_START  # of Java, and no setting of the session
    command = [sys.executable, "-m", "tests.spark.plain_session", file_shelf.url, str(tmp_path / "c")]
    ran = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **known}, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["25", "10", "25", "25"], ran.stderr
