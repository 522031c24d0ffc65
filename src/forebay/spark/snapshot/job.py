"""The job that folds: a streaming query whose every batch is a round over all slices.

Its state is in Spark's state store, under a checkpoint. Invariants: what a round gives depends on the log and
the time alone, so that a round that is run again, or from an older checkpoint, gives the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from forebay.model import Unavailable
from forebay.observe.document import SERIES_MAX, Document
from forebay.observe.labels import LabelSettings
from forebay.spark.snapshot.counts import Counts, decode_counts, rich_document, total
from forebay.spark.snapshot.processor import FOLDED, SliceProcessor
from forebay.spark.snapshot.source import SnapshotSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


__all__ = ["FoldJob", "Round"]

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Small changes are written as such, and not the whole state with each round.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Slices that are folded at once; it belongs to a checkpoint for good.
    "spark.sql.shuffle.partitions": "2",
    # A round that finds nothing new is no news.
    "spark.sql.streaming.numRecentProgressUpdates": "2",
}


class Round(msgspec.Struct, frozen=True):
    """What one round found."""

    number: int
    at: int
    """When it was planned, by the log's clock, in µs."""
    document: Document
    counts: Counts
    purged: dict[int, int]
    slices: int
    folded: int
    """Slices that had to be looked at."""
    seconds: float
    """How long the fold took, without the plan."""
    done_at: float
    """When its series were there, by this machine's clock, in seconds."""


class FoldJob:
    """Folds the queues whose names match, a round each `interval_seconds`."""

    def __init__(
        self,
        spark: SparkSession,
        source: type[SnapshotSource],
        url: str,
        checkpoint: str,
        *,
        labels: LabelSettings,
        pattern: str = ".*",
        credentials: Mapping[str, str] | None = None,
        series_max: int = SERIES_MAX,
        interval_seconds: float = 0.0,
    ) -> None:
        self._spark = spark.newSession()  # with settings that only its own queries have
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._source = source
        self._url = url
        self._checkpoint = checkpoint
        self._labels = labels
        self._pattern = pattern
        self._credentials = dict(credentials or {})
        self._series_max = series_max
        self._interval = interval_seconds
        self._query: StreamingQuery | None = None
        self._news = threading.Condition()
        self._round: Round | None = None
        self._failure: str | None = None
        self._slices: dict[tuple[int, int], tuple[bytes, Counts, Counts]] = {}
        """Of the last round: as it came, its sums and its ages."""
        self._sums = Counts()

    @property
    def current(self) -> int:
        """The number of the last round, -1 before the first."""
        return -1 if self._round is None else self._round.number

    def start(self) -> None:
        """Begin, or go on where the checkpoint is; nothing happens while it runs."""
        if self._query is not None and self._query.isActive:
            return
        self._failure = None
        self._spark.dataSource.register(self._source)
        options = {"url": self._url, "pattern": self._pattern, **self._credentials}
        rounds = (
            self._spark.readStream.format(self._source.name())
            .options(labels=msgspec.json.encode(self._labels).decode(), **options)
            .load()
        )
        processor = SliceProcessor(self._source.open_log, self._url, self._credentials, self._labels)
        folded = rounds.groupBy("number", "place").transformWithStateInPandas(
            processor, FOLDED, outputMode="Update", timeMode="None"
        )
        self._query = (
            folded.writeStream.foreachBatch(self._take)
            .outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=f"{self._interval:.3f} seconds")
            .start()
        )

    def stop(self) -> None:
        """End after the round that is under way, or without it."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def after(self, number: int, seconds: float, stopping: Callable[[], bool] = lambda: False) -> Round:
        """The first round after one of that number; Unavailable where none comes in time, or it failed."""
        until = time.monotonic() + seconds
        while True:
            with self._news:
                self._news.wait_for(lambda: self.current > number, _LOOK_SECONDS)
                if self._round is not None and self._round.number > number:
                    return self._round
            self._check()
            if time.monotonic() > until or stopping():
                text = f"the fold on Spark took longer than {seconds:g} s"
                raise Unavailable(text, hint="see if the log is slow; the next round goes on from here")

    def _check(self) -> None:
        query = self._query
        if query is None:
            raise Unavailable("the fold on Spark is not running", hint="it is started by the next round")
        if self._failure is None and not query.isActive:
            error = query.exception()
            self._failure = "it was stopped" if error is None else _cause(str(error))
        if self._failure is not None:
            self.stop()
            hint = f"it goes on from its checkpoint; remove {self._checkpoint} to begin anew"
            raise Unavailable(f"the fold on Spark has ended: {self._failure}", hint=hint)

    def _take(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        try:
            rows = frame.collect()  # all of the round happens here
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said by whoever waits
            self._failure = _cause(str(error))
            # Spark searches the message by a regular expression: a long one overflows its stack.
            raise RuntimeError("the round failed") from None
        purged: dict[int, int] = {}
        for row in rows:
            purged |= msgspec.msgpack.decode(bytes(row.purged), type=dict[int, int])
        counts = self._sum({(row.number, row.place): bytes(row.counts) for row in rows})
        at = min((row.at for row in rows), default=int(time.time() * 1_000_000))
        document = rich_document(counts, purged, at / 1_000_000, series_max=self._series_max)
        found = Round(
            number=number,
            at=at,
            document=document,
            counts=counts,
            purged=purged,
            slices=len(rows),
            folded=sum(row.folded for row in rows),
            seconds=time.monotonic() - began,
            done_at=time.time(),
        )
        with self._news:
            self._round = found
            self._news.notify_all()

    def _sum(self, slices: dict[tuple[int, int], bytes]) -> Counts:
        """What all slices add up to; those that are as they were in the last round aren't decoded again."""
        known, self._slices = self._slices, {}
        for place in known.keys() - slices.keys():
            self._sums.take_off(known[place][1])
        ages = []
        for place, data in slices.items():
            before = known.get(place)
            if before is None or before[0] != data:
                sums, aged = decode_counts(data).apart()
                self._sums.add(sums)
                if before is not None:
                    self._sums.take_off(before[1])
                before = (data, sums, aged)
            self._slices[place] = before
            ages.append(before[2])
        return total([self._sums, *ages])


_LOOK_SECONDS: Final = 0.2


def _cause(text: str) -> str:
    """What a failed query says that people can use: the line of our own error, or the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("forebay.model.errors.")]
    return (ours or lines or ["it says nothing"])[-1 if ours else 0]
