"""What Spark finds by itself: `spark.read.format("forebay")` needs no registration and no JAR.

Beside it, what is done with DataFrames and sessions by hand: `follow`, `redrive` and `purge`.
"""

from typing import TYPE_CHECKING

from forebay.app.opening import open_log
from forebay.spark import following, redriving
from forebay.spark.snapshot.source import SnapshotSource as _SnapshotSource
from forebay.spark.source import ForebayDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DefaultSource", "SnapshotSource", "follow", "purge", "redrive"]


class DefaultSource(ForebayDataSource):
    """The data source `forebay`, with the logs that the command line can open, too."""

    open_log = staticmethod(open_log)


def follow(spark: "SparkSession", url: str, **credentials: str) -> following.Following:
    """Let the groups of this session's queries go where they are as soon as a batch is done."""
    return following.follow(spark, url, open_log, **credentials)


def redrive(letters: "DataFrame", url: str, **credentials: str) -> int:
    """Hand dead letters out again; how many there were. They come from `option("table", "dead")`."""
    return redriving.redrive(letters, url, open_log, **credentials)


def purge(letters: "DataFrame", url: str, **credentials: str) -> int:
    """Take dead letters off the list; how many there were."""
    return redriving.purge(letters, url, open_log, **credentials)


class SnapshotSource(_SnapshotSource):
    """The source `forebay_snapshot`, on which the rich series of queues are folded."""

    open_log = staticmethod(open_log)
