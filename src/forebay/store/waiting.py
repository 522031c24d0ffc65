"""Taking from one or several windows, and waiting for the first task.

Invariants: whoever waits is in the line of every window that it asks, first come, first served; to join, to
leave and to be woken cost the same however many wait. A wake-up is spent on one taker, which looks in that
window first, or hands the wake-up on; so nothing is ready while somebody waits for it. What was taken reaches
the caller or goes back, with no attempt counted. Who waits asks neither log nor tier.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from time import monotonic
from typing import Final, Protocol

from forebay.model import ForebayError
from forebay.store.values import Task

LOOK_AGAIN_SECONDS: Final = 3600.0
"""A timer is set for no longer; who waits longer sets another."""

TWICE: Final = 2
"""Who finds something unexpected wakes so many: all are awake soon, and few of them for nothing."""


class Waiter:
    """A taker that waits; in the lines of several windows, it is woken once."""

    __slots__ = ("by", "count", "is_sure", "woken")

    def __init__(self, count: int) -> None:
        self.count = count
        self.woken: asyncio.Future[None] | None = None
        self.by: Line | None = None
        """The line that woke it, until it has looked there."""
        self.is_sure = True
        """Whether that was for as many messages as it may take; if not, it wakes up the next one."""

    def wake(self, line: Line, *, is_sure: bool) -> bool:
        """Wake it up, unless it is awake."""
        if self.woken is None or self.woken.done():
            return False
        self.by, self.is_sure = line, is_sure
        self.woken.set_result(None)
        return True


class Line:
    """Those who wait for tasks of one window, first come, first served."""

    def __init__(self) -> None:
        self.news = 0
        """Changes whenever something may have become ready."""
        # Not a plain dict: to find the first of one walks over all that were removed before it.
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def join(self, waiter: Waiter, *, first: bool = False) -> None:
        """Wait in this line; `first` for one that was woken and found nothing. It keeps the place it has."""
        if waiter not in self._waiters:
            self._waiters[waiter] = None
            if first:
                self._waiters.move_to_end(waiter, last=False)

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer."""
        self._waiters.pop(waiter, None)

    def wake(self, messages: int) -> None:
        """Wake up as many as there are messages for."""
        self.news += 1
        while self._waiters and messages > 0:
            waiter, _ = self._waiters.popitem(last=False)
            if waiter.wake(self, is_sure=True):
                messages -= waiter.count

    def wake_next(self, takers: int = 1) -> None:
        """Wake up the first, when it isn't known how much there is: who finds something wakes others."""
        self.news += 1
        while self._waiters and takers > 0:
            waiter, _ = self._waiters.popitem(last=False)
            takers -= waiter.wake(self, is_sure=False)

    def wake_all(self) -> None:
        """Wake up everybody: there is nothing to wait for any more."""
        self.news += 1
        while self._waiters:
            self._waiters.popitem(last=False)[0].wake(self, is_sure=True)


class Source(Protocol):
    """What tasks are taken from: a window, as a taker sees it."""

    line: Line

    @property
    def is_closed(self) -> bool:
        """Whether there will never be anything again."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        ...

    async def grab(self, count: int, worker: str, seconds: float) -> list[Task]:
        """Take what is there, up to `count`, for so many seconds."""
        ...

    async def ask(self) -> None:
        """Bring what the log has by now."""
        ...

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Have tasks that reached nobody made ready again, in the background."""
        ...


async def take(
    sources: Sequence[tuple[Source, float]], count: int, worker: str, wait_seconds: float
) -> list[Task]:
    """Take up to `count` tasks of sources, each with how long its leases hold; those first named come first.

    Waits for the first task, but no longer than so many seconds.
    """
    return await _Taking(sources, count, worker, monotonic() + wait_seconds).run()


class _Taking:
    """One call of `take`."""

    def __init__(
        self, sources: Sequence[tuple[Source, float]], count: int, worker: str, deadline: float
    ) -> None:
        self._sources = sources
        self._count = count
        self._worker = worker
        self._deadline = deadline
        self._waiter: Waiter | None = None
        self._asked: set[Source] = set()
        self._seen: dict[Source, int] = {}
        """What was new when a source was last looked at; nothing comes up in between without being news."""

    async def run(self) -> list[Task]:
        try:
            while live := [source for source in self._sources if not source[0].is_closed]:
                if tasks := await self._look(live):
                    return tasks
                if await self._ask(live):
                    continue
                left = self._deadline - monotonic()
                if left <= 0:
                    break
                if all(self._seen.get(source) == source.line.news for source, _ in live):
                    await self._wait(live, left)
            return []
        finally:
            self._leave()

    async def _look(self, live: Sequence[tuple[Source, float]]) -> list[Task]:
        """Take from where there may be something: first from where it was woken."""
        fresh = [(s, seconds) for s, seconds in live if self._seen.get(s) != s.line.news]
        by = None if self._waiter is None else self._waiter.by
        if by is not None and len(fresh) > 1:
            fresh.sort(key=lambda source: source[0].line is not by)
        taken: list[tuple[Source, list[Task]]] = []
        left = self._count
        try:
            for source, seconds in fresh:
                self._seen[source] = source.line.news
                if tasks := await source.grab(left, self._worker, seconds):
                    taken.append((source, tasks))
                    left -= len(tasks)
                self._looked(source, found=bool(tasks))
                if left <= 0:
                    break
        except ForebayError:
            if not taken:
                raise
        except BaseException:
            for source, tasks in taken:
                source.give_back(tasks)
            raise
        return [task for _, tasks in taken for task in tasks]

    def _looked(self, source: Source, *, found: bool) -> None:
        """The wake-up of a source was used; who found something lets others look."""
        waiter = self._waiter
        if waiter is not None and waiter.by is source.line:
            waiter.by = None
            if not waiter.is_sure and found:
                source.line.wake_next(TWICE)
            elif not found and waiter.woken is not None:
                source.line.join(waiter, first=True)  # where it was

    async def _ask(self, live: Sequence[tuple[Source, float]]) -> bool:
        """Ask the log about what it was not asked about yet; tells whether there was anything to ask."""
        unasked = [s for s, _ in live if s not in self._asked and not s.is_paused]
        if not unasked:
            return False
        self._asked.update(unasked)
        for source in unasked:
            self._seen.pop(source, None)
        if len(unasked) == 1:
            await unasked[0].ask()
        else:
            await _all(unasked)
        return True

    async def _wait(self, live: Sequence[tuple[Source, float]], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._waiter is None:
            self._waiter = Waiter(self._count)
        woken = self._waiter.woken = loop.create_future()
        for source, _ in live:
            source.line.join(self._waiter)
        timer = loop.call_later(min(seconds, LOOK_AGAIN_SECONDS), _time_out, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """Leave all lines; a wake-up that was not used goes to the next."""
        if self._waiter is None:
            return
        for source, _ in self._sources:
            source.line.leave(self._waiter)
        if self._waiter.by is not None:
            self._waiter.by.wake_next()


async def _all(sources: Sequence[Source]) -> None:
    """Ask several sources at once; one that fails leaves the others asked, and fails the call."""
    answers = await asyncio.gather(*(source.ask() for source in sources), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


def _time_out(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
