"""Time series: what is seen once a second is kept by the minute, and bounded."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from forebay.api.queen import samples as module
from forebay.api.queen.samples import MINUTE, Reading, Samples, Series, together, width_of
from forebay.api.queen.tally import Activity, Tally
from forebay.api.queen.vitals import vitals
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.model import ManualClock, Unavailable


def see(series: Series, at: int, count: int = 0, gauge: float = 0.0, **queues: int) -> None:
    """A second in which a counter was at a value; queues by number, with what was pushed."""
    found = {int(name[1:]): Activity(pushed=pushed) for name, pushed in queues.items()}
    series.see(at, 1.0, Reading({"pushed": count}, {"load": gauge}), found)


def test_seconds_of_a_minute_are_one_point() -> None:
    series = Series()
    for second, (count, gauge) in enumerate([(2, 5.0), (5, 1.0), (9, 3.0)]):
        see(series, MINUTE + second * 1_000_000, count, gauge)
    (point,) = series.between(0, 10 * MINUTE)
    assert (point.at, point.samples, point.seconds, point.counts["pushed"]) == (MINUTE, 3, 3.0, 9)
    assert point.gauge("load").shown() == {"avg": 3.0, "min": 1.0, "max": 5.0, "last": 3.0}
    assert point.rate(point.counts["pushed"]) == 3.0
    assert point.gauge("none").shown() == {"avg": 0.0, "min": 0.0, "max": 0.0, "last": 0.0}


def test_wider_points_add_minutes_up_and_begin_at_round_times() -> None:
    series = Series()
    for minute in range(12):
        see(series, minute * MINUTE, count=minute + 1, gauge=float(minute), q7=2)
    points = series.between(0, 20 * MINUTE, width=5)
    assert [point.at // MINUTE for point in points] == [0, 5, 10]
    assert [point.counts["pushed"] for point in points] == [5, 5, 2]
    assert [point.queues[7].pushed for point in points] == [10, 10, 4]
    assert points[1].gauge("load").shown() == {"avg": 7.0, "min": 5.0, "max": 9.0, "last": 9.0}


def test_only_the_time_that_is_asked_for_is_shown() -> None:
    series = Series()
    for minute in range(10):
        see(series, minute * MINUTE)
    found = series.between(3 * MINUTE + 5, 6 * MINUTE)
    assert [point.at // MINUTE for point in found] == [3, 4, 5, 6]
    assert series.between(11 * MINUTE, 12 * MINUTE) == []
    assert series.recent(3).samples == 3
    assert Series().recent().rate(5) == 0.0


def test_a_counter_that_shrinks_has_begun_anew_and_takes_nothing_away() -> None:
    series = Series()
    for count in (5, 2, 4):
        see(series, MINUTE, count)
    assert series.recent().counts["pushed"] == 7


def test_a_clock_that_jumps_back_adds_to_the_newest_minute() -> None:
    series = Series()
    see(series, 5 * MINUTE, 1)
    see(series, 2 * MINUTE, 2)
    (point,) = series.between(0, 10 * MINUTE)
    assert (point.at, point.counts["pushed"]) == (5 * MINUTE, 2)


def test_a_day_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MINUTES_MAX", 5)
    series = Series()
    for minute in range(20):
        see(series, minute * MINUTE, q1=1)
    assert [point.at // MINUTE for point in series.between(0, 99 * MINUTE)] == [15, 16, 17, 18, 19]


def test_queues_of_old_minutes_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_MINUTES_MAX", 5)
    series = Series()
    for minute in range(4):
        see(series, minute * MINUTE, minute, q1=1, q2=1)
    kept = [len(point.queues) for point in series.between(0, 9 * MINUTE)]
    assert kept == [0, 0, 2, 2]
    assert series.between(0, 9 * MINUTE)[1].counts["pushed"] == 1, "the server's own numbers stay"


@pytest.mark.parametrize(
    ("minutes", "width"), [(0, 1), (60, 1), (61, 5), (360, 5), (1_440, 15), (10_080, 60), (99_999, 360)]
)
def test_a_longer_time_has_wider_points(minutes: int, width: int) -> None:
    assert width_of(MINUTE, (minutes + 1) * MINUTE) == width


def test_some_queues_are_added_up_over_time() -> None:
    series = Series()
    see(series, 0, q1=1, q2=10)
    see(series, MINUTE, q1=2, q3=100)
    assert together(series.between(0, MINUTE), [1, 3]).pushed == 103


# Looking


def stats(floor: int, expired: int) -> Stats:
    group = GroupStats(
        group=Group(1, 1, "workers", 1), accepted=100, ready=100 - expired, held=0, deferred=0, done=0,
        dead=0, purged=0, expired=expired, corrupt=0, handed=0, due=0,
    )  # fmt: skip
    queue = Queue(1, "q", QueueSettings(), 0)
    return Stats(0, [QueueStats(queue=queue, next=101, floor=floor, groups=[group])])


class Looked:
    """A server to look at, whose minutes are short."""

    def __init__(self) -> None:
        self.clock = ManualClock(MINUTE)
        self.tally = Tally()
        self.counts: Counter[str] = Counter()
        self.seen = asyncio.Event()
        self.books: list[Stats | Exception] = []
        self.looks: list[Exception] = []
        self.samples = Samples(self.look, self.tally, self.clock, self.ledger, period_seconds=0.001)

    def look(self) -> Reading:
        if self.looks:
            raise self.looks.pop()
        self.seen.set()
        return Reading(dict(self.counts), {})

    async def ledger(self) -> Stats:
        found = self.books.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def next_look(self) -> None:
        self.seen.clear()
        await asyncio.wait_for(self.seen.wait(), 10)

    async def next_minute(self) -> None:
        self.clock.advance(seconds=60)
        await self.next_look()
        await self.next_look()


async def test_the_server_is_looked_at_for_as_long_as_it_runs() -> None:
    looked = Looked()
    async with looked.samples:
        await looked.next_look()
        looked.counts["pushed"] = 7
        looked.tally.pushed(3, 7)
        await looked.next_look()
        await looked.next_look()
    recent = looked.samples.series.recent()
    assert (recent.counts["pushed"], recent.queues[3].pushed) == (7, 7)
    assert recent.gauge("rss").last > 1 << 20
    assert recent.gauge("cpu_user").count == recent.samples
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "forebay-samples"]


async def test_a_look_that_fails_is_reported_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looked = Looked()
    looked.looks.append(RuntimeError("odd"))
    async with looked.samples:
        await looked.next_look()
    assert [record.getMessage() for record in caplog.records] == ["a sample of the server's numbers failed"]


async def test_what_retention_dropped_is_read_from_the_books_once_a_minute() -> None:
    looked = Looked()
    looked.books = [stats(1, 0), Unavailable("away"), stats(41, 5), stats(51, 5)]
    async with looked.samples:
        for _ in range(4):
            await looked.next_look()
            await looked.next_minute()
    found = looked.samples.series.between(0, 99 * MINUTE)
    assert [(point.counts["dropped"], point.counts["expired"]) for point in found] == [
        (0, 0), (0, 0), (0, 0), (40, 5), (10, 0),
    ]  # fmt: skip
    assert looked.books == []


def test_a_process_knows_its_processor_time_and_its_memory() -> None:
    found = vitals()
    assert found.user_us > 0
    assert found.virtual >= found.rss > 1 << 20
