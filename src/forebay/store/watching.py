"""Watching the log for what other processes write, while somebody waits for tasks.

Invariants: nothing is asked while nobody waits; while somebody does, one stamp is asked for in each period,
however many wait and for how many queues; only where somebody has written, the log is asked about those.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Outlook
from forebay.model import ForebayError, pack, sequence_of
from forebay.store.window import Window

PERIOD_SECONDS: Final = 0.1
COST: Final = 4
"""How many times as long as looking took is paused at least."""
AWAY_SECONDS: Final = 1.0
"""The pause after the log could not be asked."""
READ_BYTES: Final = 1 << 20
"""So much of what is new is read in a period, to see of which partitions it is."""


class Watch:
    """See the module."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._takers: Counter[Window] = Counter()
        self._is_needed = asyncio.Event()
        self._stamp: str | None = None
        self._seen: dict[Window, Outlook] = {}
        """What windows were last told, while there are takers."""

    @contextmanager
    def needed(self, windows: Sequence[Window]) -> Iterator[None]:
        """Somebody takes from these windows, and may wait."""
        self._takers.update(windows)
        self._is_needed.set()
        try:
            yield
        finally:
            self._takers.subtract(windows)
            for window in windows:
                if not self._takers[window]:
                    del self._takers[window]
                    self._seen.pop(window, None)
            if not self._takers:
                self._is_needed.clear()

    async def run(self) -> None:
        """Watch until cancelled; not at all where no other process can write."""
        pause = PERIOD_SECONDS
        while True:
            await self._is_needed.wait()
            await asyncio.sleep(pause)
            began = monotonic()
            try:
                if any(window.is_waited_for for window in self._takers) and not await self._look():
                    return
                pause = min(AWAY_SECONDS, max(PERIOD_SECONDS, COST * (monotonic() - began)))
            except ForebayError:
                self._stamp, pause = None, AWAY_SECONDS
            except Exception as error:  # noqa: BLE001 - a watch that ended would be missed by nobody
                self._stamp, pause = None, AWAY_SECONDS
                context = {"message": "watching the log failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    async def _look(self) -> bool:
        """Tell windows what is new for them; whether there can ever be anything."""
        stamp = await self._log.stamp()
        if stamp is None:
            return False
        if stamp != self._stamp:
            # All that have takers: who doesn't wait yet may have asked the log before this was written.
            windows = {window.group.number: window for window in self._takers}
            self._stamp = stamp
            for outlook in await self._log.outlook([window.group for window in windows.values()]):
                await self._tell(windows[outlook.group], outlook)
        return True

    async def _tell(self, window: Window, outlook: Outlook) -> None:
        seen = self._seen.get(window)
        if outlook == seen:
            return
        partitions: Collection[str] | None = None
        upto = outlook.next
        if window.lines and seen is not None:
            partitions, upto = await self._read_partitions(window, seen.next, outlook.next)
        if upto < outlook.next:
            self._stamp = None  # go on with the rest the next time
        if window in self._takers:
            self._seen[window] = msgspec.structs.replace(outlook, next=upto)
            window.expect(outlook, partitions)

    async def _read_partitions(self, window: Window, since: int, until: int) -> tuple[set[str], int]:
        """The partitions of what others put from one sequence number to another; and how far it was read."""
        begin = sequence_of(window.tail.end_after(pack(window.queue.number, since)))
        if begin >= until:
            return set(), until
        blocks = await self._log.read(window.queue, begin, bytes=READ_BYTES)
        upto = sequence_of(blocks[-1].last) + 1 if blocks else until
        return {block.partition or "" for block in blocks}, upto
