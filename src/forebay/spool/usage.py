"""What the files of a spool take, kept up to date as they are written and removed.

Files that are being written, finished ones, and those that were set aside count; the reserve doesn't.

Invariants: a file counts with the size that was last said of it, however often that is said; what writers
claim and what files have together is never over a bound that they ask for. Several threads may use it.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from forebay.disk import Disk
from forebay.spool.names import FAILED, FileName, parse_name

_SET_ASIDE: Final = ("buf", "bad", "reasons")
_HOLDS_EVENTS: Final = (".buf", ".buf.tmp")


class Usage:
    """Sizes by path, and their sum; looked up in the folder when it is made, and by `recount`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._notes = 0
        self._bytes = 0
        self._claimed = 0
        self.recount()

    @property
    def bytes(self) -> int:
        """What all files have together."""
        return self._bytes

    @property
    def file_count(self) -> int:
        """How many files hold what is to be replayed, or tried again; notes beside them are left out."""
        return len(self._sizes) - self._notes

    def note(self, path: str, size: int | None) -> None:
        """Say how large a file is now; None when it is gone."""
        with self._lock:
            self._put(path, size)

    def move(self, old: str, new: str) -> None:
        """Say that a file has another name."""
        with self._lock:
            size = self._sizes.get(old)
            self._put(old, None)
            self._put(new, size)

    def look_aside(self, name: FileName) -> None:
        """Look up what was set aside of a file."""
        for ending in _SET_ASIDE:
            self._look_up(f"{FAILED}/{name.stem}.{ending}")

    def recount(self) -> None:
        """Look up all files: somebody may have removed some by hand."""
        names = [name for name in self._disk.list() if parse_name(name) is not None]
        paths = {*names, *(f"{FAILED}/{name}" for name in self._disk.list(FAILED))}
        for path in paths | set(self._sizes):
            self._look_up(path)

    def claim(self, sizes: Sequence[int], bytes_max: int) -> int:
        """Claim room for as many as there is room for, from the first one on, and say for how many."""
        count = self._claim(sizes, bytes_max)
        if count < len(sizes):
            with suppress(OSError):
                self.recount()
            count += self._claim(sizes[count:], bytes_max)
        return count

    def release(self, size: int) -> None:
        """Give back what was claimed: it is in a file now, or wasn't written."""
        with self._lock:
            self._claimed -= size

    def _claim(self, sizes: Sequence[int], bytes_max: int) -> int:
        with self._lock:
            for count, size in enumerate(sizes):
                if self._bytes + self._claimed + size > bytes_max:
                    return count
                self._claimed += size
        return len(sizes)

    def _look_up(self, path: str) -> None:
        with self._lock:  # so that what a writer says of the file comes before the look, or after it
            self._put(path, _size(self._disk, path))

    def _put(self, path: str, size: int | None) -> None:
        before = self._sizes.pop(path, None)
        if size is not None:
            self._sizes[path] = size
        self._bytes += (size or 0) - (before or 0)
        if not path.endswith(_HOLDS_EVENTS):
            self._notes += (size is not None) - (before is not None)


def _size(disk: Disk, path: str) -> int | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.size()
    finally:
        file.close()
