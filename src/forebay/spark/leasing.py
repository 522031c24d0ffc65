"""A stream that competes with workers: it claims messages, reads them, and settles them as done.

At least once. What is left at each point where driver or executors may die:

| it dies | what becomes of the messages |
|---|---|
| after claiming, before the batch is written down | the next run takes them back by its owner's name |
| after it is written down, before Spark knows | the next run plans the same batch again |
| while the batch runs | the next run reads it again; what others took over meanwhile (an owner that is silent for 30 s) it leaves to them, and they count it as an attempt |
| after the batch is done, before it is settled | the next run, or a `follow`er, settles it; after 30 s of silence others may have taken it over, and do it again |
| while it is settled | settling again changes nothing |

A message is marked as handed out before it is read, so that its attempt counts when somebody takes it over;
a batch that the same query runs again counts no attempt. A batch that failed for good is given up by silence.
"""  # noqa: E501 - a table

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from forebay.log.seam import VersionConflict
from forebay.log.values import Claim, Claimed, Group, GroupStats, Mark, Queue, QueueStats, Room, Settlement
from forebay.model import ForebayError, SystemClock, bitmap, sequence_of
from forebay.spark.arrow import Piece
from forebay.spark.following import address_mark
from forebay.spark.holding import Hold, Holdings, Place
from forebay.spark.logs import Face, Opener
from forebay.spark.offsets import PART_MESSAGES
from forebay.spark.options import Options
from forebay.spark.ranges import kept_queues, subscribed
from forebay.spark.reading import PAGE_BYTES, Reading
from forebay.store.unpacking import unpack

MESSAGES_DEFAULT: Final = 10_000
MESSAGES_MAX: Final = 100_000
CLAIMS_MAX: Final = 1_000
"""What a batch holds at most."""
BEAT_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 30.0
"""After so long without a sign an owner's claims are taken over, as the store does."""
_RECALL_MAX: Final = 500
_BYTES: Final = 64 << 20

_logger: Final = logging.getLogger("forebay.spark")


class LeaseTask(InputPartition):
    """What one task reads: claims of one group, by their tokens."""

    def __init__(self, queue: Queue, group: Group, holds: Sequence[Hold]) -> None:
        super().__init__(None)
        self.queue = queue
        self.group = group
        self.holds = [(hold.token, hold.body_bytes) for hold in holds]


class LeaseStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages that no worker of the group has, as they come."""

    def __init__(self, opener: Opener, options: Options, schema: StructType) -> None:
        self._reading = Reading(opener, options, schema)
        self._options = options
        self._claims: Claims | None = None
        self._left: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """A new query: it has nothing, under a name of its own."""
        subscribed(kept_queues(self._reading.face()), self._options)
        place = Place(
            lease=0,
            owner=f"spark-{secrets.token_hex(8)}",
            group=self._group,
            at=address_mark(self._options.url),
        )
        return dict(msgspec.to_builtins(place))

    @property
    def _group(self) -> str:
        assert self._options.groupId is not None, "the options were checked"
        return self._options.groupId

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch may have by the options."""
        return ReadMaxRows(min(self._options.maxOffsetsPerTrigger or MESSAGES_DEFAULT, MESSAGES_MAX))

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how much there is now: the query ends with so many messages."""
        books = [each for queue in self._stats() for each in queue.groups if each.group.name == self._group]
        self._left = sum(each.unclaimed + each.due for each in books)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Settle what is done, claim what is next; `start` itself when there is nothing."""
        place = msgspec.convert(start, Place)
        claims = self._open(place)
        claims.holdings.settle_through(place.lease)
        end = dict(msgspec.to_builtins(msgspec.structs.replace(place, lease=place.lease + 1)))
        if claims.holdings.batch(place.lease + 1):
            return end
        most = min(limit.max_rows if isinstance(limit, ReadMaxRows) else MESSAGES_MAX, MESSAGES_MAX)
        if self._left is not None:
            most = min(most, self._left)
        holds = claims.take(self._stats(), most, place.lease) if most else []
        if not holds:
            return start
        try:
            claims.holdings.add(place.lease + 1, holds)
        except VersionConflict:
            claims.spare.extend(holds)  # another driver of this query was first: theirs is the batch
        if self._left is not None:
            self._left = max(0, self._left - sum(map(len, holds)))
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Hand out the claims of the batches between two places."""
        first, last = msgspec.convert(start, Place), msgspec.convert(end, Place)
        claims = self._open(last)
        batches = [claims.holdings.batch(number) for number in range(first.lease + 1, last.lease + 1)]
        held = claims.hand_out([hold for batch in batches for hold in batch])
        return _tasks(held, {each.queue.number: each for each in self._stats()}, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch what is still held of one task's claims."""
        if not isinstance(partition, LeaseTask):
            return iter(())
        return self._reading.shape().batches(_pieces(self._reading.face(), partition))

    def commit(self, end: dict[str, Any]) -> None:
        """Settle the batches up to this one as done."""
        place = msgspec.convert(end, Place)
        self._open(place).holdings.settle_through(place.lease)

    def stop(self) -> None:
        """Say goodbye, unless a batch is under way: it may be done, so others wait for it first."""
        if self._claims is not None:
            self._claims.close()

    def _open(self, place: Place) -> Claims:
        if self._claims is None:
            self._claims = Claims(self._reading.face(), place.owner, self._group)
        return self._claims

    def _stats(self) -> list[QueueStats]:
        """The queues that are read, with their groups; a group that isn't there is made."""
        face = self._reading.face()
        found = kept_queues(face)
        names = subscribed(found, self._options)
        mine = [each for each in found if each.queue.name in names]
        if missing := [q for q in mine if not any(g.group.name == self._group for g in q.groups)]:
            for each in missing:
                face(face.log.create_group(each.queue, self._group, "earliest"))
            mine = [each for each in kept_queues(face) if each.queue.name in names]
        return mine


