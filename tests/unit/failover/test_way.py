"""How a log that is away is found again: by pings that may take longer than an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.failover.way import PINGS, LogWay
from forebay.model import Unavailable


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
