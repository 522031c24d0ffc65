"""Writing spool files, one group of appends after the other: sync, on one thread.

Invariants: what `write` reports as written is safe, its name included; after a failed sync nothing more is
acknowledged from that file: it is cut back to what was safe and finished, and what was not acknowledged goes
to a new one under the same ids; blocks never take the space that is reserved for settlements.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from forebay.disk import Disk, File, is_full
from forebay.spool.faults import cap_error, error_of
from forebay.spool.lines import SYNCED_BYTES_MAX, Spooled, SpooledSettlement, encode_entry, note_synced
from forebay.spool.names import RESERVE, FileName, Prefix, next_name
from forebay.spool.settings import SpoolSettings
from forebay.spool.usage import Usage


class Write(msgspec.Struct, frozen=True):
    """Lines on their way to the disk; with `settles` they may use the reserve."""

    data: bytes
    events: int
    settles: bool = False

    @classmethod
    def of(cls, entries: Sequence[Spooled]) -> "Write":
        """Encode what one caller wants written."""
        data = b"".join(map(encode_entry, entries))
        settles = any(isinstance(entry, SpooledSettlement) for entry in entries)
        return cls(data, sum(map(len, entries)), settles)


class Reserve:
    """Whether space is set apart; one for all who write to a folder."""

    def __init__(self) -> None:
        self.held = False


class Appender:
    """The file that is being written, if any.

    `last` is the highest id among the files that are there; `finished` is told of each file that can be read.
    """

    def __init__(
        self,
        disk: Disk,
        settings: SpoolSettings,
        *,
        prefix: Prefix = "failover",
        last: str = "",
        reserve: Reserve | None = None,
        usage: Usage | None = None,
        finished: Callable[[FileName], None] | None = None,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._prefix = prefix
        self._last = last
        self._finished = finished
        self._file: File | None = None
        self._name: FileName | None = None
        self._unnamed: list[FileName] = []
        self._synced = 0
        self._events = 0
        self._reserve = reserve or Reserve()
        self._usage = Usage(disk) if usage is None else usage

    @property
    def current(self) -> FileName | None:
        """The file that would be appended to."""
        return self._name

    def write(self, writes: Sequence[Write]) -> list[Exception | None]:
        """Write and sync; an error for each write that is not safe, and that was not kept."""
        bytes_max = self._settings.total_bytes_max
        if bytes_max is None:
            return self._write_or_settle(writes)
        blocks = [place for place, write in enumerate(writes) if not write.settles]
        sizes = [len(writes[place].data) + SYNCED_BYTES_MAX for place in blocks]
        count = self._usage.claim(sizes, bytes_max)
        refused = set(blocks[count:])
        results: list[Exception | None] = [cap_error(bytes_max)] * len(writes)
        places = [place for place in range(len(writes)) if place not in refused]
        try:
            _write_some(writes, places, results, self._write_or_settle)
        finally:
            self._usage.release(sum(sizes[:count]))
        return results

    def _write_or_settle(self, writes: Sequence[Write]) -> list[Exception | None]:
        try:
            self._write(writes)
        except OSError as error:
            self._abandon()
            if is_full(error):
                return self._write_settlements(writes, error)
            return self._write_again(writes)
        return [None] * len(writes)

    def finish(self) -> None:
        """Let readers have the file; without one there is nothing to do."""
        file, name = self._file, self._name
        self._file = self._name = None
        self._synced = self._events = 0
        if file is not None and name is not None:
            with suppress(OSError):  # all that was acknowledged is synced
                file.close()
            self._unnamed.append(name)
        self._rename()

    def _write(self, writes: Sequence[Write]) -> None:
        events = sum(write.events for write in writes)
        pieces = [write.data for write in writes]
        size = sum(map(len, pieces))
        if self._events and not self._fits(events, size):
            self.finish()
        self._check_space(size, settles=all(write.settles for write in writes))
        file = self._file or self._begin()
        if self._synced:
            pieces[0] = note_synced(pieces[0], self._synced)
        data = b"".join(pieces)
        file.append(data)
        file.sync()
        self._synced += len(data)
        self._usage.note(str(self._name), self._synced)
        self._events += events
        if not self._fits(1, 0):
            self.finish()

    def _write_again(self, writes: Sequence[Write]) -> list[Exception | None]:
        try:
            self._write(writes)
        except OSError as error:
            self._abandon()
            return [error_of(error)] * len(writes)
        return [None] * len(writes)

    def _write_settlements(self, writes: Sequence[Write], error: OSError) -> list[Exception | None]:
        """The disk is full: refuse blocks, and settle from the reserve."""
        results: list[Exception | None] = [error_of(error)] * len(writes)
        places = [place for place, write in enumerate(writes) if write.settles]
        if places:
            with suppress(OSError):
                self._disk.reserve(RESERVE, 0)
            self._reserve.held = False
            _write_some(writes, places, results, self._write_again)
        return results

    def _fits(self, events: int, size: int) -> bool:
        return (
            self._events + events <= self._settings.events_per_file
            and self._synced + size <= self._settings.file_bytes_max
        )

    def _check_space(self, size: int, *, settles: bool) -> None:
        reserve = self._settings.reserve_bytes
        free = self._disk.free_bytes()
        if reserve and not self._reserve.held and free >= size + 2 * reserve:
            with suppress(OSError):
                self._disk.reserve(RESERVE, reserve)
                self._reserve.held = True
                free = self._disk.free_bytes()
        if free < size + (0 if self._reserve.held or settles else reserve):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _begin(self) -> File:
        """Make a file, and its name safe: what is written to it would be lost without."""
        name = next_name(self._prefix, self._last)
        file = self._disk.open(str(name), create=True)
        self._file, self._name, self._last = file, name, name.id
        self._disk.sync_folder()
        return file

    def _abandon(self) -> None:
        """Acknowledge nothing more from this file; what was, is kept."""
        file, name, synced = self._file, self._name, self._synced
        if file is None or name is None:
            return
        if synced:
            # What fails here leaves more in the file than was acknowledged, which does no harm: whole blocks
            # have the ids that they are written under again, and torn ones are set aside.
            with suppress(OSError):
                file.truncate(synced)
            self.finish()
            return
        self._file = self._name = None
        self._events = 0
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            self._disk.remove(str(name))

    def _rename(self) -> None:
        """Give files their final names. One that can't be renamed is tried again with the next."""
        while self._unnamed:
            name = self._unnamed[0]
            try:
                self._disk.rename(str(name), str(name.finished))
            except OSError:
                return
            self._unnamed.pop(0)
            self._usage.move(str(name), str(name.finished))
            if self._finished is not None:
                self._finished(name.finished)


def _write_some(
    writes: Sequence[Write],
    places: Sequence[int],
    results: list[Exception | None],
    write: Callable[[Sequence[Write]], list[Exception | None]],
) -> None:
    """Write those at some places, and put down what became of them."""
    if places:
        for place, result in zip(places, write([writes[place] for place in places]), strict=True):
            results[place] = result