class Claims:
    """What a query takes from the log under its name, for as long as this process says that it is alive."""

    def __init__(self, face: Face, owner: str, group: str) -> None:
        self._face = face
        self._owner = owner
        self._group = group
        self.holdings = Holdings(face, owner)
        self.spare: list[Hold] = []
        self._orphans = True
        self._looked = monotonic()
        self._stopped = threading.Event()
        face(face.log.heartbeat(owner))
        self._beat = threading.Thread(target=self._beating, name="forebay-lease", daemon=True)
        self._beat.start()

    def _beating(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                self._face(self._face.log.heartbeat(self._owner))
            except ForebayError as error:
                _logger.warning("the log did not hear that a query is alive: %s", error)

    def close(self) -> None:
        """Stop saying so; give back everything, unless a batch is under way."""
        self._stopped.set()
        self._beat.join(BEAT_SECONDS)
        try:
            if not self.holdings.all():
                self._face(self._face.log.retire(self._owner))
        except ForebayError as error:
            _logger.warning("a query ended, and could not give back what it held: %s", error)

    def take(self, queues: Sequence[QueueStats], most: int, turn: int) -> list[Hold]:
        """Claim up to so many messages, an equal share of each queue; then what others don't need."""
        holds, self.spare = self.spare, []
        holds += self._returned(queues, most, holds)
        open_queues = [each for each in queues if not each.queue.settings.paused]
        if open_queues:
            cut = turn % len(open_queues)
            open_queues = open_queues[cut:] + open_queues[:cut]
        for share in (max(1, most // max(1, len(open_queues))), most):
            for each in open_queues:
                room = min(share, most - sum(map(len, holds)))
                if room > 0 and len(holds) < CLAIMS_MAX:
                    holds += self._claim(each, room)
        return holds

    def _returned(self, queues: Sequence[QueueStats], most: int, spare: Sequence[Hold]) -> list[Hold]:
        """What this query claimed and never wrote down; what silent owners have held for too long."""
        found: list[Hold] = []
        if not self._orphans and monotonic() < self._looked + SILENT_SECONDS:
            return found
        of, self._looked = [self._owner] if self._orphans else [], monotonic()
        batches = [spare, *(batch.holds for batch in self.holdings.all().values())]
        known = [hold.token for holds in batches for hold in holds]
        for each in queues:
            room = Room(max(1, most - sum(map(len, found))), _BYTES)
            call = self._face.log.reclaim(
                self._mine(each).group, self._owner, room, of=of, silent_seconds=SILENT_SECONDS, besides=known
            )
            found += self._held(each.queue, self._face(call))
        self._orphans = bool(of and found)  # there may be more of them
        return found

    def _mine(self, queue: QueueStats) -> GroupStats:
        return next(each for each in queue.groups if each.group.name == self._group)

    def _claim(self, queue: QueueStats, most: int) -> list[Hold]:
        mine, holds = self._mine(queue), []
        room = Room(most, _BYTES)
        if mine.due:
            holds += self._held(queue.queue, self._face(self._face.log.due(mine.group, self._owner, room)))
        room = Room(most - sum(map(len, holds)), _BYTES)
        if mine.unclaimed and room.messages > 0:
            holds += self._held(queue.queue, self._face(self._face.log.claim(mine.group, self._owner, room)))
        return holds

    def _held(self, queue: Queue, claimed: Claimed) -> list[Hold]:
        """What is to be read of claims. What starts later is deferred; what came too often is given up."""
        for error in claimed.corrupt:
            _logger.warning("in quarantine: %s", error)
        holds: list[Hold] = []
        settlements: list[Settlement] = []
        for claim in claimed.claims:
            block = claim.block.decode(queue.name, checked=True)
            sorted_out = unpack(claim, block, SystemClock().now(), queue.settings, most=CLAIMS_MAX)
            left = bitmap.minus(bitmap.full(claim.count), claim.done)
            if sorted_out.deferred or sorted_out.dead:
                back = claim.settle(deferred=sorted_out.deferred, dead=sorted_out.dead, worker="spark")
                settlements.append(back)
                left = bitmap.minus(left, back.finished())
            if any(left):
                holds.append(Hold.of(claim, left))
        if settlements:
            self._face(self._face.log.commit(settlements=settlements))
        return holds

    def hand_out(self, holds: Sequence[Hold]) -> list[Hold]:
        """Mark claims as out with a worker; those that are not held any more are left to others."""
        marks = [Mark(hold.group, hold.token, hold.count, handed=hold.left) for hold in holds]
        refused = set(self._face(self._face.log.mark(marks))) if marks else set()
        return [hold for i, hold in enumerate(holds) if i not in refused]


def _tasks(holds: Sequence[Hold], queues: Mapping[int, QueueStats], options: Options) -> list[LeaseTask]:
    """Claims as tasks of like size; in an ordered queue a partition is in one task, in order."""
    total = sum(map(len, holds))
    size = max(1, min(PART_MESSAGES, total // options.minPartitions))
    lanes: dict[tuple[int, int, str], list[Hold]] = {}
    for hold in sorted(holds, key=lambda hold: hold.first):
        if hold.queue in queues:
            ordered = queues[hold.queue].queue.settings.ordered
            lanes.setdefault((hold.queue, hold.group, hold.partition or "" if ordered else ""), []).append(
                hold
            )
    tasks: list[LeaseTask] = []
    open_tasks: dict[tuple[int, int], list[Hold]] = {}
    for (queue, group, _), lane in lanes.items():
        ordered = queues[queue].queue.settings.ordered
        for run in [lane] if ordered else [[hold] for hold in lane]:
            waiting = open_tasks.setdefault((queue, group), [])
            waiting.extend(run)
            if sum(map(len, waiting)) >= size:
                tasks.append(_task(queues[queue], group, open_tasks.pop((queue, group))))
    tasks.extend(_task(queues[queue], group, rest) for (queue, group), rest in open_tasks.items())
    return tasks


def _task(queue: QueueStats, group: int, holds: Sequence[Hold]) -> LeaseTask:
    found = next(each.group for each in queue.groups if each.group.number == group)
    return LeaseTask(queue.queue, found, holds)


def _pieces(face: Face, task: LeaseTask) -> Iterator[Piece]:
    """The messages of a task's claims, as they are now, in order."""
    for tokens in _pages(task.holds):
        for claim in face(face.log.recall(task.group, tokens)):
            yield from _runs(claim, task.queue)


def _pages(holds: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    page: list[int] = []
    size = 0
    for token, length in holds:
        if page and (size + length > PAGE_BYTES or len(page) == _RECALL_MAX):
            yield page
            page, size = [], 0
        page.append(token)
        size += length
    if page:
        yield page


def _runs(claim: Claim, queue: Queue) -> Iterator[Piece]:
    """What is not finished of a claim: consecutive messages together."""
    block, begin = claim.block.decode(queue.name), claim.first - claim.block.first
    first = sequence_of(claim.first)
    left = bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))
    low = 0
    for i, offset in enumerate(left):
        if i + 1 == len(left) or left[i + 1] != offset + 1:
            start = left[low]
            part = block.slice(begin + start, begin + offset + 1)
            yield Piece(queue.name, first + start, claim.block.accepted_at, part)
            low = i + 1
