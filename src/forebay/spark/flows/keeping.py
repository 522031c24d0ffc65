"""What a flow that reads a queue keeps in the log: its place, and rows that are given up.

The order is what makes it safe: blocks are staged, then published in one transaction with the new place and
the rows that are given up; only then the group is told. A crash before the transaction has changed nothing;
after it, `settle` tells the group what it wasn't told. Whoever finds the record changed meanwhile has lost:
of two programs that run one flow, one publishes. Where files are written, a program makes the record its own
when it begins: files that others made for the batch that comes next will not be published, and may go.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from forebay.log.seam import Log, VersionConflict
from forebay.log.values import DeadLetter, Death, Group, Queue, Record, StoredBlock, dead_letter_body
from forebay.model import READING, Clock, Conflict, Rejected, SystemClock, mint, pack, sequence_of
from forebay.spark.flows.halving import DeadRow
from forebay.spark.flows.place import DEAD_SPACE, LINE_CHARS, SPACE, Place, dead_key, resume
from forebay.spark.flows.values import FlowSpec, ParquetSink, QueueSink, QueueSource
from forebay.spark.publishing import patiently
from forebay.spark.ranges import data_loss
from forebay.store.values import DEFAULT_GROUP

logger: Final = logging.getLogger("forebay.spark")
_SCANNED: Final = 10_000
STEP_BYTES: Final = 8 << 20
"""Letters that a group is told of at once: a server takes 32 MiB, and they are longer on their way."""


class Moved(Conflict):
    """The group was sent elsewhere, or another program runs the flow: begin again from what is there."""


class Keeping:
    """The books of one flow; open from `begin` on."""

    def __init__(self, log: Log, flow: FlowSpec, clock: Clock | None = None) -> None:
        assert isinstance(flow.source, QueueSource), "a flow that reads a queue"
        self._log = log
        self._flow = flow
        self._source = flow.source
        self._clock = clock or SystemClock()
        self._version = 0
        self.place = Place(checkpoint="", start=1, end=1)
        self.found: Place | None = None
        """The place that was there before this program came."""
        self.queue: Queue
        self.group: Group

    async def begin(self) -> Place:
        """Make what is missing, bring the group to where the flow is, and say where that is."""
        self.queue = await made_queue(self._log, self._source.queue)
        self.group = await self._log.create_group(self.queue, self._source.group, self._source.start)
        await self._name_group()
        if isinstance(self._flow.sink, QueueSink):
            await made_queue(self._log, self._flow.sink.queue)
        known = self.found = await self._known()
        self.place = self._owned(resume(known, self.group, mint().hex()))
        if known is None or self.place.checkpoint != known.checkpoint:
            await self._write([self._record(self.place), *await self._dead_records()])
        elif self.place != known:
            await self._write([self._record(self.place)])
        await self.settle()
        return self.place

    async def _name_group(self) -> None:
        """Say on the queue that the group is this flow, and which action comes first, for its metrics."""
        labels = self.queue.settings.labels
        groups = labels.get(READING)
        groups = groups if isinstance(groups, dict) else {}
        if groups.get(self.group.name) != self._flow.reads_as:
            named = {**labels, READING: {**groups, self.group.name: self._flow.reads_as}}
            try:
                self.queue = await self._log.configure_queue(self.queue.name, {"labels": named})
            except Rejected as error:  # there is no room for it: the flow works all the same
                logger.warning("flow %s is not named in the metrics: %s", self._flow.name, error)

    async def start_anew(self) -> Place:
        """Go on from the same place with fresh notes of Spark's."""
        self.place = msgspec.structs.replace(self.place, checkpoint=mint().hex())
        await self._write([self._record(self.place)])
        return self.place

    def _owned(self, place: Place) -> Place:
        if not isinstance(self._flow.sink, ParquetSink):
            return place
        run, line = mint().hex()[-LINE_CHARS:], place.line or mint().hex()[-LINE_CHARS:]
        return msgspec.structs.replace(place, run=run, line=line)

    async def check_kept(self) -> None:
        """Raise DataLoss when messages that the flow should read next are gone, unless it skips them."""
        end = await self.floor()
        if self._source.on_loss == "fail" and end > self.place.end:
            seek = f"forebay groups seek {self.queue.name} {self.group.name} --to earliest"
            hint = (
                f"`on_loss: skip` in the source of flow {self._flow.name!r} goes on without them, or `{seek}`"
            )
            raise data_loss(self.queue.name, self.place.end, end, f"they were dropped before it came; {hint}")

    async def floor(self) -> int:
        """From where on the queue is kept; the flow's place, if the queue is gone."""
        stats = await patiently(self._log.stats)
        return next(
            (each.floor for each in stats.queues if each.queue.number == self.queue.number), self.place.end
        )

    async def counts(self) -> bool:
        """Whether the files of a batch that could not be published count all the same: an answer was lost."""
        known = await self._known()
        return known is not None and known.counts(self.place)

    @property
    def key(self) -> str:
        """The key of the flow's record."""
        return f"{self._flow.name}/{self.queue.number}/{self.group.number}"

    async def check(self, told: int | None = None) -> None:
        """Raise Moved when the group isn't where the flow left it: somebody sent it elsewhere.

        `told` is up to where it was told, if not of all; what retention drops meanwhile, it comes past.
        """
        groups = await patiently(lambda: self._log.groups(self.queue))
        found = next((group for group in groups if group.number == self.group.number), None)
        # It stays where it was, where others had finished everything before the flow told it.
        end = self.place.end
        if found is None or not ((told or end) <= found.start <= end or found == self.group):
            text = f"group {self.group.name!r} of queue {self.queue.name!r} was sent elsewhere"
            raise Moved(text, hint="the flow goes on from there")
        self.group = found

    async def publish(
        self, stage: str, ids: Sequence[bytes], end: int, *, rows: int, dead: Sequence[DeadRow]
    ) -> None:
        """Publish a batch, with its place and the rows that it gives up, or raise Moved."""
        now = self._clock.now()
        place = self.place.after(end, rows_out=rows, dead=len(dead), at=now, group=self.group)
        records = [self._record(place)]
        records += [Record(DEAD_SPACE, dead_key(self.key, row.seq), msgspec.json.encode(row)) for row in dead]
        try:
            await patiently(lambda: self._log.publish(stage, ids, records=records))
        except VersionConflict as error:
            if await self._known() != place:  # an answer that was lost is no conflict
                text = f"another program runs flow {self._flow.name!r}"
                raise Moved(text, hint="end one of them; this one tries again") from error
        else:
            self._version += 1
        self.place = place

    async def settle(self) -> int:
        """Tell the group where the flow is, and what it gave up; how many letters there were.

        Raises Moved where it was sent elsewhere meanwhile: telling it would take that back.
        """
        await self.check()
        kept = await self._log.scan(DEAD_SPACE, f"{self.key}/", limit=_SCANNED)
        rows = [msgspec.json.decode(each.value, type=DeadRow) for each in kept]
        count = await self._tell([row for row in rows if row.seq >= self.group.start])
        if kept:
            await self._write([Record(DEAD_SPACE, each.key) for each in kept])
        await self.check()
        return count

    async def _tell(self, rows: Sequence[DeadRow]) -> int:
        """Bring the group to the end, in steps if there are many bytes of letters; how many letters."""
        count, size = 0, 0
        step: list[DeadLetter] = []
        async for letter in self._letters(rows):
            size += len(letter.body)
            if step and size > STEP_BYTES:
                await self._tell_part(step)
                step, size = [], len(letter.body)
            step.append(letter)
            count += 1
        if step:
            await patiently(lambda: self._log.advance(self.group, self.place.end, dead=step))
        else:
            await patiently(lambda: self._log.advance(self.group, self.place.end))
        return count

    async def _tell_part(self, letters: Sequence[DeadLetter]) -> None:
        """Tell the group of some letters. It is noted before: a crash is not taken for a seek."""
        to = sequence_of(letters[-1].message_id) + 1
        place = msgspec.structs.replace(
            self.place, told=to, group_start=self.group.start, group_sought=self.group.sought
        )
        await self._write([self._record(place)])
        self.place = place
        await patiently(lambda: self._log.advance(self.group, to, dead=letters))
        await self.check(to)

    async def _known(self) -> Place | None:
        found = await patiently(lambda: self._log.records(SPACE, [self.key]))
        self._version = found[0].version if found else 0
        return msgspec.json.decode(found[0].value, type=Place) if found else None

    def _record(self, place: Place) -> Record:
        return Record(SPACE, self.key, msgspec.json.encode(place), version=self._version)

    async def _dead_records(self) -> list[Record]:
        kept = await self._log.scan(DEAD_SPACE, f"{self.key}/", limit=_SCANNED)
        return [Record(DEAD_SPACE, each.key) for each in kept]

    async def _write(self, records: Sequence[Record]) -> None:
        await patiently(lambda: self._log.commit(records=records))
        self._version += any(record.space == SPACE for record in records)

    async def _letters(self, rows: Sequence[DeadRow]) -> AsyncIterator[DeadLetter]:
        block: StoredBlock | None = None
        for row in rows:
            if not _has(block, row.seq):
                found = await self._log.read(self.queue, row.seq, messages=1)
                block = found[0] if found else None
            if block is not None and _has(block, row.seq):  # what retention has dropped can't be a letter
                message = block.decode(self.queue.name).message(row.seq - sequence_of(block.first))
                reason = f"flow {self._flow.name}, action {row.action}: {row.error}"
                body = dead_letter_body(Death(0, reason, row.attempts, message))
                yield DeadLetter(pack(self.queue.number, row.seq), 0, reason, row.attempts, body)


def _has(block: StoredBlock | None, seq: int) -> bool:
    return block is not None and sequence_of(block.first) <= seq <= sequence_of(block.last)


async def made_queue(log: Log, name: str) -> Queue:
    """The queue of that name; one that isn't there is made, with the group that workers have."""
    queue = await patiently(lambda: log.create_queue(name))
    await patiently(lambda: log.create_group(queue, DEFAULT_GROUP))
    return queue
