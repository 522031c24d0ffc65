"""What a folder of native chunks holds, at the start of a queue: by heads and meta where they can be trusted.

Invariants: nothing is deleted or changed; a chunk is read whole only where the heads of it and of the next
one and the meta don't say what it holds; after a crash only what was written since the last meta is read.
"""

import secrets
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from forebay.disk import Disk
from forebay.fastqueue.chunk import Chunk, Chunks
from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.layout import Head, Layout
from forebay.fastqueue.meta import META, Meta, decode_meta, read_file
from forebay.fastqueue.quarantine import Quarantine
from forebay.fastqueue.record import Damage, Place

_SCAN_BYTES: Final = 1 << 20
_ALL: Final = 1 << 62

Progress = Callable[[int], None]
"""Is told of bytes on disk that were read."""


def unseen(_: int) -> None:
    """Progress that nobody looks at."""


class Recovered(msgspec.Struct, kw_only=True):
    """The state to start with; `is_clean` says that the last chunk can be appended to."""

    chunks: Chunks
    cursor: int
    end: int
    entry_count: int = 0
    total_bytes: int = 0
    bytes_before: int = 0
    next_number: int = 0
    chunk_size: int = 0
    identity: int = 0
    acked: list[tuple[int, int]] = []
    is_clean: bool = True


class Scan(msgspec.Struct):
    """What reading a chunk from a place on found: the numbers up to `end`, in bytes up to `stop`."""

    first: int
    end: int
    stop: int
    count: int = 0
    bytes: int = 0
    tail: str | None = None
    """The fault of the bytes after `stop`."""
    needed: int = 0


def scan(
    layout: Layout, file: ChunkFile, chunk: Chunk, place: Place, size: int,
    *, before: int = _ALL, progress: Progress = unseen,
) -> Scan:  # fmt: skip
    """Read from a place up to the end of the file, over damage, which is left to the reader to report."""
    found = Scan(place.sequence, place.sequence, place.offset)
    data, base, at = b"", place.offset, 0
    while base + at < size and found.end < before:
        parsed = layout.parse(
            data, at, chunk.number, found.end, count=before - found.end, bytes_max=_ALL, least=1
        )
        at = parsed.stop
        found.count += len(parsed.records)
        found.end += len(parsed.records)
        found.bytes += parsed.bytes
        found.stop = base + at
        start = base + at
        if start >= size or found.end >= before:
            break
        if parsed.fault is None and start + parsed.needed <= size:
            data, fault = file.read_sound(start, min(max(parsed.needed, _SCAN_BYTES), size - start))
            if fault is not None:
                file.holes.add(start + len(data))
            progress(start - base)
            base, at = start, 0
            chunk.mark(found.end, start)
            if len(data) >= parsed.needed:
                continue
        after = layout.find(file, start, size, chunk.number, found.end)
        if after is None:
            found.tail = parsed.fault or "the chunk ends within a record"
            found.needed = parsed.needed
            break
        progress(after.offset - base)
        data, base, at = b"", after.offset, 0
        found.end, found.stop = after.sequence, after.offset
    progress(max(0, found.stop - base))
    return found


def is_blank(file: ChunkFile, start: int, size: int) -> bool:
    """Whether there are only zeros, as a crash leaves them, and no bytes that can't be read."""
    return not file.read_at(start, min(size, _SCAN_BYTES)).strip(b"\0") and not file.holes.overlap(
        start, start + size
    )


def recover(disk: Disk, layout: Layout, quarantine: Quarantine) -> Recovered:
    """Look at a folder."""
    return _Recovery(disk, layout, quarantine).run()


class _Seen(msgspec.Struct):
    """A chunk file that is there."""

    chunk: Chunk
    file: ChunkFile
    size: int
    head: Head | None
    bytes: int = 0
    """Uncompressed, of all its records."""
    limit: int = _ALL
    """The number at which its records end, by the heads of later chunks: a failed push may have left more."""
    next_number: int = -1
    """The number of the next chunk that counts, if no chunk between them is gone."""

    @property
    def is_void(self) -> bool:
        """Whether all that it holds are records of failed pushes."""
        return self.head is not None and self.head.first >= self.limit


