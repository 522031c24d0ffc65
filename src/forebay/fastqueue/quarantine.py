"""The folder `quarantine`: bytes that can't be read as they were, and beside them why.

For damage at an offset of a chunk there are `<chunk>-<offset>.bad`, the bytes, and `<chunk>-<offset>.json`.

Invariants: bytes are safe here before their chunk is deleted; a chunk whose damage can't be copied, or has
too many pieces, is kept whole under the name `<chunk>.damaged`. Finding damage again adds nothing.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from forebay.disk import Disk, File, is_medium_fault
from forebay.fastqueue.chunk import Chunk
from forebay.fastqueue.chunk_file import ChunkFile
from forebay.fastqueue.record import Damage

QUARANTINE: Final = "quarantine"
_PIECES_MAX: Final = 64
"""Pieces of one chunk that are copied; with more, the chunk is kept whole."""
_COPY_BYTES: Final = 1 << 20


class Quarantine:
    """Copies damage out of chunks, and tells `report` of each piece; without `changes` it only tells."""

    def __init__(self, disk: Disk, report: Callable[[Damage], None] | None, *, changes: bool = True) -> None:
        self._changes = changes
        self._disk = disk
        self._report = report
        self._pieces: dict[int, int] = {}
        self._known: set[tuple[str, int]] = set()
        self.count = 0
        """Pieces of damage that were found, torn ends aside."""

    def tell(self, damage: Damage) -> None:
        """Count and report."""
        self.count += damage.kind != "torn"
        if self._report is not None:
            self._report(damage)

    def keep(self, chunk: Chunk, file: ChunkFile, damage: Damage) -> None:
        """Copy bytes of a chunk, unless they were copied before, and report."""
        if (damage.file, damage.offset) in self._known:
            return
        self._known.add((damage.file, damage.offset))
        pieces = self._pieces[chunk.number] = self._pieces.get(chunk.number, 0) + 1
        copied, is_fresh = None, True
        if not self._changes or file.holes.overlap(damage.offset, damage.offset + damage.size):
            chunk.is_kept = True  # a copy would lack what another disk or a better reader may still get
        elif not damage.size:
            pass
        elif pieces <= _PIECES_MAX:
            try:
                copied, is_fresh = self._copy(file, damage)
            except OSError:
                chunk.is_kept = True
        else:
            chunk.is_kept = True
        if is_fresh:
            self.tell(msgspec.structs.replace(damage, quarantined=copied))

    def opened(self, name: str) -> File | None:
        """Open a chunk's file; one that the disk can't even open is set aside, and counts as gone."""
        try:
            return self._disk.open(name)
        except OSError as error:
            if not is_medium_fault(error):
                raise
        if self._changes:
            # Its name has to be free: the next chunk that is begun may have the same.
            self._disk.rename(name, f"{name}.damaged")
        self.tell(Damage(kind="damaged", file=name, reason="the disk can't open it"))
        return None

    def remove(self, chunk: Chunk) -> None:
        """Delete a chunk that is done with, or set it aside; one that is gone is fine."""
        try:
            if chunk.is_kept:
                self._disk.rename(chunk.name, f"{chunk.name}.damaged")
            else:
                self._disk.remove(chunk.name)
        except FileNotFoundError:
            return
        finally:
            self._pieces.pop(chunk.number, None)
            self._known = {known for known in self._known if known[0] != chunk.name}

    def _copy(self, file: ChunkFile, damage: Damage) -> tuple[str, bool]:
        """The name of the copy, and whether it is a new one."""
        stem = f"{damage.file}-{damage.offset:016x}"
        self._disk.make_folder(QUARANTINE)
        name = f"{QUARANTINE}/{stem}.bad"
        there = set(self._disk.list(QUARANTINE))
        # The reason is written last: without it the copy may be half of one, from before a crash.
        if f"{stem}.json" in there:
            return name, False
        self._write(name, file, damage, fresh=f"{stem}.bad" not in there)
        reason = msgspec.json.encode(msgspec.structs.replace(damage, quarantined=name))
        self._write_reason(f"{QUARANTINE}/{stem}.json", msgspec.json.format(reason, indent=2))
        return name, True

    def _write(self, name: str, source: ChunkFile, damage: Damage, *, fresh: bool) -> None:
        target = self._disk.open(name, create=fresh)
        try:
            target.truncate(0)
            at, end = damage.offset, damage.offset + damage.size
            while at < end and (piece := source.read_at(at, min(_COPY_BYTES, end - at))):
                target.append(piece)
                at += len(piece)
            target.sync()
        finally:
            target.close()

    def _write_reason(self, name: str, data: bytes) -> None:
        target = self._disk.open(name, create=True)
        try:
            target.append(data + b"\n")
            target.sync()
        finally:
            target.close()
        self._disk.sync_folder(QUARANTINE)
