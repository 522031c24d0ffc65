"""A store that answers as it is told, and keeps what it was asked."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from forebay.failover.books import with_spooled
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Start, Stats
from forebay.model import Message, Unavailable
from forebay.store.values import Attempt as Entry
from forebay.store.values import BlockPlace, FlowStats, GroupPlace, Purged, Whereabouts

ORDERS = Queue(1, "orders", QueueSettings(), 0)
WORKERS = Group(1, 1, "workers", 1)
FIRST = (1 << 45) + 1


class StubStore:
    """One queue `orders` with a group `workers`; `failures` are raised by the next pushes, one each."""

    def __init__(self, failures: Sequence[Exception] = ()) -> None:
        self.failures = list(failures)
        self.leaving: Callable[[], Exception] | None = None
        self.spooled: dict[str, int] = {}
        """What is in the spool, by queue; while there is something, what is put has no ids."""
        self.calls: list[tuple[Any, ...]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def put_task(self, queue: str, *tasks: Message, delay: float | None, id: bytes) -> list[int]:
        self.calls.append(("put", queue, tasks, delay, id))
        if self.failures:
            raise self.failures.pop(0)
        return [] if self.spooled else list(range(FIRST, FIRST + len(tasks)))

    async def queue(self, name: str) -> Queue:
        self.calls.append(("queue", name))
        if self.spooled:
            raise Unavailable("the log is away")
        return ORDERS

    async def groups(self, _queue: str) -> list[Group]:
        return [WORKERS]

    async def ledger(self, *, queue: str | None = None, after: int = 0, limit: int | None = None) -> Stats:
        self.calls.append(("ledger", queue, after, limit))
        if self.leaving is not None:
            raise self.leaving()
        if self.failures:
            raise self.failures.pop(0)
        group = GroupStats(
            group=WORKERS, accepted=3, ready=2, held=0, deferred=0, done=1, dead=0, purged=0, expired=0,
            corrupt=0, handed=0, due=0,
        )  # fmt: skip
        stats = Stats(0, [QueueStats(queue=ORDERS, next=4, floor=1, groups=[group])])
        stats = with_spooled(stats, self.spooled)
        return Stats(0, [found for found in stats.queues if queue in (None, found.queue.name)])

    async def flow_stats(self, **_: object) -> FlowStats:
        return FlowStats(0, [], [])

    async def purge_queue(self, name: str, *, group: str | None = None, dry_run: bool = False) -> Purged:
        self.calls.append(("purge", name, group, dry_run))
        return Purged({"workers": 2}, dry_run=dry_run)

    async def seek(self, queue: str, group: str, start: Start) -> Purged:
        self.calls.append(("seek", queue, group, start))
        return Purged({"workers": 0}, {"workers": 3})

    async def where(self, id: int) -> Whereabouts:
        history = [Entry(at=5, outcome="retried", worker="w1", attempts=0, reason="timeout")]
        place = GroupPlace(group="workers", state="leased", attempts=1, worker="w2", since=7, history=history)
        block = BlockPlace(id="b1", first=FIRST, count=3, created_at=1, appended_at=2, bytes=99)
        return Whereabouts(
            id=id, queue="orders", sequence=1, block=block, message=Message(b"\xff", "p"), groups=[place]
        )
