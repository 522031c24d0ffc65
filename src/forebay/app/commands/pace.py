"""How fast queues fill and empty: samples of the books over the last minute, as rates and a sparkline.

Invariants: a sample is a value; at most a minute of them is kept; a counter that went back (a queue that was
made anew) is a rate of 0, not a negative one.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.app.commands.queues import places
from forebay.log.values import QueueStats, Stats
from forebay.store.values import FlowStats

__all__ = ["CELLS", "Pace", "QueuePace", "oldest_by_queue", "sparkline"]

WINDOW_US: Final = 60_000_000
RATE_US: Final = 5_000_000
"""Rates are over this long, so that they can be read."""
CELLS: Final = 20
BARS: Final = "▁▂▃▄▅▆▇█"


class QueuePace(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as `forebay top` shows it."""

    queue: str
    in_per_second: float
    out_per_second: float
    ready: int
    leased: int
    delayed: int
    dead: int
    oldest_seconds: float | None
    """For how long the oldest that waits has been ready."""
    last_minute: Sequence[float]
    """Messages in per second, oldest first; as many as there were samples for, `CELLS` at most."""
    paused: bool = False
    spooled: int = 0
    """On their way to the log, on the server's own disk."""


class _Sample(msgspec.Struct, frozen=True):
    at: int
    counters: dict[str, tuple[int, int]]
    """By queue: messages in, outcomes."""


class Pace:
    """The samples of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, stats: Stats, oldest: dict[str, int]) -> list[QueuePace]:
        """Take a sample in, and say how things are now. `oldest` is since when each queue's oldest waits."""
        if self._samples and stats.at < self._samples[-1].at:
            self._samples.clear()  # the clock went back
        self._samples.append(_Sample(stats.at, {q.queue.name: _counters(q) for q in stats.queues}))
        while self._samples[0].at < stats.at - WINDOW_US:
            self._samples.popleft()
        return [self._queue(books, stats.at, oldest) for books in stats.queues]

    def _queue(self, books: QueueStats, at: int, oldest: dict[str, int]) -> QueuePace:
        name = books.queue.name
        row = QueuePace(
            queue=name,
            in_per_second=self._rate(name, 0, at - RATE_US, at),
            out_per_second=self._rate(name, 1, at - RATE_US, at),
            oldest_seconds=None,
            last_minute=self._minute(name, at),
            spooled=books.spooled,
            paused=books.queue.settings.paused,
            **places(books.groups),
        )
        return self.aged(row, at, oldest)

    @staticmethod
    def aged(row: QueuePace, at: int, oldest: dict[str, int]) -> QueuePace:
        """The same with how long its oldest waits."""
        since = oldest.get(row.queue) if row.ready else None
        seconds = None if since is None else max(0, at - since) / 1_000_000
        return msgspec.structs.replace(row, oldest_seconds=seconds)

    def _minute(self, name: str, at: int) -> list[float]:
        width = WINDOW_US // CELLS
        first = max(0, CELLS - 1 - (at - self._samples[0].at) // width)
        begins = [at - (CELLS - cell) * width for cell in range(first, CELLS)]
        return [self._rate(name, 0, begin, begin + width) for begin in begins]

    def _rate(self, name: str, which: int, begin: int, end: int) -> float:
        """Per second between the last samples at or before two times, or the first there is."""
        earlier, later = self._at(begin), self._at(end)
        before, after = earlier.counters.get(name), later.counters.get(name)
        if before is None or after is None or later.at == earlier.at:
            return 0.0
        return max(0, after[which] - before[which]) * 1_000_000 / (later.at - earlier.at)

    def _at(self, moment: int) -> _Sample:
        for sample in reversed(self._samples):
            if sample.at <= moment:
                return sample
        return self._samples[0]


def _counters(books: QueueStats) -> tuple[int, int]:
    settled = sum(g.done + g.dead + g.purged + g.expired + g.corrupt for g in books.groups)
    return books.next + books.spooled, settled


def oldest_by_queue(stats: FlowStats) -> dict[str, int]:
    """Since when the oldest message that waits in each queue has been ready (µs)."""
    found: dict[str, int] = {}
    for flow in stats.flows:
        if flow.oldest_at is not None:
            found[flow.queue] = min(flow.oldest_at, found.get(flow.queue, flow.oldest_at))
    return found


def sparkline(values: Sequence[float]) -> str:
    """Values as bars, the largest one full; nothing at all is a flat line."""
    top = max(values, default=0.0)
    steps = len(BARS) - 1
    return "".join(BARS[round(value / top * steps) if top > 0 else 0] for value in values)
