"""What is said of a task that failed."""

import pytest

pytest.importorskip("pyspark")

from forebay.spark.spreading import told


def test_the_error_of_the_task_is_found_in_all_that_spark_says() -> None:
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2)
"""
    assert told(text) == "OSError: [Errno 28] No space left on device"
    assert told("") == "it said nothing"
