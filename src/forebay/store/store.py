"""LogStore: queues whose messages are handed to workers under leases, on any log and any warm tier.

Invariants: what is put is in the log before the call returns; what is settled is in the log before the
call returns; a task has one live lease; settling with a lease that is lost is a conflict, and changes
nothing. Everything that is bounded by a queue's settings is bounded per group. It is long because it holds
the whole seam in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from os import getpid
from socket import gethostname
from time import monotonic
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeVar

import msgspec

from forebay.log.seam import Log
from forebay.log.values import (
    Append,
    Appended,
    DeadLetter,
    Durable,
    Group,
    Queue,
    Receipt,
    Record,
    RejectedRow,
    Sought,
    Start,
    Stats,
    StoredBlock,
    Trimmed,
)
from forebay.model import (
    Block,
    Clock,
    LeaseLost,
    Message,
    Rejected,
    SystemClock,
    Unavailable,
    UnknownGroup,
    UnknownQueue,
    cancel,
    queue_of,
)
from forebay.store.announcements import Announcements
from forebay.store.asking import (
    addressed,
    check_ordered,
    checked_begin,
    checked_count,
    checked_partitions,
    checked_seconds,
    raise_for_lost,
)
from forebay.store.by_hand import ByHand
from forebay.store.counting import (
    OldestIds,
    count_flows,
    count_tasks,
    idle_group,
    list_running,
    oldest_warm,
)
from forebay.store.delays import Delays
from forebay.store.letters import PAGE, Letters, change, select
from forebay.store.lookups import QueueLookups
from forebay.store.picking import picked
from forebay.store.plans import Told
from forebay.store.process import SpoolPlace, process_name, spool_folder
from forebay.store.rounds import Rounds
from forebay.store.settling import Ballot
from forebay.store.tail import Tails
from forebay.store.tickets import as_retry, check_apart, check_once, check_reason
from forebay.store.tiers import SECOND
from forebay.store.transacting import Transaction
from forebay.store.values import (
    DEFAULT_GROUP,
    Burial,
    FlowStat,
    FlowStats,
    GroupState,
    Peeked,
    Purged,
    Retry,
    Running,
    StoreStats,
    Task,
    Ticket,
    Whereabouts,
)
from forebay.store.waiting import Source, in_turn, names_of, take
from forebay.store.watching import Watch
from forebay.store.whereabouts import is_of, look
from forebay.store.window import Window
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import Warm, WarmAway
from forebay.warm.values import Lease, Leased, Shelf

T = TypeVar("T")

PAGE_QUEUES: Final = 1_000
"""Queues that are counted in one go."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can be told; a queue's own settings come first."""

    in_memory_queue_size: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    """Messages of a group in the warm tier at most."""
    in_memory_queue_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 64 << 20
    """The same in bytes of payload."""
    tail_bytes: Annotated[int, msgspec.Meta(ge=0)] = 8 << 20
    """Bytes of newly put blocks that are kept for workers that wait, per queue."""
    tail_bytes_total: Annotated[int, msgspec.Meta(ge=0)] = 64 << 20
    """The same for all queues together."""


