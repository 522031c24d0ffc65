"""Failover: pushes that succeed while the log is away, and find their way into it when it is back.

Invariants: what is answered is in the log or safe in the spool; each block is in the log once, by its id,
whichever way it took; messages of a partition come to the log in the order in which they were pushed, also
when the log comes and goes; a replay takes at most twice as long as it would if nobody pushed.
Pushes may also be held back on purpose: they go to the spool then, as if the log were away, and stay there.
It is long because pushing, replaying and looking share what is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from forebay.disk import Disk
from forebay.failover.backlog import Backlog
from forebay.failover.buffering import Buffer
from forebay.failover.health import PATIENCE, Health, LogSlow, UnansweredError, is_answered
from forebay.failover.log import FailoverLog, guarded
from forebay.failover.replaying import Replayed, Replayer
from forebay.failover.report import Report
from forebay.failover.settings import FailoverSettings
from forebay.failover.sinks import Creation, LogSink, by_name
from forebay.failover.status import SpoolStatus
from forebay.failover.way import LogWay, Way
from forebay.log.seam import Log
from forebay.log.values import Appended
from forebay.model import (
    Block,
    Clock,
    Conflict,
    ForebayError,
    Full,
    Limits,
    Message,
    Rejected,
    SystemClock,
    Unavailable,
    cancel,
    check_block,
    check_queue_name,
)
from forebay.spool.faults import DiskFault
from forebay.spool.lines import SpooledBlock
from forebay.spool.names import FileName
from forebay.spool.scanning import Found
from forebay.spool.spool import Spool

logger: Final = logging.getLogger("forebay.failover")
_DEFAULTS: Final = FailoverSettings()
REST: Final = 0.5
"""How long a replay rests after a page if somebody pushes directly, in times of what the page took.

