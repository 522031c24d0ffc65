"""A flow that takes dead letters, each once, and leaves them where they are.

A letter that was taken is a record, written in the transaction that publishes what was made of it. The record
goes when the letter does; one that dies again is another letter. Letters on which the flow fails are
published beside the others, as dead letters of a queue of its own (see `failed`). No such flow takes those:
they would go round for ever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.log.seam import Log, VersionConflict
from forebay.log.values import DeadLetter, Group, Kept, Queue, Record
from forebay.model import mint, sequence_of, to_datetime
from forebay.spark.flows.batch import make, staging
from forebay.spark.flows.failed import LABEL, FailedRows
from forebay.spark.flows.keeping import Moved, made_queue
from forebay.spark.flows.numbers import FlowNumbers
from forebay.spark.flows.parsing import matches
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.timed import frame_of
from forebay.spark.flows.values import FlowSpec, LetterSource, QueueSink
from forebay.spark.publishing import patiently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPACE: Final = "flow-letters"
PAGE: Final = 500
LETTERS_MAX: Final = 10_000
"""Letters of one batch: their records are written together."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""A group with as many letters as last time is looked through all the same, so often."""


class Taken(msgspec.Struct, frozen=True):
    """A letter, with where it is from."""

    queue: Queue
    group: Group
    letter: DeadLetter
    version: int = 0
    """That of its record: it was taken before, and died again."""


class LetterFlow:
    """What such a flow does at a tick."""

    def __init__(
        self, spark: SparkSession, flow: FlowSpec, surroundings: Surroundings, numbers: FlowNumbers
    ) -> None:
        assert isinstance(flow.source, LetterSource), "a flow that takes letters"
        assert isinstance(flow.sink, QueueSink), "its rows go to a queue"
        self._spark = spark
        self._flow = flow
        self._source = flow.source
        self._queue = flow.sink.queue
        self._around = surroundings
        self._numbers = numbers
        self._face = surroundings.face()
        self._looked: dict[int, tuple[int, float]] = {}
        self._face(made_queue(self._face.log, self._queue))
        self._failed = FailedRows(self._face.log, flow)
        self._face(self._failed.bury())

    def __call__(self, _: int) -> None:
        """Take what is new, until nothing is."""
        most = min(self._source.rows_max, LETTERS_MAX)
        while True:
            taken, gone = self._face(self._new(self._face.log, most))
            if not taken and not gone:
                return
            self._take(taken, gone)

    def _take(self, taken: Sequence[Taken], gone: Sequence[Record]) -> None:
        began = time.monotonic()
        stage = f"flow/{self._flow.name}/{mint().hex()}"
        ids: list[bytes] = []
        rows = dead = 0
        if taken:
            letters = [*map(_row, taken)]
            plan = self._around.plan(self._queue)
            made = make(
                frame_of(self._spark, letters), self._flow, 1, len(taken) + 1,
                staging(plan, stage, self._flow),
            )  # fmt: skip
            ids = [*made.ids, *self._face(self._failed.stage(stage, made.dead, letters))]
            rows, dead = made.rows, len(made.dead)
        records = [*gone, *(self._record(each) for each in taken)]
        try:
            self._face(patiently(lambda: self._face.log.publish(stage, ids, records=records)))
        except VersionConflict as error:
            raise Moved(f"another program runs flow {self._flow.name!r}") from error
        if dead:
            self._face(self._failed.bury())
        self._numbers.batch(len(taken), rows, dead, time.monotonic() - began)

    def _record(self, each: Taken) -> Record:
        key = self._key(each.group, each.letter.message_id)
        return Record(SPACE, key, msgspec.json.encode(each.letter.died_at), version=each.version)

    def _key(self, group: Group, message_id: int) -> str:
        return f"{self._flow.name}/{group.number}/{message_id:019d}"

    # What is new

    async def _new(self, log: Log, most: int) -> tuple[list[Taken], list[Record]]:
        """Letters that were not taken, up to so many, and records of letters that are gone."""
        taken: list[Taken] = []
        gone: list[Record] = []
        stats = await patiently(log.stats)
        for queue in stats.queues:
            for group in queue.groups:
                if self._is_asked(queue.queue, group.group) and self._is_changed(group.group, group.dead):
                    whole = await self._through(log, (queue.queue, group.group), taken, gone, most)
                    if whole:
                        self._looked[group.group.number] = (group.dead, time.monotonic())
        return taken, gone[:LETTERS_MAX]

    def _is_asked(self, queue: Queue, group: Group) -> bool:
        if queue.name == self._failed.queue_name or queue.settings.labels.get(LABEL) == self._flow.type:
            return False
        return matches(queue.name, self._source.dead) and matches(group.name, self._source.group)

    def _is_changed(self, group: Group, dead: int) -> bool:
        before, at = self._looked.get(group.number, (-1, 0.0))
        return dead != before or (dead > 0 and time.monotonic() - at > LOOK_AGAIN_SECONDS)

    async def _through(
        self, log: Log, place: tuple[Queue, Group], taken: list[Taken], gone: list[Record], most: int
    ) -> bool:
        """Compare a group's letters with the records, page by page; False when there was no room for all.

        Records are read first. A letter that another program takes in between has no record yet, and taking
        it is a conflict; the other way round its record would be taken for one whose letter is gone.
        """
        queue, group = place
        after: int | None = 0
        while after is not None:
            known = await self._records(log, group, after)
            letters = await self._letters(log, group, after)
            fulls = [max(page) for page in (known, letters) if len(page) == PAGE]
            after = min(fulls, default=None)
            for number, letter in letters.items():
                kept = known.get(number)
                if (after is not None and number > after) or _is_taken(letter, kept):
                    continue
                if len(taken) >= most:
                    return False
                taken.append(Taken(queue, group, letter, 0 if kept is None else kept.version))
            gone += [
                Record(SPACE, kept.key, version=kept.version)
                for number, kept in known.items()
                if number not in letters and (after is None or number <= after)
            ]
        return len(gone) <= LETTERS_MAX

    async def _records(self, log: Log, group: Group, after: int) -> dict[int, Kept]:
        """By message id, records of letters that were taken; they say when the letter died."""
        prefix, key = self._key(group, 0)[:-19], self._key(group, after)
        page = await patiently(lambda: log.scan(SPACE, prefix, after=key, limit=PAGE))
        return {int(kept.key.removeprefix(prefix)): kept for kept in page}

    async def _letters(self, log: Log, group: Group, after: int) -> dict[int, DeadLetter]:
        page = await patiently(lambda: log.dead_letters(group, after=after, limit=PAGE))
        return {letter.message_id: letter for letter in page}


def _is_taken(letter: DeadLetter, kept: Kept | None) -> bool:
    return kept is not None and msgspec.json.decode(kept.value, type=int) == letter.died_at


def _row(taken: Taken) -> dict[str, Any]:
    """A letter as a row: its message, and in the headers what became of it."""
    letter, message = taken.letter, taken.letter.message()
    headers = {
        **(message.headers or {}),
        "dead_queue": taken.queue.name,
        "dead_group": taken.group.name,
        "dead_sequence": str(sequence_of(letter.message_id)),
        "dead_reason": letter.reason,
        "dead_attempts": str(letter.attempts),
        "dead_at": to_datetime(letter.died_at).isoformat(),
    }
    key = f"{taken.group.number}-{letter.message_id}-{letter.died_at}"
    return {
        "queue": taken.queue.name,
        "partition": message.partition,
        "key": key,
        "value": message.payload,
        "created_at": to_datetime(letter.died_at),
        "headers": headers,
    }
