"""SendQueue: entries on their way to one destination, on disk before they are acknowledged.

The disk has a thread of its own. While one round runs there (`disk_round`) the next one gathers, so pushes
that come together share one sync, and a lone push waits for nobody.

Invariants: never more entries or bytes than the limits; a pusher whose entry is dropped is told so, if it
still waits; an entry is taken by one worker at a time, in the order of pushing, and leaves the disk only when
it is settled; with durability `always` an entry that is only in memory isn't acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, NoReturn

from forebay.deliver.attempt_file import AttemptFile, Attempts
from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.disk_round import DiskRound, Done, Push
from forebay.deliver.entry import Entry
from forebay.deliver.entry_store import Backing, BackingCounts
from forebay.deliver.memory_failover import MemoryFailover
from forebay.deliver.order import order_rule
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.room import Room
from forebay.deliver.sizes import Sizes
from forebay.deliver.sparse_log import SparseLog
from forebay.deliver.state_log import StateLog
from forebay.deliver.window import Window
from forebay.model import ForebayError, Full, Rejected, Unavailable

__all__ = ["SendQueue"]

logger: Final = logging.getLogger("forebay.deliver")
_TICK_SECONDS: Final = 0.1
"""How long acks may gather when nothing else takes a round."""
_IDLE_TICKS: Final = 5
"""Ticks after which a round is due although nothing was asked for."""
_ACKS: Final = 256
_LOSSES: Final = ("oldest", "corrupt", "dead_letter")
"""Reasons for which entries are dropped that were acknowledged."""
_READ_AGAIN_SECONDS: Final = 0.4
"""The pause after a disk that couldn't be read: a little less than an idle queue takes to its next round."""
_NOTE_SECONDS: Final = 1.0
"""How often attempts are noted at most."""


