"""The same code on a cluster: a master and two workers, and a driver that is none of them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.model import Message
from tests.servers import ServerUnavailableError, absent, environment
from tests.servers.spark import SparkCluster
from tests.spark.queues import shelf_at
from tests.spark.sinks import Target


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    """Give a standalone cluster of two workers."""
    try:
        with SparkCluster() as started:
            yield started
    except ServerUnavailableError as error:
        absent(str(error))


def test_every_message_of_a_queue_goes_through_the_executors_to_another_once(
    cluster: SparkCluster, postgres_dsn: str, tmp_path: Path
) -> None:
    sent = [Message(b"%d" % number, f"p{number % 3}") for number in range(200)]
    with shelf_at(postgres_dsn) as shelf:
        queue, _ = shelf.queue("in"), shelf.queue("out")
        shelf.push(queue, sent, per_block=20)
        command = [sys.executable, "-m", "tests.spark.cluster_driver", postgres_dsn, cluster.url]
        done = subprocess.run(
            [*command, str(tmp_path / "checkpoint")],
            env=environment(), check=False, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        came = Target(postgres_dsn).messages("out")
    assert [(m.payload, m.partition) for m in came] == [(b"did " + m.payload, m.partition) for m in sent]
    executors = {m.headers["at"] for m in came if m.headers is not None}
    assert len(executors) == 2
