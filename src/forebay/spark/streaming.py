"""A stream of messages: micro-batches between offsets, each planned durably before it is run.

What holds at every crash (the place of a stream is an `Offset`, kept by Spark in its checkpoint):

- `latestOffset(start)` says that everything before `start` is done: Spark asks for it after the batch that
  ended there was committed. The group is brought there, so that also the last batch of a run counts.
- With a group, the end of a batch is a record of the log before Spark hears of it. A checkpoint that a power
  failure took back plans the same batch again, with the same end: a sink that remembers its batches is right
  to leave it out. Of two drivers that plan from one place, one writes the record, and the other follows it.
- Nothing is written, and nothing changes, as long as nothing is new.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from forebay.log.values import QueueStats
from forebay.model import Rejected, UnknownQueue
from forebay.spark.following import Follower, address_mark
from forebay.spark.logs import Opener
from forebay.spark.offsets import Offset, Stretch, admit
from forebay.spark.options import Options
from forebay.spark.planning import Plans
from forebay.spark.ranges import Kept, data_loss, kept_queues, starts, subscribed
from forebay.spark.reading import Reading
from forebay.spark.skipping import skip

_logger: Final = logging.getLogger("forebay.spark")


class MessageStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages of one or several queues, as they come."""

    def __init__(self, opener: Opener, options: Options, schema: StructType) -> None:
        self._reading = Reading(opener, options, schema)
        self._options = options
        self._latest: dict[str, int] = {}
        self._target: dict[str, int] | None = None
        self._follower: Follower | None = None
        self._plans: Plans | None = None

    # Where it begins, and how far it goes

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; a group that isn't there yet is made there."""
        face = self._reading.face()
        kept = subscribed(kept_queues(face), self._options)
        first = starts(face, kept, self._options, default="latest")
        return self._offset(first, kept).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may have by the options."""
        most = self._options.maxOffsetsPerTrigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is now: the query ends there."""
        kept = subscribed(kept_queues(self._reading.face()), self._options)
        self._target = {name: each.next for name, each in kept.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the batch from `start` ends; `start` itself when there is nothing new."""
        place, face = Offset.of(start), self._reading.face()
        self._arrived(place)
        kept = self._kept(kept_queues(face), place)
        first, skipped = self._first(place, kept)
        latest = {name: self._until(name, each) for name, each in kept.items()}
        self._latest = {name: each.next for name, each in kept.items()}
        admitted = admit(first, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        new = {
            name: first[name] for name in kept if name not in place.queues and admitted[name] > first[name]
        }
        ended = {name: to for name, to in admitted.items() if name in place.queues or name in new}
        if ended == place.queues:
            return start
        end = self._offset(ended, kept, began=new, skipped=skipped)
        return end.as_json() if self._plans is None else self._plans.follow(place, end).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What there was when it was last asked for: Spark shows it as the progress of a query."""
        return {"queues": self._latest} if self._latest else None

    def _until(self, name: str, kept: Kept) -> int:
        """Up to where a queue is read: all of it, or what was there when the query began."""
        if self._target is None:
            return kept.next
        return min(kept.next, self._target.get(name, kept.floor))

    def _offset(
        self,
        queues: Mapping[str, int],
        kept: Mapping[str, Kept],
        *,
        began: Mapping[str, int] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> Offset:
        return Offset(
            queues=dict(sorted(queues.items())),
            numbers={name: kept[name].queue.number for name in sorted(queues)},
            group=self._options.groupId,
            at=address_mark(self._options.url),
            began=dict(began or {}),
            skipped=dict(skipped or {}),
        )

    # What there is

    def _kept(self, found: Sequence[QueueStats], place: Offset) -> dict[str, Kept]:
        """The queues to read now. One that was read before and is gone, or is another, is an error."""
        by_name = {each.queue.name: Kept(each.queue, each.floor, each.next) for each in found}
        gone = [
            name
            for name in place.queues
            if name not in by_name or by_name[name].queue.number != place.numbers.get(name)
        ]
        if gone and self._options.failOnDataLoss:
            again = " and made again" if gone[0] in by_name else ""
            raise UnknownQueue(
                f"queue {gone[0]!r}, which this query reads, was deleted{again}",
                hint="begin with a new checkpoint; `failOnDataLoss` = false goes on without what is lost",
            )
        for name in gone:
            _logger.warning("queue %r, which this query reads, was deleted", name)
        return {
            name: each
            for name, each in by_name.items()
            if self._options.matches(name) or (name in place.queues and name not in gone)
        }

    def _first(self, place: Offset, kept: Mapping[str, Kept]) -> tuple[dict[str, int], dict[str, int]]:
        """Where each queue goes on, and how many messages were gone by then, in all."""
        first, skipped = {}, dict(place.skipped)
        for name, each in kept.items():
            known = place.numbers.get(name) == each.queue.number
            at = place.queues[name] if known else each.floor
            if at > each.next:
                text = (
                    f"this query is at message {at} of queue {name!r}, whose next message will be {each.next}"
                )
                raise Rejected(text, hint="the log is older than the checkpoint: begin with a new one")
            if at < each.floor:
                if self._options.failOnDataLoss:
                    raise data_loss(name, at, each.floor)
                skipped[name] = skipped.get(name, 0) + each.floor - at
                self._skip(each, at, each.floor)
            first[name] = max(at, each.floor)
        return first, skipped

    # Batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What the tasks of a batch read. The same for the same offsets, however often it is asked for."""
        place, until = Offset.of(start), Offset.of(end)
        kept = self._kept(kept_queues(self._reading.face()), place)
        stretches = [each for each in place.stretches(until) if each.queue in kept]
        if not self._options.failOnDataLoss:
            told = {name: count - place.skipped.get(name, 0) for name, count in until.skipped.items()}
            stretches = [self._left(each, kept[each.queue], told.get(each.queue, 0)) for each in stretches]
        return self._reading.tasks(stretches, kept)

    def _left(self, stretch: Stretch, kept: Kept, told: int) -> Stretch:
        """What is left of a stretch; so much of what is gone was `told` when it was planned."""
        floor = min(kept.floor, stretch.end)
        if stretch.first + told < floor:
            self._skip(kept, stretch.first + told, floor)
        return Stretch(stretch.queue, max(stretch.first, floor), stretch.end)

    def _skip(self, kept: Kept, first: int, end: int) -> None:
        text = data_loss(kept.queue.name, first, end).message
        skip(self._reading.face(), kept.queue, first, end, text)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch one task's messages."""
        return self._reading.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Bring the group to where a batch ended."""
        if self._follower is not None:
            self._follower.advance(Offset.of(end))

    def _arrived(self, place: Offset) -> None:
        """Bring the group to where the query is; it is made, if it isn't there."""
        if self._options.groupId is None:
            return
        if self._follower is None:
            face = self._reading.face()
            self._follower = Follower(face)
            self._plans = Plans(face, self._options.groupId, self._options.subscription)
        self._follower.advance(msgspec.structs.replace(place, group=self._options.groupId))
