"""Records of chunk files in order, wherever the reading begins.

Invariants: a record is returned only as it was written; damage is stepped over, kept in quarantine and
reported, and everything beyond it is read. A reader never changes a chunk. Bytes that the disk can't read are
damage once they were tried a few times: until then the records before them are returned, then the error.
"""

from typing import Final

import msgspec

from forebay.disk import Disk, is_medium_fault
from forebay.fastqueue.chunk import Chunk, Chunks
from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.layout import Layout
from forebay.fastqueue.quarantine import Quarantine
from forebay.fastqueue.record import Damage, Record

_READ_BYTES: Final = 1 << 20
_NO_LIMIT: Final = 1 << 62
TRIES: Final = 5
"""Readings of a place that fail before it is given up: one that a cable or a network broke comes back."""


class Found(msgspec.Struct, gc=False):
    """Records before number `next`, and the numbers among them that have none: `lost` ones are damaged.

    The numbers in `gaps` were acknowledged before their records came to the disk, or are in a missing chunk.
    """

    next: int
    records: list[Record] = []
    gaps: list[range] = []
    lost: list[range] = []
    bytes: int = 0

    def sizes(self, first: int) -> list[int]:
        """The sizes of records by their numbers, from `first` on; 0 where there is none."""
        if len(self.records) == self.next - first:
            return [len(record.data) for record in self.records]
        sizes = [0] * (self.next - first)
        for record in self.records:
            sizes[record.sequence - first] = len(record.data)
        return sizes


