"""A folder looked at from outside: what it holds, and whether all of it can be read.

Invariants: nothing is changed but by `repair`, which takes the folder's lock; so the rest works beside a
running queue, whose newest blocks it may not see.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from forebay.disk import Disk
from forebay.fastqueue.formats import Format, format_of, formats_in
from forebay.fastqueue.meta import META
from forebay.fastqueue.quarantine import QUARANTINE, Quarantine
from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.reader import Reader
from forebay.fastqueue.record import Damage, Record
from forebay.fastqueue.recovery import Progress, Recovered, unseen
from forebay.fastqueue.settings import Compression, FastQueueSettings, FormatName

_COUNT: Final = 1000
_BYTES: Final = 8 << 20


class ChunkState(msgspec.Struct, frozen=True):
    """A chunk file: its sequence numbers from `first` to before `end`; `waiting` aren't acknowledged."""

    file: str
    bytes: int
    first: int
    end: int
    waiting: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A folder."""

    format: FormatName
    chunks: list[ChunkState]
    cursor: int
    entry_count: int
    total_bytes: int
    disk_bytes: int
    oldest_enqueued_at_us: int | None
    quarantined: int
    damages: list[Damage]


class Verified(msgspec.Struct, kw_only=True):
    """The findings of a reading of everything that isn't acknowledged."""

    format: FormatName
    blocks: int = 0
    bytes: int = 0
    damages: list[Damage] = []

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged; an end that a crash tore off is none, since nobody was told of it."""
        return all(damage.kind == "torn" for damage in self.damages)


def chunk_bytes(disk: Disk, name: FormatName) -> int:
    """Bytes of the chunk files of a folder."""
    layout = format_of(FastQueueSettings(format=name)).layout
    total = 0
    for file_name in disk.list():
        if layout.number(file_name) is not None:
            with suppress(OSError):  # what can't be opened isn't read either
                file = disk.open(file_name)
                total += file.size()
                file.close()
    return total


def format_name(disk: Disk) -> FormatName | None:
    """The format of a folder, by the names of its files; None where it has none."""
    found = formats_in(disk)
    if found:
        return found[0]
    return "native" if META in disk.list() else None


class Folder:
    """A folder in one format, seen at one moment."""

    def __init__(
        self, disk: Disk, name: FormatName, compression: Compression = "snappy", progress: Progress = unseen
    ) -> None:
        """Look at it; `progress` is told of what is read for that, which is much in the format `governor`."""
        self._disk = disk
        self.format = name
        self.damages: list[Damage] = []
        self._quarantine = Quarantine(disk, self.damages.append, changes=False)
        self._chosen: Format = format_of(FastQueueSettings(format=name, compression=compression))
        self.recovered: Recovered = self._chosen.recover(disk, self._quarantine, progress)

    @property
    def disk_bytes(self) -> int:
        """Bytes of chunk files that aren't behind the cursor."""
        return sum(chunk.stop for chunk in self.recovered.chunks.all if chunk.end > self.recovered.cursor)

    def state(self) -> State:
        """Its contents, without reading it all."""
        found = self.recovered
        cursor = found.cursor
        chunks = [
            ChunkState(one.name, one.stop, one.first, one.end, max(0, one.end - max(one.first, cursor)))
            for one in found.chunks.all
        ]
        oldest = next(self.records(count=1), None)
        aside = [name for name in self._disk.list(QUARANTINE) if name.endswith(".bad")]
        return State(
            format=self.format,
            chunks=chunks,
            cursor=cursor,
            entry_count=found.entry_count,
            total_bytes=found.total_bytes,
            disk_bytes=found.chunks.bytes,
            oldest_enqueued_at_us=(oldest.enqueued_at_us or None) if oldest else None,
            quarantined=len(aside) + sum(name.endswith(".damaged") for name in self._disk.list()),
            damages=self.damages,
        )

    def records(self, progress: Progress | None = None, *, count: int = _COUNT) -> Iterator[Record]:
        """All blocks that aren't acknowledged, in order."""
        found = self.recovered
        reader = Reader(self._disk, self._chosen.layout, found.chunks, self._quarantine, tries=1)
        acked = {number for first, last in found.acked for number in range(first, last + 1)}
        at, done = found.cursor, 0
        try:
            while at < found.end:
                page = reader.read(at, found.end, count=count, bytes_max=_BYTES)
                if page.next == at:
                    return
                at = page.next
                for record in page.records:
                    if record.sequence not in acked:
                        yield record
                if progress is not None:
                    done, before = self._passed(at), done
                    progress(max(0, done - before))
        finally:
            reader.reset()

    def _passed(self, sequence: int) -> int:
        """Bytes of chunks before a block, about."""
        total = 0
        for chunk in self.recovered.chunks.all:
            if self.recovered.cursor < chunk.end <= sequence:
                total += chunk.stop
            elif chunk.first < sequence < chunk.end:
                total += chunk.nearest(sequence).offset
        return total


def verify(folder: Folder, progress: Progress) -> Verified:
    """Read everything."""
    found = Verified(format=folder.format)
    for record in folder.records(progress):
        found.blocks += 1
        found.bytes += len(record.data)
    found.damages = folder.damages
    return found


def repair(
    disk: Disk, name: FormatName, compression: Compression, clock: Callable[[], int], progress: Progress
) -> list[Damage]:
    """Set aside all that can't be read, and write a meta that fits; what was set aside."""
    damages: list[Damage] = []
    settings = FastQueueSettings(format=name, compression=compression)
    queue = FastQueue.open(disk, settings, clock=clock, report=damages.append, read_tries=1)
    try:
        while records := queue.read(_COUNT, _BYTES):
            progress(sum(len(record.data) for record in records))
    finally:
        queue.close()
    return damages
