"""Replaying spool files: page by page, in order, into a sink; what is refused is set aside alone.

Invariants: a file is removed when all that it holds is in the log, or was set aside with its reason; what is
interrupted is replayed from the file's beginning, which changes nothing that is there already; memory is
bounded by two pages, whatever the file. Only messages are replayed: what became of tasks is the business of
`FailoverLog`, and left out here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from forebay.failover.sinks import Sink, halves
from forebay.model import Block, Conflict, ForebayError, Rejected, TooLarge, cancel
from forebay.spool.lines import SpooledBlock
from forebay.spool.names import FileName
from forebay.spool.reader import Reader
from forebay.spool.scanning import Found, Page, Place

PAGE_BYTES: Final = 8 << 20


class Replayed(msgspec.Struct, frozen=True):
    """What became of a page or a file: messages that are in the log, and those that were set aside."""

    events: int = 0
    refused: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        """Count both."""
        return Replayed(self.events + other.events, self.refused + other.refused)


Told = Callable[[Sequence[Found], Replayed], Awaitable[None]]
"""Called with each page that is through; it may take its time before the next."""
_Refused = tuple[Found, Block, ForebayError]


class Replayer:
    """See the module."""

    def __init__(self, reader: Reader, sink: Sink, *, events_max: int = 10_000) -> None:
        self._reader = reader
        self._sink = sink
        self._events_max = events_max

    async def replay(self, name: FileName, told: Told | None = None, *, keep: bool = False) -> Replayed:
        """Replay a finished file, and remove it, unless it is to be kept."""
        total = Replayed()
        async for found in self._pages(name, failed=False):
            written, refused = await self._write(found)
            for each, block, error in refused:
                await asyncio.to_thread(self._reader.refuse, name, [_set_aside(each, block)], str(error))
            total += written
            if told is not None:
                await told(found, written)
        if not keep:
            await asyncio.to_thread(self._reader.done, name)
        return total

    async def replay_failed(self, name: FileName) -> Replayed:
        """Try again what was set aside. The file stays as it is until all of it is in the log."""
        total = Replayed()
        async for found in self._pages(name, failed=True):
            total += (await self._write(found))[0]
        if not total.refused:
            await asyncio.to_thread(self._reader.done, name, failed=True)
        return total

    async def _pages(self, name: FileName, *, failed: bool) -> AsyncIterator[list[Found]]:
        """What a file holds; while one page is written the next one is read."""

        def read(place: Place) -> asyncio.Task[Page]:
            return asyncio.create_task(
                asyncio.to_thread(
                    self._reader.read,
                    name, place, events_max=self._events_max, bytes_max=PAGE_BYTES, failed=failed,
                )
            )  # fmt: skip

        reading: asyncio.Task[Page] | None = read(Place())
        try:
            while reading is not None:
                page = await reading
                reading = None if page.next is None else read(page.next)
                yield page.found
        finally:
            await cancel(reading)

    async def _write(self, found: Sequence[Found]) -> tuple[Replayed, list[_Refused]]:
        blocks = [each.entry for each in found if isinstance(each.entry, SpooledBlock)]
        places = [each for each in found if isinstance(each.entry, SpooledBlock)]
        results = await self._sink.write([(entry.queue, entry.block) for entry in blocks])
        refused: list[_Refused] = []
        for each, entry, error in zip(places, blocks, results, strict=True):
            if error is None or (entry.damaged and isinstance(error, Conflict)):
                continue  # or the log has it whole: it came there before the file was damaged
            refused += [(each, part, why) for part, why in await self._isolate(entry, error)]
        kept = sum(len(block) for _, block, _ in refused)
        return Replayed(sum(map(len, blocks)) - kept, kept), refused

    async def _isolate(self, entry: SpooledBlock, error: ForebayError) -> list[tuple[Block, ForebayError]]:
        """Write all but what is to blame for the refusal of a block; that, each with why."""
        if len(entry.block) == 1 or type(error) not in (Rejected, TooLarge):
            return [(entry.block, error)]
        refused: list[tuple[Block, ForebayError]] = []
        for half in halves(entry.block):
            (why,) = await self._sink.write([(entry.queue, half)])
            if why is not None:
                refused += await self._isolate(SpooledBlock(entry.queue, half), why)
        return refused


def _set_aside(found: Found, block: Block) -> Found:
    assert isinstance(found.entry, SpooledBlock)
    return Found(SpooledBlock(found.entry.queue, block), found.stretch)
