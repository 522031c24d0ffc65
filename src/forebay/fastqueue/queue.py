"""The queue itself: blocks in, blocks out in the same order, acknowledged in any.

Records have consecutive sequence numbers. From the oldest to the newest they are: acknowledged, up to the
cursor; handed out; on disk; in memory alone. The channel holds the newest, also those that are on disk.

Invariants: with `always` a push that returns is safe, and only what is safe is handed out; a push that raises
left nothing behind; records come in the order of their pushes; a chunk is deleted only when the cursor behind
which it lies is safe. Syncs happen outside the lock, so that nobody who reads waits for a disk.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Final, Self

from forebay.disk import Disk, Lock, is_full
from forebay.fastqueue.admission import check_room, checked_blocks
from forebay.fastqueue.channel import Channel
from forebay.fastqueue.faults import closed_error, error_of, unread_error
from forebay.fastqueue.formats import Format, Held, check_format, format_of
from forebay.fastqueue.meta import Meta, write_file
from forebay.fastqueue.quarantine import Quarantine
from forebay.fastqueue.reader import TRIES, Found, Reader
from forebay.fastqueue.record import Damage, Place, Record
from forebay.fastqueue.recovery import Recovered, unseen
from forebay.fastqueue.settings import FastQueueSettings, largest_block
from forebay.fastqueue.snapshot import Snapshots
from forebay.fastqueue.window import Window
from forebay.fastqueue.writer import Writer
from forebay.model import Unavailable

_NEVER: Final = float("-inf")


class Ticket:
    """A push that waits to be safe: all records before `end` have to be."""

    __slots__ = ("end", "error", "is_safe")

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_safe = False
        self.error: OSError | None = None


class FastQueue:
    """A queue in a folder of its own; any thread may call it."""

    def __init__(
        self, disk: Disk, lock: Lock, chosen: Format, settings: FastQueueSettings, recovered: Recovered,
        *, clock: Callable[[], int], quarantine: Quarantine, read_tries: int = TRIES,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._folder_lock = lock
        self._format = chosen
        self._layout = layout = chosen.layout
        self._settings = settings
        self._clock = clock
        self._quarantine = quarantine
        self._is_always = settings.durability == "always"
        self._block_bytes_max = largest_block(settings, layout.head_bytes + layout.record_bytes)
        self._chunks = recovered.chunks
        self._writer = Writer(
            disk, layout, settings, self._chunks, end=recovered.end, bytes_before=recovered.bytes_before,
            next_number=recovered.next_number, chunk_size=recovered.chunk_size, identity=recovered.identity,
        )  # fmt: skip
        self._reader = Reader(disk, layout, self._chunks, quarantine, tries=read_tries)
        self._window = Window(recovered.cursor, recovered.acked)
        self._channel = Channel(
            recovered.end, blocks_max=settings.inmemory_blocks, bytes_max=settings.inmemory_bytes
        )
        self._snapshots = Snapshots(
            disk, chosen, recovered.identity,
            window=self._window, writer=self._writer, chunks=self._chunks, channel=self._channel,
        )  # fmt: skip
        self._position = self._window.cursor
        self._high = self._position
        self._next = recovered.end
        self._safe = recovered.end
        self._safe_bytes = recovered.bytes_before
        self._lock = threading.RLock()
        self._meta_lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._is_syncing = False
        self._withdrawals = 0
        self._waiting: deque[Ticket] = deque()
        self._is_closed = False
        self._written_meta: Meta | None = None
        self._meta_at = self._push_at = _NEVER
        self._seen_next = -1
        self._oldest = (-1, 0)
        self.entry_count = recovered.entry_count
        self.total_bytes = recovered.total_bytes
        self.meta_syncs = 0
        self.flushes = 0

    @classmethod
    def open(
        cls, disk: Disk, settings: FastQueueSettings, *, clock: Callable[[], int],
        report: Callable[[Damage], None] | None = None, read_tries: int = TRIES,
    ) -> Self:  # fmt: skip
        """Take the folder, and find what it holds; `clock` is wall time in microseconds.

        `report` is told of damage, now and while reading. Raise `Misconfigured` when another process has
        it, or when its chunks are of another format. `read_tries` is how often `read` has to fail at bytes
        that the disk can't read before it takes them for damage.
        """
        chosen = format_of(settings)
        largest_block(settings, chosen.layout.head_bytes + chosen.layout.record_bytes)
        lock = disk.lock()
        try:
            check_format(disk, settings)
            quarantine = Quarantine(disk, report)
            recovered = chosen.recover(disk, quarantine, unseen)
            queue = cls(
                disk, lock, chosen, settings, recovered,
                clock=clock, quarantine=quarantine, read_tries=read_tries,
            )  # fmt: skip
            queue._begin(recovered)
        except OSError as error:
            lock.close()
            raise error_of(error, "opened") from error
        except BaseException:
            lock.close()
            raise
        return queue

    def _begin(self, recovered: Recovered) -> None:
        """Make safe what a crash may have left in the system's memory, and go on with the last chunk."""
        if not self._chunks.all:
            return
        if recovered.is_clean:
            self._writer.reopen()
        last = self._disk.open(self._chunks.all[-1].name)
        try:
            last.sync()
        except OSError:
            self._writer.abandon(self._next, self._safe_bytes, cuts=False)
        finally:
            last.close()

    # What it holds

    @property
    def disk_bytes(self) -> int:
        """Bytes of chunk files."""
        with self._lock:
            return self._chunks.bytes

    @property
    def memory_blocks(self) -> int:
        """Blocks in the memory channel."""
        return len(self._channel)

    @property
    def rotations(self) -> int:
        """Chunks that were begun."""
        return self._writer.rotations

    @property
    def corruptions(self) -> int:
        """Pieces of damage that were found."""
        return self._quarantine.count

    @property
    def cursor(self) -> int:
        """The lowest sequence number that isn't acknowledged."""
        return self._window.cursor

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next push."""
        return self._next

    @property
    def oldest_enqueued_at_us(self) -> int | None:
        """When the oldest block was pushed that isn't acknowledged; None where there is none."""
        with self._lock:
            cursor = self._window.cursor
            if not self.entry_count or cursor >= self._readable:
                return None
            if self._oldest[0] != cursor:
                if cursor >= self._channel.start:
                    first = self._channel.slice(cursor, cursor + 1)
                else:
                    first = self._first_on_disk(cursor)
                if not first:
                    return None
                self._oldest = (cursor, first[0].enqueued_at_us)
            return self._oldest[1] or None

    def _first_on_disk(self, cursor: int) -> list[Record]:
        with suppress(OSError):
            return self._reader.read(cursor, self._channel.start, count=1, bytes_max=0).records
        return []

    @property
    def _held(self) -> Held:
        return Held(self.entry_count, self.total_bytes)

    @property
    def _readable(self) -> int:
        """The number after the last record that may be handed out."""
        return self._safe if self._is_always else self._next

    # In

    def push(self, datas: Sequence[bytes], times: Iterable[int] | None = None) -> range:
        """Add blocks, all or none, and return their sequence numbers; with `always` they are safe by then.

        `times` says when each was pushed to the queue that it comes from; without it that is now.
        Raise `TooLarge` or `Rejected` for a block that can't be taken, `Full` where there is no room for all.
        """
        datas, size = checked_blocks(datas, self._block_bytes_max)
        ticket: Ticket | None = None
        with self._lock:
            self._check_open()
            check_room(self._settings, self.entry_count + len(datas), self.total_bytes + size)
            first = self._next
            records = list(
                map(Record, range(first, first + len(datas)), times or repeat(self._clock()), datas)
            )
            if records:
                self._take(records, size)
            end = self._next
            if self._is_always and records:
                ticket = Ticket(end)
                self._waiting.append(ticket)
        if ticket is not None:
            self._commit(ticket)
        return range(first, end)

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_error()

    def _take(self, records: list[Record], size: int) -> None:
        """Put records into the channel, and on disk as the durability asks."""
        if self._is_always:
            try:
                self._write(records)
            except OSError as error:
                raise error_of(error, "written") from error
        self._channel.add(records, size)
        self._next += len(records)
        if not self._is_always and self._channel.is_over:
            try:
                self._flush()
            except OSError as error:
                self._channel.drop_from(records[0].sequence)
                self._next -= len(records)
                raise error_of(error, "written") from error
            self._channel.drop_before(self._next)
        self.entry_count += len(records)
        self.total_bytes += size

    def _write(self, records: Sequence[Record]) -> None:
        """Append to the last chunk; to a new one where that fails, unless the disk is full."""
        try:
            self._writer.append(records)
        except OSError as error:
            self._reader.reset()
            if is_full(error):
                raise
            self._writer.retire()
            self._writer.append(records)

    def _flush(self) -> None:
        """Write what is in memory alone."""
        first = max(self._writer.end, self._window.cursor)
        records = self._channel.slice(first, self._next)
        if records:
            self._write(records)
            self.flushes += 1

    # Safe

    def _commit(self, ticket: Ticket) -> None:
        """Return when a push is safe, raise when it failed; whoever comes first syncs for all who wait."""
        with self._turn:
            while self._is_syncing and not ticket.is_safe and ticket.error is None:
                self._turn.wait()
            if ticket.error is not None:
                raise error_of(ticket.error, "written")
            if ticket.is_safe:
                return
            self._is_syncing = True
        try:
            self._sync()
        finally:
            self._end_turn()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one who syncs."""
        with self._turn:
            while self._is_syncing:
                self._turn.wait()
            self._is_syncing = True
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        with self._turn:
            self._is_syncing = False
            self._turn.notify_all()

    def _sync(self) -> bool:
        """Make safe what is written, in a turn of its own; False where files had to be given up."""
        with self._lock:
            files, place, size = self._writer.unsynced(), self._writer.place, self._writer.bytes_before
        try:
            for file in files:
                file.sync()
        except OSError as error:
            self._sync_failed(error)
            return False
        with self._lock:
            self._writer.synced(files)
            self._note_safe(place, size)
        return True

    def _note_safe(self, place: Place, size: int) -> None:
        self._writer.note_safe(place)
        self._safe, self._safe_bytes = max(self._safe, place.sequence), size
        while self._waiting and self._waiting[0].end <= self._safe:
            self._waiting.popleft().is_safe = True
        if self._is_always:
            self._trim()

    def _sync_failed(self, error: OSError) -> None:
        """Give up the files; with `always` write what isn't safe to a new one, or let its pushes fail."""
        with self._lock:
            self._reader.reset()
            if not self._is_always:
                self._report_unsynced(error)
                self._writer.abandon(self._writer.end, self._writer.bytes_before, cuts=False)
                return
            self._writer.abandon(self._safe, self._safe_bytes, cuts=True)
            records = self._channel.slice(self._safe, self._next)
            try:
                if records:
                    self._writer.append(records)
                for file in self._writer.unsynced():
                    file.sync()
            except OSError as again:
                self._withdraw(records, again)
                raise error_of(again, "written") from again
            self._note_safe(self._writer.place, self._writer.bytes_before)

    def _withdraw(self, records: Sequence[Record], error: OSError) -> None:
        """Take back records that are not safe; their pushes raise."""
        self._writer.abandon(self._safe, self._safe_bytes, cuts=True)
        self._channel.drop_from(self._safe)
        self._next = self._safe
        self.entry_count -= len(records)
        self.total_bytes -= sum(len(record.data) for record in records)
        self._withdrawals += 1
        for ticket in self._waiting:
            ticket.error = error
        self._waiting.clear()

    def _report_unsynced(self, error: OSError) -> None:
        first, last = self._safe, self._writer.end - 1
        reason = f"a sync failed ({error.strerror}): these blocks may be lost when the machine stops"
        place = self._writer.place
        name = self._layout.file_name(place.chunk)
        self._quarantine.tell(Damage(kind="unsynced", file=name, reason=reason, first=first, last=last))

    # Out

    def read(self, count: int, bytes_max: int) -> list[Record]:
        """The next blocks, in order; at least one, if there is any, whatever its size."""
        with self._lock:
            self._check_open()
            records, position = self._collect(self._position, count, bytes_max, notes=True)
            self._position = max(position, self._window.cursor)
            self._high = max(self._high, self._position)
            self._trim()
            return records

    def peek(self, count: int, bytes_max: int) -> list[Record]:
        """The blocks that `read` would return, without moving on."""
        with self._lock:
            self._check_open()
            return self._collect(self._position, count, bytes_max, notes=False)[0]

    def unread(self, sequence: int) -> None:
        """Have `read` go on from a block that was handed out; acknowledged ones don't come again."""
        with self._lock:
            self._check_open()
            if sequence > self._high:
                raise unread_error(sequence)
            self._position = max(sequence, self._window.cursor)

    def ack(self, sequences: Iterable[int]) -> int:
        """Blocks that were read are done with, in any order; return how many were not acknowledged before."""
        with self._lock:
            self._check_open()
            if not isinstance(sequences, range):
                sequences = list(sequences)
            if not sequences:
                return 0
            if (highest := max(sequences)) >= self._high:
                raise unread_error(highest)
            count, size = self._window.ack(sequences)
            self._forget(count, size)
            return count

    def drop(self, count: int, bytes_min: int = 0) -> list[Record]:
        """Evict the oldest blocks that aren't handed out: at least so many, with at least `bytes_min`."""
        with self._lock:
            dropped: list[Record] = []
            freed = 0
            while len(dropped) < count or freed < bytes_min:
                records = self.read(max(1, count - len(dropped)), 1 << 62)
                if not records:
                    break
                self.ack([record.sequence for record in records])
                freed += sum(len(record.data) for record in records)
                dropped += records
            return dropped

    def _collect(self, position: int, count: int, bytes_max: int, *, notes: bool) -> tuple[list[Record], int]:
        """Records that aren't acknowledged, from a position on, and the position after them."""
        collected: list[Record] = []
        left = bytes_max
        while len(collected) < count and position < self._readable and (left > 0 or not collected):
            wanted, least = count - len(collected), 0 if collected else 1
            if position >= self._channel.start:
                end = min(position + wanted, self._readable)
                records = self._channel.within(position, end, left, least=least)
                found = Found(position + len(records), records)
            else:
                try:
                    found = self._read_disk(position, wanted, left)
                except Unavailable:
                    if collected:
                        break  # they are sound; the next reading says what is wrong behind them
                    raise
                if collected and found.bytes > left:
                    break
            if found.next == position:
                break
            if notes:
                self._note(position, found)
            records = found.records
            if self._window.has_done(position):
                records = [record for record in records if self._window.is_open(record.sequence)]
            left -= sum([len(record.data) for record in records])
            collected += records
            position = found.next
        return collected, position

    def _read_disk(self, position: int, count: int, bytes_max: int) -> Found:
        end = min(self._channel.start, self._readable)
        try:
            found = self._reader.read(position, end, count=count, bytes_max=bytes_max)
        except OSError as error:
            self._reader.reset()
            raise error_of(error, "read") from error
        if found.next == position:  # no chunk has anything from here on
            found.gaps.append(range(position, end))
            found.next = end
        return found

    def _note(self, position: int, found: Found) -> None:
        """Remember what was read, and that there is nothing under the numbers between."""
        self._window.note(position, found.sizes(position))
        for gap in found.gaps:
            self._window.ack(gap)
        for lost in found.lost:
            count, _ = self._window.ack(lost)
            # Their size is as lost as they are: the average takes its place.
            held = max(1, self.entry_count)
            self._forget(count, self.total_bytes * min(count, held) // held)
        if found.gaps:
            self._forget(0, 0)

    def _forget(self, count: int, size: int) -> None:
        self.entry_count = max(0, self.entry_count - count)
        self.total_bytes = max(0, self.total_bytes - size) if self.entry_count else 0
        if self._window.advance():
            self._position = max(self._position, self._window.cursor)
            self._high = max(self._high, self._position)
            self._trim()

    def _trim(self) -> None:
        """Let go of records in memory that nobody needs there."""
        written = self._safe if self._is_always else self._writer.end
        self._channel.drop_before(max(self._window.cursor, min(self._position, written)))
        if self._is_always and self._channel.is_over:
            self._channel.drop_before(self._safe)

    # Upkeep

    def flush(self) -> None:
        """Write what is in memory alone to disk, without waiting for it to be safe."""
        with self._lock:
            self._check_open()
            try:
                self._flush()
            except OSError as error:
                raise error_of(error, "written") from error

    def sync(self) -> None:
        """Write what is in memory alone, make everything safe, and write the meta."""
        with self._meta_lock:
            self._sync_meta(flushes=True)

    def tick(self, now: float) -> None:
        """Do what is due; `now` is monotonic time in seconds. To be called a few times a second.

        Raise `Full` or `Unavailable` when the disk fails; nothing is lost, and the next call tries again.
        """
        if now - self._push_at < 0 or self._next != self._seen_next:
            self._push_at, self._seen_next = now, self._next
        is_stale = now - self._push_at >= self._settings.stale_flush
        if now - self._meta_at >= self._settings.meta_sync_interval or now < self._meta_at:
            with self._meta_lock:
                self._sync_meta(flushes=is_stale or self._settings.durability == "interval")
            self._meta_at = now

    def _sync_meta(self, *, flushes: bool) -> None:
        """Sync data, then write the meta that describes it, then delete chunks that it is beyond."""
        with self._lock:
            self._check_open()
        try:
            with self._lock:
                if flushes:
                    self._flush()
                meta = self._snapshots.take(self._held)
                withdrawals = self._withdrawals
            if self._settings.durability != "memory" or flushes:
                with self._alone():
                    is_synced = self._sync()
                if not is_synced:
                    with self._lock:
                        meta = self._snapshots.take(self._held)
            if meta != self._written_meta and withdrawals == self._withdrawals:
                self._save(meta)
            self._delete(meta.cursor)
        except OSError as error:
            raise error_of(error, "written") from error

    def _save(self, meta: Meta) -> None:
        data = self._format.encode(meta, self._held)
        try:
            write_file(self._disk, data)
        except OSError as error:
            if not is_full(error):
                raise
            # Space comes back only with chunks that are done with, so they go first here. A crash before
            # the next line reports them as missing, although nothing is.
            self._delete(meta.cursor)
            write_file(self._disk, data)
        self._written_meta = meta
        self.meta_syncs += 1

    def _delete(self, cursor: int) -> None:
        with self._lock:
            done = self._chunks.behind(cursor)
            del self._chunks.all[: len(done)]
        for chunk in done:
            self._quarantine.remove(chunk)

    def close(self) -> None:
        """Write everything and let go of the folder, also where that fails; twice is fine."""
        with self._meta_lock:
            if self._is_closed:
                return
            try:
                self._sync_meta(flushes=True)
            finally:
                with self._alone(), self._lock:
                    self._is_closed = True
                    self._reader.reset()
                    self._writer.close()
                    with suppress(OSError):
                        self._folder_lock.close()