With what may line up meanwhile (`backlog.SHARE`) a replay takes at most twice as long as alone.
"""
LINE_BYTES: Final = 512
"""What a message takes in the spool beside its payload, roughly."""
LEAST: Final = 0.25
"""So much of the time that an attempt has is always left for it."""
STILL: Final = 0.75
"""A replay that stands still for so much of the time that an attempt has says that the log hangs."""


class Refusal(NamedTuple):
    """A push that the spool had no room for."""

    reason: str
    bytes: int


class Failover:
    """See the module. One for a log; entered with `async with`, after which it takes pushes."""

    def __init__(
        self,
        spool: Spool,
        settings: FailoverSettings,
        *,
        limits: Limits,
        clock: Clock,
        create_queues: bool,
        what: str,
        name: str,
    ) -> None:
        self.health = Health(clock=clock, what=what, name=name)
        self.health.lost.append(self._on_loss)
        self.health.found.append(self._on_return)
        self.settings = settings
        self._limits = limits
        self._clock = clock
        self._create_queues = create_queues
        self._spool = spool
        self._before = dict.fromkeys(spool.reader.files("failover", "qos0"), 0)
        self._backlog = Backlog(list(self._before), little=settings.events_per_file)
        self._buffer = Buffer(
            spool, clock, seconds=settings.flush_seconds, bytes_max=settings.waiting_bytes_max
        )
        self._outcomes_before = sum(map(spool.reader.count, spool.reader.files("settle")))
        self._way: Way | None = None
        self._guard: FailoverLog | None = None
        self._announce: Callable[[int], Awaitable[None]] | None = None
        self._creation: Creation = by_name
        self._held: str | None = None
        """Why pushes are held back, if they are."""
        self._appending = self._appended = self._live = 0
        self._through: dict[FileName, int] = {}
        """Entries that are accounted for, of files whose replay is not over: it may begin anew."""
        self._flushed = self._failed = self._asides = 0
        self._report = Report()
        self._refusal: Refusal | None = None
        self._disk_fault = ""
        """Why files of the spool can't be read, if that is so."""
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._counted = asyncio.Event()

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: FailoverSettings = _DEFAULTS,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        create_queues: bool = True,
        what: str = "database",
        name: str = "",
    ) -> Failover:
        """Take the folder of a spool, and mend what a crash left in it; see `Spool.open`.

        `what` is what may be away, in log lines; `name` is what it is called there, if that is known.
        """
        clock = clock or SystemClock()
        spool = await Spool.open(disk, settings, clock=clock)
        for recovered in spool.recovered:
            if recovered.left:
                logger.warning("%s is damaged, and waits for room on the disk to be mended", recovered.name)
                continue
            logger.info(
                "recovered %d events of %s; %d faults were set aside",
                recovered.events, recovered.name, recovered.faults,
            )  # fmt: skip
        return await asyncio.to_thread(
            cls,
            spool, settings, limits=limits or Limits(), clock=clock, create_queues=create_queues, what=what,
            name=name,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._count_before(), name="forebay-spool-count"),
            asyncio.create_task(self._replay_for_ever(), name="forebay-replay"),
            asyncio.create_task(self._retry_for_ever(), name="forebay-retry"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Spool what is only in memory; what is spooled stays for the next time."""
        await cancel(*self._tasks)
        try:
            await self._buffer.close()
        finally:
            await self._spool.close()

    # What it is between

    def guard(self, log: Log) -> Log:
        """The log, as whoever works tasks may use it: see `FailoverLog`. Open it instead of the log."""
        guard = FailoverLog(log, self._spool, self.health, seconds=self.settings.attempt_seconds)
        guard.waiting = guard.before = self._outcomes_before
        if self._guard is not None:
            guard.go_on(self._guard)
        self._guard = guard
        sink = LogSink(
            log,
            create_queues=self._create_queues,
            seconds=PATIENCE * self.settings.attempt_seconds,
            announce=self._heard,
            creation=self._created,
            clock=self._clock,
        )
        self.follow(LogWay(guard, sink))
        return guarded(guard)

    @property
    def spool_identity(self) -> str:
        """By which the names of processes say that they have this spool."""
        return self._spool.identity

    def announce_to(self, announce: Callable[[int], Awaitable[None]]) -> None:
        """Tell whoever waits for tasks of a queue when something was replayed to it."""
        self._announce = announce

    def create_by(self, creation: Creation) -> None:
        """Ask for the settings of queues that a replay has to make."""
        self._creation = creation

    def _created(self, name: str, block: Block) -> dict[str, Any] | None:
        return self._creation(name, block)

    def follow(self, way: Way) -> None:
        """Replay to where this leads, from now on."""
        self._way = way
        self._wake.set()

    async def _heard(self, queue: int) -> None:
        if self._announce is not None:
            await self._announce(queue)

    def _on_loss(self) -> None:
        self._backlog.move()

    def _on_return(self) -> None:
        self._backlog.begin()
        self._report.begin(asyncio.get_running_loop().time())

    # Holding back

    @property
    def held(self) -> str | None:
        """Why pushes are held back; None when they aren't."""
        return self._held

    def hold(self, reason: str) -> None:
        """Hold back pushes in the spool from now on; whoever works tasks notices nothing.

        A push that is under way may still come to the log, and so may a file that is being replayed.
        """
        self._held = reason
        self._backlog.move()

    def let_go(self) -> None:
        """Replay what was held back; who pushes from now on lines up behind it."""
        if self._held is None:
            return
        self._held = None
        self._on_return()
        self._wake.set()

    # Pushing

    async def push(
        self, queue: str, block: Block, write: Callable[[], Awaitable[Appended]] | None
    ) -> Appended:
        """Write a block, or else spool it. Rejected and Conflict are the caller's fault; Full is the disk's.

        There is nothing to write to yet where `write` is None.
        """
        loop = asyncio.get_running_loop()
        began, seconds = loop.time(), self.settings.attempt_seconds
        if write is not None and await self._may_write(queue, block):
            self._live += 1
            # Who has waited for his turn has less time left, but enough for a log that is there.
            appended = await self._try(write, max(began + seconds - loop.time(), LEAST * seconds))
            if appended is not None:
                return appended
        return await self._spool_block(queue, block)

    async def _try(self, write: Callable[[], Awaitable[Appended]], seconds: float) -> Appended | None:
        """Write; None if the log is away, which the first push of an outage finds out within so many seconds.

        A log that is there, and slow, is waited for; but not for ever. Anything but our own errors is a fault
        of this program, and not one of the log: see `FailoverLog`.
        """
        change = self.health.changes
        try:
            return await self.health.wait(write(), seconds)
        except (Rejected, Conflict):
            raise
        except LogSlow as error:
            logger.warning("a push goes to the spool: %s", error.message)
        except ForebayError as error:
            self.health.fail(error.message, since=change)
        except (UnansweredError, TimeoutError) as error:
            self.health.fail(str(error) or f"no answer within {seconds:.1f} seconds", since=change)
        return None

    def buffer(self, queue: str, messages: Sequence[Message]) -> Appended:
        """Keep messages in memory for a moment, and then in the spool: the answer comes before it is safe."""
        check_queue_name(queue)
        check_block(Block.of(messages, created_at=self._clock.now()), self._limits)
        self._buffer.add(queue, messages)
        return Appended(0, len(messages), where="buffered")

    async def make_way(self, queue: str, partitions: Sequence[str]) -> None:
        """Return when what is written to these partitions overtakes nothing; Unavailable if that isn't soon.

        For writes that can't be spooled, since they are one with something else.
        """
        if self._held is not None:
            text = f"pushes are held back, and this can't be: {self._held}"
            raise Unavailable(text, hint="try again later", retry_after_seconds=1.0)
        try:
            async with asyncio.timeout(self.settings.attempt_seconds):
                while not self._backlog.is_free(queue, partitions):
                    self._wake.set()
                    await self._backlog.moved()
        except TimeoutError:
            text = f"messages of queue {queue!r} that were pushed before are still in the spool"
            raise Unavailable(text, hint="try again", retry_after_seconds=1.0) from None

    async def _may_write(self, queue: str, block: Block) -> bool:
        """Whether a push may go to the log: it doesn't overtake anything. Waits if that is soon so."""
        partitions = block.partition_table
        seconds, loop = self.settings.attempt_seconds, asyncio.get_running_loop()
        began = moved_at = loop.time()
        while self.health.is_healthy and self._held is None:
            if self._backlog.is_free(queue, partitions):
                return True
            if self._backlog.admits(len(block)):
                return False
            self._wake.set()
            try:
                async with asyncio.timeout_at(began + seconds):
                    await self._backlog.moved()
                moved_at = loop.time()
            except TimeoutError:
                # Whoever replays may wait for an answer for much longer.
                still = loop.time() - moved_at > STILL * seconds and not self._disk_fault
                change = self.health.changes
                if still and not await self.health.answers(LEAST * seconds):
                    self.health.fail(f"nothing was replayed within {STILL * seconds:g} seconds", since=change)
                return False
        return False

    async def _spool_block(self, queue: str, block: Block) -> Appended:
        check_queue_name(queue)
        check_block(block, self._limits)
        self._backlog.add(queue, block)
        self._appending += 1
        self._appended += 1
        try:
            await self._spool.append([SpooledBlock(queue, block)])
        except Exception as error:
            self._backlog.remove(queue, block, replayed=False)
            if isinstance(error, Full):
                size = sum(map(len, block.payloads)) + LINE_BYTES * len(block)
                self._refusal = Refusal(error.message, size)
            raise
        finally:
            self._appending -= 1
        self._refusal = None
        self._report.add_spooled(len(block))
        return Appended(0, len(block), where="spool")

    # Replaying

    async def _replay_for_ever(self) -> None:
        pause = self.settings.flush_seconds
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._report.say_spooled(self._spool.newest("failover"), asyncio.get_running_loop().time())
            try:
                await self._round()
                pause, self._disk_fault = self.settings.flush_seconds, ""
            except DiskFault as error:
                if self._disk_fault != error.message:
                    self._disk_fault = error.message
                    text = "replaying the spool failed; it is tried again: %s"
                    logger.error(text, error.message)  # noqa: TRY400 - where it comes from helps nobody
                pause = min(pause * 2, self.settings.retry_seconds)
            except (ForebayError, TimeoutError) as error:
                self._say_failed(str(error) or "no answer")
                self.health.fail(str(error) or "no answer")
            except Exception:
                logger.exception("replaying the spool failed; it is tried again")
                pause = min(pause * 2, self.settings.retry_seconds)

    async def _round(self) -> None:
        """Replay what there is."""
        way = self._way
        if way is None:
            return
        change = self.health.changes
        if not self.health.is_healthy and not await is_answered(way.ping):
            return  # silence is no news: it was away, and a call that began later may have found it
        if self._held is None:
            await self._replay_all(way, change)
        await self._recover(way, change)
        if self._guard is not None and self._guard.waiting and self.health.is_healthy:
            await way.catch_up()
        await self._look_aside()
        await self._tidy()

    async def _replay_all(self, way: Way, change: int) -> None:
        replayer = Replayer(self._spool.reader, way.sink, events_max=self.settings.batch_events_max)
        may_flush = bool(self._appended or self._buffer.spooled)
        try:
            while True:
                files = await asyncio.to_thread(self._spool.reader.files, "failover", "qos0")
                if not files and not may_flush:
                    return
                if not files:
                    # Only now: a log that answers and takes nothing would get a new file in each round.
                    await self._spool.flush()
                    may_flush = False
                for name, following in pairwise([*files, None]):
                    assert name is not None
                    if self._held is not None:  # it may have come into the file as well
                        return
                    await self._replay(
                        replayer, name, following, partial(self._recover_if_proven, way, change)
                    )
        except DiskFault:
            await self._recover(way, change)  # it has answered: only who pushes behind the file has to wait
            raise
        finally:
            await replayer.close()

    async def _replay(
        self,
        replayer: Replayer,
        name: FileName,
        following: FileName | None,
        recover: Callable[[], Awaitable[None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        began, live = loop.time(), self._live
        seen = 0

        async def told(found: Sequence[Found], written: Replayed) -> None:
            nonlocal began, live, seen
            seen += len(found)
            await self._look_aside()
            if self._is_news(name, seen):
                self._account(name, found, written)
            await recover()
            self._report.say_progress(self._spooled_events, loop.time())
            if self._live != live:  # somebody pushes directly
                await asyncio.sleep(REST * (loop.time() - began))
            began, live = loop.time(), self._live

        replayed = await replayer.replay(name, told, following=following)
        self._through.pop(name, None)
        self._before.pop(name, None)
        self._backlog.read(name)
        self._report.say_complete(name, replayed)

    async def _look_aside(self) -> None:
        """Count what was set aside, if there is more of it, and say what could not be read."""
        reader = self._spool.reader
        for name, faults in reader.take_faults().items():
            text = "%d faults of %s can't be replayed and were set aside, each with its reason"
            logger.error(text, faults, name)
        if self._asides != reader.asides:
            self._asides = reader.asides
            self._failed = await asyncio.to_thread(reader.count_failed)

    def _say_failed(self, reason: str) -> None:
        """Say that a replay broke off, once for each time that the log is lost."""
        if self.health.is_healthy:
            self._report.say_failed(self._spooled_events, reason)

    @property
    def _spooled_events(self) -> int:
        return self._backlog.events + sum(self._before.values())

    async def _recover_if_proven(self, way: Way, change: int) -> None:
        """A page is through: the log is back, unless it had all of it before."""
        if way.is_proven:
            await self._recover(way, change)

    async def _recover(self, way: Way, change: int) -> None:
        """The log has answered since it was lost, and took what there was: it is back.

        What must come before everything else comes first. It may have been lost again meanwhile.
        """
        if self.health.is_healthy or self.health.changes != change:
            return
        await way.catch_up()

    def _is_news(self, name: FileName, seen: int) -> bool:
        """Whether a page is through for the first time, which ends after so many entries of its file."""
        if seen <= self._through.get(name, 0):
            return False
        self._through[name] = seen
        return True

    def _account(self, name: FileName, found: Sequence[Found], replayed: Replayed) -> None:
        self._flushed += replayed.events
        self._report.add_replayed(replayed.events, asyncio.get_running_loop().time())
        entries = [each.entry for each in found if isinstance(each.entry, SpooledBlock)]
        if name in self._before:
            events = sum(map(len, entries))
            self._before[name] = max(0, self._before[name] - events)
            self._backlog.count_replayed(events)
        elif name.prefix == "qos0":
            for entry in entries:
                self._buffer.spooled[entry.queue] -= len(entry)
        else:
            for entry in entries:
                self._backlog.remove(entry.queue, entry.block)

    async def _tidy(self) -> None:
        """Forget what was counted and never came to the spool, or was damaged there: it is empty."""
        seen, pending = self._appended, self._backlog.events or any(self._buffer.spooled.values())
        if not pending or self._appending or self._held is not None:
            return
        await self._spool.flush()
        files = await asyncio.to_thread(self._spool.reader.files, "failover", "qos0")
        if not files and seen == self._appended and not self._appending:
            self._backlog.clear()
            self._buffer.spooled.clear()

    async def _count_before(self) -> None:
        """See how much was there at the start, and warn when it takes too long."""
        self._failed = await asyncio.to_thread(self._spool.reader.count_failed)
        for name in list(self._before):
            try:
                events = await asyncio.to_thread(self._spool.reader.count, name)
            except Unavailable:
                continue  # it was replayed meanwhile
            if name in self._before and not self._before[name]:
                self._before[name] = events
        self._counted.set()
        await asyncio.sleep(self.settings.startup_seconds_max)
        if self._backlog.before:
            logger.warning("%d files of before the start are not replayed yet", self._backlog.before)

    async def _retry_for_ever(self) -> None:
        """Try again what was refused, time and again."""
        while True:
            await asyncio.sleep(self.settings.retry_seconds)
            way = self._way
            if way is None or not self.health.is_healthy or self._held is not None:
                continue
            change = self.health.changes
            try:
                await self._retry(way)
            except DiskFault as error:
                logger.error("what was set aside can't be tried again: %s", error)  # noqa: TRY400 - likewise
            except ForebayError as error:
                self.health.fail(error.message, since=change)
            except Exception:
                logger.exception("what was set aside can't be tried again")

    async def _retry(self, way: Way) -> None:
        replayer = Replayer(self._spool.reader, way.sink, events_max=self.settings.batch_events_max)
        names = await asyncio.to_thread(self._spool.reader.failed)
        for name in names:
            if name.prefix == "settle":
                continue
            logger.info("retrying failed file %s", name)
            replayed = await replayer.replay_failed(name)
            if not replayed.refused:
                self._flushed += replayed.events
        if names:
            self._failed = await asyncio.to_thread(self._spool.reader.count_failed)

    # Looking

    async def is_empty(self) -> bool:
        """Whether all that was accepted is in the log, or was set aside."""
        buffered = self._buffer.events or any(self._buffer.spooled.values())
        if self._backlog.before or self._backlog.events or buffered:
            return False
        return not await asyncio.to_thread(self._spool.reader.files, "failover", "qos0")

    async def counted(self) -> SpoolStatus:
        """What there is to see, once what was there at the start is counted."""
        await self._counted.wait()
        return self.status()

    @property
    def answered(self) -> Mapping[int, int]:
        """Tasks whose outcomes wait for the log, by the number of their group."""
        return {} if self._guard is None else self._guard.answered

    def status(self) -> SpoolStatus:
        """What there is to see; of what was there at the start, what is counted by now."""
        now = asyncio.get_running_loop().time()
        if self._refusal is not None and self._spool.has_room(self._refusal.bytes):
            self._refusal = None
        spooled = self._buffer.spooled
        queues = self._backlog.queues
        for queue, count in spooled.items():
            if count > 0:
                queues[queue] = queues.get(queue, 0) + count
        pending = self._spooled_events + self._buffer.events + sum(spooled.values())
        return SpoolStatus(
            healthy=self.health.is_healthy,
            reason=self.health.reason,
            since=self.health.since,
            held=self._held,
            refused=None if self._refusal is None else self._refusal.reason,
            pending=pending,
            rate=self._report.pace.rate(now),
            seconds_left=self._report.pace.seconds_left(pending, now) if pending else 0.0,
            flushed=self._flushed,
            failed=self._failed,
            settlements=self._outcomes_before if self._guard is None else self._guard.settlements,
            settled=0 if self._guard is None else self._guard.spooled,
            late=0 if self._guard is None else self._guard.late,
            files=self._spool.file_count,
            bytes=self._spool.bytes,
            queues=queues,
            outages=self.health.outages,
        )