class _Recovery:
    def __init__(self, disk: Disk, layout: Layout, quarantine: Quarantine) -> None:
        self._disk = disk
        self._layout = layout
        self._quarantine = quarantine
        self._meta = self._read_meta()
        self._is_regular = True

    def run(self) -> Recovered:
        seen = self._open_all()
        try:
            self._check_meta(seen)
            recovered = self._recovered(seen)
            recovered.identity = self._identity(seen)
            return recovered
        finally:
            for one in seen:
                one.file.close()

    def _read_meta(self) -> Meta | None:
        data = read_file(self._disk)
        meta = None if data is None else decode_meta(data)
        if data is not None and meta is None:
            self._report_meta("it isn't what was written", len(data))
        return meta

    def _report_meta(self, reason: str, size: int = 0) -> None:
        text = f"{reason}: blocks of the oldest chunk may come again"
        self._quarantine.tell(Damage(kind="meta", file=META, reason=text, size=size))

    def _check_meta(self, seen: list[_Seen]) -> None:
        """Use the meta only if the record that it says is near the cursor is there."""
        meta, identity = self._meta, self._identity(seen)
        if meta is not None and meta.identity != identity:
            self._report_meta("it belongs to other chunks")
            self._meta = meta = None
        if meta is None or meta.near.sequence >= meta.end.sequence:
            return
        for one in seen:
            if one.chunk.number == meta.near.chunk:
                place = Place(meta.near.chunk, meta.near.offset, meta.near.sequence)
                after = meta.near.sequence + 1
                found = scan(self._layout, one.file, one.chunk, place, one.size, before=after)
                if found.count != 1 and not one.chunk.holes:
                    self._report_meta("it doesn't belong to these chunks")
                    self._meta = None

    def _open_all(self) -> list[_Seen]:
        names = {
            number: name for name in self._disk.list() if (number := self._layout.number(name)) is not None
        }
        seen = []
        size = self._layout.head_bytes
        for number in sorted(names):
            chunk = Chunk(number, names[number], first=0, start=size, end=0, stop=0)
            opened = self._quarantine.opened(names[number])
            if opened is None:
                continue
            file = ChunkFile(opened, chunk.holes)
            chunk.stop = file.size()
            head = self._layout.read_head(file.read_at(0, size), number)
            seen.append(_Seen(chunk, file, chunk.stop, head))
        return seen

    def _identity(self, seen: list[_Seen]) -> int:
        """What the chunks of this queue have in common; a new one for a new queue."""
        known = [one.head.identity for one in reversed(seen) if one.head]
        if known or self._meta:
            return known[0] if known else self._meta.identity if self._meta else 0
        return secrets.randbits(32)

    def _recovered(self, seen: list[_Seen]) -> Recovered:
        meta = self._meta
        if not seen:
            return self._empty()
        tail = Scan(0, 0, 0)
        expected = 0
        _limit(seen)
        live = [one for one in seen if not one.is_void]
        for one, after in zip(live, [*live[1:], None], strict=True):
            tail = self._measure(one, after, expected)
            expected = one.chunk.end
        self._check_neighbours(seen)
        last = seen[-1].chunk
        chunks = Chunks([one.chunk for one in seen])
        end = max(last.end, meta.end.sequence if meta else 0)
        cursor = self._cursor(seen, end)
        is_clean = self._check_tail(seen[-1], tail)
        self._check_end(seen[-1], cursor)
        recovered = Recovered(
            chunks=chunks, cursor=cursor, end=end, next_number=last.number + 1, is_clean=is_clean,
            acked=[pair for pair in meta.acked if pair[1] < end] if meta else [],
            bytes_before=(seen[-1].head.bytes_before if seen[-1].head else 0) + seen[-1].bytes,
        )  # fmt: skip
        self._count(recovered, seen, tail)
        return recovered

    def _empty(self) -> Recovered:
        meta = self._meta
        if meta is None:
            return Recovered(chunks=Chunks(), cursor=0, end=0, next_number=0)
        if meta.cursor < meta.end.sequence:
            self._report_missing(META, meta.cursor, meta.end.sequence, "all chunks are gone")
        end = meta.end.sequence
        return Recovered(
            chunks=Chunks(),
            cursor=end,
            end=end,
            next_number=meta.end.chunk + 1,
            bytes_before=meta.bytes_before,
        )

    def _measure(self, one: _Seen, after: _Seen | None, expected: int) -> Scan:
        """Find out which records a chunk has: from the heads if they say it, else by reading it."""
        chunk, head, meta = one.chunk, one.head, self._meta
        if head is None:
            self._is_regular = False
            self._report_head(one)
            begin = self._layout.find(one.file, -1, one.size, chunk.number, -1)
            chunk.first = begin.sequence if begin else expected
            chunk.start = begin.offset if begin else one.size
        else:
            chunk.first = head.first
        if after is not None and after.head and head and one.next_number == after.chunk.number:
            chunk.end = max(chunk.first, one.limit)
            one.bytes = after.head.bytes_before - head.bytes_before
            return Scan(chunk.first, chunk.end, chunk.stop)
        place, known = Place(chunk.number, chunk.start, chunk.first), 0
        if after is None and head and meta and self._ends_in(meta, one):
            place = Place(chunk.number, meta.end.offset, meta.end.sequence)
            known = meta.bytes_before - head.bytes_before
        else:
            self._is_regular = self._is_regular and after is None and meta is None
        found = scan(self._layout, one.file, chunk, place, one.size, before=one.limit)
        chunk.end, chunk.stop, one.bytes = found.end, found.stop, known + found.bytes
        return found

    def _ends_in(self, meta: Meta, one: _Seen) -> bool:
        """Whether the meta's end is a place in this chunk."""
        return (
            meta.end.chunk == one.chunk.number
            and one.chunk.start <= meta.end.offset <= one.size
            and one.chunk.first <= meta.end.sequence
        )

    def _check_neighbours(self, seen: list[_Seen]) -> None:
        """Report chunks that are gone from between others."""
        for one, after in pairwise(seen):
            if after.chunk.number != one.chunk.number + 1:
                self._is_regular = False
                gone = after.head.previous_end if after.head else after.chunk.first
                name = self._layout.file_name(one.chunk.number + 1)
                self._report_missing(name, one.chunk.end, gone, "a chunk is gone")

    def _cursor(self, seen: list[_Seen], end: int) -> int:
        meta, oldest = self._meta, seen[0]
        if meta is None:
            return oldest.chunk.first
        if meta.cursor < oldest.chunk.first:
            self._is_regular = False
            gone = oldest.head.previous_end if oldest.head else oldest.chunk.first
            number, text = oldest.chunk.number - 1, "the oldest chunk is gone"
            if meta.near.chunk == oldest.chunk.number:
                number, text = meta.near.chunk, "the first blocks are behind a head that can't be read"
            self._report_missing(self._layout.file_name(number), meta.cursor, gone, text)
            return oldest.chunk.first
        for one in seen:
            if one.chunk.number == meta.near.chunk and one.chunk.start <= meta.near.offset <= one.chunk.stop:
                one.chunk.mark(meta.near.sequence, meta.near.offset)
        return min(meta.cursor, end)

    def _check_tail(self, last: _Seen, tail: Scan) -> bool:
        """Report bytes after the last record; whether there are none."""
        chunk, size = last.chunk, last.size - last.chunk.stop
        if size <= 0:
            # After a crash nobody knows whether a sync of the file had failed: a new one is begun then.
            return (
                self._meta is not None
                and self._meta.is_open
                and self._ends_in(self._meta, last)
                and (self._meta.end.offset == last.size)
            )
        is_torn = tail.needed > size or is_blank(last.file, chunk.stop, size)
        damage = Damage(
            kind="torn" if is_torn else "damaged", file=chunk.name, reason=tail.tail or "no record",
            offset=chunk.stop, size=size, first=None if is_torn else chunk.end,
        )  # fmt: skip
        self._quarantine.keep(chunk, last.file, damage)
        return False

    def _check_end(self, last: _Seen, cursor: int) -> None:
        """Report records that the meta knows of and the chunks don't have."""
        meta, end = self._meta, last.chunk.end
        if meta and max(end, cursor) < meta.end.sequence:
            self._is_regular = False
            text = "the end of the last chunk is gone"
            self._report_missing(last.chunk.name, max(end, cursor), meta.end.sequence, text)

    def _count(self, recovered: Recovered, seen: list[_Seen], tail: Scan) -> None:
        """Count what isn't acknowledged: by the meta if all is as it says, else by the chunks."""
        meta, cursor = self._meta, recovered.cursor
        if meta and self._is_regular:
            recovered.entry_count = meta.entry_count + tail.end - tail.first
            recovered.total_bytes = meta.total_bytes + tail.bytes
            return
        for one in seen:
            chunk = one.chunk
            if chunk.first < cursor < chunk.end:
                place = chunk.nearest(cursor)
                size = scan(self._layout, one.file, chunk, place, one.size, before=chunk.end).bytes
                size -= scan(self._layout, one.file, chunk, place, one.size, before=cursor).bytes
                recovered.entry_count += chunk.end - cursor
                recovered.total_bytes += size
            elif chunk.first >= cursor:
                recovered.entry_count += chunk.end - chunk.first
                recovered.total_bytes += one.bytes
        if meta:
            # Numbers that no chunk has count as acknowledged too, and were not counted above.
            recovered.entry_count -= sum(
                max(0, min(last + 1, one.chunk.end) - max(first, one.chunk.first, cursor))
                for first, last in recovered.acked
                for one in seen
            )
            recovered.total_bytes -= meta.acked_bytes

    def _report_head(self, one: _Seen) -> None:
        is_torn = one.size < self._layout.head_bytes
        damage = Damage(
            kind="torn" if is_torn else "damaged", file=one.chunk.name, reason="the head can't be read",
            size=min(one.size, self._layout.head_bytes),
        )  # fmt: skip
        self._quarantine.keep(one.chunk, one.file, damage)

    def _report_missing(self, name: str, first: int, end: int, reason: str) -> None:
        lost = first < end
        self._quarantine.tell(
            Damage(kind="missing", file=name, reason=reason, first=first if lost else None,
                   last=end - 1 if lost else None)
        )  # fmt: skip


def _limit(seen: list[_Seen]) -> None:
    """Have each chunk end where the next one that counts begins; void ones have no records at all."""
    limit, live, number = _ALL, -1, -1
    for one in reversed(seen):
        one.limit = limit
        is_next = one.chunk.number + 1 == number
        number = one.chunk.number
        one.next_number = live = live if is_next else -1
        if one.is_void:
            one.chunk.first = one.chunk.end = limit
            one.chunk.stop = one.chunk.start
        else:
            live = one.chunk.number
        if one.head is not None:
            limit = min(limit, one.head.previous_end)
