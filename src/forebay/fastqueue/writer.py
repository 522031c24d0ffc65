"""The end of a queue on disk: the last chunk, and the next one when it is full.

Invariants: an append that raises leaves nothing behind that counts, and what was there before stands; after a
failed sync its files are closed and never written to again; a chunk's name is safe before it has records.
"""

import contextlib
from collections.abc import Sequence

from forebay.disk import Disk, File
from forebay.fastqueue.chunk import Chunk, Chunks
from forebay.fastqueue.layout import Buffer, Head, Layout
from forebay.fastqueue.record import Place, Record
from forebay.fastqueue.settings import FastQueueSettings


class Writer:
    """Appends to chunks. `bytes_before` counts the bytes of all records that were ever written.

    `end` is the sequence number after the last one that was written. `next_number` is that of the chunk to
    begin where there is none to go on with.
    """

    def __init__(
        self, disk: Disk, layout: Layout, settings: FastQueueSettings, chunks: Chunks,
        *, end: int, bytes_before: int, next_number: int, chunk_size: int, identity: int,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._layout = layout
        self._buffer_bytes = settings.write_buffer_size
        self._chunk_size = chunk_size
        self._chunks = chunks
        self._next_number = next_number
        self._identity = identity
        self._file: File | None = None
        self._unsynced: list[tuple[Chunk, File]] = []
        self._safe: tuple[int, int] = (-1, 0)
        self.end = end
        self.bytes_before = bytes_before
        self.rotations = 0

    def reopen(self) -> None:
        """Go on with the last chunk, which ends where it should."""
        chunk = self._chunks.all[-1]
        if chunk.stop < self._chunk_size:
            self._file = self._disk.open(chunk.name)
            self._unsynced.append((chunk, self._file))
            self._safe = (chunk.number, chunk.stop)

    @property
    def is_open(self) -> bool:
        """Whether the last chunk can be appended to."""
        return self._file is not None

    @property
    def place(self) -> Place:
        """Where the next record goes, unless it begins a chunk."""
        last = self._chunks.all[-1] if self._chunks.all else None
        return Place(last.number, last.stop, self.end) if last else Place(-1, 0, self.end)

    def append(self, records: Sequence[Record]) -> None:
        """Write all records or none; the first is number `end`, or a higher one if all before are done."""
        before = _Before(self)
        # Packed by the one who may write: pushers that compress side by side fight for the interpreter.
        packed = self._layout.pack([record.data for record in records])
        try:
            self._append(records, packed)
        except OSError:
            self._roll_back(before)
            raise

    def _append(self, records: Sequence[Record], packed: Sequence[tuple[int, Buffer]]) -> None:
        at = 0
        if records[0].sequence != self.end:
            self.retire()
        while at < len(records):
            chunk = self._chunks.all[-1] if self._file else self._begin(records[at].sequence)
            framed = self._layout.frame(
                records, packed, at, chunk.number,
                enough=self._buffer_bytes, room=self._chunk_size - chunk.stop,
            )  # fmt: skip
            if not framed.count:
                assert chunk.stop > self._layout.head_bytes, "a block is larger than a chunk"
                self.retire()
                continue
            assert self._file is not None
            self._file.append(framed.data)
            chunk.mark(records[at].sequence, chunk.stop)
            chunk.stop += len(framed.data)
            self.bytes_before += sum(len(record.data) for record in records[at : at + framed.count])
            at += framed.count
            self.end = chunk.end = records[at - 1].sequence + 1

    def _begin(self, first: int) -> Chunk:
        """Make a chunk and its head, and its name safe."""
        number, size = self._next_number, self._layout.head_bytes
        if self._chunks.all:
            last = self._chunks.all[-1]
            number = self._layout.next_number(last.number, last.stop, self._chunk_size)
        chunk = Chunk(number, self._layout.file_name(number), first=first, start=size, end=first, stop=size)
        file = self._disk.open(chunk.name, create=True)
        self._chunks.all.append(chunk)
        self._unsynced.append((chunk, file))
        self._file = file
        if size:
            head = Head(number, first, self.end, self.bytes_before, self._chunk_size, self._identity)
            file.append(self._layout.head(head))
        self._disk.sync_folder()
        self.rotations += 1
        self.end = first
        return chunk

    def retire(self) -> None:
        """Write no more to the last chunk; it is closed by the sync that comes."""
        self._file = None

    def _roll_back(self, before: "_Before") -> None:
        begun = self._chunks.all[before.count :]
        for chunk in begun:
            file = next(file for known, file in self._unsynced if known is chunk)
            file.close()
            self._unsynced.remove((chunk, file))
            chunk.cut(chunk.first, chunk.start)
            try:
                self._disk.remove(chunk.name)
            except OSError:
                continue
            self._chunks.all.remove(chunk)
        self._file = None
        self.end, self.bytes_before, self.rotations = before.end, before.bytes, before.rotations
        if before.chunk is not None:
            before.chunk.cut(before.chunk_end, before.chunk_stop)
            # A chunk that was begun may come back with a crash, and says where the one before it ends: only
            # another one after it can say otherwise.
            if before.file is not None and not begun:
                with contextlib.suppress(OSError):
                    before.file.truncate(before.chunk_stop)
                    self._file = before.file

    def unsynced(self) -> list[File]:
        """The files that have to be synced for all that was written to be safe."""
        return [file for _, file in self._unsynced]

    def synced(self, files: Sequence[File]) -> None:
        """Files were synced: close those that are written to no more."""
        kept: list[tuple[Chunk, File]] = []
        for chunk, file in self._unsynced:
            if file is self._file or file not in files:
                kept.append((chunk, file))
            else:
                file.close()
        self._unsynced = kept

    def note_safe(self, place: Place) -> None:
        """All before `place` is safe, whatever becomes of the rest."""
        self._safe = (place.chunk, place.offset)

    def abandon(self, end: int, bytes_before: int, *, cuts: bool) -> None:
        """Close the files that failed to sync; with `cuts` forget what isn't safe, from record `end` on."""
        for chunk, file in self._unsynced:
            if cuts:
                number, offset = self._safe
                stop = offset if chunk.number == number else chunk.start
                if chunk.number >= number:
                    chunk.cut(min(chunk.end, max(end, chunk.first)), stop)
                    with contextlib.suppress(OSError):
                        file.truncate(stop)
            with contextlib.suppress(OSError):
                file.close()
        self._unsynced.clear()
        self._file = None
        if cuts:
            self.end, self.bytes_before = end, bytes_before

    def close(self) -> None:
        """Let go of all files."""
        for _, file in self._unsynced:
            with contextlib.suppress(OSError):
                file.close()
        self._unsynced.clear()
        self._file = None


class _Before:
    """The state of a writer before an append."""

    def __init__(self, writer: Writer) -> None:
        chunks = writer._chunks.all  # noqa: SLF001 - a part of the class
        self.count = len(chunks)
        self.file = writer._file  # noqa: SLF001 - likewise
        self.end, self.bytes, self.rotations = writer.end, writer.bytes_before, writer.rotations
        self.chunk = chunks[-1] if chunks else None
        self.chunk_end = self.chunk.end if self.chunk else 0
        self.chunk_stop = self.chunk.stop if self.chunk else 0
