"""Rounds: upkeep of all windows, time and again. The safety net: nothing that works relies on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from time import monotonic
from typing import Final

from forebay.log.seam import Log
from forebay.log.values import Owner, Queue
from forebay.model import Unavailable
from forebay.store.process import is_gone, spool_of
from forebay.store.tiers import SECOND
from forebay.store.window import Window
from forebay.warm.seam import WarmAway

OWNER_SILENT_SECONDS: Final = 30.0
"""Claims of a process that was not heard of for so long go to others."""
OWNER_LATE_SECONDS: Final = 15.0
"""A process that was not heard of for so long before it ended was cut off from the log: three ticks."""
TICK_SECONDS: Final = 5.0
SHARED_TICK_SECONDS: Final = 0.5
"""How often the loss of a shared tier is looked for, when nothing else notices it."""


class Rounds:
    """See the module. `name` is this process's; `adopt` is told of each queue as the log has it now.

    `let_go` is told of windows whose groups are deleted, and of all queues that there are.
    """

    def __init__(
        self,
        log: Log,
        name: str,
        windows: Mapping[tuple[int, str], Window],
        adopt: Callable[[Queue], None],
        let_go: Callable[[Collection[Window], Collection[Queue]], Awaitable[None]],
        *,
        shared: bool,
    ) -> None:
        self._log = log
        self._name = name
        self._spool = spool_of(name)
        self._windows = windows
        self._adopt = adopt
        self._let_go = let_go
        self._shared = shared
        self._away_at = monotonic()  # who begins doesn't know whether it was

    async def run(self) -> None:
        """Go round until cancelled."""
        period = SHARED_TICK_SECONDS if self._shared else TICK_SECONDS
        rounds = 0
        while True:
            await asyncio.sleep(period)
            rounds += 1
            try:
                if rounds * period >= TICK_SECONDS:
                    rounds = 0
                    await self._keep_up()
                for window in list(self._windows.values()):
                    await _tend(window)
            except WarmAway:
                continue  # that says nothing of the log
            except Unavailable:
                self._away_at = monotonic()

    async def _keep_up(self) -> None:
        """See what other servers changed, and take over from those that are gone."""
        before = list(self._windows.values())
        queues = await self._log.queues()
        numbers = {queue.number for queue in queues}
        gone = [window for window in before if window.group.queue not in numbers]
        for queue in queues:
            self._adopt(queue)
            gone += await self._follow(queue)
        await self._let_go(gone, queues)
        owners = await self.retire_gone()
        for window in list(self._windows.values()):
            for tier in window.tiers.all:
                with suppress(Unavailable):
                    await tier.give_back_lost(owners)
            if self._shared or not all(owner.name.startswith(self._name) for owner in owners):
                with suppress(Unavailable):  # others work on this log
                    await window.notice()

    async def _follow(self, queue: Queue) -> list[Window]:
        """See which groups of a queue were sent elsewhere; the windows of those that were deleted."""
        mine = {w.group.number: w for w in self._windows.values() if w.group.queue == queue.number}
        for group in await self._log.groups(queue) if mine else ():
            if (window := mine.pop(group.number, None)) is not None:
                await window.follow(group)
        return list(mine.values())

    async def retire_gone(self) -> list[Owner]:
        """Take over from processes that are gone; all owners, as they were before."""
        owners = await self._log.owners()
        newest = max((owner.beat_at for owner in owners), default=0)
        # While the log was away nobody could say that he lives, and not all notice at once that it is back.
        is_back = monotonic() - self._away_at < OWNER_SILENT_SECONDS
        for owner in owners:
            if owner.name.startswith(self._name):
                continue
            silent = not is_back and owner.beat_at <= newest - int(OWNER_SILENT_SECONDS * SECOND)
            late = is_back or owner.beat_at <= newest - int(OWNER_LATE_SECONDS * SECOND)
            if silent or self._is_succeeded(owner.name) or self._is_over(owner.name, late=late):
                await self._log.retire(owner.name)
        return owners

    def _is_succeeded(self, owner: str) -> bool:
        """Whether an owner had the spool that is ours now: what it had spooled has come to the log."""
        return bool(self._spool) and spool_of(owner) == self._spool

    def _is_over(self, owner: str, *, late: bool) -> bool:
        """Whether an owner has ended, and no outcomes of its tasks may still come to the log.

        One that was cut off from the log before may have spooled some: until it counts as silent, whoever
        starts with that spool can bring them.
        """
        return is_gone(owner) and not (late and spool_of(owner))


async def _tend(window: Window) -> None:
    """One round of upkeep; what goes wrong with one window leaves the others alone, and is reported."""
    try:
        await window.beat()
        await window.tick()
    except Unavailable:
        return
    except Exception as error:  # noqa: BLE001 - a ticker that died would be missed by nobody
        text = f"the upkeep of {window.shelf.name} failed"
        asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})
