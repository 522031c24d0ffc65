"""What was put off comes in time, whatever is done to the machine's clock."""

import logging

import pytest

from forebay.model import ManualClock, Rejected, Unavailable
from forebay.store import delays
from forebay.store.delays import Delays


class Steady:
    """Seconds that only grow, and a clock beside them that can be set."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000_000_000)
        self.seconds = 0.0
        self.brought: list[tuple[int, str]] = []
        self.finished: set[int] = set()
        self.error: Exception | None = None
        self.delays = Delays(self.clock, lambda: self.seconds, self.hasten)

    async def hasten(self, id: int, group: str) -> bool:
        if self.error is not None:
            raise self.error
        self.brought.append((id, group))
        return id not in self.finished

    async def passes(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.advance(seconds=seconds)
        await self.delays.tick()

    async def is_set(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        await self.delays.tick()


async def test_after_a_step_back_each_comes_when_its_own_delay_is_over() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 10.0)
    steady.delays.note(2, "b", 20.0)
    await steady.is_set(-3_600)
    assert steady.brought == []
    await steady.passes(10)
    assert steady.brought == [(1, "a")]
    await steady.passes(10)
    await steady.passes(10)
    assert steady.brought == [(1, "a"), (2, "b")]


async def test_without_a_step_back_nothing_is_done() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 10.0)
    await steady.is_set(3_600)
    await steady.is_set(-0.9)
    await steady.passes(delays.KEPT_SECONDS + 20)
    await steady.is_set(-3_600)
    assert steady.brought == []


async def test_what_waits_to_be_taken_when_the_clock_is_set_back_is_brought_forward() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 0.0)
    await steady.passes(20)
    await steady.is_set(-3_600)
    assert steady.brought == [(1, "a")]


async def test_in_a_partition_all_that_was_behind_a_message_comes_with_it() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 0.0, last=4)
    await steady.is_set(-3_600)
    assert steady.brought == [(4, "a")]
    steady.finished = {8}
    steady.delays.note(5, "a", 0.0, last=8)
    await steady.is_set(-3_600)
    assert steady.brought == [(4, "a"), (8, "a"), (5, "a")]


async def test_what_is_put_off_again_has_its_new_delay() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 10.0)
    await steady.is_set(-3_600)
    steady.delays.note(1, "a", 10.0)
    await steady.passes(20)
    assert steady.brought == []


async def test_a_log_that_is_away_is_asked_again_and_a_message_that_is_gone_is_not() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 10.0)
    await steady.is_set(-3_600)
    steady.error = Unavailable("away", hint="wait")
    with pytest.raises(Unavailable):
        await steady.passes(10)
    steady.error = None
    await steady.passes(1)
    assert steady.brought == [(1, "a")]
    steady.delays.note(2, "a", 10.0)
    await steady.is_set(-3_600)
    steady.error = Rejected("no such queue", hint="none")
    await steady.passes(10)
    steady.error = None
    await steady.passes(10)
    assert steady.brought == [(1, "a")]


async def test_what_is_remembered_is_bounded_and_a_step_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delays, "DELAYS_MAX", 3)
    steady = Steady()
    for id in range(5):
        steady.delays.note(id, "a", 10.0)
    with caplog.at_level(logging.WARNING):
        await steady.is_set(-60)
    assert "set back by 60 seconds; 3 messages" in caplog.text
    await steady.passes(10)
    assert [id for id, _ in steady.brought] == [2, 3, 4]


async def test_what_comes_back_anew_while_it_is_brought_is_remembered() -> None:
    steady = Steady()

    async def hasten(id: int, group: str) -> bool:
        steady.brought.append((id, group))
        steady.delays.note(id, group, 10.0)
        return True

    steady.delays = Delays(steady.clock, lambda: steady.seconds, hasten)
    steady.delays.note(1, "a", 0.0)
    await steady.is_set(-60)
    await steady.is_set(-60)
    await steady.passes(10)
    assert steady.brought == [(1, "a"), (1, "a")]


async def test_a_time_that_a_caller_gives_ends_what_was_remembered() -> None:
    steady = Steady()
    steady.delays.note(1, "a", 0.0)
    steady.delays.forget(1, "a")
    await steady.is_set(-60)
    assert steady.brought == []
