"""The window of a group: its workers on one side, the log on the other, the warm tier in between.

Invariants: a message is handed out only after the log has noted that it is (`mark`), which it refuses to
what would overtake others of its partition, however it came to the shelf; an outcome is in
the log before the shelf forgets the message; whatever comes back, comes back through the log, but for
what is released unused in an unordered queue; whoever waits is woken by an event, never by the tick. What is
fetched by the name of its partition is leased before anything else moves.

It is long because handing out, filling and time share one state, and must not be seen apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from forebay.log.seam import Log, Unchecked
from forebay.log.values import Group, Outlook, Queue, Sought, Start
from forebay.model import Clock, Flow, Unavailable, mint
from forebay.store.filling import NO_TIME, Fetched, Filled, Filler
from forebay.store.handing import leases_of, lost_of, mark_of, peeked_of, tasks_of, unmark, wanted_of
from forebay.store.hysteresis import Mode, may_refill, next_mode
from forebay.store.lease_renewal import Renewal, is_in_doubt
from forebay.store.lines import Lines
from forebay.store.plans import Plan, Told
from forebay.store.settler import Settler
from forebay.store.settling import Verdict, withdrawal_of
from forebay.store.tail import Tail
from forebay.store.tier import Tier
from forebay.store.tiers import SECOND, Tiers
from forebay.store.values import Peeked, Task, Ticket
from forebay.store.waiting import Line, take
from forebay.store.wishes import Wish
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import EpochLost, Warm, WarmAway
from forebay.warm.values import Lease, Leased, Shelf, ShelfStats

T = TypeVar("T")

IDLE_SECONDS: Final = 30.0
"""After so long without a worker asking, nothing is brought ahead, and what is ready is given back."""
AHEAD: Final = 0.8
"""Nobody waiting, a shelf is refilled below this part of its limit: less often, and more at once."""
STALE_MAX: Final = 100
"""How often a take goes on when all that it got from the shelf is no longer held by the log."""
GONE_ON_MAX: Final = 4
"""Of so many partitions of a take more is asked of the log; of the others there is more the next time."""
LOOK_SECONDS: Final = 1.0
"""How often the log is asked which flows wait behind one that holds most of the shelf."""
LOOK_COST: Final = 50
"""Looking takes no more than this part of the time."""
TOP_UP_SECONDS: Final = 5.0
"""How long a taker who has some tasks waits for more that the log is thought to have."""
FETCH_SECONDS: Final = 5.0
"""How long a taker of a named partition waits for another server to end its fill."""
FETCH_AGAIN_SECONDS: Final = 0.02
"""How often it tries when it doesn't hear of that."""
SOON_SECONDS: Final = 0.005
"""A timer is set for no less."""
OVERDUE_SECONDS: Final = 0.05
"""What is due by our clock, and not by that of the log or the tier, is looked at again after so long."""
LOOKS_A_SECOND: Final = 20
"""How many who wait for a partition may look for what no server announced."""
LOOKS_MAX: Final = 100
"""At once."""


