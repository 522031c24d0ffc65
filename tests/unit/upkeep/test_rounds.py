"""Rounds of upkeep come again and again, whatever became of the last one."""

import asyncio
import logging

import pytest

from forebay.app.opening import open_embedded
from forebay.log.values import RejectedRow, Trimmed
from forebay.model import ForebayError, ManualClock, Unavailable
from forebay.upkeep import Upkeep

HOUR = 3_600.0


class Kept:
    """What upkeep is done to: fails as it is told, and says when a round was done."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.swept = asyncio.Event()
        self.trimmed = asyncio.Event()
        self.sweeps = 0
        self.warm_problem: str | None = None
        self.rejected: list[RejectedRow] = []

    async def sweep(self) -> int:
        """Fail, if there is a failure left."""
        self.sweeps += 1
        if self.failures:
            raise self.failures.pop(0)
        self.swept.set()
        return self.sweeps

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """What was rejected so far."""
        return [row for row in self.rejected if row.id > after][:limit]

    async def trim(self) -> Trimmed:
        """Say that it was done."""
        self.trimmed.set()
        return Trimmed()


async def within(event: asyncio.Event) -> None:
    """Wait for an event that comes."""
    await asyncio.wait_for(event.wait(), 10)


async def test_both_rounds_come_at_their_own_pace() -> None:
    kept = Kept()
    upkeep = Upkeep(kept, sweep_seconds=0.001, trim_seconds=HOUR)
    async with upkeep:
        for _ in range(3):
            await within(kept.swept)
            kept.swept.clear()
    assert kept.sweeps >= 3
    assert not kept.trimmed.is_set()
    async with Upkeep(kept, sweep_seconds=HOUR, trim_seconds=0.001):
        await within(kept.trimmed)
    assert not kept.swept.is_set()


@pytest.mark.parametrize(
    ("failure", "said"),
    [(Unavailable("away"), 0), (RuntimeError("odd"), 1), (ForebayError("worse"), 1)],
    ids=["away", "odd", "worse"],
)
async def test_a_round_that_fails_is_tried_again(
    failure: Exception, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(failure)
    upkeep = Upkeep(kept, sweep_seconds=0.001, trim_seconds=HOUR)
    with caplog.at_level(logging.ERROR, logger="forebay.upkeep"):
        async with upkeep:
            await within(kept.swept)
    assert kept.sweeps >= 2
    assert [record.getMessage() for record in caplog.records] == ["a round of upkeep failed"] * said


async def test_a_warm_tier_that_goes_away_and_comes_back_is_said_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    kept.warm_problem = "Valkey at localhost:1 is out of reach"
    caplog.set_level(logging.INFO, "forebay.upkeep")
    upkeep = Upkeep(kept, sweep_seconds=HOUR, trim_seconds=HOUR, look_seconds=0.001)
    async with upkeep:
        away = (
            "away, and this server works from its own memory until it is back: Valkey at localhost:1 is out"
        )
        assert away in caplog.text, "nobody is told that the server is ready before this"
        await looked(upkeep, 3)
        kept.warm_problem = None
        await looked(upkeep, 3)
    assert len(caplog.records) == 2
    assert caplog.records[1].getMessage() == "the warm tier is back"


async def test_rejected_rows_are_counted_and_said_when_there_are_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    caplog.set_level(logging.WARNING, "forebay.upkeep")
    upkeep = Upkeep(kept, sweep_seconds=0.001, trim_seconds=HOUR)
    async with upkeep:
        for many in (1, 3, 2):
            kept.rejected = [row(number) for number in range(1, many + 1)]
            await looked(upkeep, 3, "sweep")
            assert upkeep.rejected == many
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("1 rows of the SQL inbox are rejected, and reach no queue: see `forebay inbox`")
    assert second.endswith("the last, 3 for orders: too long")


def row(number: int) -> RejectedRow:
    """A row of the inbox that was rejected."""
    return RejectedRow(
        id=number, queue="orders", payload_bytes=5, partition="",
        transaction_id=None, reason="too long", rejected_at=1,
    )  # fmt: skip


async def looked(upkeep: Upkeep, times: int, name: str = "look") -> None:
    """Wait until so many rounds more went well."""
    until = upkeep.rounds[name] + times
    async with asyncio.timeout(30):
        while upkeep.rounds[name] < until:  # noqa: ASYNC110 - its own timers do the waiting
            await asyncio.sleep(0)


async def test_nothing_is_done_once_it_is_left() -> None:
    kept = Kept()
    async with Upkeep(kept, sweep_seconds=HOUR, trim_seconds=HOUR):
        pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("forebay-")]
    assert kept.sweeps == 0


async def test_what_is_past_retention_goes_by_itself() -> None:
    clock = ManualClock(1_000_000_000)
    async with open_embedded("memory://", clock=clock) as store:
        await store.create_queue("orders", {"keep_seconds": 60})
        await store.put_task("orders", b"old")
        await store.done_task(await store.get_task("orders"))
        clock.advance(seconds=2 * HOUR)
        await store.put_task("orders", b"new")
        async with asyncio.timeout(10), Upkeep(store, sweep_seconds=HOUR, trim_seconds=0.001):
            while len(await store.read("orders", 1)) != 1:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0)
        (left,) = await store.read("orders", 1)
        assert left.count == 1
