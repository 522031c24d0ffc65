"""How a log that is away is found again: by pings that may take longer than an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.failover.settings import FailoverSettings
from forebay.failover.way import PINGS, LogWay
from forebay.model import Unavailable
from tests.unit.failover.outage import OutageLog


class Line:
    """A log that answers its n-th ping by the n-th of these, and counts pings that are on their way."""

    def __init__(self, *answers: Callable[[Line], Awaitable[None]]) -> None:
        self.seconds = 0.01
        self.answers = answers
        self.asked = 0
        self.open = 0
        self.second = asyncio.Event()

    @property
    def way(self) -> LogWay:
        return LogWay(cast("Any", self), cast("Any", SimpleNamespace(has_taken=True)))

    async def catch_up(self) -> None:
        """Nothing is behind."""

    async def ping(self, _: float) -> None:
        answer = self.answers[self.asked]
        self.asked += 1
        if self.asked == 2:
            self.second.set()
        self.open += 1
        try:
            await answer(self)
        finally:
            self.open -= 1


async def silence(_: Line) -> None:
    await asyncio.Event().wait()


async def answer(_: Line) -> None:
    return


async def late(line: Line) -> None:
    await line.second.wait()


async def refusal(_: Line) -> None:
    raise Unavailable("connection refused")


async def test_a_ping_that_takes_longer_than_an_attempt_is_heard() -> None:
    line = Line(late, silence, silence)
    await line.way.ping()
    assert line.open == 0


async def test_a_ping_that_went_into_the_void_does_not_hold_up_the_next() -> None:
    line = Line(silence, answer)
    await line.way.ping()
    assert (line.asked, line.open) == (2, 0)


async def test_a_refusal_is_told_at_once() -> None:
    line = Line(refusal)
    with pytest.raises(Unavailable):
        await line.way.ping()
    assert line.asked == 1


async def test_a_log_that_stays_silent_is_asked_so_often_and_no_more() -> None:
    line = Line(*[silence] * PINGS)
    with pytest.raises(TimeoutError):
        await line.way.ping()
    assert (line.asked, line.open) == (PINGS, 0)


async def test_whoever_gives_up_leaves_no_ping_behind() -> None:
    line = Line(*[silence] * PINGS)
    asking = asyncio.create_task(line.way.ping())
    await line.second.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert line.open == 0


async def test_a_ping_that_fails_after_the_log_was_opened_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    async with await Failover.open(RealDisk(tmp_path), FailoverSettings(flush_seconds=0.01)) as failover:

        async def ping(_way: LogWay) -> None:
            away = failover.health.away()
            failover.health.recover()
            failed.set()
            raise away

        monkeypatch.setattr(LogWay, "ping", ping)
        failover.guard(OutageLog().as_log)
        async with asyncio.timeout(10.0):
            await failed.wait()
        assert failover.health.is_healthy
        assert failover.health.outages == 0
