"""What the archive counts."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry, generate_latest

from forebay.spark.archive.job import QueueRan, Ran
from forebay.spark.archive.numbers import ArchiveNumbers


def test_runs_add_up_and_the_lag_is_that_of_the_last() -> None:
    numbers, registry = ArchiveNumbers(), CollectorRegistry()
    registry.register(numbers)
    for lag in (7, 3):
        ran = QueueRan(queue="q", messages=10, files=1, lost=2, lag=lag)
        numbers.add(Ran(version=1, queues=[ran, QueueRan(queue="r", error="no")]))
    numbers.fail()
    text = generate_latest(registry).decode()
    assert 'forebay_archive_messages_total{queue="q"} 20.0' in text
    assert 'forebay_archive_lost_total{queue="q"} 4.0' in text
    assert 'forebay_archive_lag{queue="q"} 3.0' in text
    assert "forebay_archive_failures_total 3.0" in text
