"""What all routes in Queen's format share: queues by their names, groups, partitions, what is out.

Invariants: a queue that is made here is ordered; a group is made by the first who takes for it, and begins
where that one says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from forebay.api.queen.census import Census
from forebay.api.queen.directory import Directory
from forebay.api.queen.ephemeral import Rings
from forebay.api.queen.firing import Firing
from forebay.api.queen.hands import Hands
from forebay.api.queen.lapsing import Lapsing
from forebay.api.queen.lending import Lending
from forebay.api.queen.maintenance import Maintenance
from forebay.api.queen.names import queue_name
from forebay.api.queen.options import Facts, creation_of, facts_of
from forebay.api.queen.readings import look
from forebay.api.queen.room import Room
from forebay.api.queen.samples import Samples
from forebay.api.queen.sealing import Seal
from forebay.api.queen.seen import Seen
from forebay.api.queen.spooled import creation_by
from forebay.api.queen.state import Reads
from forebay.api.queen.stripes import Stripes
from forebay.api.queen.subscriptions import Subscription, Subscriptions, subscription_of
from forebay.api.queen.tally import Tally
from forebay.api.queen.windows import Windows
from forebay.log.values import Group, Queue, Start, Stats
from forebay.model import Block, Rejected, Unavailable, UnknownQueue
from forebay.store.store import LogStore
from forebay.store.values import DEFAULT_GROUP, Task, Ticket

if TYPE_CHECKING:
    from forebay.api.context import Context

_USED_MAX: Final = 100_000
_LIST_SECONDS: Final = 1.0
"""So old a list of queues may be, where several are asked by what they have in common."""


class Desk:
    """See the module."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.directory = Directory(lambda: self.store.log)
        self.subscriptions = Subscriptions(lambda: self.store.log)
        self.hands = Hands()
        self.lapsing = Lapsing(self.hands, self._release, context.clock)
        self.lending = Lending(lambda: self.store.log, context.clock)
        self.reads = Reads()
        self.stripes = Stripes()
        self.maintenance = Maintenance(context)
        self.room = Room(self._ledger)
        self.windows = Windows(context.clock)
        self.census = Census(self)
        self.tally = Tally()
        self.samples = Samples(lambda: look(context), self.tally, context.clock, self.census.stats)
        self.seen = Seen()
        self.firing = Firing(self)
        self.rings = Rings(context)
        self._facts: dict[int, tuple[Queue, Facts]] = {}
        self._used: set[str] = set()
        self._groups: dict[tuple[int, str], tuple[bool, float]] = {}
        """Groups that are there: whether they want the newest message only, and until when that is known."""
        self._listed: list[Queue] = []
        self._listed_at = -_LIST_SECONDS
        self._listing = asyncio.Lock()
        self._created = asyncio.Event()

    @property
    def store(self) -> LogStore:
        """The store, or Unavailable."""
        store = self.context.store
        if not isinstance(store, LogStore):
            text = "the store behind this server has no log that Queen's format could stand on"
            raise Unavailable(text, hint="serve a log: sqlite:///, postgresql:// or memory://")
        return store

    async def _release(self, tasks: Sequence[Task | Ticket]) -> None:
        await self.store.release(tasks)

    async def _ledger(self, queue: str) -> Stats:
        return await self.store.ledger(queue=queue)

    def seal(self) -> Seal:
        """What encrypts payloads; Rejected where the server has no key."""
        if self.context.seal is None:
            text = "this server has no encryption key, so it can't keep payloads encrypted"
            raise Rejected(text, hint="set queen.encryption_keys_file, or QUEEN_ENCRYPTION_KEY")
        return self.context.seal

    # Queues

    async def queue(self, text: str) -> Queue | None:
        """The queue that a client means, as the log has it now; None when there is none."""
        try:
            return await self.store.queue(queue_name(text))
        except UnknownQueue:
            return None

    async def recent(self, text: str) -> Queue | None:
        """The same as it was a moment ago, for whoever asks often."""
        try:
            return await self.store.known_queue(queue_name(text))
        except UnknownQueue:
            return None

    async def require(self, text: str) -> Queue:
        """The queue that a client pushes to, which is made when it isn't there."""
        name = queue_name(text)
        if len(self._used) >= _USED_MAX:
            self._used.clear()
        self._used.add(name)
        return await self.recent(text) or await self.create(text, Facts())

    async def renewed(self, text: str) -> Queue:
        """The same as the log has it now."""
        return await self.queue(text) or await self.create(text, Facts())

    async def target(self, text: str) -> Facts | None:
        """What is kept of the queue that a client pushes to, which is made when it isn't there.

        None while the log is away, and nobody knows: the push goes to the spool, under the queue's name.
        """
        try:
            return self.facts(await self.require(text))
        except Unavailable:
            return None

    def creation(self, name: str, block: Block) -> dict[str, Any] | None:
        """What a queue is told that has to be made for a block, as it was deleted, or never made."""
        return creation_by(name, block, known=name in self._used)

    async def create(self, text: str, facts: Facts) -> Queue:
        """Make a queue, or return the one that is there."""
        name = queue_name(text)
        queue = await self.store.create_queue(name, creation_of(facts))
        self._listed_at = -_LIST_SECONDS
        self._created.set()
        self._created = asyncio.Event()
        return queue

    async def delete(self, text: str) -> bool:
        """Remove a queue with all that is in it; whether it was there."""
        queue = await self.queue(text)
        if queue is None:
            return False
        existed = await self.store.delete_queue(queue.name)
        self._listed_at = -_LIST_SECONDS
        # One that is made again under this name has its number, too.
        for number, group in [known for known in self._groups if known[0] == queue.number]:
            self._groups.pop((number, group), None)
            self.hands.forget(number, group)
        await self.directory.forget(queue.number, self.context.clock.now())
        await self.subscriptions.forget_queue(queue.number)
        await self.firing.forget(queue.number)
        return existed

    async def wait_for_queues(self, seconds: float) -> None:
        """Wait until a queue may have been made: here, or by another server, who tells nobody."""
        created = self._created
        try:
            async with asyncio.timeout(min(seconds, _LIST_SECONDS)):
                await created.wait()
        except TimeoutError:
            return

    async def queues(self) -> Sequence[Queue]:
        """All queues, as the log has them now; those who ask meanwhile share the next reading."""
        asked = monotonic()
        async with self._listing:
            if self._listed_at < asked:
                began = monotonic()
                self._listed = await self.store.queues()
                self._listed_at = began
            return self._listed

    async def listed(self) -> Sequence[Queue]:
        """The same as they were a moment ago, for whoever asks often."""
        is_recent = monotonic() - self._listed_at < _LIST_SECONDS
        return self._listed if is_recent else await self.queues()

    async def queues_by(self, numbers: Collection[int]) -> list[Queue]:
        """The queues of these numbers; those that are gone are left out."""
        names = await self.context.names(*numbers)
        found = list[Queue]()
        for number in numbers:
            with suppress(UnknownQueue):
                found += [await self.store.known_queue(names[number])] if number in names else []
        return [queue for queue in found if queue.number in numbers]

    def facts(self, queue: Queue) -> Facts:
        """Namespace, task and options of a queue."""
        kept = self._facts.get(queue.number)
        if kept is None or kept[0] is not queue:
            kept = self._facts[queue.number] = (queue, facts_of(queue))
        return kept[1]

    # Groups

    async def join(self, queue: Queue, group: str, start: Start, *, conflation: bool = False) -> bool:
        """Have a group, by its name as we keep it; one that is there goes on where it was, and as it is.

        Whether it wants the newest message of a partition only.
        """
        policy, until = self._groups.get((queue.number, group), (False, 0.0))
        if monotonic() < until:
            return policy
        if await self.group(queue, group) is None:
            kept: Subscription | None = await self._begin(queue, group, start, conflation=conflation)
        else:
            kept = (await self.subscriptions.find([(queue.number, group)])).get((queue.number, group))
        policy = kept is not None and kept.conflation
        # Who makes a group writes down how it is a moment later.
        is_sure = kept is not None or group == DEFAULT_GROUP
        self._groups[queue.number, group] = (policy, inf if is_sure else monotonic() + _LIST_SECONDS)
        return policy

    async def _begin(self, queue: Queue, group: str, start: Start, *, conflation: bool) -> Subscription:
        """Make a group: where one of its name had begun, if that was kept."""
        kept = (await self.subscriptions.find([(queue.number, group)])).get((queue.number, group))
        made = await self.store.create_group(queue.name, group, start if kept is None else kept.start)
        if kept is not None:
            return kept
        began = subscription_of(start, made.start, self.context.clock.now(), conflation=conflation)
        return await self.subscriptions.begin(queue.number, group, began)

    def conflates(self, queue: Queue, group: str) -> bool:
        """Whether a group that was joined wants the newest message of a partition only."""
        return self._groups.get((queue.number, group), (False, 0.0))[0]

    def forget_group(self, queue: Queue, group: str) -> None:
        """A group is gone, and its leases with it."""
        self._groups.pop((queue.number, group), None)
        self.hands.forget(queue.number, group)

    async def group(self, queue: Queue, group: str) -> Group | None:
        """A group that is there, by its name as we keep it."""
        return next((found for found in await self.store.groups(queue.name) if found.name == group), None)
