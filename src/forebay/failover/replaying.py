"""Replaying spool files: page by page, in order, into a sink; what is refused is set aside alone.

Invariants: a file is removed when all that it holds is in the log, or was set aside with its reason; what is
interrupted is replayed from the file's beginning, which changes nothing that is there already; memory is
bounded by two pages, whatever the file. Only messages are replayed: what became of tasks is the business of
`FailoverLog`, and set aside here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from forebay.failover.sinks import Refused, Sink
from forebay.model import Conflict, cancel
from forebay.spool.lines import SpooledBlock
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from forebay.spool.scanning import Found, Page, Place

PAGE_BYTES: Final = 8 << 20
STRAY: Final = "what became of tasks belongs into a file of its own, settle_*.buf"


class Replayed(msgspec.Struct, frozen=True):
    """What became of a page or a file: messages that are in the log, and those that were set aside."""

    events: int = 0
    refused: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        """Count both."""
        return Replayed(self.events + other.events, self.refused + other.refused)


Told = Callable[[Sequence[Found], Replayed], Awaitable[None]]
"""Called with each page that is through; it may take its time before the next."""


class Replayer:
    """See the module."""

    def __init__(self, reader: Reader, sink: Sink, *, events_max: int = 10_000) -> None:
        self._reader = reader
        self._sink = sink
        self._events_max = events_max
        self._ahead: tuple[FileName, asyncio.Task[Page]] | None = None

    async def close(self) -> None:
        """Read nothing ahead any more."""
        if self._ahead is not None:
            await cancel(self._ahead[1])

    async def replay(
        self,
        name: FileName,
        told: Told | None = None,
        *,
        keep: bool = False,
        following: FileName | None = None,
    ) -> Replayed:
        """Replay a finished file, and remove it, unless it is to be kept.

        The one that comes next is read while the end of this one is written.
        """
        total = Replayed()
        async for found in self._pages(name, following, failed=False):
            written, refused = await self._write(found)
            strays = [each for each in found if not isinstance(each.entry, SpooledBlock)]
            if strays:
                await asyncio.to_thread(self._reader.refuse, name, strays, STRAY)
            for each in refused:
                part = [_part_of(found, each)]
                await asyncio.to_thread(self._reader.refuse, name, part, str(each.error))
            total += written
            if told is not None:
                await told(found, written)
        if not keep:
            await asyncio.to_thread(self._reader.done, name)
        return total

    async def replay_failed(self, name: FileName) -> Replayed:
        """Try again what was set aside. The file stays as it is until all of it is in the log."""
        total = Replayed()
        async for found in self._pages(name, None, failed=True):
            total += (await self._write(found))[0]
        if not total.refused:
            await asyncio.to_thread(self._reader.done, name, failed=True)
        return total

    async def _pages(
        self, name: FileName, following: FileName | None, *, failed: bool
    ) -> AsyncIterator[list[Found]]:
        """What a file holds; while one page is written the next one is read."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] != name:
            await cancel(ahead[1])
            ahead = None
        reading = self._read(name, Place(), failed=failed) if ahead is None else ahead[1]
        try:
            while True:
                page = await reading
                if page.next is not None:
                    reading = self._read(name, page.next, failed=failed)
                elif following is not None:
                    self._ahead = (following, self._read(following, Place(), failed=failed))
                yield page.found
                if page.next is None:
                    return
        finally:
            await cancel(reading)

    def _read(self, name: FileName, place: Place, *, failed: bool) -> asyncio.Task[Page]:
        events_max, read = self._events_max, self._reader.read
        return asyncio.create_task(
            asyncio.to_thread(read, name, place, events_max=events_max, bytes_max=PAGE_BYTES, failed=failed)
        )

    async def _write(self, found: Sequence[Found]) -> tuple[Replayed, list[Refused]]:
        blocks = [entry for each in found if isinstance(entry := each.entry, SpooledBlock)]
        refused = [
            each
            for each in await self._sink.write([(entry.queue, entry.block) for entry in blocks])
            # If the log knows a damaged block otherwise, it has it whole, from before it was damaged.
            if not (blocks[each.place].damaged and isinstance(each.error, Conflict))
        ]
        kept = sum(len(each.block) for each in refused)
        return Replayed(sum(map(len, blocks)) - kept, kept), refused


def _part_of(found: Sequence[Found], refused: Refused) -> Found:
    """What was refused, where it was found."""
    where = [each for each in found if isinstance(each.entry, SpooledBlock)][refused.place]
    assert isinstance(where.entry, SpooledBlock)
    return Found(SpooledBlock(where.entry.queue, refused.block), where.stretch)
