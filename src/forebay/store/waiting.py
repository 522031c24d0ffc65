"""Taking from one or several windows, and waiting for the first task.

Invariants: whoever waits is in the line of every window that it asks, first come, first served; to join, to
leave and to be woken cost the same however many wait. A wake-up is spent on one taker, which looks in that
window first, or hands the wake-up on; so nothing is ready while somebody waits for it. What was taken reaches
the caller or goes back, with no attempt counted. Who waits asks neither log nor tier.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from heapq import heappop, heappush
from time import monotonic
from typing import Final, Protocol, TypeVar

from forebay.model import ForebayError, Rejected
from forebay.store.values import Task

QUEUES_MAX: Final = 100
"""Queues that one call takes from."""
LOOK_AGAIN_SECONDS: Final = 3600.0
"""A timer is set for no longer; who waits longer sets another."""

TWICE: Final = 2
"""Who finds something unexpected wakes so many: all are awake soon, and few of them for nothing."""

_tickets = itertools.count(1)
_turns = itertools.count(1)


class Waiter:
    """A taker that waits; in the lines of several windows, it is woken once."""

    __slots__ = ("by", "count", "is_sure", "ticket", "woken")

    def __init__(self, count: int) -> None:
        self.count = count
        self.ticket = next(_tickets)
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
        self._returned: set[Waiter] = set()
        self._first: Waiter | None = None
        """Who was woken alone."""
        self._by_ticket: list[tuple[int, Waiter]] = []
        """Those that returned as a heap; some may have left."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters) + len(self._returned)

    def join(self, waiter: Waiter) -> None:
        """Wait in this line, or keep the place it has."""
        if waiter not in self._returned:
            self._waiters.setdefault(waiter)

    def rejoin(self, waiter: Waiter) -> None:
        """Wait before all that were never woken: it was, and found nothing."""
        if waiter not in self._waiters and waiter not in self._returned:
            self._returned.add(waiter)
            heappush(self._by_ticket, (waiter.ticket, waiter))

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer."""
        self._waiters.pop(waiter, None)
        self._returned.discard(waiter)

    def wake(self, messages: int) -> None:
        """Wake up as many as there are messages for."""
        self.news += 1
        while messages > 0 and (waiter := self._pop()) is not None:
            if waiter.wake(self, is_sure=True):
                messages -= waiter.count

    def wake_next(self, takers: int = 1) -> None:
        """Wake up the first, when it isn't known how much there is: who finds something wakes others."""
        self.news += 1
        while takers > 0 and (waiter := self._pop()) is not None:
            takers -= waiter.wake(self, is_sure=False)

    def wake_first(self) -> None:
        """Wake up the first, and no other while it has yet to look: only one can have what there is.

        Who looks and finds nothing looks again if there is news; who leaves then wakes up the next.
        """
        self.news += 1
        if self._first is not None and self._first.by is self:
            return
        while (waiter := self._pop()) is not None:
            if waiter.wake(self, is_sure=True):
                self._first = waiter
                return

    def wake_all(self) -> None:
        """Wake up everybody: there is nothing to wait for any more."""
        self.news += 1
        while (waiter := self._pop()) is not None:
            waiter.wake(self, is_sure=True)

    def _pop(self) -> Waiter | None:
        while self._by_ticket:
            waiter = heappop(self._by_ticket)[1]
            if waiter in self._returned:
                self._returned.remove(waiter)
                return waiter
        return self._waiters.popitem(last=False)[0] if self._waiters else None


