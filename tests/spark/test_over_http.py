"""Spark and a server: it is read, replayed into and archived by its address only."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.app.opening import open_log
from forebay.spark.archive.job import ArchiveJob
from forebay.spark.archive.planning import ArchiveSettings
from tests.servers import ForebayServer
from tests.spark.queues import Shelf, shelf_at
from tests.spark.spools import block, payloads, replay, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def server_shelf() -> Iterator[Shelf]:
    """Give the log of a server, by its address."""
    with ForebayServer() as server, shelf_at(server.url) as opened:
        yield opened


def test_a_servers_queues_are_read_and_its_groups_follow(
    spark: "SparkSession", server_shelf: Shelf, tmp_path: Path
) -> None:
    server_shelf.push(server_shelf.queue("orders"), [b"x"] * 120, per_block=50)
    assert server_shelf.read(spark, queue="orders").where("seq > 100").count() == 20
    assert [row["messages"] for row in server_shelf.read(spark, table="queues").collect()] == [120]
    frame = server_shelf.stream(spark, queue="orders", startingOffsets="earliest", groupId="spark")
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(120)
    assert server_shelf.group("orders", "spark").done == 120


def test_spools_are_replayed_into_a_server_and_its_queues_are_archived(
    spark: "SparkSession", server_shelf: Shelf, tmp_path: Path
) -> None:
    for number in range(3):
        write(tmp_path / f"server-{number % 2}", ("q", block(number * 10, 10)), bad=b"nonsense\n")
    folders = [tmp_path / "server-0", tmp_path / "server-1"]
    done = replay(spark, server_shelf, folders)
    assert (done.written, done.damaged) == ({"q": 30}, 3)
    assert replay(spark, server_shelf, folders).messages == 0
    assert payloads(server_shelf) == list(range(30))
    archive = tmp_path / "archive"
    settings = ArchiveSettings(path=str(archive), after=0.0, wait_max=0.0, run_messages_max=20)
    assert ArchiveJob(settings, open_log, server_shelf.url).run_once(spark).messages == 20
    rows = server_shelf.read(spark, queue="q", archive=str(archive)).orderBy("seq").collect()
    assert [int(row["value"]) for row in rows] == list(range(30))