class SendQueue:
    """A queue of one destination. Used by one event loop; `close` ends it."""

    def __init__(
        self,
        backing: Backing,
        dead: DeadLetters,
        settings: SendQueueSettings,
        sizes: Sizes,
        *,
        clock: Callable[[], int],
        disk_available: Callable[[], int] = lambda: 0,
        noted: AttemptFile | None = None,
    ) -> None:
        self._backing = backing
        self.disk_available = disk_available
        """Bytes that the disk has left."""
        self._dead = dead
        self._settings = settings
        self._clock = clock
        self._is_ordered = order_rule(settings.order)
        self._loop = asyncio.get_running_loop()
        self._rounds: SimpleQueue[DiskRound | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="forebay-queue", daemon=True)
        self._thread.start()
        self._memory_bytes = sizes.memory_bytes
        self._unread, self._unread_bytes = backing.entry_count, backing.total_bytes
        self.room = Room(sizes.max_size, sizes.max_bytes, size=self._unread, bytes_held=self._unread_bytes)
        self._window = Window()
        self._noted = noted
        self._known_attempts = {} if noted is None else noted.load()
        """Attempts of entries of the last run that aren't read yet."""
        self._has_news = bool(self._known_attempts)
        """Attempts have changed since they were noted."""
        self._pending: list[Push] = []
        self._acks: list[int] = []
        self._letters: list[tuple[bytes, Done]] = []
        self._takers: deque[asyncio.Future[None]] = deque()
        self._evicting = asyncio.Lock()
        self._round: DiskRound | None = None
        self._is_scheduled = False
        self._round_ended: asyncio.Future[None] | None = None
        self._wake_timer: asyncio.TimerHandle | None = None
        self._tick_timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        self._sync_timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._noted_at = self._loop.time()
        self._is_closed = False
        self.pushed = self.disk_full = 0
        self._failover = MemoryFailover(
            settings, self._window, submit=self._submit, drop=self._drop, wake=lambda: self._wake_takers(1)
        )
        self._drops = SparseLog(logger)
        self._letter_drops = SparseLog(logger)
        self._dropped_letters = 0
        self.dropped = self._failover.dropped
        """Entries that were accepted or offered and then not kept, by reason."""
        self.problem: str | None = None
        """Why the disk didn't take the last push; None when it did."""
        self._read_error: ForebayError | None = None
        self._read_at = 0.0
        """When the disk may be read again."""
        self._failures = StateLog(logger)
        self._kick()

    # Pushing

    def reserve_now(self, size: int) -> bool:
        """Take room for an entry if there is some; `write` or `cancel` follows."""
        return not self._is_closed and self.room.reserve(size)

    async def reserve(self, size: int) -> None:
        """Take room for an entry as `full_behavior` says; Full, or TooLarge, where there is none."""
        if self._is_closed:
            raise _closed()
        self.room.check(size)
        if self.room.reserve(size):
            return
        if self._settings.full_behavior == "block":
            if not await self.room.wait(size, self._settings.block_timeout):
                self._refuse("timeout")
        elif self._settings.full_behavior == "drop_newest":
            self._refuse("newest")
        else:
            try:
                async with asyncio.timeout(self._settings.block_timeout):
                    await self._evict_for(size)
            except TimeoutError:
                self._refuse("timeout")

    def cancel(self, size: int) -> None:
        """Give back room that was reserved and isn't needed."""
        self.room.release(size)

    def write(self, data: bytes, done: Done) -> None:
        """Keep an entry for which room was reserved; `done` is called when it is safe, or refused."""
        if self._is_closed:
            self.room.release(len(data))
            done(_closed())
            return
        self._pending.append(Push(data, done))
        self._kick()

    async def push(self, data: bytes) -> None:
        """Keep an entry; safe when it returns."""
        await self.reserve(len(data))
        await self.write_soon(data)

    def write_soon(self, data: bytes) -> asyncio.Future[None]:
        """Keep an entry for which room was reserved; the future is done when it is safe."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: ForebayError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        self.write(data, done)
        return future

    async def sync(self) -> None:
        """Make everything safe that the disk has taken, also where the durability asks for less."""
        await asyncio.to_thread(self._backing.sync)

    async def _evict_for(self, size: int) -> None:
        async with self._evicting:
            while not self.room.reserve(size):
                entry = self._window.oldest_idle()
                if entry is not None:
                    self.dropped["oldest"] += 1
                    self._drops.warning("the queue is full: its oldest entry, acknowledged, is dropped")
                    self._settle(entry)
                elif self._read_error is not None:
                    self._refuse("disk_failed", self._read_error)
                elif self._unread or self._pending or (self._round is not None and self._round.pushes):
                    await self._next_round()
                else:  # all of it is being sent
                    self._refuse("newest")

    def _refuse(self, reason: str, error: ForebayError | None = None) -> NoReturn:
        self.dropped[reason] += 1
        self._drops.warning("the queue is full: an entry is refused (%s)", reason)
        if error is not None:
            raise Unavailable(
                f"the queue is full, and its oldest entry can't be dropped: {error.message}",
                hint=error.hint,
                retry_after_seconds=1.0,
            )
        raise Full(
            f"the queue is full: {self.room.size} entries, {self.room.bytes_held} bytes",
            hint="wait until the destination has taken some, or raise max_size and max_bytes",
            retry_after_seconds=1.0,
        )

    # Taking and settling

    def take_now(self) -> Entry | None:
        """The next entry, if one is ready."""
        if self._wake_timer is not None:
            self._window.wake(self._loop.time())  # the timer may be late
        entry = self._window.take()
        if self._wants_more():
            self._kick()
        return entry

    def _wants_more(self) -> bool:
        """Whether little is ready although more could be read."""
        ready, room = self._window.ready, self._settings.inmemory_blocks - len(self._window)
        least = self._settings.inmemory_blocks // 8 if ready else 0
        return self._unread > 0 and ready <= self._settings.inmemory_blocks // 4 and room > least

    async def take(self) -> Entry:
        """The next entry, as soon as there is one."""
        while (entry := self.take_now()) is None:
            future: asyncio.Future[None] = self._loop.create_future()
            self._takers.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake_takers(1)  # another one gets what this one was called for
                else:
                    self._takers.remove(future)
                raise
        return entry

    def done(self, entry: Entry) -> None:
        """An entry was delivered."""
        self._settle(entry)

    def release(self, entry: Entry) -> None:
        """An entry wasn't sent after all: it is next again."""
        self._window.release(entry)
        self._wake_takers(1)

    def retry(self, entry: Entry, seconds: float) -> None:
        """An entry failed: it is taken again after a pause, with its place in line."""
        entry.attempts += 1
        self._has_news = True
        self._window.delay(entry, self._loop.time() + seconds)
        self._set_wake_timer()

    def bury(self, entry: Entry, letter: bytes, *, is_last: bool = True) -> None:
        """Keep a dead letter; with it the entry is settled, unless other parts of it are left."""

        def done(error: ForebayError | None) -> None:
            if error is not None:
                logger.error("a dead letter can't be kept, its entry stays: %s", error)
                self._window.delay(entry, self._loop.time() + self._settings.retry_interval)
                self._set_wake_timer()
            elif is_last:
                self._settle(entry)
            else:
                self.release(entry)

        self._letters.append((letter, done))
        self._kick()

    def _settle(self, entry: Entry) -> None:
        self._drop(entry)
        if entry.is_volatile:
            self._failover.settle(entry)
            return
        self._acks.append(entry.sequence)
        self._sync_in_time()
        if len(self._acks) >= _ACKS:
            self._kick()

    def _drop(self, entry: Entry) -> None:
        """Give up the place and the room of an entry."""
        self._window.remove(entry)
        self.room.release(entry.size)
        if entry.is_ordered:
            self._wake_takers(1)  # for the one behind it

    # Numbers

    @property
    def problems(self) -> list[str]:
        """What the disk doesn't do now."""
        found = []
        if self.problem is not None:
            found.append(f"the disk doesn't take entries: {self.problem}")
        if self._read_error is not None:
            found.append(f"the disk doesn't give entries back: {self._read_error}")
        return found

    @property
    def size(self) -> int:
        """Entries that aren't settled."""
        return self.room.size

    @property
    def waiting(self) -> int:
        """Entries that could be sent now, of those in memory."""
        return self._window.ready

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters, for jobs on them."""
        return self._dead

    @property
    def dead_count(self) -> int:
        """Dead letters that are kept."""
        return self._dead.count

    @property
    def volatile(self) -> int:
        """Entries that are only in memory since the disk doesn't take them."""
        return len(self._failover)

    @property
    def lost(self) -> int:
        """Entries that were acknowledged and then dropped or damaged, also as dead letters."""
        return sum(self.dropped[reason] for reason in _LOSSES) + self._failover.lost

    def backing_counts(self) -> BackingCounts:
        """Counters of the entry store."""
        return self._backing.counts()

    def oldest_seconds(self) -> float:
        """The age of the entry that waits longest; 0 where none does."""
        oldest = self._window.oldest()
        return 0.0 if oldest is None else max(0.0, (self._clock() - oldest.enqueued_at_us) / 1e6)

    # Rounds

    def _submit(self, pushes: list[Push]) -> None:
        self._pending += pushes
        self._kick()

    def _kick(self) -> None:
        """Start a round soon, with all that is asked for in this turn of the loop."""
        if self._round is None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start_round)

    def _start_round(self) -> None:
        self._is_scheduled = False
        if self._round is not None:
            return
        count = min(self._settings.inmemory_blocks - len(self._window), self._unread + len(self._pending))
        if self._evicting.locked():
            count = max(1, count)
        if self._read_error is not None and self._loop.time() < self._read_at:
            count = 0
        room = self._memory_bytes - self._window.bytes_held
        if room <= 0 and len(self._window):
            count = 0
        elif not self._unread:
            room += sum(len(push.data) for push in self._pending)
        self._round = DiskRound(
            self._pending,
            self._acks,
            self._letters,
            count=count,
            bytes_max=max(1, room),
            attempts=self._due_attempts(),
        )
        self._pending, self._acks, self._letters = [], [], []
        self._rounds.put(self._round)

    def _due_attempts(self) -> Attempts | None:
        """Attempts that are to be noted now; None where there is nothing new, or it was just done."""
        now = self._loop.time()
        if self._noted is None or not self._has_news or now - self._noted_at < _NOTE_SECONDS:
            return None
        self._has_news, self._noted_at = False, now
        return {**self._known_attempts, **self._window.attempts()}

    def _run(self) -> None:
        """The disk's thread."""
        while (round_ := self._rounds.get()) is not None:
            round_.run(self._backing, self._dead, self._noted)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish_round, round_)

    def _finish_round(self, round_: DiskRound) -> None:
        self._round = None
        if round_.pushes or round_.has_acked:
            self._sync_in_time()
        self._acks += round_.acks
        self._note_failures(round_)
        for push in round_.pushes:
            self._finish_push(push)
        if round_.letters:
            self._count_dropped_letters()
        for _, done in round_.letters:
            done(round_.letter_error)
        self._take_in(round_)
        self._wake_takers(len(round_.records))
        if self._round_ended is not None:
            self._round_ended.set_result(None)
            self._round_ended = None
        wants_more = bool(round_.records) and self._wants_more()
        if self._pending or self._letters or len(self._acks) >= _ACKS or wants_more:
            self._kick()

    def _take_in(self, round_: DiskRound) -> None:
        """Put the entries that were read into the window."""
        for record in round_.records:
            came_at = record.enqueued_at_us or self._clock()  # one of the formats doesn't know
            is_ordered = self._is_ordered(record.data)
            entry = Entry(record.sequence, came_at, record.data, is_ordered=is_ordered)
            if self._known_attempts:
                entry.attempts = self._known_attempts.pop(record.sequence, 0)
            self._window.add(entry)
            self._unread_bytes -= len(record.data)
        if self._known_attempts and round_.records:
            last = round_.records[-1].sequence  # what came before it and wasn't read is settled
            self._known_attempts = {one: n for one, n in self._known_attempts.items() if one > last}
        self._unread -= len(round_.records)
        if round_.count > 0 and not round_.records and round_.read_error is None:
            self._forget_unreadable()

    def _count_dropped_letters(self) -> None:
        if dropped := self._dead.dropped - self._dropped_letters:
            self._dropped_letters += dropped
            self.dropped["dead_letter"] += dropped
            self._letter_drops.warning(
                "there are as many dead letters as may be kept: the oldest are dropped"
            )

    def _note_failures(self, round_: DiskRound) -> None:
        """Say what fails once, and once when it works again."""
        self._failures.say("acks and positions", None if round_.failure is None else repr(round_.failure))
        if round_.count > 0:
            self._read_error, self._read_at = round_.read_error, self._loop.time() + _READ_AGAIN_SECONDS
            self._failures.say("reading", None if round_.read_error is None else str(round_.read_error))

    def _finish_push(self, push: Push) -> None:
        if push.error is None:
            self.problem = None
            self.pushed += 1
            self._unread += 1
            self._unread_bytes += len(push.data)
        if push.entry is not None:
            self._failover.drained(push.entry, push.error)
        elif push.error is None:
            push.done(None)
            self._failover.drain_soon()
        elif isinstance(push.error, Rejected):
            self.room.release(len(push.data))
            push.done(push.error)
        else:
            self.problem = str(push.error)
            self.disk_full += isinstance(push.error, Full)
            self._failover.add(push, self._clock(), is_ordered=self._is_ordered(push.data))

    def _forget_unreadable(self) -> None:
        """The disk has nothing more to read: the rest of what was counted is damaged, and reported."""
        if self._unread:
            self.dropped["corrupt"] += self._unread
        self.room.forget(self._unread, self._unread_bytes)
        self._unread = self._unread_bytes = 0

    async def _next_round(self) -> None:
        if self._round_ended is None:
            self._round_ended = self._loop.create_future()
        self._kick()
        await asyncio.shield(self._round_ended)

    def _tick(self) -> None:
        self._tick_timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        self._ticks += 1
        if self._acks or self._ticks >= _IDLE_TICKS:
            self._ticks = 0
            self._kick()

    def _sync_in_time(self) -> None:
        """Have a round when what changed is due to be synced, also where nothing else asks for one."""
        if self._sync_timer is None and not self._is_closed:
            self._sync_timer = self._loop.call_later(self._settings.meta_sync_interval, self._sync_due)

    def _sync_due(self) -> None:
        self._sync_timer = None
        self._kick()

    def _wake_takers(self, count: int) -> None:
        while count > 0 and self._takers:
            future = self._takers.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    def _set_wake_timer(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        due = self._window.next_due()
        if due is not None and not self._is_closed:
            self._wake_timer = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._wake_takers(self._window.wake(self._loop.time()))
        self._set_wake_timer()

    # The end

    async def close(self) -> None:
        """Write what isn't written, and let go of the disk; workers have ended before.

        What is only in memory goes to the disk if it takes it, and is refused or dropped otherwise.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._failover.stop()
        for timer in (self._tick_timer, self._wake_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        await self._settle_down()
        self._failover.refuse_all(_closed())
        self._rounds.put(None)
        await asyncio.to_thread(self._close_files)

    async def _settle_down(self) -> None:
        """Rounds until nothing is left to write, or the disk takes nothing."""
        while True:
            before = len(self._failover)
            self._failover.drain()
            while self._round is not None or self._pending or self._letters or self._is_scheduled:
                await self._next_round()
            if not len(self._failover) or len(self._failover) >= before:
                break
        while self._acks:
            held = len(self._acks)
            await self._next_round()
            if len(self._acks) >= held:  # the disk won't have them: what they are about is sent again
                break

    def _close_files(self) -> None:
        self._thread.join()
        if self._noted is not None and self._has_news:
            self._noted.save({**self._known_attempts, **self._window.attempts()})
        for files in (self._backing, self._dead):
            try:
                files.close()
            except (ForebayError, OSError) as error:  # what was acknowledged is safe; the rest may end
                logger.error("a queue couldn't be closed well: %s", error)  # noqa: TRY400 - no trace helps here


def _closed() -> Unavailable:
    return Unavailable("the queue is closed", hint="the relay stops; try again soon", retry_after_seconds=1.0)
