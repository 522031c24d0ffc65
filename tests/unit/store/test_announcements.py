"""Announcements: writers neither wait for the tier nor hear of its faults."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from forebay.model import ForebayError, Unavailable
from forebay.store.announcements import PARTITIONS_MAX, Announcements
from forebay.warm.seam import Warm, WarmAway

Said = tuple[int, Collection[str] | None]


class Tier:
    """What is announced; each announcement waits until it is let through, or fails."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.gate = asyncio.Event()
        self.errors: list[Exception] = []

    async def announce(self, queue: int, partitions: Collection[str] | None = None) -> None:
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop()
        self.said.append((queue, None if partitions is None else sorted(partitions)))


@pytest.fixture
async def tier() -> Tier:
    return Tier()


def announcements(tier: Tier) -> Announcements:
    return Announcements(cast("Warm", tier))


async def told(tier: Tier, announcements: Announcements) -> list[Said]:
    tier.gate.set()
    if announcements._telling is not None:
        await asyncio.wait([announcements._telling])
    return tier.said


async def test_news_of_a_queue_that_come_together_are_told_once(tier: Tier) -> None:
    mine = announcements(tier)
    mine.add(1, ["first"])
    await asyncio.sleep(0)
    for _ in range(3):
        mine.add(1, ["p", "q"])
        mine.add(2, None)
        mine.add(2, ["r"])
    mine.add(1, ["r"])
    assert await told(tier, mine) == [(1, ["first"]), (1, ["p", "q", "r"]), (2, None)]


async def test_of_very_many_partitions_it_is_only_said_that_there_is_something(tier: Tier) -> None:
    mine = announcements(tier)
    for n in range(PARTITIONS_MAX + 1):
        mine.add(1, [f"p{n}"])
    assert await told(tier, mine) == [(1, None)]


@pytest.mark.parametrize("error", [WarmAway("away"), Unavailable("away"), RuntimeError("odd")])
async def test_a_fault_of_the_tier_is_dropped_and_the_next_news_are_told(
    tier: Tier, error: Exception
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    mine = announcements(tier)
    tier.errors.append(error)
    mine.add(1, None)
    mine.add(2, None)
    assert await told(tier, mine) == []
    assert [report["exception"] for report in reports] == [error] * (not isinstance(error, ForebayError))
    mine.add(3, None)
    assert await told(tier, mine) == [(3, None)]


async def test_nothing_is_told_after_the_end(tier: Tier) -> None:
    mine = announcements(tier)
    mine.add(1, None)
    await mine.close()
    assert await told(tier, mine) == []
