"""What all requests of a server share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from forebay.api.bodies import Budget
from forebay.api.browser_guard import KnownHosts
from forebay.api.counters import Counters
from forebay.api.deadlines import Deadlines
from forebay.api.gate import Gate
from forebay.api.overview import OverviewSource
from forebay.api.queen.desk import Desk
from forebay.api.queen.queen_metrics import metrics_page
from forebay.api.queen.sealing import Seal
from forebay.api.settings import ServerSettings
from forebay.api.unread import UnreadAnswers
from forebay.deliver.tester import DestinationTester
from forebay.failover.failover import Failover
from forebay.ingest.merging import Merger, Written
from forebay.log.values import Appended
from forebay.model import Block, Clock, Limits, Message, SystemClock, Unavailable, UnknownQueue
from forebay.observe.follower import Follower
from forebay.observe.programs import Program
from forebay.store.seam import Store
from forebay.wire.port import split_listen

START_SECONDS: Final = 3.0
"""How long the first push waits for a server that starts to try the log; then it goes to the spool."""


class Context:
    """The store behind the server, its settings and its counters."""

    def __init__(  # noqa: PLR0915 - a list of all that requests share, one line each
        self,
        settings: ServerSettings | None = None,
        *,
        limits: Limits | None = None,
        keys: Gate | None = None,
        shown: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        failover: Failover | None = None,
        seal: Seal | None = None,
        metric_names: Collection[str] = ("forebay",),
    ) -> None:
        self.settings = settings or ServerSettings()
        self.known_hosts = KnownHosts(split_listen(self.settings.listen)[0], self.settings.hosts)
        """By which names browsers reach the server."""
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        """What delays count from: that of the store."""
        self.keys = keys
        """Who is let in; None when everybody may do everything."""
        self.shown = shown or {}
        """The configuration as it may be seen by others."""
        self.failover = failover
        """Where pushes go while the log is away; None when they fail then."""
        self.seal = seal
        """What encrypts the payloads of queues that want it; None when there is no key."""
        self.budget = Budget(self.settings.limits.pending_bytes_max)
        self.unread = UnreadAnswers(self.settings.limits)
        self.counters = Counters(self)
        self.draining = asyncio.Event()
        """Set when the server is about to stop: nobody waits any longer."""
        self.configuring = asyncio.Lock()
        """Held by whoever changes a queue after having looked at it; other servers don't see it."""
        self.waiting: set[asyncio.Task[Any]] = set()
        """Takes that wait for a task."""
        self.reason = "the store is being opened"
        """Why there is no store, when there is none."""
        self.tried = asyncio.Event()
        """Set when the store was opened, or couldn't be; until then nobody knows whether the log is there."""
        self._patient_until: float | None = None
        """To when pushes wait for that."""
        self.opened: Store | None = None
        self.warm_problem: Callable[[], str | None] | None = None
        """Says why the shared warm tier can't be reached; None where there is none."""
        self.plugins: Mapping[str, str] = {}
        """Which plugin provides the action class of a queue."""
        self.programs: Callable[[], Sequence[Program]] = lambda: ()
        """What `forebay up` runs beside this server."""
        self.overview = OverviewSource(self)
        """What the page shows."""
        self.snapshot: Follower | None = None
        """The numbers of queues; None where nobody counts them."""
        self.tester: DestinationTester | None = None
        """Tests the destinations that this server delivers to."""
        self.inbox_rejected: Callable[[], int] = lambda: 0
        """How many rows of the SQL inbox are rejected."""
        self.merger = Merger(self._push, pending_bytes_max=self.settings.limits.pending_bytes_max)
        """Where small pushes meet."""
        self.deadlines = Deadlines(self.settings.limits.request_seconds)
        self._names: dict[int, str] = {}
        self._learned: set[str] = set()
        self.desk = Desk(self)
        """What routes in Queen's format share."""
        self.metrics = metrics_page(self, metric_names)
        """What this process counts, under the names that were asked for."""
        self.queen_page = metrics_page(self, ("forebay", "queen"))
        """The same for dashboards of Queen."""

    @property
    def store(self) -> Store:
        """The store, or Unavailable."""
        if self.opened is None:
            raise Unavailable(self.reason, hint="try again", retry_after_seconds=1.0)
        return self.opened

    @property
    def is_healthy(self) -> bool:
        """Whether the log was there when it was last needed; asks nobody."""
        return self.opened is not None and (self.failover is None or self.failover.status().healthy)

    @property
    def is_spooling(self) -> bool:
        """Whether pushes go to the spool now, as far as it is known."""
        return self.failover is not None and (not self.is_healthy or self.failover.held is not None)

    async def make_way(self, queue: str, partitions: Sequence[str]) -> None:
        """Return when what is written to partitions overtakes nothing that is spooled; or Unavailable."""
        if self.failover is not None:
            await self.failover.make_way(queue, partitions)

    async def append(
        self, queue: str, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> Appended:
        """Write a block to a queue, or spool it while the log is away, or while pushes are held back.

        One that is `replayed` was accepted at its `created_at`, by a client's spool.
        """
        if self.failover is None:
            if self.desk.maintenance.push:
                text = "pushes are held back (maintenance), and this server has no spool"
                raise Unavailable(text, hint="try again later", retry_after_seconds=1.0)
            return await self._write(queue, block, body, replayed=replayed)
        await self._wait_for_start()
        write = None if self.opened is None else partial(self._write, queue, block, body, replayed=replayed)
        return await self.failover.push(queue, block, write)

    async def _wait_for_start(self) -> None:
        """Let a push wait while the server starts, since the log may well be there.

        If it were spooled, what is pushed to other servers after its answer would come to the log before it.
        All pushes wait for the same moment, also those that wait for one another.
        """
        if self.tried.is_set():
            return
        if self._patient_until is None:
            self._patient_until = asyncio.get_running_loop().time() + START_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._patient_until):
                await self.tried.wait()

    async def _write(self, queue: str, block: Block, body: bytes | None, *, replayed: bool) -> Appended:
        """Write a block to a queue, which is made when it isn't there, unless that is forbidden."""
        try:
            return await self.store.append(queue, block, body, replayed=replayed)
        except UnknownQueue:
            if not self.settings.create_queues:
                raise
            await self.store.create_queue(queue, self.desk.creation(queue, block))
            return await self.store.append(queue, block, body, replayed=replayed)

    async def _push(self, queue: str, messages: Sequence[Message | bytes]) -> Written:
        block = Block.of(messages, created_at=self.clock.now())
        return block.id, await self.append(queue, block)

    def drain(self) -> None:
        """The server is about to stop: whoever waits gets nothing."""
        self.draining.set()
        for task in self.waiting:
            task.cancel()

    async def learn_names(self, queues: Iterable[str]) -> None:
        """Ask for queues that are about to be taken from: afterwards leases run while a slow log answers."""
        for name in queues:
            if name not in self._learned:
                self._names[(await self.store.queue(name)).number] = name
                self._learned.add(name)

    async def names(self, *numbers: int) -> Mapping[int, str]:
        """The names of queues by their numbers; those that aren't there are left out."""
        missing = [number for number in numbers if number not in self._names]
        if missing:
            self._names.update(
                (queue.number, queue.name) for queue in await self.store.queues(numbers=missing)
            )
        return self._names
