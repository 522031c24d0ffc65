"""The spool as others see it: a folder that is ours alone, a writer and a reader.

The seam, for those who fail over to it::

    async with await Spool.open(RealDisk(folder)) as spool:      # locks the folder, recovers after a crash
        await spool.append([SpooledBlock("orders", block)])      # safe on return; Full (507) without space
        await spool.append([SpooledSettlement(id, payload)])     # has space in reserve

        for name in spool.reader.files():                        # oldest first; sync: call it on a thread
            page = spool.reader.read(name)                       # .found, in order; .next is None at the end
            ...                                                  # commit page.found, all of it has ids
            spool.reader.done(name)

Invariants: one process at a time uses a folder; files of before come before those that are written now.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, get_args

from forebay.disk import Disk, Lock
from forebay.model import Clock
from forebay.spool.appending import Appender, Reserve
from forebay.spool.faults import translated
from forebay.spool.lines import Spooled
from forebay.spool.names import FAILED, FileName, Prefix, parse_name
from forebay.spool.reader import Reader
from forebay.spool.recovering import Recovered, recover
from forebay.spool.settings import SpoolSettings
from forebay.spool.usage import Usage
from forebay.spool.writer import Writer

_DEFAULTS: Final = SpoolSettings()


class Spool:
    """An open folder; `recovered` says what became of files that a crash left."""

    def __init__(
        self,
        disk: Disk,
        lock: Lock,
        recovered: list[Recovered],
        settings: SpoolSettings,
        *,
        clock: Clock | None,
        finished: Callable[[FileName], None] | None,
    ) -> None:
        with translated("listed"):
            self._usage = usage = Usage(disk)
        left = [file.name for file in recovered if file.left]
        self.reader = Reader(disk, clock=clock, usage=usage, left=left)
        self.recovered = recovered
        self._lock = lock
        self._disk, self._settings = disk, settings
        last, reserve = last_id(disk), Reserve()
        appenders = {
            prefix: Appender(
                disk, settings, prefix=prefix, last=last, reserve=reserve, usage=usage, finished=finished
            )
            for prefix in get_args(Prefix)
        }
        self._writers: dict[Prefix, Writer] = {
            prefix: Writer(appender, settings) for prefix, appender in appenders.items()
        }

    @classmethod
    async def open(
        cls,
        disk: Disk,
        settings: SpoolSettings = _DEFAULTS,
        *,
        clock: Clock | None = None,
        finished: Callable[[FileName], None] | None = None,
    ) -> "Spool":
        """Take a folder, and make it if need be.

        `finished` is called, on a thread, with each file that becomes readable. Raises `Misconfigured` where
        another process has the folder or it can't be used.
        """

        def take() -> Spool:
            lock = disk.lock()
            try:
                recovered = recover(disk, clock=clock, may_leave=True)
                return cls(disk, lock, recovered, settings, clock=clock, finished=finished)
            except BaseException:
                lock.close()
                raise

        return await asyncio.to_thread(take)

    @property
    def file_count(self) -> int:
        """Files in the folder, also what was set aside to be tried again."""
        return self._usage.file_count

    @property
    def bytes(self) -> int:
        """What all files take, with lines that could not be read; the reserve comes on top."""
        return self._usage.bytes

    @property
    def identity(self) -> str:
        """Which folder this is; see `Lock.identity`."""
        return self._lock.identity

    def newest(self, prefix: Prefix) -> str | None:
        """The file that was written to last, if any."""
        return self._writers[prefix].newest

    def has_room(self, size: int) -> bool:
        """Whether the folder may take so many bytes more."""
        bytes_max = self._settings.total_bytes_max
        if bytes_max is not None and self._usage.bytes + size > bytes_max:
            return False
        try:
            return self._disk.free_bytes() >= size + self._settings.reserve_bytes
        except OSError:
            return False

    async def append(self, entries: Sequence[Spooled], *, prefix: Prefix = "failover") -> None:
        """Return when all is safe; see `Writer.append`. Order holds between entries of one prefix."""
        await self._writers[prefix].append(entries)

    async def flush(self) -> None:
        """Let the reader have all that was appended."""
        for writer in self._writers.values():
            await writer.flush()

    async def close(self) -> None:
        """Write what waits, and leave the folder to others; twice is fine."""
        try:
            for writer in self._writers.values():
                await writer.close()
        finally:
            self._lock.close()

    async def __aenter__(self) -> Self:
        """Give the spool itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


def last_id(disk: Disk) -> str:
    """The highest id of any file in a folder, or nothing."""
    with translated("listed"):
        names = [parse_name(name) for name in [*disk.list(), *disk.list(FAILED)]]
    return max((name.id for name in names if name is not None), default="")
