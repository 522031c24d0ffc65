"""Rates come from what the books say at two times; the screen shows them."""

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from forebay.app.commands.pace import CELLS, Pace, QueuePace, oldest_by_queue, sparkline
from forebay.app.commands.top import screen
from forebay.failover.books import with_spooled
from forebay.log.values import Group, GroupStats, Queue, QueueSettings, QueueStats, Stats
from forebay.model import NO_FLOW
from forebay.store.values import FlowStat, FlowStats

SECOND = 1_000_000
WORKERS = GroupStats(
    group=Group(1, 1, "workers", 1),
    accepted=0, ready=0, held=0, deferred=0, done=0, dead=0, purged=0, expired=0, corrupt=0, handed=0, due=0,
)  # fmt: skip
ROW = QueuePace(
    queue="orders", in_per_second=0, out_per_second=0, ready=0, leased=0, delayed=0, dead=0,
    oldest_seconds=None, last_minute=[0.0],
)  # fmt: skip


def books(at: int, accepted: int, **figures: int) -> Stats:
    """The books of one queue at a time in seconds."""
    group = msgspec.structs.replace(WORKERS, accepted=accepted, **figures)
    queue = Queue(1, "orders", QueueSettings(), 0)
    return Stats(at * SECOND, [QueueStats(queue=queue, next=accepted + 1, floor=1, groups=[group])])


def test_rates_are_what_came_in_and_went_out_in_the_last_seconds() -> None:
    pace = Pace()
    pace.add(books(0, 0), {})
    (row,) = pace.add(books(2, 200, done=80, dead=20, ready=60, held=40, handed=30, deferred=9, due=4), {})
    assert (row.in_per_second, row.out_per_second) == (100, 50)
    assert (row.ready, row.leased, row.delayed, row.dead) == (74, 30, 5, 20)
    (row,) = pace.add(books(20, 200, done=80), {})
    assert (row.in_per_second, row.out_per_second) == (0, 0)


def test_the_sparkline_is_the_last_minute_and_no_more_is_kept() -> None:
    pace, row = Pace(), ROW
    for second in range(200):
        (row,) = pace.add(books(second, second * 10 if second < 180 else 1800), {})
    assert len(pace._samples) <= 61
    assert len(row.last_minute) == CELLS
    assert row.last_minute[0] == 10
    assert row.last_minute[-1] == 0
    assert sparkline(row.last_minute) == "█" * 13 + "▆" + "▁" * 6


def test_a_queue_made_anew_or_a_clock_that_went_back_is_no_negative_rate() -> None:
    pace = Pace()
    pace.add(books(10, 500), {})
    (row,) = pace.add(books(12, 3), {})
    assert row.in_per_second == 0
    (row,) = pace.add(books(5, 4), {})
    assert row.last_minute == [0]


def test_what_is_spooled_has_come_in_and_is_not_counted_again_when_it_is_replayed() -> None:
    pace = Pace()
    pace.add(books(0, 0), {})
    rows = pace.add(with_spooled(books(2, 0), {"orders": 200, "new": 10, "newer": 1}), {})
    assert [(row.queue, row.in_per_second, row.spooled) for row in rows] == [
        ("orders", 100, 200),
        ("new", 0, 10),
        ("newer", 0, 1),
    ]
    rows = pace.add(with_spooled(books(12, 200), {"new": 30, "newer": 11}), {})
    assert [(row.queue, row.in_per_second, row.spooled) for row in rows] == [
        ("orders", 0, 0),
        ("new", 2, 30),
        ("newer", 1, 11),
    ]


def test_the_oldest_is_that_of_all_flows_and_groups() -> None:
    flows = [
        FlowStat(queue="orders", group=group, flow=NO_FLOW, warm=1, cold=0, taken=0, oldest_at=at)
        for group, at in (("a", 9), ("b", 4), ("c", None))
    ]
    assert oldest_by_queue(FlowStats(0, flows, [])) == {"orders": 4}
    (row,) = Pace().add(books(10, 1, ready=1), {"orders": 4 * SECOND})
    assert row.oldest_seconds == 6


@pytest.mark.parametrize(("values", "bars"), [([], ""), ([0, 0], "▁▁"), ([0, 7, 3.5], "▁█▅"), ([1], "█")])
def test_bars_are_relative_to_the_largest(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def shown(rows: list[QueuePace], *, height: int = 24, trouble: str = "") -> str:
    """The screen as text."""
    console = Console(width=120, height=height, record=True, file=StringIO())
    console.print(screen(rows, 0, trouble, height))
    return console.export_text()


def test_the_screen_has_a_row_per_queue_with_its_numbers() -> None:
    row = msgspec.structs.replace(
        ROW, in_per_second=1234.4, out_per_second=2.25, ready=5678, oldest_seconds=61
    )
    text = shown([row, msgspec.structs.replace(ROW, queue="held", paused=True)])
    assert text.splitlines()[2].split() == [
        "queue", "in/s", "out/s", "ready", "leased", "delayed", "dead", "oldest", "last", "minute",
    ]  # fmt: skip
    assert text.splitlines()[4].split() == ["orders", "1,234", "2.2", "5,678", "0", "0", "0", "1m1s", "▁"]
    assert "held (paused)" in text
    assert "q quits" in text


def test_what_is_spooled_is_on_the_screen_when_there_is_some() -> None:
    assert "spooled" not in shown([ROW])
    text = shown([msgspec.structs.replace(ROW, spooled=4321, ready=7), ROW])
    assert text.splitlines()[2].split()[3:5] == ["spooled", "ready"]
    assert text.splitlines()[4].split()[3:5] == ["4,321", "7"]


def test_a_small_screen_shows_the_busiest_and_says_how_many_more_there_are() -> None:
    rows = [msgspec.structs.replace(ROW, queue=f"q{n:02}", in_per_second=n) for n in range(30)]
    text = shown(rows, height=10)
    assert "26 more queues" in text
    assert "q29" in text
    assert "q00" not in text
    assert len(text.splitlines()) <= 10


def test_trouble_is_on_the_screen() -> None:
    assert "the server is away" in shown([ROW], trouble="the server is away")
