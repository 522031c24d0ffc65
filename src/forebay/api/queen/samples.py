"""Time series of this server: it is looked at once a second, and what was seen is kept by the minute.

Invariants: a day is kept, in memory, from the start of the server on; nothing is guessed for the time before,
nor for other servers. What is kept of single queues is bounded over all minutes: the oldest is forgotten
first. A clock that jumps back adds to the newest minute. `Series` is pure; `Samples` does the looking.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple

from forebay.api.queen.tally import Activity, Tally
from forebay.api.queen.vitals import vitals
from forebay.log.values import Stats
from forebay.model import Clock, Unavailable, cancel

logger: Final = logging.getLogger("forebay.api")

MINUTES_MAX: Final = 1_440
QUEUE_MINUTES_MAX: Final = 50_000
"""Minutes of single queues that are kept, over all queues."""
PERIOD_SECONDS: Final = 1.0
MINUTE: Final = 60_000_000
_WIDTHS: Final = ((60, 1), (360, 5), (1_440, 15), (10_080, 60))
_WIDEST: Final = 360


class Reading(NamedTuple):
    """What is seen in one moment: counters that only grow, and gauges."""

    counts: Mapping[str, int]
    gauges: Mapping[str, float]


@dataclass(slots=True)
class Gauge:
    """Values of a gauge over some time."""

    sum: float = 0.0
    count: int = 0
    least: float = 0.0
    most: float = 0.0
    last: float = 0.0

    def see(self, value: float) -> None:
        """Another value."""
        self.least = min(self.least, value) if self.count else value
        self.most = max(self.most, value) if self.count else value
        self.sum += value
        self.count += 1
        self.last = value

    def add(self, later: Gauge) -> None:
        """Put the values of a later time to these."""
        if not later.count:
            return
        self.least = min(self.least, later.least) if self.count else later.least
        self.most = max(self.most, later.most) if self.count else later.most
        self.sum += later.sum
        self.count += later.count
        self.last = later.last

    @property
    def average(self) -> float:
        """The mean of all values; 0 where there are none."""
        return self.sum / self.count if self.count else 0.0

    def shown(self) -> dict[str, float]:
        """As Queen writes it."""
        return {
            "avg": round(self.average, 2),
            "min": round(self.least, 2),
            "max": round(self.most, 2),
            "last": round(self.last, 2),
        }


@dataclass(slots=True)
class Bucket:
    """What was seen in a stretch of time that began at `at` (µs); `seconds` of it were looked at."""

    at: int
    seconds: float = 0.0
    samples: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    queues: dict[int, Activity] = field(default_factory=dict)

    def gauge(self, name: str) -> Gauge:
        """A gauge by its name; one without values where it was never seen."""
        return self.gauges.get(name) or Gauge()

    def add(self, later: Bucket) -> None:
        """Put a later stretch to this one."""
        self.seconds += later.seconds
        self.samples += later.samples
        self.counts.update(later.counts)
        for name, gauge in later.gauges.items():
            self.gauges.setdefault(name, Gauge()).add(gauge)
        self.count_queues(later.queues)

    def count_queues(self, queues: Mapping[int, Activity]) -> None:
        """Put what happened to queues to this."""
        for queue, activity in queues.items():
            self.queues.setdefault(queue, Activity()).add(activity)

    def rate(self, count: float) -> float:
        """So many, by the second."""
        return round(count / self.seconds, 2) if self.seconds else 0.0


class Series:
    """Minutes, oldest first."""

    def __init__(self) -> None:
        self._minutes: deque[Bucket] = deque()
        self._before: Mapping[str, int] = {}
        self._queue_minutes = 0

    def see(
        self, now: int, seconds: float, reading: Reading, queues: Mapping[int, Activity] | None = None
    ) -> None:
        """Take in what is seen at a time (µs), so many seconds after the last time."""
        minute = self._minute(now)
        minute.seconds += seconds
        minute.samples += 1
        before, self._before = self._before, reading.counts
        for name, value in reading.counts.items():
            grown = value - before.get(name, 0)
            if grown > 0:
                minute.counts[name] += grown
        for name, gauge in reading.gauges.items():
            minute.gauges.setdefault(name, Gauge()).see(gauge)
        self._count_queues(minute, queues or {})

    def _minute(self, now: int) -> Bucket:
        at = now - now % MINUTE
        if not self._minutes or self._minutes[-1].at < at:
            self._minutes.append(Bucket(at))
            while len(self._minutes) > MINUTES_MAX:
                self._queue_minutes -= len(self._minutes.popleft().queues)
        return self._minutes[-1]

    def _count_queues(self, minute: Bucket, queues: Mapping[int, Activity]) -> None:
        before = len(minute.queues)
        minute.count_queues(queues)
        self._queue_minutes += len(minute.queues) - before
        for old in self._minutes:
            if self._queue_minutes <= QUEUE_MINUTES_MAX or old is minute:
                return
            self._queue_minutes -= len(old.queues)
            old.queues = {}

    def between(self, begin: int, end: int, width: int = 1) -> list[Bucket]:
        """What was seen from one time to another (µs), in stretches of so many minutes, oldest first."""
        found: list[Bucket] = []
        for minute in self._minutes:
            if not begin - begin % MINUTE <= minute.at <= end:
                continue
            at = minute.at - minute.at % (width * MINUTE)
            if not found or found[-1].at != at:
                found.append(Bucket(at))
            found[-1].add(minute)
        return found

    def recent(self, minutes: int = 2) -> Bucket:
        """The last minutes as one; the newest of them may have just begun."""
        found = Bucket(self._minutes[-1].at if self._minutes else 0)
        for minute in list(self._minutes)[-minutes:]:
            found.add(minute)
        return found


def width_of(begin: int, end: int) -> int:
    """How many minutes a point stands for, so that there aren't too many: Queen's own steps."""
    minutes = (end - begin) // MINUTE
    return next((width for most, width in _WIDTHS if minutes <= most), _WIDEST)


def together(buckets: Iterable[Bucket], queues: Sequence[int]) -> Activity:
    """What happened to some queues over all of a time."""
    total = Activity()
    for bucket in buckets:
        for queue in queues:
            if (found := bucket.queues.get(queue)) is not None:
                total.add(found)
    return total


class Samples:
    """Looks once a second for as long as it is entered."""

    def __init__(
        self,
        look: Callable[[], Reading],
        tally: Tally,
        clock: Clock,
        ledger: Callable[[], Awaitable[Stats]],
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self.series = Series()
        self.began_at = clock.now()
        """When the server was made (µs)."""
        self._look = look
        self._tally = tally
        self._clock = clock
        self._ledger = ledger
        self._period = period_seconds
        self._vitals = vitals()
        self._floors: dict[int, tuple[int, int]] = {}
        self._dropped: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._forever(), name="forebay-samples")

    async def __aexit__(self, *_: object) -> None:
        await cancel(self._task)

    async def _forever(self) -> None:
        last, minute = monotonic(), self._clock.now() // MINUTE
        while True:
            due = monotonic() + self._period
            await asyncio.sleep(self._period)
            late = max(0.0, monotonic() - due)
            try:
                if minute != (minute := self._clock.now() // MINUTE):
                    await self._look_at_books()
                last, before = monotonic(), last
                self.see(seconds=last - before, late_seconds=late)
            except Exception:
                logger.exception("a sample of the server's numbers failed")

    def see(self, *, seconds: float, late_seconds: float) -> None:
        """Look now; `late_seconds` is how long the event loop let us wait for our turn."""
        self._tally.sample()
        seen, vital, before = self._look(), vitals(), self._vitals
        self._vitals = vital
        reading = Reading(
            {**seen.counts, **self._dropped},
            {
                **seen.gauges,
                "cpu_user": _share(vital.user_us - before.user_us, seconds),
                "cpu_system": _share(vital.system_us - before.system_us, seconds),
                "rss": vital.rss,
                "virtual": vital.virtual,
                "loop_lag_ms": late_seconds * 1000,
            },
        )
        self.series.see(self._clock.now(), seconds, reading, self._tally.collect())

    async def _look_at_books(self) -> None:
        """Once a minute: what retention dropped; the log is away for a while, the next minute sees it."""
        try:
            stats = await self._ledger()
        except Unavailable:
            return
        floors = {q.queue.number: (q.floor, sum(g.expired for g in q.groups)) for q in stats.queues}
        for number, (floor, expired) in floors.items():
            before = self._floors.get(number, (floor, expired))
            self._dropped["dropped"] += max(0, floor - before[0])
            self._dropped["expired"] += max(0, expired - before[1])
        self._floors = floors


def _share(microseconds: int, seconds: float) -> float:
    """How much of a processor was used, in hundredths of a percent: what Queen calls `user_us`."""
    return microseconds / seconds / 100 if seconds > 0 else 0.0
