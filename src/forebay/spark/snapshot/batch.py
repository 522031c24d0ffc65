"""All slices folded from nothing by one batch job: what the incremental fold is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.log.values import Queue, QueueSettings
from forebay.model import UnknownQueue
from forebay.observe.document import SERIES_MAX, Document
from forebay.observe.labels import LabelRules, LabelSettings
from forebay.spark.logs import face
from forebay.spark.snapshot.counts import decode_counts, encode_counts, rich_document, total
from forebay.spark.snapshot.image import SliceTask, decode_image, encode_image
from forebay.spark.snapshot.slice_fold import fold_slice
from forebay.spark.snapshot.survey import survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.logs import Opener

__all__ = ["fold_all"]


def fold_all(
    spark: SparkSession,
    opener: Opener,
    url: str,
    labels: LabelSettings,
    *,
    pattern: str = ".*",
    credentials: Mapping[str, str] | None = None,
    series_max: int = SERIES_MAX,
) -> Document:
    """The rich series as they are now, from everything that the log keeps."""
    known = dict(credentials or {})
    opened = face(opener, url, **known)
    found = opened(survey(opened.log, pattern, labels))
    rows = [
        (task.queue.number, task.place, task.queue.name, bytearray(encode_image(task.image)))
        for task in found.tasks
    ]
    if not rows:
        return rich_document(total(()), {}, found.at / 1_000_000, series_max=series_max)

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, rules = face(opener, url, **known), LabelRules(labels)
        for batch in batches:
            for row in batch.to_pylist():
                counts = _fold(mine, row, rules, found.at)
                yield pa.RecordBatch.from_pydict({"counts": pa.array([counts], pa.binary())})

    tasks = spark.createDataFrame(rows, "number int, place long, queue string, image binary")
    folded = tasks.repartition(len(rows)).mapInArrow(fold, "counts binary").collect()
    counts = total(decode_counts(bytes(row.counts)) for row in folded)
    return rich_document(counts, found.purged, found.at / 1_000_000, series_max=series_max)


def _fold(mine: Any, row: Mapping[str, Any], rules: LabelRules, now: int) -> bytes:
    queue = Queue(row["number"], row["queue"], QueueSettings(), 0)
    task = SliceTask(queue, row["place"], decode_image(row["image"]))
    try:
        _, counts = mine(fold_slice(mine.log, task, None, rules, now))
    except UnknownQueue:  # it was deleted meanwhile
        counts = total(())
    return encode_counts(counts)
