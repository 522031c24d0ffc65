"""A snapshot is made in the background, published by one process, and shown by all, also when that fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from forebay.model import Unavailable
from forebay.observe.document import Document, family, merged
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.follower import Follower
from forebay.observe.refresher import Refresher, pause_after

START = 1_800_000_000.0


@pytest.mark.parametrize(
    ("took", "pause"), [(0.1, 4.9), (0.5, 4.5), (1.0, 9.0), (3.0, 15.0), (30.0, 15.0)], ids=str
)
def test_what_takes_long_to_count_is_counted_less_often_and_before_it_is_stale(
    took: float, pause: float
) -> None:
    assert pause_after(took, 5.0, rest=9.0, seconds_max=60.0) == pytest.approx(pause)


class World:
    """A folder of snapshots, a clock, and what there is to count."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.count = 0
        self.fails: Exception | None = None
        self.store = FileSnapshots(folder, now=lambda: self.now)

    async def make(self) -> Document:
        if self.fails is not None:
            raise self.fails
        self.count += 1
        return Document(taken_at=self.now, families=[family("x", "gauge", "X.", (), [((), self.count)])])

    def refresher(self, owner: str = "one", **options: Any) -> Refresher:
        return Refresher(
            self.store,
            options.pop("make", self.make),
            owner=owner,
            source="counters",
            interval_seconds=15,
            term_seconds=10,
            wall=lambda: self.now,
            **options,
        )

    def follower(self, **options: Any) -> Follower:
        return Follower(self.store, max_staleness_seconds=60, wall=lambda: self.now, **options)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "snapshots")


def lines(follower: Follower) -> dict[str, str]:
    exposition = follower.exposition(open_metrics=False)
    data = b"" if exposition is None else exposition.data(START)
    text = (data + follower.health(open_metrics=False)).decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


async def test_before_the_first_snapshot_it_is_stale(world: World) -> None:
    follower = world.follower()
    await follower.look()
    found = lines(follower)
    assert found["forebay_snapshot_stale"] == "1"
    assert "forebay_snapshot_age_seconds" not in found


async def test_counting_that_never_ends_is_a_failure(world: World) -> None:
    refresher = world.refresher(make=asyncio.Event().wait, seconds_max=0.01)
    assert not await refresher.refresh()
    assert "counting took longer than 0.01 seconds" in refresher.numbers.error
    assert await world.store.current() is None


async def test_what_is_published_is_shown_until_there_is_a_newer_one(world: World) -> None:
    refresher, follower = world.refresher(), world.follower()
    assert await refresher.refresh()
    await follower.look()
    world.now += 5
    found = lines(follower)
    assert (found["x"], found["forebay_snapshot_age_seconds"], found["forebay_snapshot_stale"]) == (
        "1",
        "5",
        "0",
    )
    assert await refresher.refresh()
    assert lines(follower)["x"] == "1", "nothing is read at a scrape"
    await follower.look()
    assert lines(follower)["x"] == "2"


async def test_a_failure_keeps_the_last_good_one_and_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refresher, follower = world.refresher(), world.follower()
    await refresher.refresh()
    world.fails = Unavailable("the log is away")
    with caplog.at_level(logging.WARNING, "forebay.observe"):
        assert not await refresher.refresh()
        assert not await refresher.refresh()
    assert [record.getMessage() for record in caplog.records] == [
        "the snapshot can't be refreshed, and the last one is served: the log is away"
    ]
    assert dict(refresher.numbers.refreshes) == {"ok": 1, "error": 2}
    kept = await world.store.current()
    assert kept is not None
    assert (kept.meta.status, kept.meta.error_message) == ("error", "the log is away")
    world.now += 61
    await follower.look()
    found = lines(follower)
    assert (found["x"], found["forebay_snapshot_stale"]) == ("1", "1")
    world.fails = None
    assert await refresher.refresh()
    await follower.look()
    assert lines(follower)["forebay_snapshot_stale"] == "0"
    assert refresher.numbers.error == ""
    kept = await world.store.current()
    assert kept is not None
    assert (kept.meta.status, kept.meta.error_message) == ("ok", None)


async def test_an_error_that_nobody_expected_is_a_failure_like_any_other(world: World) -> None:
    refresher = world.refresher()
    world.fails = ZeroDivisionError("no")
    assert not await refresher.refresh()
    assert refresher.numbers.error == "no"