class LogStore:
    """See the module. Opened with `async with`; the log and the tier are opened with it.

    `worker` is who takes tasks, for people; `name` is who holds claims, for the log: this process. `spool` is
    the spool that stands before the log, if there is one.
    """

    def __init__(
        self,
        log: Log,
        warm: Warm | None = None,
        *,
        clock: Clock | None = None,
        settings: StoreSettings | None = None,
        worker: str | None = None,
        name: str | None = None,
        spool: SpoolPlace | None = None,
    ) -> None:
        self.log = log
        self.settings = settings or StoreSettings()
        self._name = name or process_name("" if spool is None else spool.identity)
        self._worker = worker or f"{gethostname()}:{getpid()}"
        self._clock = clock or SystemClock()
        self._elapsed = monotonic if clock is None else lambda: clock.now() / SECOND
        self._own = MemoryWarm(self._name, clock=clock)
        self._shared = warm
        self._announcements = None if warm is None else Announcements(warm)
        self._queues: dict[str, Queue] = {}
        self._lookups = QueueLookups(log, self._elapsed)
        self._windows: dict[tuple[int, str], Window] = {}
        self._by_group: dict[int, Window] = {}
        self._by_queue: dict[int, dict[int, Window]] = {}
        """Windows by queue and group: what is pushed to a queue costs nothing for the others."""
        self._tails = Tails(self.settings.tail_bytes, self.settings.tail_bytes_total)
        self._rounds = Rounds(log, self._name, self._windows, self, shared=warm is not None, spool=spool)
        self._watch = Watch(log)
        self._delays = Delays(self._clock, self._elapsed, lambda id, group: self.hasten(id, group=group))
        self._ticker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.log.__aenter__()
        try:
            if self._shared is not None:
                await self._shared.__aenter__()
                self._shared.listen(self._heard)
            await self._rounds.begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._ticker = asyncio.get_running_loop().create_task(self._rounds.run())
        if self._shared is None:  # where they share a tier, servers tell each other
            self._watcher = asyncio.get_running_loop().create_task(self._watch.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await cancel(self._ticker, self._watcher)
        if self._announcements is not None:
            await self._announcements.close()
        for window in self._windows.values():
            await window.close()
        self._windows.clear()
        self._by_group.clear()
        self._by_queue.clear()
        if self._shared is not None:
            await self._shared.__aexit__(kind, error, trace)
        await self.log.__aexit__(kind, error, trace)

    @property
    def has_shared_tier(self) -> bool:
        """Whether other servers use the warm tier, too."""
        return self._shared is not None

    @property
    def warm_problem(self) -> str | None:
        """Why the shared warm tier can't be reached; None while it can, and where there is none."""
        return None if self._shared is None else self._shared.problem

    @property
    def clock(self) -> Clock:
        """What times are told by."""
        return self._clock

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        """Make a queue with its group `workers`, or return the one of that name as it is."""
        queue = await self.log.create_queue(name, settings, number=number)
        await self.log.create_group(queue, DEFAULT_GROUP)
        await self._renew(queue)
        self._lookups.note(name)
        return queue

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        """Change settings of a queue; what isn't named keeps its value."""
        queue = await self.log.configure_queue(name, settings)
        await self._renew(queue)
        self._lookups.note(name)
        return queue

    async def pause(self, name: str) -> Queue:
        """Hand out nothing more of a queue until it is resumed; pushes and settling go on."""
        return await self.configure_queue(name, {"paused": True})

    async def resume(self, name: str) -> Queue:
        """Hand out again."""
        return await self.configure_queue(name, {"paused": False})

    async def queue(self, name: str) -> Queue:
        """The queue of that name, as the log has it now."""
        return await self._look_up(name)

    async def known_queue(self, name: str) -> Queue:
        """The queue of that name as the log had it a moment ago; while that is away, as it was last known."""
        return await self._queue(name)

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        """Queues by number: all, those of `numbers`, or up to `limit` from the first past `after` on."""
        return await self.log.queues(numbers=numbers, after=after, limit=limit)

    async def delete_queue(self, name: str) -> bool:
        """Remove a queue with all that is in it."""
        queue = self._queues.pop(name, None)
        if queue is None:
            return await self.log.delete_queue(name)
        await self._drop_queue(queue.number)
        try:
            return await self.log.delete_queue(name)
        finally:  # whoever waited has opened it again meanwhile
            self._queues.pop(name, None)
            self._lookups.forget(name)
            await self._drop_queue(queue.number)

    async def create_group(self, queue: str, name: str, start: Start = "earliest") -> Group:
        """Make a group with its own view of a queue, or return the one of that name."""
        return await self.log.create_group(await self._queue(queue), name, start)

    async def groups(self, queue: str) -> list[Group]:
        """The groups of a queue."""
        return await self.log.groups(await self._queue(queue))

    async def seek(self, queue: str, group: str, start: Start) -> Purged:
        """Go on from another place: what comes after it is handed out (again), what is before it is skipped.

        Leases of the group are lost; its dead letters stay.
        """
        return await self._seek(queue, [group], start, dry_run=False)

    async def purge_queue(self, name: str, *, group: str | None = None, dry_run: bool = False) -> Purged:
        """Skip all that waits, is delayed or is out with a worker, in one group or in all; pushes go on.

        Its dead letters stay. With `dry_run` nothing is changed. It can't be undone, but `seek` brings back
        what the log still keeps.
        """
        held = await self._queue(name)
        groups = [g.name for g in await self.log.groups(held)] if group is None else [group]
        return await self._seek(name, groups, "latest", dry_run=dry_run)

    async def _seek(self, queue: str, groups: Sequence[str], start: Start, *, dry_run: bool) -> Purged:
        found: dict[str, Sought] = {}
        for name in groups:
            found[name] = await self._with_window(
                queue, name, lambda window: window.seek(start, dry_run=dry_run)
            )
        if not dry_run:
            await self.announce((await self._queue(queue)).number)
        skipped = {name: sought.skipped for name, sought in found.items()}
        return Purged(skipped, {name: sought.again for name, sought in found.items()}, dry_run)

    async def delete_group(self, queue: str, name: str) -> bool:
        """Remove a group."""
        held = await self._queue(queue)
        group = next((group for group in await self.log.groups(held) if group.name == name), None)
        if (window := self._windows.get((held.number, name))) is not None:
            await self._drop(window)
        if group is None:
            return False
        try:
            return await self.log.delete_group(group)
        finally:  # whoever waited has opened it again meanwhile
            if (window := self._by_group.get(group.number)) is not None:
                await self._drop(window)

    # The five verbs, and those beside them

    async def put_task(
        self,
        queue: str,
        *tasks: bytes | Message,
        partition: str = "",
        headers: dict[str, str] | None = None,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        id: bytes | None = None,
    ) -> list[int]:
        """Put tasks in a queue, all or none; their ids, in order. Durable when it returns.

        They become available at once, at `start_time` (µs, or aware), or after `delay` (seconds). What is
        said here holds for tasks given as bytes; a `Message` says it itself. `id` (16 bytes, see `mint`)
        makes the call repeatable.
        """
        held = await self._known(queue)
        begins = self._start_time(start_time, delay)
        messages = addressed(tasks, partition, headers, begins)
        block = Block.of(messages, id=id, created_at=self._clock.now())
        return (await self._append(held, Append.of(held, block))).ids()

    async def append(
        self, queue: str, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> Appended:
        """Put a whole block; where its messages are, and which of them were there before.

        Whoever has the block encoded and checked gives it as `body`. One that is `replayed` was accepted at
        its `created_at` and waited since then: its transaction ids are compared with those of that time.
        """
        held = await self._known(queue)
        append = Append(held.number, block, body or None, replayed=replayed)
        return await self._append(held, append)

    async def _append(self, queue: Queue, append: Append) -> Appended:
        try:
            receipt = await self.log.commit([append])
        except UnknownQueue:
            queue = await self._look_up(queue.name)  # another server deleted it, and perhaps made it anew
            receipt = await self.log.commit([append])
        (appended,) = receipt.appended
        self._remember(append, appended)
        await self.announce(append.queue, append.block.partition_table if queue.settings.ordered else None)
        return appended

    def _remember(self, append: Append, appended: Appended) -> None:
        """Keep a new block for workers that wait."""
        if appended.count == len(append.block) and not appended.known:
            self._tails.add(append.queue, appended.first, append.block)

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        """Tell whoever waits, here and elsewhere, that something new is in the log.

        In these partitions, where they are known and matter: in an ordered queue.
        """
        for window in self._windows_of(queue):
            window.hear(filled=False, partitions=partitions)
        if self._announcements is not None:
            self._announcements.add(queue, partitions)

    async def get_task(
        self,
        queue: str | Sequence[str],
        count: int = 1,
        *,
        group: str = DEFAULT_GROUP,
        worker: str | None = None,
        wait_seconds: float = 0.0,
        visibility_seconds: float | None = None,
        partition: str | None = None,
        partitions_max: int | None = None,
    ) -> list[Task]:
        """Take up to `count` tasks; nobody else gets them until the visibility timeout.

        Waits up to `wait_seconds` for the first one. The timeout is the queue's unless it is given here. Of
        several queues, those that are named take turns in being asked first.

        Ordered queues: `partition` names the only one to take from; while it is out with another worker of
        the group there is nothing. `partitions_max` is from how many they come at most; of those, as many as
        there are.
        """
        checked_count(count)
        asked = checked_seconds(visibility_seconds)
        names = checked_partitions(names_of(queue), partition, partitions_max)
        until = self._elapsed() + wait_seconds
        get = partial(
            self._get,
            names,
            group=group,
            count=count,
            worker=worker,
            asked=asked,
            partition=partition,
            partitions_max=partitions_max,
        )
        try:
            return await get(wait_seconds)
        except (UnknownGroup, UnknownQueue):  # another server deleted it, and perhaps made it anew
            for name in names:
                self._lookups.forget(name)
            return await get(max(0.0, until - self._elapsed()))

    async def _get(
        self,
        names: Sequence[str],
        wait_seconds: float,
        *,
        group: str,
        count: int,
        worker: str | None,
        asked: float | None,
        partition: str | None,
        partitions_max: int | None,
    ) -> list[Task]:
        windows = in_turn([await self._window(name, group) for name in names])
        for window in windows:
            check_ordered(window.queue, partition, partitions_max)
        seconds = [asked or w.queue.settings.visibility_seconds for w in windows]
        with picked(windows, partition, partitions_max) as sources:
            return await self._take(windows, zip(sources, seconds, strict=True), count, worker, wait_seconds)

    async def _take(
        self,
        windows: Sequence[Window],
        sources: Iterable[tuple[Source, float]],
        count: int,
        worker: str | None,
        wait_seconds: float,
    ) -> list[Task]:
        watched = self._watch.needed(windows) if wait_seconds > 0 else nullcontext()
        try:
            with watched, ExitStack() as used:
                for window in windows:
                    used.enter_context(window.in_use())
                return await take(list(sources), count, worker or self._worker, wait_seconds)
        except UnknownGroup:
            await self._drop_deleted(windows)
            raise

    async def _drop_deleted(self, windows: Sequence[Window]) -> None:
        """Forget groups that another server deleted; if it made them anew, the next call finds them."""
        for window in windows:
            groups = await self.log.groups(window.queue)
            if window.group.number not in {group.number for group in groups}:
                await self._drop(window)

    async def done_task(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks are done. LeaseLost names those that were no longer yours; the others are done.

        Returns where that is known: see `settle`.
        """
        return await self.settle(done=tasks)

    async def retry_task(
        self,
        tasks: Iterable[Task | Ticket | Retry],
        *,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        reason: str = "",
    ) -> Durable:
        """Tasks come back: at the time of a `Retry`, at `start_time`, after `delay`, or else at once.

        `reason` says why, where a `Retry` doesn't. In an ordered queue that ends the leases of what comes
        after them in their partitions: it comes back with them, and counts no attempt.
        """
        begins, seconds = checked_begin(start_time, delay)
        begins = self._clock.now() if begins is None else begins
        return await self.settle(retry=[as_retry(task, begins, seconds, reason) for task in tasks])

    async def bury(self, tasks: Iterable[Task | Ticket], reason: str) -> Durable:
        """Tasks become dead letters."""
        return await self.settle(bury=tasks, reason=reason)

    async def release(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks go back unused, and count no attempt; in an ordered queue see `retry_task`."""
        return await self.settle(release=tasks)

    async def extend(self, tasks: Iterable[Task | Ticket], seconds: float | None = None) -> None:
        """Keep tasks for so many seconds from now (else for the visibility timeout).

        Tasks that were taken together share a lease where they come from one block, and are extended
        together. LeaseLost names those that are no longer yours.
        """
        asked = checked_seconds(seconds)
        ballot = Ballot(self._worker)
        ballot.done(tasks)
        lost: list[int] = []
        for number, mine in ballot.verdicts.items():
            window = self._by_group.get(number) or await self._window_of(number, next(iter(mine)))
            wanted = {lease: verdict.done for lease, verdict in mine.items()}
            lost += await window.extend(wanted, asked or window.queue.settings.visibility_seconds)
        raise_for_lost(lost)

    async def settle(
        self,
        *,
        done: Iterable[Task | Ticket] = (),
        retry: Iterable[Retry] = (),
        bury: Iterable[Task | Ticket | Burial] = (),
        release: Iterable[Task | Ticket] = (),
        reason: str = "",
        code: int = 0,
    ) -> Durable:
        """Several outcomes in one write. LeaseLost names the tasks that came too late; the others stand.

        What is buried has the reason given here, unless it is a `Burial` with one of its own. In an ordered
        queue what comes back ends the leases of what comes after it in its partition; so a task that is done
        or buried past one that comes back by the same call is too late. `code` is kept with the outcomes: the
        status of an HTTP answer, for instance.

        Returns where the outcomes are: in the log, and final; or, while the log is away, in the spool of the
        server. From there they come to the log before their tasks are given to others, unless that server is
        cut off, or down, for 30 seconds.
        """
        ballot = Ballot(self._worker, code)
        done, retry, bury, release = list(done), self._timed(retry), list(bury), list(release)
        ballot.done(done)
        for item in retry:
            ballot.retry(item)
        for task in bury:
            ballot.bury(task, reason)
        ballot.release(release)
        buried = [item.task if isinstance(item, Burial) else item for item in bury]
        check_apart(done, [item.task for item in retry], buried, release)
        told = Told()
        for number, mine in ballot.verdicts.items():
            window = self._by_group.get(number) or await self._window_of(number, next(iter(mine)))
            told.add(await window.settle(mine))
            if retry or release:
                self._note_delays(window, retry, release)
        raise_for_lost(told.lost, told.where)
        return told.where

    async def transact(
        self,
        puts: Sequence[tuple[str, Block]] = (),
        *,
        done: Iterable[Task | Ticket] = (),
        retry: Iterable[Retry] = (),
        bury: Iterable[Burial] = (),
        records: Sequence[Record] = (),
        id: bytes | None = None,
    ) -> list[Appended]:
        """Put blocks, settle tasks and keep records, of any queues and groups: all in one write, or nothing.

        Where the blocks are now, and which of their messages were there before. LeaseLost names the tasks
        that came too late: nothing was changed then, and the others are still the caller's. After
        `Unavailable` nobody knows whether it happened. `id` (16 bytes, see `mint`) makes the call
        repeatable, with the same tasks, and blocks of the same ids.
        """
        ballot, tasks = Ballot(self._worker), list(done)
        ballot.done(tasks)
        retry = self._timed(retry)
        for item in retry:
            ballot.retry(item)
            tasks.append(item.task)
        for burial in bury:
            ballot.bury(burial)
            tasks.append(burial.task)
        check_once(tasks)
        appends = [Append.of(await self._known(name), block) for name, block in puts]
        transaction = Transaction(self.log, appends, records, id)
        for number, mine in ballot.verdicts.items():
            window = self._by_group.get(number) or await self._window_of(number, next(iter(mine)))
            transaction.add(window, await window.settler.plan(mine))
        receipt = await transaction.commit()
        for number in ballot.verdicts:
            if (used := self._by_group.get(number)) is not None:
                self._note_delays(used, retry, ())
        for append, appended in zip(appends, receipt.appended, strict=True):
            self._remember(append, appended)
        for queue in {append.queue for append in appends}:
            await self.announce(queue)
        return list(receipt.appended)

    async def tickets(self, queue: str, group: str, ids: Sequence[int], *, since: int) -> dict[int, Ticket]:
        """Tickets for messages that are out with workers under leases that this process doesn't know.

        Another server gave them out, or the one before a restart. `since` (µs) is when the lease in question
        was given out: a message that came back after that isn't found. (One that was released unused, in an
        unordered queue, didn't come back.) A ticket settles by `settle` and `transact` of this very store, as
        long as nobody else has settled it. It can't be extended, and in an unordered queue not be released:
        only who gave out a lease can do that.
        The server that handed a message out notices when its lease expires, if not before; until then a
        partition of an ordered queue is out there.
        """
        return await self._with_window(queue, group, lambda window: window.tickets(ids, since))

    # Dead letters

    async def dead_letters(
        self, queue: str, *, group: str = DEFAULT_GROUP, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """What was given up, by message id, from the first id past `after` on."""
        return await self._with_window(
            queue, group, lambda window: self.log.dead_letters(window.group, after=after, limit=limit)
        )

    async def redrive(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Hand dead letters out again, as on their first day: those named, or all of the group.

        `reason` leaves only those whose reason contains it. With `dry_run` nothing is changed.
        """

        async def redrive(window: Window) -> Letters:
            pages = select(self.log, window.group, ids, reason)
            letters = await change(pages, partial(self.log.redrive, window.group), dry_run=dry_run)
            if letters and not dry_run:
                window.come_due(self._clock.now())
            return letters

        return await self._with_window(queue, group, redrive)

    async def purge(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Do away with dead letters: those named, or all of the group; see `redrive`."""

        async def purge(window: Window) -> Letters:
            pages = select(self.log, window.group, ids, reason)
            return await change(pages, partial(self.log.purge, window.group), dry_run=dry_run)

        return await self._with_window(queue, group, purge)

    async def undo(self, queue: str, letters: Letters, *, group: str = DEFAULT_GROUP) -> Letters:
        """Undo a redrive or a purge; returns the letters that are dead letters again.

        What was redriven and is no longer in the log alone, but ready or with a worker, stays as it is.
        """

        async def undo(window: Window) -> Letters:
            changed: list[int] = []
            for begin in range(0, len(letters.ids), PAGE):
                changed.extend(await self.log.restore(window.group, letters.ids[begin : begin + PAGE]))
            return Letters(changed)

        return await self._with_window(queue, group, undo)

    # By hand

    async def bury_message(self, id: int, reason: str, *, group: str = DEFAULT_GROUP) -> bool:
        """Make one message a dead letter, wherever it is; False when it is finished, or dead already.

        If it is out with a worker, his lease ends. In an ordered queue so may those of others of its
        partition, which are handed out again then: see `forebay.store.by_hand`, also for what it costs.
        """
        found = await self.log.find(id)

        async def bury(window: Window) -> bool:
            for ticket in await self._tickets_of(found.queue, window, id):
                with suppress(LeaseLost):
                    await self.settle(bury=[Burial(ticket, reason)])
                    return True
            buried = await self._by_hand(found.queue, window).bury(id, check_reason(reason))
            await self._look_again(window)
            return buried

        return await self._with_window(found.queue.name, group, bury)

    async def hasten(self, id: int, *, group: str = DEFAULT_GROUP) -> bool:
        """Let a message come now that is delayed, after those before it in its partition; whether it does."""
        found = await self.log.find(id)

        async def hasten(window: Window) -> bool:
            comes = await self._by_hand(found.queue, window).hasten(id)
            await self._look_again(window)
            return comes

        return await self._with_window(found.queue.name, group, hasten)

    async def skip_partition(self, queue: str, partition: str, *, group: str = DEFAULT_GROUP) -> int:
        """Do without all that an ordered queue has in a partition; how many messages, which count as expired.

        Those that come later are handed out. Leases of the partition are lost. Costs by its blocks.
        """

        async def skip(window: Window) -> int:
            if not window.queue.settings.ordered:
                text = f"queue {queue!r} has no order of its own, so it has no partitions to skip"
                raise Rejected(text, hint="skip the whole queue with purge_queue")
            skipped = await self._by_hand(window.queue, window).skip(partition)
            await self._look_again(window)
            return skipped

        return await self._with_window(queue, group, skip)

    def _by_hand(self, queue: Queue, window: Window) -> ByHand:
        return ByHand(self.log, self._clock, queue, window.group, self._name)

    async def _tickets_of(self, queue: Queue, window: Window, id: int) -> list[Ticket]:
        """What it takes to settle a message that is out, by this process or another; the better one first."""
        leases = [piece.lease for piece in await self._out(queue, window.group) if is_of(piece, id)]
        elsewhere = await window.tickets([id], self._clock.now())
        return [*(Ticket(id, lease) for lease in leases), *elsewhere.values()]

    async def _look_again(self, window: Window) -> None:
        """Something went back to the log."""
        window.come_due(self._clock.now())
        await self.announce(window.group.queue)

    # Looking

    async def get_stat(
        self, *, queue: str | None = None, after: int = 0, limit: int | None = None
    ) -> StoreStats:
        """Where the tasks of queues are.

        A task whose start time is to come is delayed. In an ordered queue those behind it in its partition
        count as ready until their turn comes, and then as delayed.
        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        return count_tasks(await self.ledger(queue=queue, after=after, limit=limit))

    async def ledger(self, *, queue: str | None = None, after: int = 0, limit: int | None = None) -> Stats:
        """The books of queues and their groups: each must add up to what was accepted.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        if queue is not None:
            found = await self.log.stats(numbers=[(await self._queue(queue)).number])
            if not found.queues:
                await self.log.queue(queue)  # another server deleted it: says so
            return found
        if limit is not None:
            return await self._books(after, limit)
        pages = [await self._books(after, PAGE_QUEUES)]
        while (upto := pages[-1].next) is not None:  # others have their turn in between
            pages.append(await self._books(upto, PAGE_QUEUES))
        return Stats(pages[0].at, [books for page in pages for books in page.queues])

    async def _books(self, after: int, limit: int) -> Stats:
        found = await self.log.stats(after=after, limit=limit)
        more = len(found.queues) == limit
        return Stats(found.at, found.queues, found.queues[-1].queue.number if more else None)

    async def peek(self, queue: str, count: int = 10, *, group: str = DEFAULT_GROUP) -> list[Peeked]:
        """Look at what would be handed out next, without taking it."""
        checked_count(count)
        return await self._with_window(queue, group, lambda window: window.peek(count))

    async def where(self, id: int) -> Whereabouts:
        """The whole path of one message: its block, and for every group where it is and what happened."""
        return await look(self.log, self._out, id)

    async def leased(self, queue: str, group: str) -> Sequence[Leased]:
        """All that is out with workers of a group, as far as this process can know."""
        held = await self._queue(queue)
        found = [one for one in await self.log.groups(held) if one.name == group]
        return await self._out(held, found[0]) if found else ()

    async def _out(self, queue: Queue, group: Group, limit: int | None = None) -> Sequence[Leased]:
        """What is out with workers of a group, longest first, as far as this process can know."""
        shelf, window = self._shelf(queue, group), self._windows.get((queue.number, group.name))
        if window is not None:
            return await window.running(limit or shelf.messages_max)
        if self._shared is not None:
            with suppress(WarmAway):
                return await self._shared.running(shelf, limit or shelf.messages_max)
        return ()

    async def flow_stats(
        self,
        *,
        queue: str | None = None,
        after: int = 0,
        limit: int | None = None,
        books: Stats | None = None,
    ) -> FlowStats:
        """What waits, warm and cold, by queue, group and flow. Costs by blocks, never by messages.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page. `books` are those of the same queues, where the caller
        has just read them.
        """
        at, flows, states = self._clock.now(), list[FlowStat](), list[GroupState]()
        stats = await self.ledger(queue=queue, after=after, limit=limit) if books is None else books
        for each in stats.queues:
            for found in each.groups:
                window = self._windows.get((each.queue.number, found.group.name))
                shelf = self._shelf(each.queue, found.group)
                if window is None and not (found.ready or found.held or found.deferred):
                    states.append(idle_group(each.queue, found.group, shelf))
                    continue
                rows, state = await count_flows(
                    self.log, each.queue, found, shelf, window, shared=self._shared
                )
                flows.extend(rows)
                states.append(state)
        return FlowStats(at, flows, states, stats.next)

    async def oldest_warm(self) -> OldestIds:
        """The oldest message of each flow that is ready in the warm tiers of this process."""
        found: OldestIds = {}
        for window in list(self._windows.values()):
            tiers = [(tier.warm, tier.shelf) for tier in window.tiers.all]
            found |= await oldest_warm(window.queue, window.group, tiers)
        return found

    async def has_neighbours(self) -> bool:
        """Whether other servers have tiers of their own, of which `running` lists nothing."""
        if self._shared is not None:
            return False
        names = [owner.name for owner in await self.log.owners()]
        return any(not name.startswith(self._name) and spool_folder(name) is None for name in names)

    async def running(self, limit: int = 100) -> list[Running]:
        """Tasks out with workers, longest first; of this process alone where servers share no tier."""
        groups = [(window.queue, window.group) for window in self._windows.values()]
        if self._shared is not None:  # other servers' workers too
            stats = await self.ledger()
            groups = [(books.queue, g.group) for books in stats.queues for g in books.groups if g.held]
        return list_running([(*one, await self._out(*one, limit)) for one in groups], limit)

    # Whole blocks, for programs that move many at once

    async def read(
        self, queue: str, first: int = 1, *, messages_max: int = 10_000, bytes_max: int = 64 << 20
    ) -> list[StoredBlock]:
        """Blocks as they are stored, from the one that holds sequence number `first` on."""
        return await self.log.read(await self._queue(queue), first, messages=messages_max, bytes=bytes_max)

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        """Keep blocks under a name, unseen, until `publish`. Idempotent by block id."""
        await self.log.stage(stage, appends)

    async def publish(self, stage: str, ids: Sequence[bytes]) -> Receipt:
        """Append the staged blocks of these ids, in this order, at once, and forget the rest of the stage."""
        receipt = await self.log.publish(stage, ids)
        for number in {queue_of(appended.first) for appended in receipt.appended}:
            await self.announce(number)
        return receipt

    # Upkeep

    async def sweep(self) -> int:
        """Move messages that users left in the log's inbox into blocks; how many there were."""
        swept = await self.log.sweep()
        if swept:
            for queue in list(self._by_queue):
                await self.announce(queue)
        return swept

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """Rows of the SQL inbox that no block can hold, in the order of their ids, from beyond `after` on."""
        return await self.log.inbox_rejected(after, limit)

    async def trim(self) -> Trimmed:
        """Drop what retention no longer holds."""
        return await self.log.trim()

    # Time

    async def tick(self) -> None:
        """Do what is due now. Happens by itself; tests with a clock of their own call it."""
        await self.keep_time()
        for window in list(self._windows.values()):
            await window.tick()
            await self.put_away(window)

    # Look-ups

    async def _known(self, name: str) -> Queue:
        """The queue as it was last known: the log itself refuses a write to one that is gone."""
        return self._queues.get(name) or await self._look_up(name)

    async def _queue(self, name: str) -> Queue:
        """The queue as the log had it a moment ago."""
        held = self._queues.get(name)
        return held if held is not None and self._lookups.is_recent(name) else await self._look_up(name)

    async def _look_up(self, name: str) -> Queue:
        """The queue as the log has it now, or as it was last known while the log is away."""
        try:
            queue, is_newest = await self._lookups.read(name)
        except UnknownQueue:
            if (gone := self._queues.pop(name, None)) is not None:
                await self._drop_queue(gone.number)
            raise
        except Unavailable:
            if (known := self._queues.get(name)) is None:
                raise
            return known
        if is_newest or name not in self._queues:
            await self._renew(queue)
        return self._queues.get(name, queue)

    async def _renew(self, queue: Queue) -> None:
        """Go on with a queue as the log has it; one that was made anew has none of its former groups."""
        before = self._queues.get(queue.name)
        if before is not None and before.created_at != queue.created_at:
            await self._drop_queue(queue.number)
        if before != queue:
            self.adopt(queue)

    async def _window(self, queue: str, group: str) -> Window:
        held = await self._queue(queue)
        window = self._windows.get((held.number, group))
        if window is not None:
            window.touch()
            return window
        async with self._opening:
            window = self._windows.get((held.number, group))
            return window or await self._open_window(held, group)

    async def _with_window(self, queue: str, group: str, verb: Callable[[Window], Awaitable[T]]) -> T:
        """Do something with a group; once more where another server deleted it, and made it anew."""
        window = await self._window(queue, group)
        try:
            return await verb(window)
        except UnknownGroup:
            await self._drop_deleted([window])
            return await verb(await self._window(queue, group))

    async def _open_window(self, queue: Queue, name: str) -> Window:
        groups = await self.log.groups(queue)
        group = next((g for g in groups if g.name == name), None)
        if group is None and name == DEFAULT_GROUP:
            group = await self.log.create_group(queue, name)
        if group is None:
            text = f"queue {queue.name!r} has no group {name!r}"
            raise UnknownGroup(text, hint="create it with create_group, and say where it starts")
        shelf = self._shelf(queue, group)
        window = Window(
            self.log,
            self._clock,
            queue,
            group,
            shelf=shelf,
            tail=self._tails.of(queue.number),
            own=self._own,
            shared=self._shared,
            elapsed=self._elapsed,
        )
        self._windows[queue.number, name] = self._by_group[group.number] = window
        self._by_queue.setdefault(queue.number, {})[group.number] = window
        if self._shared is not None:
            await window.tick()  # leases that expired while nobody looked
        return window

    async def _window_of(self, number: int, lease: Lease) -> Window:
        """The window of a lease that was taken elsewhere."""
        for queue in await self.log.queues(numbers=[queue_of(lease.first)]):
            for group in await self.log.groups(queue):
                if group.number == number:
                    return await self._window(queue.name, group.name)
        raise UnknownGroup(f"there is no group {number}", hint="it was deleted, and its tasks with it")

    def _shelf(self, queue: Queue, group: Group) -> Shelf:
        settings = queue.settings
        return Shelf(
            queue.number,
            group.number,
            f"{queue.name}/{group.name}",
            settings.in_memory_queue_size or self.settings.in_memory_queue_size,
            settings.in_memory_queue_bytes or self.settings.in_memory_queue_bytes,
            settings.ordered,
            group.sought,
        )

    def queues_in_use(self) -> set[int]:
        """The queues with windows; what other servers do to others is noticed when they are asked for."""
        return set(self._by_queue)

    def group_names(self) -> dict[int, tuple[str, str]]:
        """The queue and the name of each group that this process works on, by its number."""
        return {number: (window.queue.name, window.group.name) for number, window in self._by_group.items()}

    def adopt(self, queue: Queue) -> None:
        """Go on with settings as they are now."""
        self._queues[queue.name] = queue
        for window in self._windows_of(queue.number):
            if window.queue != queue:
                window.configure(queue, self._shelf(queue, window.group))

    async def let_go(self, windows: Collection[Window], queues: Collection[int]) -> None:
        """Forget groups and queues that another server deleted, so that nobody waits for them."""
        names = {window.queue.name for number in queues for window in self._windows_of(number)}
        for name in names:
            self._queues.pop(name, None)
        for window in windows:
            await self._drop(window)

    async def keep_time(self) -> None:
        """Let delays end in time, also when the clock was set back."""
        await self._delays.tick()

    async def put_away(self, window: Window) -> None:
        """Forget a window that nobody uses; whoever asks for its tasks opens another one."""
        if window.is_unused and self._by_group.get(window.group.number) is window:
            await self._drop(window)

    def _windows_of(self, queue: int) -> list[Window]:
        return list(self._by_queue.get(queue, {}).values())

    async def _drop_queue(self, number: int) -> None:
        for window in self._windows_of(number):
            await self._drop(window)
        self._tails.drop(number)

    async def _drop(self, window: Window) -> None:
        key = (window.group.queue, window.group.name)
        if self._windows.get(key) is window:  # and not that of another group of its name
            del self._windows[key]
        self._by_group.pop(window.group.number, None)
        groups = self._by_queue.get(window.group.queue, {})
        groups.pop(window.group.number, None)
        if not groups:
            self._by_queue.pop(window.group.queue, None)
            self._tails.drop(window.group.queue)
        await window.close()
        if window.group.number not in self._by_group:
            self._own.forget(window.group.number)

    def _heard(self, queue: int, group: int | None, partitions: Collection[str] | None) -> None:
        """A server has put something, or has filled a shelf."""
        for window in self._windows_of(queue):
            if group in (None, window.group.number):
                window.hear(filled=group is not None, partitions=partitions)

    def _timed(self, retries: Iterable[Retry]) -> list[Retry]:
        """Retries with a time where they have a delay."""
        return [
            item
            if (begins := self._start_time(None, item.delay_seconds)) is None
            else msgspec.structs.replace(item, next_start_time=begins)
            for item in retries
        ]

    def _note_delays(self, window: Window, retry: Iterable[Retry], release: Iterable[Task | Ticket]) -> None:
        """Remember what has come back, but for times that the caller gave."""
        now, back = self._clock.now(), list[tuple[Task | Ticket, float | None]]()
        for item in retry:
            is_time = item.delay_seconds is None and item.next_start_time > now
            back.append((item.task, None if is_time else item.delay_seconds or 0.0))
        # In an unordered queue what is released isn't told to the log.
        back += [(task, 0.0) for task in release if task.lease.partition is not None]
        for task, seconds in back:
            lease = task.lease
            if lease.group != window.group.number:
                continue
            if seconds is None:
                self._delays.forget(task.id, window.group.name)
            else:
                last = None if lease.partition is None else lease.first + lease.count - 1
                self._delays.note(task.id, window.group.name, seconds, last)

    def _start_time(self, start_time: int | datetime | None, delay: float | timedelta | None) -> int | None:
        begins, seconds = checked_begin(start_time, delay)
        return begins if seconds is None else self._clock.now() + round(seconds * SECOND)
