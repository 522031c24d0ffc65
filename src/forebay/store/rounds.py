"""Rounds: upkeep of all windows, time and again. The safety net: nothing that works relies on it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol, TypeVar

from forebay.log.seam import Log
from forebay.log.values import Owner, Queue
from forebay.model import Unavailable
from forebay.store.process import is_gone, spool_of
from forebay.store.tiers import SECOND
from forebay.store.window import Window
from forebay.warm.seam import WarmAway

T = TypeVar("T")

STEP: Final = 1_000
"""Queues, groups or owners that the log is asked or told about in one go."""
OWNER_SILENT_SECONDS: Final = 30.0
"""Claims of a process that was not heard of for so long go to others."""
OWNER_LATE_SECONDS: Final = 15.0
"""A process that was not heard of for so long before it ended was cut off from the log: three ticks."""
TICK_SECONDS: Final = 5.0
SHARED_TICK_SECONDS: Final = 0.5
"""How often the loss of a shared tier is looked for, when nothing else notices it."""


class Kept(Protocol):
    """The store whose windows are kept up."""

    def queues_in_use(self) -> set[int]:
        """The queues that are worked on now."""
        ...

    def adopt(self, queue: Queue) -> None:
        """Go on with a queue as the log has it now."""
        ...

    async def let_go(self, windows: Collection[Window], queues: Collection[int]) -> None:
        """Forget windows whose groups are deleted, and queues that are."""
        ...

    async def put_away(self, window: Window) -> None:
        """Forget a window, if nobody uses it."""
        ...


class Rounds:
    """See the module. `name` is this process's. A round costs by what is in use, not by all queues."""

    def __init__(
        self, log: Log, name: str, windows: Mapping[tuple[int, str], Window], store: Kept, *, shared: bool
    ) -> None:
        self._log = log
        self._name = name
        self._spool = spool_of(name)
        self._windows = windows
        self._store = store
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
                await self._beat()
            except WarmAway:
                pass  # that says nothing of the log
            except Unavailable:
                self._away_at = monotonic()
                continue
            except Exception as error:  # noqa: BLE001 - a ticker that died would be missed by nobody
                _report("a round of upkeep failed", error)
            for window in list(self._windows.values()):
                await self._tend(window)

    async def _keep_up(self) -> None:
        """See what other servers changed, and take over from those that are gone."""
        numbers = sorted(self._store.queues_in_use())
        missing = set(numbers)
        for some in _steps(numbers):
            for queue in await self._log.queues(numbers=some):
                self._store.adopt(queue)
                missing.discard(queue.number)
        gone = await self._follow(list(self._windows.values()))
        await self._store.let_go(gone, missing)
        owners = await self.retire_gone()
        for window in list(self._windows.values()):
            for tier in window.tiers.all:
                with suppress(Unavailable):
                    await tier.give_back_lost(owners)
            if self._shared or not all(owner.name.startswith(self._name) for owner in owners):
                with suppress(Unavailable):  # others work on this log
                    await window.notice()

    async def _follow(self, windows: Sequence[Window]) -> list[Window]:
        """See which groups were sent elsewhere; the windows of those that were deleted."""
        gone = {window.group.number: window for window in windows}
        for some in _steps(windows):
            for outlook in await self._log.outlook([window.group for window in some]):
                window = gone.pop(outlook.group)
                if outlook.sought > window.group.sought:
                    await self._send_on(window)
        return list(gone.values())

    async def _send_on(self, window: Window) -> None:
        for group in await self._log.groups(window.queue):
            if group.number == window.group.number:
                await window.follow(group)

    async def _beat(self) -> None:
        """Say to the log that what we hold is in use, in few writes."""
        windows = list(self._windows.values())
        for window in windows:
            window.look_anew()
        for some in _steps([owner for window in windows for owner in window.owners()]):
            await self._log.heartbeat(some)

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

    async def _tend(self, window: Window) -> None:
        """One round of upkeep; what goes wrong with one window leaves the others alone, and is reported."""
        try:
            await window.tick()
            await self._store.put_away(window)
        except Unavailable:
            return
        except Exception as error:  # noqa: BLE001 - a ticker that died would be missed by nobody
            _report(f"the upkeep of {window.shelf.name} failed", error)


def _report(text: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})


def _steps(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, some at a time."""
    return (items[begin : begin + STEP] for begin in range(0, len(items), STEP))
