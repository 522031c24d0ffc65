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
from forebay.spool.remains import has_outcomes
from forebay.store.process import SpoolPlace, is_gone, process_of, spool_folder, spool_of, spool_owner
from forebay.store.tiers import SECOND
from forebay.store.window import Window
from forebay.warm.seam import WarmAway

T = TypeVar("T")

STEP: Final = 1_000
"""Queues, groups or owners that the log is asked or told about in one go."""
OWNER_SILENT_SECONDS: Final = 30.0
"""Claims of a process that was not heard of for so long go to others."""
OWNER_LATE_SECONDS: Final = 15.0
"""A process that was not heard of for so long before it ended was cut off from the log: three ticks.

That is a guess, for those whose spool can't be looked into.
"""
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

    async def keep_time(self) -> None:
        """Let delays end in time, also when the clock was set back."""
        ...

    async def put_away(self, window: Window) -> None:
        """Forget a window, if nobody uses it."""
        ...


class Rounds:
    """See the module. `name` is this process's. A round costs by what is in use, not by all queues."""

    def __init__(
        self,
        log: Log,
        name: str,
        windows: Mapping[tuple[int, str], Window],
        store: Kept,
        *,
        shared: bool,
        spool: SpoolPlace | None = None,
    ) -> None:
        self._log = log
        self._name = name
        self._spool = spool
        self._windows = windows
        self._store = store
        self._shared = shared
        self._away_at = monotonic()  # who begins doesn't know whether it was

    async def begin(self) -> None:
        """Take over from processes that are gone, before the first round."""
        await self._say_where_spool_is()
        await self.retire_gone()

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
                await self._store.keep_time()
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
        await self._say_where_spool_is()
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

    async def _say_where_spool_is(self) -> None:
        """Tell those who may take over from us, also while we hold nothing: we may be cut off at any time."""
        if self._spool is not None:
            await self._log.heartbeat(spool_owner(self._name, self._spool.folder))

    async def retire_gone(self) -> list[Owner]:
        """Take over from processes that are gone; all owners, as they were before."""
        owners = await self._log.owners()
        newest = max((owner.beat_at for owner in owners), default=0)
        # While the log was away nobody could say that he lives, and not all notice at once that it is back.
        is_back = monotonic() - self._away_at < OWNER_SILENT_SECONDS
        remains = await asyncio.to_thread(_remains, [owner.name for owner in owners])
        for owner in owners:
            if owner.name.startswith(self._name):
                continue
            silent = not is_back and owner.beat_at <= newest - int(OWNER_SILENT_SECONDS * SECOND)
            late = is_back or owner.beat_at <= newest - int(OWNER_LATE_SECONDS * SECOND)
            is_over = _is_over(owner.name, remains, late=late)
            if silent or is_over or self._is_succeeded(owner.name):
                await self._log.retire(owner.name)
        return owners

    def _is_succeeded(self, owner: str) -> bool:
        """Whether an owner had the spool that is ours now: what it had spooled has come to the log."""
        return self._spool is not None and spool_of(owner) == self._spool.identity

    async def _tend(self, window: Window) -> None:
        """One round of upkeep; what goes wrong with one window leaves the others alone, and is reported."""
        try:
            await window.tick()
            await self._store.put_away(window)
        except Unavailable:
            return
        except Exception as error:  # noqa: BLE001 - a ticker that died would be missed by nobody
            _report(f"the upkeep of {window.shelf.name} failed", error)


def _remains(owners: Sequence[str]) -> dict[str | None, bool | None]:
    """The processes that are gone, and whether outcomes wait in their spools; None where that can't be told.

    A process is seen to be gone before its spool is looked into, so it adds nothing afterwards.
    """
    folders = {process_of(owner): folder for owner in owners if (folder := spool_folder(owner)) is not None}
    gone = {name for name in map(process_of, owners) if name is not None and is_gone(name)}
    return {name: has_outcomes(folders[name], spool_of(name)) if name in folders else None for name in gone}


def _is_over(owner: str, remains: Mapping[str | None, bool | None], *, late: bool) -> bool:
    """Whether the process of an owner has ended, and no outcomes of its tasks may still come to the log.

    Until it counts as silent, whoever starts with its spool can bring those that are there. Where nobody can
    look into the spool, one that was cut off from the log before it ended (`late`) may have some.
    """
    process = process_of(owner)
    if process not in remains:
        return False
    has_some = remains[process]
    return not spool_of(owner) or not (late if has_some is None else has_some)


def _report(text: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})


def _steps(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, some at a time."""
    return (items[begin : begin + STEP] for begin in range(0, len(items), STEP))
