"""Spark drivers and their processes are killed at random: every input is once in the output, in its order."""

import importlib.util

import pytest

from tests.chaos.spark_race import race
from tests.servers import ServerUnavailableError, absent

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]

ROUNDS = 2


def test_every_message_comes_once_and_in_order_whatever_is_killed(seed: int) -> None:
    if importlib.util.find_spec("pyspark") is None:
        absent("PySpark is not installed: pip install -r requirements-spark.lock.txt")
    try:
        with race(seed) as running:
            running.run(ROUNDS)
    except ServerUnavailableError as error:
        absent(str(error))
    assert running.kills.total() >= ROUNDS
