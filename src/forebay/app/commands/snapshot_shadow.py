"""`forebay snapshot shadow`: the fold beside a fold from nothing and the store's counters; publishes nothing.

It has a checkpoint of its own, so that a second run folds on what the first one left.
"""

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from forebay.app.commands.fold_setup import fold_folder, fold_job, fold_url
from forebay.app.commands.snapshot_run import FIRST_SECONDS, MASTER, SPARK, check_pattern, stop_spark
from forebay.app.commands.spark_signals import SparkSignals
from forebay.app.configuring import load_from
from forebay.app.logs import set_up_logs
from forebay.app.opening import open_log
from forebay.app.settings import Settings
from forebay.log.values import Stats
from forebay.spark.session import session
from forebay.spark.snapshot.batch import fold_all
from forebay.spark.snapshot.compare import Difference, compare_books, compare_documents, lasting
from forebay.spark.snapshot.survey import matching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.snapshot.job import FoldJob

__all__ = ["Shadowed", "compare"]


class Shadowed(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison found."""

    differences: list[Difference]
    series: int
    slices: int
    rounds: int
    folded: int
    """Slices that were looked at in all rounds."""
    batch_seconds: float
    """How long the last fold from nothing took."""


def compare(arguments: argparse.Namespace) -> Shadowed:
    """Fold in rounds, and compare between them."""
    settings = load_from(arguments).settings
    check_pattern(arguments.queues)
    set_up_logs(settings.logging.format, "error")
    signals = SparkSignals()
    asyncio.run(_stats(settings))  # says what is wrong with the log before Spark is started
    with fold_folder(settings, "shadow") as folder:
        spark = session("forebay-shadow", master=arguments.master or MASTER, settings=SPARK)
        job = fold_job(spark, settings, folder, pattern=arguments.queues, interval=0.0)
        signals.running = True
        try:
            return _compare(spark, job, settings, arguments)
        finally:
            stop_spark(job, spark)


def _compare(
    spark: "SparkSession", job: "FoldJob", settings: Settings, arguments: argparse.Namespace
) -> Shadowed:
    from pyspark_forebay import SnapshotSource  # noqa: PLC0415 - Spark takes its time to load

    job.start()
    found = job.after(-1, FIRST_SECONDS)
    tries: list[list[Difference]] = []
    rounds, folded, seconds = 1, found.folded, 0.0
    for _ in range(arguments.tries):
        before, began = found, time.monotonic()
        stats = asyncio.run(_stats(settings))
        labels = settings.metrics.queue_snapshot.labels
        expected = fold_all(
            spark, SnapshotSource.open_log, fold_url(settings), labels, pattern=arguments.queues
        )
        seconds = time.monotonic() - began
        # The round that is under way may have been planned before: the next one was not.
        found = job.after(job.current + 1, FIRST_SECONDS)
        rounds, folded = rounds + 1, folded + found.folded
        names = [each.queue.name for each in stats.queues if matching(arguments.queues, each.queue.name)]
        tries.append(
            compare_documents(before.document, found.document, expected)
            + compare_books(before.counts, found.counts, stats, names)
        )
        if not tries[-1]:
            break
    return Shadowed(
        differences=lasting(tries),
        series=found.document.series,
        slices=found.slices,
        rounds=rounds,
        folded=folded,
        batch_seconds=seconds,
    )


async def _stats(settings: Settings) -> Stats:
    async with open_log(fold_url(settings)) as log:
        return await log.stats()
