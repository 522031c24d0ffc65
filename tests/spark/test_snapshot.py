"""The rich series on Spark: round by round, through kills, the same as a fold from nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.log.values import Append, Position
from forebay.model import Message, SystemClock, Unavailable
from forebay.observe.labels import LabelSettings
from forebay.spark.snapshot.batch import fold_all
from forebay.spark.snapshot.counts import rich_document
from forebay.spark.snapshot.job import FoldJob, Round
from forebay.spark.snapshot.recompute import recompute
from pyspark_forebay import SnapshotSource
from tests.rich_history import History
from tests.servers.process import free_port
from tests.spark.queues import Shelf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 240.0
LABELS = LabelSettings()


@contextmanager
def folding(
    spark: SparkSession, shelf: Shelf, folder: Path, labels: LabelSettings = LABELS
) -> Iterator[FoldJob]:
    """A job that runs."""
    job = FoldJob(spark, SnapshotSource, shelf.url, str(folder / "checkpoint"), labels=labels)
    job.start()
    try:
        yield job
    finally:
        job.stop()


def next_round(job: FoldJob) -> Round:
    """A round that was planned after this call: the one that is under way may have been before."""
    return job.after(job.after(job.current, SECONDS).number, SECONDS)


def check(shelf: Shelf, found: Round, labels: LabelSettings = LABELS) -> None:
    """Compare a round with a fold from nothing, as of the same time."""
    whole = shelf(recompute(shelf.log, labels, at=found.at))
    for field in found.counts.__struct_fields__:
        assert getattr(found.counts, field) == getattr(whole.counts, field), field
    expected = rich_document(whole.counts, whole.survey.purged, found.at / 1_000_000)
    assert found.document == expected


def test_rounds_are_the_same_as_a_fold_from_nothing(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, rng: random.Random
) -> None:
    history = History(shelf.log, rng, SystemClock().now)
    shelf(history.begin())
    with folding(spark, shelf, tmp_path) as job:
        for _ in range(6):
            shelf(history.steps(20))
            check(shelf, next_round(job))
        quiet = next_round(job)
        assert quiet.slices >= quiet.folded
        batch = fold_all(spark, SnapshotSource.open_log, shelf.url, LABELS)
        assert [family.name for family in batch.families] == [f.name for f in quiet.document.families]


@pytest.mark.timeout(900)  # Java is started for each kill
def test_a_fold_that_is_killed_goes_on_from_its_checkpoint(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, rng: random.Random
) -> None:
    history = History(shelf.log, rng, SystemClock().now)
    shelf(history.begin())
    shelf(history.steps(30))
    for _ in range(2):
        with killed(shelf, tmp_path, rounds=rng.randint(1, 3)):
            shelf(history.steps(30))
    with folding(spark, shelf, tmp_path) as job:
        check(shelf, next_round(job))
        shelf(history.steps(30))
        check(shelf, next_round(job))


@contextmanager
def killed(shelf: Shelf, folder: Path, *, rounds: int) -> Iterator[None]:
    """A fold in a process of its own, which is killed in the middle of a round while this block goes on."""
    program = [sys.executable, "-m", "tests.spark.fold_program", shelf.url, str(folder / "checkpoint")]
    process = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    with process:
        try:
            assert process.stdout is not None
            for _ in range(rounds):
                assert process.stdout.readline(), "it folds until it is killed"
            yield
            assert process.stdout.readline(), "it folds until it is killed"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_labels_and_queues_may_change_between_runs(
    spark: SparkSession, file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf = file_shelf
    queue, gone = shelf.queue("shop.orders"), shelf.queue("shop.old")
    group = shelf(shelf.log.create_group(queue, "mail"))
    headers = {"tenant": "t1", "source": "web"}
    shelf(shelf.log.commit([Append.of(queue, [Message(b"x", headers=headers)] * 3)]))
    shelf(shelf.log.commit([Append.of(gone, [b"y"])]))
    with folding(spark, shelf, tmp_path) as job:
        first = next_round(job)
        assert first.counts.events == {("shop", "web", "ready"): 3, ("shop", "", "ready"): 1}
    shelf(shelf.log.delete_queue("shop.old"))
    shelf(shelf.log.seek(group, Position(3)))
    labels = LabelSettings(project="header.tenant | =nobody")
    with folding(spark, shelf, tmp_path, labels) as job:
        second = next_round(job)
        check(shelf, second, labels)
        assert second.counts.events == {("t1", "web", "done"): 2, ("t1", "web", "ready"): 1}
        assert next_round(job).folded == 0


def test_a_fold_that_was_stopped_goes_on_when_it_is_started_again(
    spark: SparkSession, file_shelf: Shelf, tmp_path: Path
) -> None:
    shelf = file_shelf
    queue = shelf.queue("orders")
    shelf.push(queue, [b"a", b"b"])
    with folding(spark, shelf, tmp_path) as job:
        next_round(job)
        job.stop()
        with pytest.raises(Unavailable, match="not running"):
            job.after(job.current, SECONDS)
        shelf.push(queue, [b"c"])
        job.start()
        assert next_round(job).counts.events == {("orders", "", "ready"): 3}


def test_a_fold_without_a_log_says_why(spark: SparkSession, tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    job = FoldJob(spark, SnapshotSource, url, str(tmp_path / "checkpoint"), labels=LABELS)
    job.start()
    with pytest.raises(Unavailable, match=r"has ended: .*(PostgreSQL|database)") as failed:
        job.after(-1, SECONDS)
    assert failed.value.hint is not None
    assert "\n" not in str(failed.value)
