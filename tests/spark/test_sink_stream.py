"""`df.writeStream.format("forebay")`: every batch once, whatever dies on the way to Spark's commit log."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.spark.sink_options import exactly_once
from tests.spark.faulty import FaultySource
from tests.spark.sinks import Target, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Stream:
    """A stream of text files, a batch for each, into the queue `out`."""

    def __init__(self, spark: "SparkSession", target: Target, folder: Path) -> None:
        self.target = target
        self.checkpoint = folder / "checkpoint"
        self._spark = spark
        self._files = folder / "files"
        self._files.mkdir()
        self._count = 0
        target.create("out")

    def add(self, *lines: str) -> None:
        """Add a file."""
        text = "".join(f"{line}\n" for line in lines)
        path = self._files / f"{self._count:03}.txt"
        path.write_text(text)
        os.utime(path, (self._count, self._count))  # Spark takes the oldest first
        self._count += 1

    def rows(self) -> "DataFrame":
        """The lines of the files."""
        reader = self._spark.readStream.format("text").option("maxFilesPerTrigger", 1)
        return reader.load(str(self._files))

    def run(self, *, into: str = "forebay", fault: str = "", **options: str) -> str:
        """Work off what is there; the id of the query."""
        url = f"{self.target.url}#{fault}" if fault else self.target.url
        options = {"url": url, "queue": "out", "checkpointLocation": str(self.checkpoint)} | options
        return _finish(self.rows().writeStream.format(into).options(**options))

    def forget_commit(self, batch: int) -> None:
        """Bring the checkpoint to where a crash just after the sink's commit leaves it."""
        for path in (self.checkpoint / "commits").glob(f"*{batch}*"):
            path.unlink()


def _finish(writing: Any) -> str:
    query = writing.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return str(query.id)


@pytest.fixture
def stream(spark: "SparkSession", target: Target, tmp_path: Path) -> Stream:
    """Give a stream with two batches to do."""
    stream = Stream(spark, target, tmp_path)
    stream.add("a0", "a1")
    stream.add("b0")
    return stream


def test_batches_are_written_in_order_and_a_restart_goes_on(stream: Stream) -> None:
    query = stream.run()
    assert stream.target.payloads("out") == ["a0", "a1", "b0"]
    stream.add("c0")
    assert stream.run() == query
    assert stream.target.payloads("out") == ["a0", "a1", "b0", "c0"]
    progress = stream.target.progress(query)
    assert progress is not None
    assert (progress.batch, progress.rows, progress.query) == (2, 1, query)


def test_a_batch_whose_commit_spark_forgot_is_not_written_again(stream: Stream) -> None:
    stream.run()
    stream.forget_commit(1)
    stream.add("c0")
    stream.run()
    assert stream.target.payloads("out") == ["a0", "a1", "b0", "c0"]


@pytest.mark.parametrize("moment", ["stage-kill", "publish-lose"])
def test_what_fails_once_is_repeated_within_the_batch(
    spark: "SparkSession", stream: Stream, tmp_path: Path, moment: str
) -> None:
    spark.dataSource.register(FaultySource)
    stream.run(into="faulty", fault=f"{moment}:{tmp_path / 'done'}")
    assert (tmp_path / "done").exists()
    assert stream.target.payloads("out") == ["a0", "a1", "b0"]


@pytest.mark.parametrize("moment", ["publish-fail", "publish-kill"])
def test_a_batch_that_fails_around_its_publication_is_written_once_by_the_next_run(
    spark: "SparkSession", stream: Stream, tmp_path: Path, moment: str
) -> None:
    spark.dataSource.register(FaultySource)
    with pytest.raises(Exception, match="STREAM_FAILED"):
        stream.run(into="faulty", fault=f"{moment}:{tmp_path / 'done'}")
    stream.run()
    assert stream.target.payloads("out") == ["a0", "a1", "b0"]


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_new_checkpoint_under_an_old_name_is_refused_and_not_taken_for_done(
    stream: Stream, tmp_path: Path
) -> None:
    stream.run(txnAppId="app")
    stream.checkpoint = tmp_path / "another"
    with pytest.raises(Exception, match="txnAppId 'app' is in use"):
        stream.run(txnAppId="app")
    stream.run()
    assert stream.target.payloads("out") == ["a0", "a1", "b0"] * 2


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_bad_rows_of_a_stream_end_it_and_are_named(stream: Stream) -> None:
    writing = stream.rows().selectExpr("value", "'nowhere' AS queue").writeStream.format("forebay")
    options = {"url": stream.target.url, "checkpointLocation": str(stream.checkpoint)}
    with pytest.raises(Exception, match="there is no queue 'nowhere'"):
        _finish(writing.options(**options))


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_queue_is_not_written_in_complete_mode(stream: Stream) -> None:
    counted = stream.rows().groupBy("value").count().select("value").writeStream.outputMode("complete")
    options = {"url": stream.target.url, "queue": "out", "checkpointLocation": str(stream.checkpoint)}
    with pytest.raises(Exception, match="a queue can't be written in complete mode"):
        _finish(counted.format("forebay").options(**options))


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_in_foreach_batch_a_batch_is_written_once_to_each_queue(stream: Stream) -> None:
    stream.target.create("more")

    def both(batch: "DataFrame", number: int) -> None:
        save(batch, stream.target, queue="out", **exactly_once("first", number))
        save(batch, stream.target, queue="more", **exactly_once("second", number))

    for _ in range(2):
        _finish(
            stream.rows().writeStream.foreachBatch(both).option("checkpointLocation", str(stream.checkpoint))
        )
        stream.forget_commit(1)
    assert stream.target.payloads("out") == stream.target.payloads("more") == ["a0", "a1", "b0"]