class Window:
    """See the module."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        queue: Queue,
        group: Group,
        *,
        shelf: Shelf,
        tail: Tail,
        own: MemoryWarm,
        shared: Warm | None,
        elapsed: Callable[[], float] = monotonic,
    ) -> None:
        self.queue = queue
        self.group = group
        self.mode = Mode.WARM
        self.still = asyncio.Lock()
        """Nothing moves from the log to the shelf for whoever holds it."""
        self.line = Line()
        """Those who wait."""
        self.lines = Lines()
        """Those who wait for one partition."""
        self.turn = 0
        self._log = log
        self._clock = clock
        self._elapsed = elapsed
        self.tail = tail
        """What this process has put in the queue."""
        self._filler = Filler(log, clock, queue, group, tail)
        self.tiers = Tiers(log, group, shelf, own, shared, lost=self._begin_anew, later=self._call_later)
        self._settler = Settler(
            log, clock, group, self.tiers, queue.settings,
            freed=self._on_freed, readied=self.line.wake, come_due=self.come_due, later=self._call_later,
        )  # fmt: skip
        self._filling: asyncio.Task[Filled | None] | None = None
        self._held = 0
        self._settled = 0
        self._drained = False
        self._news = 0
        self._seen = 0
        self._asking = 0
        """Takes that found nothing on the shelf, and wait for a fill."""
        self._refused = False
        self._came_due = NO_TIME
        self._next_due_at: int | None = None
        self._next_expiry: int | None = None
        self._hog: Flow | None = None
        self._noted: frozenset[Flow] = frozenset()
        self._look_at = elapsed()
        self._starving = False
        self._asked_at = float("-inf")  # not yet: a server may settle what others hand out
        self._used_at = elapsed()
        self._takes = 0
        self._rests = False
        self._cramped: dict[str, None] = {}
        """Partitions of which more is asked for than the shelf has room for."""
        self._heard = asyncio.Event()
        """Set when another server has filled the shelf."""
        self._looked_at = elapsed()
        self._timer: asyncio.TimerHandle | None = None
        self._jobs: set[asyncio.Task[Any]] = set()
        self._full = False
        self._closed = False

    @property
    def shelf(self) -> Shelf:
        """The shelf of the tier that is filled now."""
        return self.tiers.active.shelf

    def configure(self, queue: Queue, shelf: Shelf) -> None:
        """Go on with other settings."""
        resumed = self.queue.settings.paused and not queue.settings.paused
        self.queue = self._filler.queue = queue
        self._settler.settings = queue.settings
        self.tiers.configure(shelf)
        if resumed:
            self.line.wake_next()
            self.lines.wake(None)
        self._wake_cramped()  # there may be more room
        self.nudge()

    # Handing out

    async def take(self, count: int, worker: str, seconds: float, wait_seconds: float) -> list[Task]:
        """Hand out up to `count` tasks; waits for the first of them, but no longer than so many seconds."""
        return await take([(self, seconds)], count, worker, wait_seconds)

    @property
    def is_closed(self) -> bool:
        """Whether nothing will be handed out any more."""
        return self._closed

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        return self.queue.settings.paused

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody may wait for tasks."""
        return bool(self.line or self.lines)

    def touch(self) -> None:
        """Somebody is about to use it."""
        self._used_at = self._elapsed()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep it while somebody takes from it, however long the log makes them wait."""
        self._takes += 1
        try:
            yield
        finally:
            self._takes -= 1
            self.touch()

    @property
    def is_unused(self) -> bool:
        """Whether nobody has used it for a while, and it holds nothing: it can be forgotten."""
        return self._rests and self._may_rest()

    async def grab(self, count: int, worker: str, seconds: float) -> list[Task]:
        """Hand out what is on the shelf, and what the log is known to have beside, up to `count`."""
        return await self.grab_wish(Wish(count, worker, seconds))

    async def grab_wish(self, wish: Wish) -> list[Task]:
        """The same, of few partitions; of those, all that there is."""
        self._asked_at = self._elapsed()
        try:
            return await self._grab(wish)
        except WarmAway:  # from now on, and until it is back, it goes without the shared tier
            return await self._grab(wish)

    async def _grab(self, wish: Wish) -> list[Task]:
        if self._closed or self.is_paused:
            return []
        news = self.line.news
        tasks = await self._try_take(wish)
        if not tasks:
            return []
        if wish.partitions_max is not None:
            tasks = await self._go_on(tasks, wish)
        rest = wish.beside(tasks)
        if rest.count > 0 and rest.partitions_max != 0 and (self._may_fill() or self.line.news != news):
            with self.keep(tasks, wish.seconds):
                tasks = _joined(tasks, await self._or_none(tasks, self._top_up(rest)))
        self._demand()
        return tasks

    async def grab_partition(self, wish: Wish) -> list[Task]:
        """Hand out what there is of one partition, on the shelf and in the log."""
        try:
            return await self._grab_partition(wish)
        except WarmAway:
            return await self._grab_partition(wish)

    async def _grab_partition(self, wish: Wish) -> list[Task]:
        if self._closed or self.is_paused:
            return []
        tasks = await self._try_take(wish)
        return await self._go_on(tasks, wish) if tasks else await self._fetch(wish)

    async def _go_on(self, tasks: list[Task], wish: Wish) -> list[Task]:
        """Tasks, and those that come after them in some of their partitions, and are still in the log."""
        for last in islice({task.partition: task for task in tasks}.values(), GONE_ON_MAX):
            rest = wish.beside(tasks)
            if rest.count <= 0:
                break
            with self.keep(tasks, wish.seconds):
                tasks = _joined(tasks, await self._or_none(tasks, self._fetch(rest.going_on(last))))
        return tasks

    async def _or_none(self, tasks: Sequence[Task], taking: Awaitable[list[Task]]) -> list[Task]:
        """More tasks, if they can be had; who doesn't want them any more gives back those that he has."""
        try:
            return await taking
        except Unavailable:
            return []
        except BaseException:
            self.give_back(tasks)
            raise

    async def ask(self) -> None:
        """Bring what the log has by now to the shelf."""
        try:
            await self._ask()
        except WarmAway:
            await self._ask()

    async def bring(self) -> bool:
        """Bring what the log is thought to have, if anything, to whoever has some: that waits for a while."""
        if not self._may_fill():
            return False
        filling = self._start_fill()
        await asyncio.wait([filling], timeout=TOP_UP_SECONDS)
        if filling.done():
            filling.result()
        return True

    def keep(self, tasks: Sequence[Task], seconds: float) -> Renewal:
        """Keep the leases of tasks that are not answered yet."""
        return Renewal(lambda: self._spawn(self._renew(leases_of(tasks), seconds)), seconds)

    async def _renew(self, wanted: Mapping[Lease, Sequence[int]], seconds: float) -> None:
        await self.extend(wanted, seconds)

    async def confirm(self, tasks: list[Task], seconds: float, age: float) -> list[Task]:
        """Tasks with all of their time before them; those that are no longer leased are left out.

        In an ordered queue those behind them go back: they would come before what is handed out again. `age`
        is how many seconds it took to have them.
        """
        now = self._clock.now()
        if not is_in_doubt(tasks, seconds, age, now):
            return tasks
        try:
            lost = set(await self.extend(leases_of(tasks), seconds))
        except Unavailable:  # the log has noted that they are out, and knows when they are settled
            return tasks
        kept = [task for task in tasks if task.id not in lost]
        if lost and self.queue.settings.ordered:
            first = _first_of_partitions([task for task in tasks if task.id in lost])
            behind = [task for task in kept if task.id > first.get(task.partition, task.id)]
            if behind:
                self.give_back(behind)
                kept = [task for task in kept if task.id <= first.get(task.partition, task.id)]
        deadline = now + int(seconds * SECOND)
        return [msgspec.structs.replace(task, deadline=deadline) for task in kept]

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Make tasks that reached nobody ready again, with no attempt counted."""
        self._spawn(self._put_back(leases_of(tasks)))

    async def _top_up(self, wish: Wish) -> list[Task]:
        """Tasks that are in the log but not on the shelf yet, so that batches are full where they can be."""
        await self.bring()
        return await self._try_take(wish)

    async def _fetch(self, wish: Wish) -> list[Task]:
        """Tasks of one partition that are in the log; nobody makes room for others before they are taken."""
        job = self._start(self._fetch_leased(wish))
        try:
            got = await asyncio.shield(job)
        except asyncio.CancelledError:
            self._spawn(self._put_back_later(job))
            raise
        return self._tasks(await self._mark(self.tiers.of(got[0].lease), got, wish.seconds)) if got else []

    async def _fetch_leased(self, wish: Wish) -> list[Leased]:
        async with self.still:
            return await self._take_from(await self._fetch_to_shelf(wish), wish)

    async def _try_take(self, wish: Wish) -> list[Task]:
        return self._tasks(await self._lease(wish))

    def _tasks(self, leased: Sequence[Leased]) -> list[Task]:
        if not leased:
            return []
        self._expire_at(leased[0].deadline)
        return [task for piece in leased for task in tasks_of(piece, self.group.queue)]

    async def _lease(self, wish: Wish) -> list[Leased]:
        """Lease messages and have the log note it; what it no longer holds for us is dropped."""
        for tier in self.tiers.with_something():
            for _ in range(STALE_MAX):
                got = await self._take_from(tier, wish)
                if not got:
                    break
                if leased := await self._mark(tier, got, wish.seconds):
                    return leased
        return []

    async def _take_from(self, tier: Tier, wish: Wish) -> list[Leased]:
        taking = self.tiers.call(
            tier,
            lambda t, e: t.warm.take(
                t.shelf, e, wish.count, wish.worker, wish.seconds,
                partition=wish.partition, partitions_max=wish.partitions_max, behind=wish.behind,
            ),
        )  # fmt: skip
        if not tier.warm.shared:
            return await taking  # nothing comes in between
        job = asyncio.ensure_future(taking)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            self._spawn(self._put_back_later(job))
            raise

    async def _put_back_later(self, job: asyncio.Future[list[Leased]]) -> None:
        """Make ready again what is being leased to somebody who is gone."""
        await self._put_back(wanted_of(await job))

    async def _mark(self, tier: Tier, leased: Sequence[Leased], seconds: float) -> list[Leased]:
        with Renewal(lambda: self._spawn(self._renew(wanted_of(leased), seconds)), seconds):
            return await self._mark_now(tier, leased)

    async def _mark_now(self, tier: Tier, leased: Sequence[Leased]) -> list[Leased]:
        marks = [mark_of(piece) for piece in leased]
        try:
            late = await self._log.mark(marks)
        except BaseException:
            self._spawn(self._put_back(wanted_of(leased)))
            raise
        is_checked = not isinstance(late, Unchecked)
        if tier.shelf.ordered:
            late = await self._check_order(tier, leased, late)
        if not late:
            return list(leased)
        lost = [leased[i] for i in late]
        if tier.shelf.ordered and not is_checked:
            await self._settler.send_back(tier, lost)
        else:
            await self._let_go(tier, lost)
        self.lines.wake({piece.lease.partition or "" for piece in lost})
        self._drained = False
        good = [piece for i, piece in enumerate(leased) if i not in late]
        group = await self._group_now()
        if group.sought > self.group.sought:  # another server sent it elsewhere
            await self._put_back(wanted_of(good))
            await self.follow(group)
            return []
        return good

    async def _let_go(self, tier: Tier, lost: Sequence[Leased]) -> None:
        """Take off the shelf what the log doesn't let us hand out."""
        if tier.shelf.ordered:
            # Some may still be ours, but behind others of their partition that went back to the log.
            now = self._clock.now()
            last = dict(sorted((piece.lease.partition or "", piece.last_id()) for piece in lost))
            await self.tiers.call(tier, lambda t, e: t.warm.note_returns(t.shelf, e, last))
            await self._log.commit(settlements=[withdrawal_of(piece, now) for piece in lost], id=mint())
            self.come_due(now, ())
        await self.tiers.call(tier, lambda t, _: t.warm.finish(t.shelf, wanted_of(lost)))

    async def _check_order(self, tier: Tier, leased: Sequence[Leased], late: Sequence[int]) -> Sequence[int]:
        """Which of these messages must wait: those that the log refuses, or might if it were there."""
        if isinstance(late, Unchecked):
            return [i for i, piece in enumerate(leased) if piece.returned is not None]
        let_out = {
            piece.lease.partition or "": piece.returned
            for i, piece in enumerate(leased)
            if piece.returned is not None and i not in late and piece.last_id() >= piece.returned.last
        }
        if let_out:
            await self.tiers.call(tier, lambda t, e: t.warm.forget_returns(t.shelf, e, let_out))
        return late

    async def _put_back(self, wanted: Mapping[Lease, Sequence[int]]) -> None:
        """Make ready again what was leased and reached nobody; the log may have noted it or not."""
        with suppress(Unavailable):
            await self._log.mark([unmark(lease, offsets) for lease, offsets in wanted.items()])
        for tier, mine in self.tiers.split(wanted):
            await tier.warm.release(tier.shelf, mine)
        self.line.wake(sum(map(len, wanted.values())))
        self.lines.wake({lease.partition or "" for lease in wanted})

    # Filling

    def nudge(self) -> None:
        """There may be something new in the log."""
        self._news += 1
        self._drained = self._full = False
        self._demand()

    def hear(self, *, filled: bool, partitions: Collection[str] | None) -> None:
        """A server has put something in the queue, in these partitions, or has filled the shelf."""
        if not filled:
            self.lines.wake(partitions)
        if not filled or self._refused:
            self._refused = False
            self.nudge()
        if filled:
            self._heard.set()
            self.line.wake_next()

    def expect(self, outlook: Outlook, partitions: Collection[str] | None) -> None:
        """Another process may have put something in these partitions (None: in any), or put something off."""
        if partitions is None:
            self.lines.wake_some(LOOKS_MAX)
        else:
            self.lines.wake(partitions)
            self._let_some_look()
        if outlook.ready is not None:
            self.nudge()
        due_at = outlook.due_at
        if due_at is not None and (self._next_due_at is None or due_at < self._next_due_at):
            self.come_due(due_at, ())

    def _demand(self) -> None:
        """Fill in the background if there is a use for it."""
        ahead = self._held < AHEAD * self.shelf.messages_max or self._may_share()
        if (self.line or (ahead and self._is_asked())) and self._may_fill():
            self._start_fill()

    def _may_fill(self) -> bool:
        """Whether the log may have something, and the shelf has room for it."""
        if self._closed or self._drained or self._full or self.queue.settings.paused:
            return False
        return self._has_room() or self._may_share()

    def _has_room(self) -> bool:
        return may_refill(self.mode, self._held, self.shelf.messages_max)

    def _may_share(self) -> bool:
        """Whether it is time to look for flows behind the one that holds most of the shelf."""
        if self._hog is None or self._held >= self.shelf.messages_max:
            return False
        return self._starving or self._elapsed() >= self._look_at

    def _start_fill(self) -> asyncio.Task[Filled | None]:
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill_once())
            self._filling.add_done_callback(self._fill_over)
        return self._filling

    def _fill_over(self, task: asyncio.Task[Filled | None]) -> None:
        if self._filling is task:
            self._filling = None
        if not task.cancelled() and task.exception() is None:
            self._demand()

    async def _fetch_to_shelf(self, wish: Wish) -> Tier:
        """See to it that what is wished of a partition is ready; returns the tier where it is."""
        assert wish.partition is not None, "nothing is fetched but by its name"
        partition, count, goes_on = wish.partition, wish.count, wish.behind is not None
        tier, settled = self.tiers.active, self._settled
        fetched: Fetched | None = None
        until = monotonic() + FETCH_SECONDS
        while fetched is None and monotonic() < until:
            self._heard.clear()
            fetched = await self.tiers.call(
                tier, lambda t, _: self._filler.fetch(t, partition, count, goes_on=goes_on)
            )
            if fetched is None:  # another server fills, and tells when it is over
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._heard.wait(), FETCH_AGAIN_SECONDS)
        if fetched is not None:
            self._held = max(0, fetched.held - (self._settled - settled))
            self._note_fetched(partition, fetched)
        return tier

    def _note_fetched(self, partition: str, fetched: Fetched) -> None:
        if fetched.is_cramped:
            self._cramped[partition] = None
        if fetched.spared:
            self.come_due(self._clock.now(), fetched.spared)
        if fetched.next_due_at is not None:
            self.lines.come_due(partition, fetched.next_due_at)
            self._arm()

    async def _ask(self) -> None:
        """Bring what the log has by now: together with others, but not by a fill that began before."""
        self._asked_at = self._elapsed()
        self._news += 1
        news = self._news
        self._drained = self._full = False
        self._next_due_at = None
        self._asking += 1
        try:
            while self._seen < news:
                await asyncio.shield(self._start_fill())
        finally:
            self._asking -= 1

    async def _fill_once(self) -> Filled | None:
        async with self.still:
            return await self._fill_now()

    async def _fill_now(self) -> Filled | None:
        news, settled, self._came_due = self._news, self._settled, NO_TIME
        tier = self.tiers.active
        try:
            share = await self._look()
            if not (share or self._asking or self._has_room()):
                return None  # it was begun for other flows, and none waits
            filled = await self.tiers.call(
                tier, lambda t, _: self._filler.fill(t, self._next_due_at, share=share)
            )
        except Unavailable:
            self._drained = True
            self._call_later(1.0)
            raise
        self._seen = news
        if filled is None:
            self._drained = self._refused = True  # another server fills, and tells when it is over
            return None
        limit = tier.shelf.messages_max
        freed = self._settled - settled  # while it was being filled
        self._held = max(0, filled.held - freed)
        self._hog, self._noted = filled.hog, filled.noted
        self._drained = filled.drained and news == self._news
        self.mode = next_mode(self.mode, filled.held, limit, drained=filled.drained)
        self._next_due_at = filled.next_due_at
        if self._came_due != NO_TIME:  # while it was being filled
            self.come_due(self._came_due)
        self._arm()
        self._full = not (filled.drained or filled.brought or freed)
        if filled.brought:
            self.line.wake(filled.brought)
            self.lines.wake(filled.partitions)
        return filled

    async def _look(self) -> bool:
        """Find out whether flows wait in the log behind one that holds most of the shelf."""
        if self._hog is None:
            self._starving = False
        elif self._elapsed() >= self._look_at:
            began = monotonic()
            waiting = {count.flow for count in await self._log.flows(self.group)} | self._noted
            self._starving = bool(waiting - {self._hog})
            took = monotonic() - began
            self._look_at = self._elapsed() + max(LOOK_SECONDS, LOOK_COST * took)
        return self._starving

    # Going on from another place

    async def seek(self, start: Start, *, dry_run: bool) -> Sought:
        """Send the group elsewhere; leases are lost, and the shelves are filled from there."""
        if dry_run:
            return await self._log.seek(self.group, start, dry_run=True)
        async with self.still:
            sought = await self._log.seek(self.group, start)
            await self._go_on_as(sought.group)
        self.nudge()
        self.line.wake_all()
        self.lines.wake_all()
        return sought

    async def follow(self, group: Group) -> None:
        """Another server may have sent the group elsewhere: what is on the shelves is void then."""
        if group.sought > self.group.sought:
            async with self.still:
                await self._go_on_as(group)
            self.nudge()
            self.line.wake_all()
            self.lines.wake_all()

    async def _group_now(self) -> Group:
        """The group as the log has it, if it can be reached."""
        groups: Sequence[Group] = ()
        with suppress(Unavailable):
            groups = await self._log.groups(self.queue)
        return next((group for group in groups if group.number == self.group.number), self.group)

    async def _go_on_as(self, group: Group) -> None:
        """Nothing must move from the log to a shelf meanwhile."""
        if group.sought > self.group.sought:
            self.group = self._filler.group = group
            self._begin_anew()
            await self.tiers.follow(msgspec.structs.replace(self.shelf, sought=group.sought))

    # Settling

    async def settle(self, verdicts: Mapping[Lease, Verdict]) -> Told:
        """Record outcomes."""
        told = await self._settler.settle(verdicts)
        self._demand()
        return told

    @property
    def settler(self) -> Settler:
        """For whoever commits what it plans together with other things."""
        return self._settler

    async def conclude(self, plan: Plan, *, again: bool) -> None:
        """The log has all that was planned: so do the shelves from now on."""
        await self._settler.conclude(plan, again=again)
        self._demand()

    async def notice(self) -> None:
        """Take off the shelves what another server has settled."""
        for tier in self._begun():
            with suppress(WarmAway):
                await self._settler.notice(tier)
        self._demand()

    def _begun(self) -> list[Tier]:
        """The tiers that may hold something of ours."""
        return [tier for tier in self.tiers.all if tier.epoch is not None]

    async def tickets(self, ids: Sequence[int], since: int) -> dict[int, Ticket]:
        """Tickets for messages that are out under leases that were given out elsewhere."""
        return await self._settler.tickets(ids, since)

    def _on_freed(self, messages: int, partitions: Collection[str]) -> None:
        """Messages are off the shelf; some may have been the last of their partition that were out."""
        self._settled += messages
        self._held = max(0, self._held - messages)
        self._full = False
        for _ in partitions:
            self.line.wake(1)
        self.lines.wake(partitions)
        self._wake_cramped()

    def _wake_cramped(self) -> None:
        """There is room on the shelf: who waits for a partition of which it couldn't hold more may look."""
        cramped, self._cramped = self._cramped, {}
        self.lines.wake(cramped)

    def come_due(self, due_at: int, partitions: Collection[str] | None = None) -> None:
        """Something of these partitions (None: of any) comes back at a time; who waits for them may look."""
        self.lines.wake(partitions)
        self._came_due = min(self._came_due, due_at)
        if self._next_due_at is None or due_at < self._next_due_at:
            self._next_due_at = due_at
        self._drained = False
        if due_at > self._clock.now():
            self._arm()
        elif self.line:
            self.nudge()

    # Looking

    async def running(self, limit: int) -> list[Leased]:
        """What is out with workers, longest first."""
        found: list[Leased] = []
        for tier in self.tiers.all:
            with suppress(WarmAway):
                found.extend(await tier.warm.running(tier.shelf, limit))
        return found

    async def peek(self, count: int) -> list[Peeked]:
        """What would be handed out next, of what fits on the shelf."""
        await self._ask()
        found: list[Peeked] = []
        for tier in self.tiers.with_something():
            for parcel, places in await tier.warm.peek(tier.shelf, count - len(found)):
                found.extend(peeked_of(parcel, place, self.group.queue) for place in places)
        return found

    async def stats(self) -> list[ShelfStats]:
        """What the shelves hold, as far as they can be reached."""
        found: list[ShelfStats] = []
        for tier in self.tiers.all:
            with suppress(WarmAway):
                found.append(await tier.warm.stats(tier.shelf))
        return found

    async def extend(self, wanted: Mapping[Lease, Sequence[int]], seconds: float) -> list[int]:
        """Let leases hold for so many seconds from now; returns the ids of messages that they lost.

        Unavailable, once the others are extended, where some are leases of another server's memory: only that
        one keeps them.
        """
        elsewhere = await self._settler.leases_elsewhere(wanted)
        here = {lease: offsets for lease, offsets in wanted.items() if lease not in elsewhere}
        lost: list[int] = []
        for tier, mine in self.tiers.split(here):
            gone = set(await tier.warm.extend(tier.shelf, list(mine), seconds))
            held: Mapping[Lease, Sequence[int]] = {lease: mine[lease] for lease in mine if lease not in gone}
            if held and tier.shelf.ordered:  # what comes back takes from a lease what comes after
                held = await tier.warm.held(tier.shelf, held)
            lost.extend(lost_of(mine, held))
        self._expire_at(self._clock.now() + int(seconds * SECOND))
        if elsewhere:
            text = f"{len(elsewhere)} leases are kept by another server, and only that one can extend them"
            hint = "ask again: behind one address another server may answer; or let servers share a Valkey"
            raise Unavailable(text, hint=hint, retry_after_seconds=0.1)
        return lost

    # Time

    async def tick(self) -> None:
        """Do what is due: bring back expired leases and deferred messages, notice losses, say we live."""
        await self.tiers.check()
        await self._settler.pay()
        await self._leave_own()
        for tier in self._begun():
            with suppress(WarmAway):  # leases of our own tier expire all the same
                await self._settler.expire(tier)
        await self._give_up_when_idle()
        self._next_expiry = min(
            [at for tier in self.tiers.all if (at := await self._expiry_of(tier)) is not None], default=None
        )
        self.lines.wake_due(self._clock.now())
        self._arm()
        if self.line and self.tiers.active.warm.shared:
            self._held = 0  # what other servers took off isn't counted here: a fill finds out
        self.nudge()
        # On a shared shelf another server may have released something, or freed a partition.
        self.line.wake_next()
        self._let_some_look()
        await self._rest()

    def _may_rest(self) -> bool:
        """Whether nobody asks, and nothing is under way."""
        if self._takes or self.is_waited_for or self._filling is not None or self._jobs:
            return False
        if self.still.locked():
            return False
        idle = self._elapsed() - max(self._used_at, self._asked_at) > IDLE_SECONDS
        return idle and not self._settler.owes and not self._closed

    async def _rest(self) -> None:
        """Let go of shelves that are empty when nobody has asked for long: many queues are idle most days."""
        self._rests = False
        if not self._may_rest():
            return
        with suppress(WarmAway):
            for tier in self._begun():
                if tier.doubt or (await tier.warm.stats(tier.shelf)).flows:
                    return
            if self._may_rest():
                await self.tiers.own.rest()
                self._rests = True

    def _let_some_look(self) -> None:
        """Let some who wait for a partition look what other servers did; how many, depends on the time."""
        now = self._elapsed()
        takers = int((now - self._looked_at) * LOOKS_A_SECOND)
        if takers > 0:
            self._looked_at = now
            self.lines.wake_some(min(takers, LOOKS_MAX))

    def look_anew(self) -> None:
        """Ask the log again about everything, the next time."""
        if self._next_due_at == NO_TIME:
            self._next_due_at = None  # another server may have deferred something

    def owners(self) -> list[str]:
        """The owners under which the log holds what is in use here."""
        tiers = dict.fromkeys([self.tiers.active, self.tiers.own])
        return [tier.owner(tier.epoch) for tier in tiers if tier.epoch is not None]

    async def _expiry_of(self, tier: Tier) -> int | None:
        try:
            return await tier.warm.next_expiry(tier.shelf)
        except WarmAway:
            return None

    async def _leave_own(self) -> None:
        """Give back what our own tier holds and nobody has, once the shared tier is filled again.

        Nothing is brought to it any more, so what is only noted would stay there, and who asks another server
        would never get the rest. It is left for good when nothing of it is out.
        """
        if not self.tiers.is_own_left():
            return
        own, warm = self.tiers.own, self.tiers.own_warm
        async with self.still:
            given = await self._filler.empty(own, warm) if self.tiers.is_own_left() else 0
            if self.tiers.is_own_left() and await warm.is_empty(own.shelf):
                await own.close()
        if given:
            self.come_due(self._clock.now())

    async def _give_up_when_idle(self) -> None:
        """Give back what is ready when nobody has asked for long: another server may have the workers."""
        if self.line or self._is_asked() or self.tiers.own.epoch is None or self._filling is not None:
            return
        if self.still.locked():
            return
        # Nothing is awaited for long until the shelf is empty, so nobody takes anything in between.
        flows = (await self.tiers.own.warm.stats(self.tiers.own.shelf)).flows
        if flows and not any(count.leased for count in flows):
            if self.tiers.active is self.tiers.own:
                self._held = 0
            await self.tiers.own.renew()
            self.come_due(self._clock.now())

    def _expire_at(self, deadline: int) -> None:
        """Something expires at a time."""
        if self._next_expiry is None or deadline < self._next_expiry:
            self._next_expiry = deadline
            self._arm()

    def _arm(self) -> None:
        """Wake up when the next thing is due."""
        wanted = self.line or self._is_asked()
        if self.is_paused or not self._has_room():
            wanted = False  # who resumes it, or makes room, looks for what is due
        times = (self._next_due_at if wanted else None, self._next_expiry, self.lines.next_due_at)
        at = min([t for t in times if t is not None], default=None)
        if at is not None and at != NO_TIME:
            seconds = (at - self._clock.now()) / SECOND
            self._call_later(max(SOON_SECONDS, seconds) if seconds > 0 else OVERDUE_SECONDS)

    def _is_asked(self) -> bool:
        return self._elapsed() - self._asked_at <= IDLE_SECONDS

    def _call_later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = loop.call_later(min(seconds, 3600.0), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._closed:
            self._spawn(self.tick())

    # Loss

    def _begin_anew(self) -> None:
        """The shelf is empty, and what was on it comes back from the log."""
        self._held, self._next_due_at, self._next_expiry = 0, None, None
        self._drained = self._full = False
        self.mode = Mode.WARM
        self.lines.wake(None)

    async def close(self) -> None:
        """Stop, and give back what this process holds. Whoever waits gets nothing."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.line.wake_all()
        self.lines.wake_all()
        tasks = [*self._jobs, *([self._filling] if self._filling else [])]
        await asyncio.gather(*tasks, return_exceptions=True)
        for tier in self.tiers.all:
            await tier.close()

    def _spawn(self, job: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await job
            except (Unavailable, EpochLost):
                self._call_later(1.0)

        self._start(run())

    def _start(self, job: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task


def _first_of_partitions(tasks: Sequence[Task]) -> dict[str, int]:
    """The lowest id of each partition."""
    found: dict[str, int] = {}
    for task in tasks:
        found[task.partition] = min(task.id, found.get(task.partition, task.id))
    return found


def _joined(tasks: Sequence[Task], more: Sequence[Task]) -> list[Task]:
    """Tasks and more of them; where the tier was lost in between, some came again."""
    again = {task.id for task in more}
    return [task for task in tasks if task.id not in again] + list(more)
