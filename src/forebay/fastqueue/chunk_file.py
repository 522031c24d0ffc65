"""The file of a chunk, of which some sectors can't be read.

Invariants: a hole is a sector that was given up; for this process it stays one, also where the disk could
read it again, so that every reading of a chunk finds the same records. Bytes of a hole are never taken for
data.
"""

from bisect import bisect_left
from typing import Final

from forebay.disk import File, is_medium_fault

_SECTOR_BYTES: Final = 4096
"""The smallest unit that a system reads of a disk, and so the smallest that can fail."""


class Holes:
    """The sectors of one file that can't be read."""

    def __init__(self) -> None:
        self._sectors: list[int] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._sectors)

    def add(self, offset: int) -> None:
        """Give up the sector of a byte."""
        sector = offset // _SECTOR_BYTES
        at = bisect_left(self._sectors, sector)
        if self._sectors[at : at + 1] != [sector]:
            self._sectors.insert(at, sector)

    def after(self, offset: int) -> range | None:
        """The bytes of the first hole that ends after `offset`."""
        at = bisect_left(self._sectors, offset // _SECTOR_BYTES)
        if at == len(self._sectors):
            return None
        start = self._sectors[at] * _SECTOR_BYTES
        return range(start, start + _SECTOR_BYTES)

    def overlap(self, start: int, stop: int) -> bool:
        """Whether any byte from `start` to before `stop` is in a hole."""
        hole = self.after(start)
        return hole is not None and hole.start < stop


class ChunkFile:
    """Reads what can be read. It adds to the holes of its chunk, and closes the file with itself."""

    def __init__(self, file: File, holes: Holes) -> None:
        self._file = file
        self.holes = holes
        self.size = file.size
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end, with zeros for holes; new ones are given up at once."""
        data, fault = self.read_sound(offset, size)
        if fault is None and len(data) == size:
            return data
        end = min(offset + size, self._file.size())
        pieces = [data]
        at = offset + len(data)
        while at < end:
            if fault is not None:
                self.holes.add(at)
            hole = self.holes.after(at)
            if hole is None or at < hole.start:
                break  # the file is shorter than it was
            stop = min(hole.stop, end)
            pieces.append(bytes(stop - at))
            # Bad sectors come in rows, and each failure may take seconds: the next one is tried alone.
            data, fault = self.read_sound(stop, min(end - stop, _SECTOR_BYTES))
            pieces.append(data)
            at = stop + len(data)
            if fault is None:
                data, fault = self.read_sound(at, end - at)
                pieces.append(data)
                at += len(data)
        return b"".join(pieces)

    def read_sound(self, offset: int, size: int) -> tuple[bytes, OSError | None]:
        """Up to `size` bytes before the first hole; with an error, the byte after them can't be read."""
        hole = self.holes.after(offset)
        end = offset + size if hole is None else min(offset + size, hole.start)
        if end <= offset:
            return b"", None
        try:
            return self._file.read_at(offset, end - offset), None
        except OSError as error:
            if not is_medium_fault(error):
                raise
            if offset // _SECTOR_BYTES == (end - 1) // _SECTOR_BYTES:
                return b"", error
            return self._read_sectors(offset, end)

    def _read_sectors(self, offset: int, end: int) -> tuple[bytes, OSError | None]:
        pieces: list[bytes] = []
        while offset < end:
            size = min(end - offset, _SECTOR_BYTES - offset % _SECTOR_BYTES)
            try:
                piece = self._file.read_at(offset, size)
            except OSError as error:
                if not is_medium_fault(error):
                    raise
                return b"".join(pieces), error
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces), None