class Source(Protocol):
    """What tasks are taken from: a window, as a taker sees it."""

    line: Line
    turn: int
    """When it was last the first of several: see `in_turn`."""

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

    async def bring(self) -> bool:
        """Bring what the log is thought to have; tells whether that was anything."""
        ...

    def keep(self, tasks: Sequence[Task], seconds: float) -> AbstractContextManager[None]:
        """Keep the leases of tasks while more is looked for elsewhere."""
        ...

    async def confirm(self, tasks: list[Task], seconds: float, age: float) -> list[Task]:
        """Tasks of which each is leased for all of that time from now, if that may not be so by itself.

        It took `age` seconds to have them.
        """
        ...

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Have tasks that reached nobody made ready again, in the background."""
        ...


S = TypeVar("S", bound=Source)


def names_of(queue: str | Sequence[str]) -> Sequence[str]:
    """The queues to take from, each once."""
    if isinstance(queue, str):
        return (queue,)
    for name in queue:
        if not isinstance(name, str):
            raise Rejected(f"{name!r} is no name of a queue", hint="give strings")
    names = list(dict.fromkeys(queue))
    if not 1 <= len(names) <= QUEUES_MAX:
        raise Rejected(f"{len(names)} queues can't be asked at once", hint=f"name 1 to {QUEUES_MAX}")
    return names


def in_turn(sources: Sequence[S]) -> Sequence[S]:
    """The same, beginning with the one that was first the longest ago, in whatever company: none starves."""
    if len(sources) == 1:
        return sources
    begin = min(range(len(sources)), key=lambda i: sources[i].turn)
    sources[begin].turn = next(_turns)
    return [*sources[begin:], *sources[:begin]]


async def take(
    sources: Sequence[tuple[Source, float]], count: int, worker: str, wait_seconds: float
) -> list[Task]:
    """Take up to `count` tasks of sources, each with how long its leases hold; those first named come first.

    Waits for the first task, but no longer than so many seconds.
    """
    places = [_Place(source, seconds) for source, seconds in sources]
    return await _Taking(places, count, worker, monotonic() + wait_seconds).run()


class _Place:
    """A source, and what is known of it. Of these there are as many as takers that wait."""

    __slots__ = ("is_asked", "news", "seconds", "source")

    def __init__(self, source: Source, seconds: float) -> None:
        self.source = source
        self.seconds = seconds
        self.is_asked = False
        """Whether the log was asked about it."""
        self.news = -1
        """What was new when it was last looked at; nothing comes up in between without being news."""

    @property
    def is_fresh(self) -> bool:
        return self.news != self.source.line.news


class _Taken:
    """What one look has brought, and is not answered yet."""

    __slots__ = ("by_place", "kept")

    def __init__(self) -> None:
        self.by_place: dict[_Place, list[Task]] = {}
        self.kept = ExitStack()
        """While it is open, their leases are kept."""

    def add(self, place: _Place, tasks: list[Task], *, is_last: bool) -> None:
        """Tasks of one place; unless it is the last, more is looked for, and that may take long."""
        self.by_place[place] = tasks
        if not is_last:
            self.kept.enter_context(place.source.keep(tasks, place.seconds))

    async def confirmed(self, age: float) -> list[Task]:
        """All of them that are still leased."""
        found: list[Task] = []
        for place, tasks in self.by_place.items():
            found += await place.source.confirm(tasks, place.seconds, age)
        return found


class _Taking:
    """One call of `take`."""

    __slots__ = ("_count", "_deadline", "_places", "_waiter", "_worker")

    def __init__(self, places: Sequence[_Place], count: int, worker: str, deadline: float) -> None:
        self._places = places
        self._count = count
        self._worker = worker
        self._deadline = deadline
        self._waiter: Waiter | None = None

    async def run(self) -> list[Task]:
        try:
            while live := [place for place in self._places if not place.source.is_closed]:
                if tasks := await self._look(live):
                    return tasks
                if await _ask(live):
                    continue
                left = self._deadline - monotonic()
                if left <= 0:
                    break
                if not any(place.is_fresh for place in live):
                    await self._wait(live, left)
            return []
        finally:
            self._leave()

    async def _look(self, live: Sequence[_Place]) -> list[Task]:
        """Take from where there may be something: first from where it was woken."""
        fresh = [place for place in live if place.is_fresh]
        by = None if self._waiter is None else self._waiter.by
        if by is not None and len(fresh) > 1:
            fresh.sort(key=lambda place: place.source.line is not by)
        began, taken = monotonic(), _Taken()
        try:
            with taken.kept:
                try:
                    left = await self._collect(fresh, taken, self._count)
                    if taken.by_place and left > 0 and len(live) > 1:
                        others = [place for place in live if place not in taken.by_place]
                        more = [place for place in others if place.is_fresh or await place.source.bring()]
                        await self._collect(more, taken, left)
                except ForebayError:
                    if not taken.by_place:
                        raise
            return await taken.confirmed(monotonic() - began)
        except BaseException:
            for place, tasks in taken.by_place.items():
                place.source.give_back(tasks)
            raise

    async def _collect(self, places: Sequence[_Place], taken: _Taken, count: int) -> int:
        """Take from one after the other; tells how many are still wanted."""
        for place in places:
            if count <= 0:
                break
            place.news = place.source.line.news
            if tasks := await place.source.grab(count, self._worker, place.seconds):
                taken.add(place, tasks, is_last=len(self._places) == 1)
                count -= len(tasks)
            self._looked(place.source, found=bool(tasks))
        return count

    def _looked(self, source: Source, *, found: bool) -> None:
        """The wake-up of a source was used; who found something lets others look."""
        waiter = self._waiter
        if waiter is None or waiter.by is not source.line:
            return
        waiter.by = None
        if not found:
            source.line.rejoin(waiter)
        elif not waiter.is_sure:
            source.line.wake_next(TWICE)

    async def _wait(self, live: Sequence[_Place], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._waiter is None:
            self._waiter = Waiter(self._count)
        woken = self._waiter.woken = loop.create_future()
        for place in live:
            place.source.line.join(self._waiter)
        timer = loop.call_later(min(seconds, LOOK_AGAIN_SECONDS), _time_out, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def _leave(self) -> None:
        """Leave all lines; a wake-up that was not used goes to the next."""
        if self._waiter is None:
            return
        for place in self._places:
            place.source.line.leave(self._waiter)
        if self._waiter.by is not None:
            self._waiter.by.wake_next()


async def _ask(live: Sequence[_Place]) -> bool:
    """Ask the log about what it was not asked about yet; tells whether there was anything to ask."""
    unasked = [place for place in live if not (place.is_asked or place.source.is_paused)]
    for place in unasked:
        place.is_asked, place.news = True, -1
    if len(unasked) == 1:
        await unasked[0].source.ask()
    elif unasked:
        await _ask_all([place.source for place in unasked])
    return bool(unasked)


async def _ask_all(sources: Sequence[Source]) -> None:
    """Ask several sources at once; one that fails leaves the others asked, and fails the call."""
    answers = await asyncio.gather(*(source.ask() for source in sources), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


def _time_out(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
