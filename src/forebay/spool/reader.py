"""Reading what was spooled: the oldest file first, page by page, and away with it when the log has it.

A file is read again from its beginning after a crash: all that it holds has ids, by which the log knows what
it has, and it is short (10,000 events unless told otherwise).

Invariants: only finished files are read; what can't be read is safe in `failed` before the page that lacks it
is returned; a file is removed by `done` and by nothing else. One that a crash left, and that could not be
finished for lack of room, has its place among the others, and is finished when it is read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from forebay.disk import Disk
from forebay.model import Clock, SystemClock
from forebay.spool.aside import keep_faults, keep_refused
from forebay.spool.faults import translated
from forebay.spool.names import FAILED, FileName, Prefix, sort_names
from forebay.spool.recovering import recover_file
from forebay.spool.scanning import Found, Page, Place, scan
from forebay.spool.usage import Usage

_START: Final = Place()
_CHUNK_BYTES: Final = 1 << 20


class Reader:
    """Reads a folder of spool files; sync, for one thread at a time, beside one that writes.

    `left` are files that `recover` has left as they were.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        clock: Clock | None = None,
        usage: Usage | None = None,
        left: Iterable[FileName] = (),
    ) -> None:
        self._disk = disk
        self._clock = clock or SystemClock()
        self._usage = usage
        self._left = {name.finished: name for name in left}
        self._faults: Counter[FileName] = Counter()
        self.asides = 0
        """How often something was set aside, for whatever reason: `count_failed` has changed by then."""

    def files(self, *prefixes: Prefix) -> list[FileName]:
        """The finished files, oldest first; of certain kinds, if any are named."""
        with translated("listed"):
            names = sorted([*sort_names(self._disk.list(), "finished"), *self._left])
        return [name for name in names if name.prefix in prefixes] if prefixes else names

    def failed(self) -> list[FileName]:
        """The files of what the log refused, oldest first; for `read`, `refuse` and `done` with `failed`."""
        with translated("listed"):
            return sort_names(self._disk.list(FAILED), "finished")

    def read(
        self,
        name: FileName,
        start: Place = _START,
        *,
        events_max: int = 1_000,
        bytes_max: int = 8 << 20,
        failed: bool = False,
    ) -> Page:
        """Read a page; what is faulty is set aside first, once, however often it is read."""
        with translated("read"):
            if not failed and name in self._left and not self._finish(name):
                return Page([], [], None, 0)
            path = _path(name, failed=failed)
            file = self._disk.open(path)
            try:
                now = self._clock.now()
                page = scan(file, name, start, events_max=events_max, bytes_max=bytes_max, created_at=now)
                if page.faults:
                    fresh = keep_faults(self._disk, name, file, page.faults, path=path, now=now)
                    self._look_aside(name, fresh)
                return page
            finally:
                file.close()

    def refuse(self, name: FileName, refused: list[Found], reason: str) -> None:
        """Set aside what the log refuses, to be tried again from there; durable on return.

        Of a block that goes in part, give what was refused an id of its own (`derive_id`): the log knows the
        id of the block already, and would take the rest for written.
        """
        with translated("written"):
            keep_refused(self._disk, name, refused, reason, path=str(name), now=self._clock.now())
            self.asides += 1
            self._look_aside(name)

    def done(self, name: FileName, *, failed: bool = False) -> None:
        """Remove a file: all that it holds is in the log, or was set aside. Twice is fine."""
        with translated("removed"):
            if str(name) in self._disk.list(FAILED if failed else ""):
                self._disk.remove(_path(name, failed=failed))
                if self._usage is not None:
                    self._usage.note(_path(name, failed=failed), None)
                self._disk.sync_folder(FAILED if failed else "")

    def count(self, name: FileName, *, failed: bool = False) -> int:
        """How many lines a file has, which is how many events; quick, since none is looked at.

        Empty ones don't count: they stand where a repair has left something out.
        """
        with translated("read"):
            return self._count(str(self._left[name]) if name in self._left else _path(name, failed=failed))

    def _count(self, path: str) -> int:
        file = self._disk.open(path)
        try:
            lines = offset = 0
            begun = False
            while chunk := file.read_at(offset, _CHUNK_BYTES):
                *whole, last = chunk.split(b"\n")
                if whole:
                    lines += len(whole) - whole.count(b"") + (begun and not whole[0])
                    begun = False
                begun |= bool(last)
                offset += len(chunk)
            return lines
        finally:
            file.close()

    def count_failed(self) -> int:
        """How many lines were set aside, refused or unreadable; none of them is looked at."""
        with translated("read"):
            names = [name for name in self._disk.list(FAILED) if name.endswith((".buf", ".bad"))]
            return sum(self._count(f"{FAILED}/{name}") for name in names)

    def take_faults(self) -> Mapping[FileName, int]:
        """Of each file, how many faults were set aside since this was last asked."""
        taken, self._faults = self._faults, Counter()
        return taken

    def _finish(self, name: FileName) -> bool:
        """Finish a file that was left; whether there is one now."""
        left = self._left[name]
        if str(left) in self._disk.list():  # it isn't where the disk failed after all was done
            self._note(name, recover_file(self._disk, left, self._clock.now()).faults)
        del self._left[name]
        if self._usage is not None:
            self._usage.recount()
        return str(name) in self._disk.list()

    def _look_aside(self, name: FileName, faults: int = 0) -> None:
        self._note(name, faults)
        if self._usage is not None:
            self._usage.look_aside(name)

    def _note(self, name: FileName, faults: int) -> None:
        if faults:
            self._faults[name] += faults
            self.asides += 1


def _path(name: FileName, *, failed: bool) -> str:
    return f"{FAILED}/{name}" if failed else str(name)