class Reader:
    """Reads on from where it is, if that is where it is asked to."""

    def __init__(
        self, disk: Disk, layout: Layout, chunks: Chunks, quarantine: Quarantine, *, tries: int = TRIES
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._chunks = chunks
        self._quarantine = quarantine
        self._chunk: Chunk | None = None
        self._file: ChunkFile | None = None
        self._data = b""
        self._base = 0
        self._at = 0
        self._sequence = -1
        self._tries = tries
        self._failing = (-1, -1)
        """The chunk and the offset that the disk couldn't read the last time, `_failures` times so far."""
        self._failures = 0

    def read(self, first: int, end: int, *, count: int, bytes_max: int) -> Found:
        """Records from number `first` on, before `end`; at least one, if there is any, whatever its size.

        Raise `OSError` where not even one can be read for now.
        """
        found = Found(first)
        try:
            if self._sequence != first or self._chunk is None:
                self._seek(first, found)
            while self._sequence < end and len(found.records) < count:
                if not self._step(found, end, count - len(found.records), bytes_max - found.bytes):
                    break
        except OSError:
            reached = self._sequence
            self.reset()
            if reached <= first or not found.records:
                raise
            self._sequence = reached  # what comes before the fault is sound: the next reading meets it again
        found.next = min(self._sequence, end)
        found.gaps = [_clip(gap, first, end) for gap in found.gaps]
        found.lost = [_clip(lost, first, end) for lost in found.lost]
        return found

    def reset(self) -> None:
        """Forget what was read ahead: the files have changed behind their ends."""
        if self._file is not None:
            self._file.close()
        self._file = self._chunk = None
        self._data, self._sequence = b"", -1

    def _seek(self, first: int, found: Found) -> None:
        """Go to a record; where it can't be read, to the first one after it that can."""
        chunk = self._chunks.holding(first)
        self._sequence = first
        if chunk is None or chunk.first > first:
            self._chunk = None
            return
        place = chunk.nearest(first)
        self._enter(chunk, place.offset)
        self._sequence = place.sequence
        has_more = True
        while self._sequence < first and has_more:
            has_more = self._step(found, first, first - self._sequence, _NO_LIMIT)
            found.records.clear()  # also those of the last step: they are before `first`
            found.bytes = 0

    def _enter(self, chunk: Chunk, offset: int) -> None:
        if self._chunk is not chunk:
            if self._file is not None:
                self._file.close()
            self._file = None
            self._chunk = chunk
        self._data, self._base, self._at = b"", offset, 0

    def _step(self, found: Found, end: int, count: int, bytes_max: int) -> bool:
        """Read some more; whether there may be more after it."""
        chunk = self._chunk
        if chunk is None or self._sequence >= chunk.end or self._sequence < chunk.first:
            return self._go_on(found)
        parsed = self._layout.parse(
            self._data, self._at, chunk.number, self._sequence,
            count=min(count, chunk.end - self._sequence, end - self._sequence),
            bytes_max=bytes_max, least=0 if found.records else 1,
        )  # fmt: skip
        found.records += parsed.records
        found.bytes += parsed.bytes
        self._at = parsed.stop
        self._sequence += len(parsed.records)
        if parsed.fault is not None:
            self._skip_damage(chunk, parsed.fault, found)
            return True
        if not parsed.needed:
            return len(parsed.records) < count and self._sequence >= chunk.end
        if self._fill(chunk, parsed.needed):
            return True
        start = self._base + self._at
        is_unreadable = chunk.holes.overlap(start, start + parsed.needed)
        reason = "the disk can't read it" if is_unreadable else "the chunk ends within a record"
        self._skip_damage(chunk, reason, found)
        return True

    def _go_on(self, found: Found) -> bool:
        """Enter the chunk that has the next record."""
        chunk = self._chunks.holding(self._sequence)
        if chunk is None:
            return False
        if chunk.first > self._sequence:
            found.gaps.append(range(self._sequence, chunk.first))
            self._sequence = chunk.first
        self._seek(self._sequence, found)
        return True

    def _opened(self, chunk: Chunk) -> ChunkFile | None:
        if self._file is None:
            try:
                self._file = ChunkFile(self._disk.open(chunk.name), chunk.holes)
            except FileNotFoundError:
                return None
            except OSError as error:
                if not is_medium_fault(error):
                    raise
                self._give_up(chunk, 0, error)
                chunk.is_kept = True
                return None
        return self._file

    def _fill(self, chunk: Chunk, needed: int) -> bool:
        """Have at least `needed` bytes from here on; False where the chunk ends before."""
        start = self._base + self._at
        if start + needed > chunk.stop:
            return False
        file = self._opened(chunk)
        if file is None:
            return False
        self._data, fault = file.read_sound(start, min(max(needed, _READ_BYTES), chunk.stop - start))
        self._base, self._at = start, 0
        chunk.mark(self._sequence, start)
        if len(self._data) >= needed:
            return True
        if fault is not None:
            self._give_up(chunk, start + len(self._data), fault)
        return False

    def _give_up(self, chunk: Chunk, offset: int, fault: OSError) -> None:
        """Count a failure to read; the last one makes a hole, the ones before raise."""
        if self._failing != (chunk.number, offset):
            self._failing, self._failures = (chunk.number, offset), 0
        self._failures += 1
        if self._failures < self._tries:
            raise fault
        chunk.holes.add(offset)

    def _skip_damage(self, chunk: Chunk, reason: str, found: Found) -> None:
        """Step over bytes up to the next record that can be read."""
        start, file = self._base + self._at, self._opened(chunk)
        if file is None:
            after, stop = chunk.end, chunk.stop
            self._quarantine.tell(
                Damage(kind="missing", file=chunk.name, reason="the chunk is gone",
                       offset=start, size=stop - start, first=self._sequence, last=after - 1)
            )  # fmt: skip
        else:
            place = self._layout.find(file, start, chunk.stop, chunk.number, self._sequence)
            after, stop = (place.sequence, place.offset) if place else (chunk.end, chunk.stop)
            if after > chunk.end:
                after, stop = chunk.end, chunk.stop
            is_lost = after > self._sequence
            damage = Damage(
                kind="damaged", file=chunk.name, reason=reason, offset=start, size=stop - start,
                first=self._sequence if is_lost else None, last=after - 1 if is_lost else None,
            )  # fmt: skip
            self._quarantine.keep(chunk, file, damage)
        if after > self._sequence:
            found.lost.append(range(self._sequence, after))
        self._data, self._base, self._at, self._sequence = b"", stop, 0, after


def _clip(numbers: range, first: int, end: int) -> range:
    return range(max(numbers.start, first), min(numbers.stop, end))
