"""Work spread over Spark, one task each: what a task raises is said as an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from forebay.model import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Done = TypeVar("Done")


def spread(spark: SparkSession, tasks: Sequence[Task], work: Callable[[Task], Done]) -> list[Done]:
    """Do all tasks, side by side; what each of them gives, in their order."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only with the spark extra

    try:
        return spark.sparkContext.parallelize(list(tasks), len(tasks)).map(work).collect()
    except Py4JJavaError as error:
        text = f"a task on Spark failed: {told(str(error))}"
        raise Unavailable(text, hint="mend that, and run it again: it goes on where it was") from error


def told(text: str) -> str:
    """The error of a Python task, out of all that Spark says about it."""
    lines = [line.strip() for line in text.splitlines()]
    for place, line in enumerate(lines):
        if line.startswith("Driver stacktrace"):
            lines = lines[:place]
            break
    said = [line for line in lines if line and not line.startswith(("at ", "File ", "Traceback", "^"))]
    named = [line for line in said if "Error: " in line or "Unavailable: " in line]
    return (named or said or ["it said nothing"])[-1][:500]
