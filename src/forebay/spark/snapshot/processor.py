"""What Spark keeps of each slice in its state store, and how it is brought up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from forebay.log.values import Queue, QueueSettings
from forebay.model import UnknownQueue
from forebay.observe.labels import LabelRules, LabelSettings
from forebay.spark.logs import face
from forebay.spark.snapshot.counts import encode_counts
from forebay.spark.snapshot.image import SliceTask, decode_image, encode_image
from forebay.spark.snapshot.slice_fold import decode_state, encode_state, fold_slice, is_quiet

if TYPE_CHECKING:
    from forebay.spark.logs import Opener

__all__ = ["FOLDED", "SliceProcessor"]

FOLDED: Final = StructType(
    [
        StructField("number", IntegerType()),
        StructField("place", LongType()),
        StructField("counts", BinaryType()),
        StructField("at", LongType()),
        StructField("purged", BinaryType()),
        StructField("folded", LongType()),
    ]
)
"""What comes of each slice in each round; `folded` is 1 where it had to be looked at."""

_SUMMARY: Final = StructType(
    [
        StructField("image", BinaryType()),
        StructField("next_due", LongType()),
        StructField("counts", BinaryType()),
    ]
)
_STATE: Final = StructType([StructField("value", BinaryType())])
_NEVER: Final = -1


class SliceProcessor(StatefulProcessor):
    """Folds slices. A quiet one costs two lookups: its blocks stay where they are."""

    def __init__(
        self, opener: Opener, url: str, credentials: Mapping[str, str], labels: LabelSettings
    ) -> None:
        self._opener = opener
        self._url = url
        self._credentials = dict(credentials)
        self._labels = msgspec.json.encode(labels)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._summary = handle.getValueState("summary", _SUMMARY)
        self._state = handle.getValueState("state", _STATE)
        self._rules = LabelRules(msgspec.json.decode(self._labels, type=LabelSettings))

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002 - there are none
    ) -> Iterator[pd.DataFrame]:
        """Bring one slice up to date."""
        number, place = int(key[0]), int(key[1])
        for frame in rows:
            for row in frame.to_dict("records"):
                found = self._fold(number, place, row)
                if found is not None:
                    values = (number, place, found[0], row["at"], row["purged"], found[1])
                    yield pd.DataFrame([values], columns=FOLDED.names)

    def _fold(self, number: int, place: int, row: Mapping[str, Any]) -> tuple[bytes, int] | None:
        if row["image"] is None:
            self._forget()
            return None
        image, now = decode_image(bytes(row["image"])), int(row["at"])
        if (known := self._summary.get()) is not None:
            before, due, counts = known
            if is_quiet(image, bytes(before), None if due == _NEVER else int(due), now):
                return bytes(counts), 0
        kept = self._state.get()
        state = None if kept is None else decode_state(bytes(kept[0]))
        opened = face(self._opener, self._url, **self._credentials)
        task = SliceTask(Queue(number, row["queue"], QueueSettings(), 0), place, image)
        try:
            after, sums = opened(fold_slice(opened.log, task, state, self._rules, now))
        except UnknownQueue:  # it was deleted since the round was planned
            self._forget()
            return None
        data = encode_counts(sums)
        self._state.update((encode_state(after),))
        due = _NEVER if sums.next_due is None else sums.next_due
        self._summary.update((encode_image(image), due, data))
        return data, 1

    def _forget(self) -> None:
        self._state.clear()
        self._summary.clear()

    def close(self) -> None:
        """There is nothing to close: the log is the process's."""
