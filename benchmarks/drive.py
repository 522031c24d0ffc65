"""How contestants are driven: pushers and consumers for a time, in rounds that take turns.

All contestants are driven by the same code. A turn begins with nothing to do and ends when
everything that was pushed is finished, so a rate counts only messages that went the whole way.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.payloads import BATCH, PUSHERS

Push = Callable[[int, int], Awaitable[object]]
"""Push one batch, as pusher (0 to 15) and in this turn of all pushes."""
Finish = Callable[[int], Awaitable[int]]
"""Take and finish some messages, as this consumer; how many, 0 when nothing was there."""
Turn = Callable[[float], Awaitable[float]]
"""Go for about so many seconds; messages per second."""
Rates = Mapping[str, Sequence[float]]
"""Messages per second of each contestant, by round."""
Note = Callable[[str], AbstractContextManager[None]]
"""Show on the progress bar what goes on."""

AHEAD_MAX: Final = 20_000
"""How far pushers may run ahead of consumers, in messages: a backlog is another benchmark."""
_WARM_UP: Final = 0.25


async def append_rate(push: Push, seconds: float) -> float:
    """Push from all pushers for a time."""
    start = perf_counter()

    async def pusher(number: int) -> int:
        turn = number
        while perf_counter() - start < seconds:
            await push(number, turn)
            turn += PUSHERS
        return (turn - number) // PUSHERS * BATCH

    counts = await asyncio.gather(*(pusher(number) for number in range(PUSHERS)))
    return sum(counts) / (perf_counter() - start)


async def cycle_rate(push: Push, finish: Finish, consumers: int, seconds: float) -> float:
    """Push for a time while consumers finish what comes, and until all of it is finished."""
    cycle = _Cycle(push, finish, seconds)
    start = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(consumers):
            tasks.create_task(cycle.consume(number))
        await cycle.push_all()
    elapsed = perf_counter() - start
    assert cycle.finished == cycle.pushed, f"{cycle.pushed} pushed, {cycle.finished} finished"
    return cycle.finished / elapsed


class _Cycle:
    """Pushers and consumers of one turn, and how they wait for each other."""

    def __init__(self, push: Push, finish: Finish, seconds: float) -> None:
        self.pushed = 0
        self.finished = 0
        self._push = push
        self._finish = finish
        self._end = perf_counter() + seconds
        self._pushing = True
        self._came = asyncio.Event()
        self._room = asyncio.Event()

    async def push_all(self) -> None:
        await asyncio.gather(*(self._pusher(number) for number in range(PUSHERS)))
        self._pushing = False
        self._came.set()

    async def _pusher(self, number: int) -> None:
        turn = number
        while perf_counter() < self._end:
            while self.pushed - self.finished >= AHEAD_MAX:
                self._room.clear()
                await self._room.wait()
            await self._push(number, turn)
            turn += PUSHERS
            self.pushed += BATCH
            self._came.set()

    async def consume(self, number: int) -> None:
        while True:
            pushing = self._pushing
            count = await self._finish(number)
            self.finished += count
            if count:
                self._room.set()
            elif not pushing:
                return
            elif self._pushing:
                self._came.clear()
                await self._came.wait()


async def interleave(
    contestants: Mapping[str, Turn],
    rounds: int,
    seconds: float,
    note: Note,
    before_round: Callable[[], Awaitable[None]] | None = None,
) -> Rates:
    """Let each contestant have its turn in every round, each time in another order."""
    names = list(contestants)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        with note(f"{name}, to warm up"):
            await contestants[name](seconds * _WARM_UP)
    for number in range(rounds):
        if before_round is not None:
            await before_round()
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            with note(f"{name}, round {number + 1} of {rounds}"):
                rates[name].append(await contestants[name](seconds))
    return rates


def turns_of(contestants: int, rounds: int) -> int:
    """How many turns `interleave` notes."""
    return contestants * (rounds + 1)


def typical(rates: Sequence[float]) -> float:
    """Give the median rate, in whole messages."""
    return float(round(median(rates)))


def best(rates: Rates, names: Sequence[str]) -> str:
    """Name the contestant with the highest median rate."""
    return max(names, key=lambda name: median(rates[name]))


def ratios(rates: Rates, name: str, to: str) -> list[float]:
    """Give the ratio of two contestants in each round: what slows a round down slows both."""
    return [round(a / b, 3) for a, b in zip(rates[name], rates[to], strict=True)]