async def test_one_of_two_publishes_and_the_other_takes_over(world: World) -> None:
    one, other = world.refresher("one"), world.refresher("other")
    await one.refresh()
    await other.refresh()
    assert (dict(one.numbers.refreshes), dict(other.numbers.refreshes)) == ({"ok": 1}, {"waiting": 1})
    world.now += 11
    await other.refresh()
    await one.refresh()
    assert (one.numbers.refreshes["waiting"], other.numbers.refreshes["ok"]) == (1, 1)


async def test_one_that_was_overtaken_while_it_counted_publishes_nothing(world: World) -> None:
    one, other = world.refresher("one"), world.refresher("other")
    make = world.make

    async def slowly() -> Document:
        world.make = make  # type: ignore[method-assign]
        world.now += 11
        assert await other.refresh()
        return await make()

    one._make = slowly
    assert await one.refresh()
    assert dict(one.numbers.refreshes) == {"waiting": 1}
    found = await world.store.current()
    assert found is not None
    assert found.meta.owner == "other"


async def test_who_stops_gives_its_turn_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    published, publish = asyncio.Event(), world.store.publish

    async def noted(*arguments: Any) -> int:
        version = await publish(*arguments)
        published.set()
        return version

    monkeypatch.setattr(world.store, "publish", noted)
    running = asyncio.create_task(world.refresher("one").run())
    await published.wait()
    assert await world.store.begin_term("other", 1) is None
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await world.store.begin_term("other", 1) is not None


async def test_what_can_not_be_read_leaves_what_is_at_hand(world: World, tmp_path: Path) -> None:
    refresher, follower = world.refresher(), world.follower()
    await refresher.refresh()
    await follower.look()
    (tmp_path / "snapshots" / "current").write_text("nonsense")
    await follower.look()
    assert follower.problem is not None
    assert "names no version" in follower.problem
    assert lines(follower)["x"] == "1"


def with_rich(world: World, rich_at: float) -> Document:
    """A document with a part of Spark, which was made then."""
    events = [family("forebay_events", "gauge", "E.", (), [((), 7)])]
    rich = Document(taken_at=rich_at, families=events)
    return merged("counters", Document(taken_at=world.now, families=[]), {"rich": rich}, {"rich": 8.0})


async def test_a_part_that_is_no_longer_made_is_stale_while_the_rest_is_fresh(world: World) -> None:
    async def make() -> Document:
        return with_rich(world, START)

    refresher, follower = world.refresher(make=make), world.follower(parts_max={"rich": 75})
    for seconds, stale in ((75, "0"), (1, "1")):
        world.now += seconds
        await refresher.refresh()
        await follower.look()
        found = lines(follower)
        assert found['forebay_snapshot_part_stale{part="rich"}'] == stale
        assert found['forebay_snapshot_part_stale{part="counters"}'] == "0"
        assert found["forebay_snapshot_stale"] == "0"
        assert found['forebay_snapshot_part_aggregation_seconds{part="rich"}'] == "8"


async def test_convoys_health_is_that_of_the_oldest_part(world: World) -> None:
    world.now += 100

    async def make() -> Document:
        return with_rich(world, START)

    refresher = world.refresher(make=make, is_outdated=lambda: world.now > START + 100)
    follower = world.follower(names=["convoy"], numbers=refresher.numbers)
    await refresher.refresh()
    world.now += 1
    await refresher.refresh()
    await follower.look()
    found = lines(follower)
    prefix = "convoy_queue_metrics"
    assert found[f"{prefix}_snapshot_age_seconds"] == "101"
    assert found[f"{prefix}_refresh_duration_seconds"] == "8"
    assert float(found[f"{prefix}_snapshot_last_success_timestamp_seconds"]) == START
    assert found[f'{prefix}_refresh_total{{status="ok"}}'] == "1"
    assert found[f'{prefix}_refresh_total{{status="error"}}'] == "1"


async def test_a_snapshot_of_a_publisher_with_other_labels_leaves_the_last_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refresher, follower = world.refresher(), world.follower(names=["forebay", "convoy"])
    await refresher.refresh()
    await follower.look()

    async def other() -> Document:
        short = [(("shop", "ready"), 1)]
        events = family("forebay_event_queue", "gauge", "E.", ("project", "status"), short)
        return Document(taken_at=world.now, families=[events])

    assert await world.refresher(make=other).refresh()
    for _ in range(2):
        await follower.look()
    assert lines(follower)["x"] == "1"
    assert follower.problem is not None
    assert "labels" in follower.problem
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert await refresher.refresh()
    await follower.look()
    assert lines(follower)["x"] == "2"
