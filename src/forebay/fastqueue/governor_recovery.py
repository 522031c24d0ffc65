"""What a folder of metrics-governor's chunks holds: found by reading all that isn't delivered.

The format has no index, no sequence numbers and no chunk size, so records are counted from the oldest one on.

Invariants: bytes that can't be read are in quarantine before the end of a chunk is cut; without a meta that
fits, reading begins with the oldest chunk: blocks may come again, none is left out.
"""

import contextlib
from itertools import pairwise
from math import gcd

import msgspec

from forebay.disk import Disk
from forebay.fastqueue.chunk import Chunk, Chunks
from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.governor import GovernorLayout
from forebay.fastqueue.governor_meta import GovernorMeta, decode_governor_meta
from forebay.fastqueue.meta import META, read_file
from forebay.fastqueue.quarantine import Quarantine
from forebay.fastqueue.record import Damage, Place
from forebay.fastqueue.recovery import Progress, Recovered, Scan, is_blank, scan, unseen


class _Seen(msgspec.Struct):
    chunk: Chunk
    file: ChunkFile
    size: int


def recover_governor(
    disk: Disk, layout: GovernorLayout, quarantine: Quarantine, chunk_size: int, progress: Progress = unseen
) -> Recovered:
    """Look at a folder; `chunk_size` is used where the files don't say another."""
    numbers = sorted(number for name in disk.list() if (number := layout.number(name)) is not None)
    seen: list[_Seen] = []
    try:
        for number in numbers:
            name = layout.file_name(number)
            chunk = Chunk(number, name, first=0, start=0, end=0, stop=0)
            opened = quarantine.opened(name)
            if opened is None:
                continue
            file = ChunkFile(opened, chunk.holes)
            seen.append(_Seen(chunk, file, file.size()))
        meta = _read_meta(disk, quarantine)
        return _Recovery(layout, quarantine, seen, meta, configured=chunk_size, progress=progress).run()
    finally:
        for one in seen:
            one.file.close()


def derive_chunk_size(numbers: list[int], longest: int, configured: int) -> int:
    """The size that explains where chunks begin; what is configured, if that does or if none does."""
    common = gcd(*numbers) if any(numbers) else 0
    if common % configured == 0 or common < longest:
        return configured
    return common


def _read_meta(disk: Disk, quarantine: Quarantine) -> GovernorMeta | None:
    data = read_file(disk)
    meta = None if data is None else decode_governor_meta(data)
    if data is not None and meta is None:
        _report_meta(quarantine, "it can't be read", len(data))
    return meta


def _report_meta(quarantine: Quarantine, reason: str, size: int = 0) -> None:
    text = f"{reason}: blocks of the oldest chunk may come again"
    quarantine.tell(Damage(kind="meta", file=META, reason=text, size=size))


class _Recovery:
    def __init__(
        self, layout: GovernorLayout, quarantine: Quarantine, seen: list[_Seen], meta: GovernorMeta | None,
        *, configured: int, progress: Progress,
    ) -> None:  # fmt: skip
        self._layout = layout
        self._quarantine = quarantine
        self._seen = seen
        self._meta = meta
        self._configured = configured
        self._progress = progress
        numbers = [one.chunk.number for one in seen]
        self._chunk_size = derive_chunk_size(numbers, max((one.size for one in seen), default=0), configured)

    def run(self) -> Recovered:
        offset = self._reader_offset()
        recovered = Recovered(chunks=Chunks([one.chunk for one in self._seen]), cursor=0, end=0)
        recovered.chunk_size = self._configured
        for one in self._seen:
            self._count(one, offset, recovered)
        self._check_neighbours()
        recovered.next_number = self._next_number()
        return recovered

    def _next_number(self) -> int:
        """Where the first chunk of an empty folder begins: not before what was ever written."""
        written = self._meta.writer_offset if self._meta else 0
        return -(-written // self._configured) * self._configured

    def _reader_offset(self) -> int:
        """Where reading goes on, if that is the beginning of a block; else the oldest byte that there is."""
        if not self._seen:
            return 0
        meta, oldest = self._meta, self._seen[0].chunk.number
        if meta is None:
            return oldest
        if meta.reader_offset < oldest:
            reason = f"the stream is gone from {meta.reader_offset} to {oldest}"
            name = self._layout.file_name(meta.reader_offset // self._chunk_size * self._chunk_size)
            self._quarantine.tell(Damage(kind="missing", file=name, reason=reason))
            return oldest
        if self._is_boundary(meta.reader_offset):
            return meta.reader_offset
        _report_meta(self._quarantine, "no block begins at its reader_offset")
        return oldest

    def _is_boundary(self, offset: int) -> bool:
        last = self._seen[-1]
        end = last.chunk.number + last.size
        if offset == self._layout.next_number(last.chunk.number, last.size, self._chunk_size):
            return True
        if offset > end:
            return False
        one = next(one for one in reversed(self._seen) if one.chunk.number <= offset)
        inside = offset - one.chunk.number
        if inside > one.size:
            return False  # in the gap between two chunks: nothing begins there
        # Numbers are given later, from the offset on: a chunk of its own takes the marks of this reading.
        tried = Chunk(one.chunk.number, one.chunk.name, first=0, start=0, end=0, stop=0)
        found = scan(self._layout, one.file, tried, Place(tried.number, 0, 0), inside)
        if found.tail is not None:
            return self._layout.leads(one.file, found.stop, inside)
        return found.stop == inside

    def _count(self, one: _Seen, offset: int, recovered: Recovered) -> None:
        """Number the records of a chunk from where reading goes on."""
        chunk, start = one.chunk, max(0, min(offset - one.chunk.number, one.size))
        chunk.start, chunk.first = start, recovered.end
        place = Place(chunk.number, start, recovered.end)
        self._progress(start)  # what is delivered needn't be read
        found = scan(self._layout, one.file, chunk, place, one.size, progress=self._progress)
        self._progress(one.size - found.stop)
        chunk.end, chunk.stop = found.end, found.stop
        recovered.end = found.end
        recovered.entry_count += found.end - found.first
        recovered.total_bytes += found.bytes
        recovered.is_clean = True
        if one.size > found.stop:
            recovered.is_clean = self._cut(one, found, is_last=one is self._seen[-1])

    def _cut(self, one: _Seen, found: Scan, *, is_last: bool) -> bool:
        """Keep the bytes after the last record; the last chunk is cut, so that it can be appended to."""
        chunk, size = one.chunk, one.size - found.stop
        is_torn = found.needed > size or is_blank(one.file, found.stop, size)
        damage = Damage(
            kind="torn" if is_torn else "damaged", file=chunk.name, reason=found.tail or "no block",
            offset=found.stop, size=size,
        )  # fmt: skip
        self._quarantine.keep(chunk, one.file, damage)
        if is_last and not chunk.is_kept:
            with contextlib.suppress(OSError):
                one.file.truncate(found.stop)
                one.file.sync()
                return True
        return False

    def _check_neighbours(self) -> None:
        """Report chunks that are gone from between others."""
        for one, after in pairwise(self._seen):
            number, sizes = one.chunk.number, (self._chunk_size, self._configured)
            expected = [self._layout.next_number(number, one.size, size) for size in sizes]
            if one.chunk.end > one.chunk.first and after.chunk.number > max(expected):
                gone = min(expected)
                count = max(1, (after.chunk.number - gone) // self._chunk_size)
                reason = f"{count} chunks of {self._chunk_size} bytes are gone from here on"
                name = self._layout.file_name(gone)
                self._quarantine.tell(Damage(kind="missing", file=name, reason=reason))
