"""Nobody waits for a log that is known to be away."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from forebay.failover.health import Health, LogSlow
from forebay.log.seam import LogAway
from forebay.model import ManualClock, Rejected, Unavailable


async def answer() -> str:
    return "there"


async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


async def away() -> str:
    raise Unavailable("connection refused")


async def refuse() -> str:
    raise Rejected("no")


def healthy() -> Health:
    health = Health()
    health.recover()
    return health


async def test_nothing_is_asked_before_the_log_is_open() -> None:
    health = Health()
    with pytest.raises(LogAway, match="being opened"):
        await health.call(answer)
    health.recover()
    assert await health.call(answer) == "there"


async def test_a_call_that_takes_too_long_means_that_the_log_is_away() -> None:
    health = healthy()
    with pytest.raises(LogAway, match=r"no answer within 0\.01 seconds"):
        await health.call(hang, 0.01)
    with pytest.raises(LogAway):
        await health.call(answer)
    assert health.outages == 1


async def test_calls_whose_time_is_up_at_once_are_all_told() -> None:
    """The first to notice tells the others, who know it already."""
    health = healthy()
    results = await asyncio.gather(*(health.call(hang, 0.0) for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [LogAway] * 5
    assert health.outages == 1


async def test_all_who_wait_are_told_when_one_notices() -> None:
    health = healthy()
    told: list[str] = []
    health.lost.append(lambda: told.append("lost"))
    waiting = [asyncio.create_task(health.call(hang)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(LogAway):
        await health.call(away)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [LogAway] * 3
    assert told == ["lost"]
    assert health.outages == 1


async def test_what_is_the_callers_fault_says_nothing_about_the_log() -> None:
    health = healthy()
    with pytest.raises(Rejected):
        await health.call(refuse)
    assert health.is_healthy


async def test_a_timeout_of_the_logs_own_is_not_ours() -> None:
    async def own() -> None:
        raise TimeoutError

    health = healthy()
    with pytest.raises(TimeoutError):
        await health.call(own, 10.0)


async def test_it_says_since_when_and_why() -> None:
    clock = ManualClock()
    health = Health(clock=clock)
    health.recover()
    clock.advance(seconds=5)
    health.fail("pulled the plug")
    assert health.since == clock.now()
    assert health.reason == "pulled the plug"
    health.recover()
    assert health.reason is None


async def test_a_call_from_before_the_log_was_found_proves_nothing_when_it_fails() -> None:
    health = healthy()
    before = health.changes
    health.fail("pulled the plug")
    health.recover()
    health.fail("the log is being opened", since=before)
    assert health.is_healthy
    health.fail("pulled the plug again", since=health.changes)
    assert not health.is_healthy


async def test_closing_is_no_outage() -> None:
    health = healthy()
    health.close()
    assert not health.is_healthy
    assert health.outages == 0


async def test_calls_that_run_out_of_time_together_all_find_it_away() -> None:
    health, losses = healthy(), list[str]()
    health.lost.append(lambda: losses.append(health.reason or ""))
    calls = (health.call(hang, 0.01) for _ in range(50))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {LogAway}
    assert len(losses) == 1


async def test_a_call_that_takes_long_is_waited_for_while_the_log_answers_others() -> None:
    health, may_end = healthy(), asyncio.Event()
    probes = 0

    async def probe() -> None:
        nonlocal probes
        probes += 1
        if probes == 3:
            may_end.set()

    async def slowly() -> str:
        await may_end.wait()
        return "there"

    health.probe = probe
    assert await health.call(slowly, 0.1) == "there"
    assert (health.is_healthy, health.outages, probes) == (True, 0, 3)


async def test_a_call_that_takes_for_ever_fails_alone() -> None:
    health = healthy()
    health.probe = answer
    with pytest.raises(LogSlow, match=r"slow: no answer within 0\.1 seconds"):
        await health.call(hang, 0.01)
    assert (health.is_healthy, health.outages) == (True, 0)
    assert await health.call(answer) == "there"


@pytest.mark.parametrize("probe", [hang, away])
async def test_a_log_that_answers_nothing_else_either_is_away(probe: Callable[[], Awaitable[str]]) -> None:
    health = healthy()
    health.probe = probe
    with pytest.raises(LogAway, match=r"no answer within 0\.01 seconds"):
        await health.call(hang, 0.01)
    assert health.outages == 1


async def test_whoever_waits_for_a_slow_log_is_told_when_it_is_lost() -> None:
    health, asked = healthy(), asyncio.Event()

    async def probe() -> None:
        asked.set()

    health.probe = probe
    waiting = asyncio.ensure_future(health.call(hang, 0.2))
    await asked.wait()
    health.fail("connection refused")
    with pytest.raises(LogAway, match="connection refused"):
        await waiting


async def test_a_call_that_fails_while_nobody_waits_for_it_any_more_is_not_complained_of() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    health, asked = healthy(), asyncio.Event()

    async def stubborn() -> str:
        try:
            asked.set()
            return await hang()
        except asyncio.CancelledError:
            raise Unavailable("connection reset") from None

    async def lose() -> None:
        waiting = asyncio.ensure_future(health.call(stubborn, 60.0))
        await asked.wait()
        health.fail("connection refused")
        await asyncio.wait({waiting})
        assert isinstance(waiting.exception(), LogAway)

    await lose()
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


class Cut:
    """A call that fails so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise Unavailable("connection was closed in the middle of operation")
        return "there"


async def test_a_call_whose_connection_is_cut_is_made_again_if_it_may_be() -> None:
    health, cut = healthy(), Cut(1)
    assert await health.call(cut, ping=answer, again=True) == "there"
    assert (cut.calls, health.is_healthy, health.outages) == (2, True, 0)


async def test_a_call_that_may_not_be_made_again_fails_alone() -> None:
    health, cut = healthy(), Cut(1)
    with pytest.raises(Unavailable) as caught:
        await health.call(cut, ping=answer)
    assert not isinstance(caught.value, LogAway)
    assert (cut.calls, health.is_healthy) == (1, True)


async def test_a_call_that_fails_twice_means_that_the_log_is_away() -> None:
    """Such as one that can only be read: it answers all the same."""
    health, cut = healthy(), Cut(2)
    with pytest.raises(LogAway):
        await health.call(cut, ping=answer, again=True)
    assert (cut.calls, health.is_healthy) == (2, False)


async def test_a_call_is_not_made_again_where_the_log_answers_nothing_else() -> None:
    health, cut = healthy(), Cut(1)
    with pytest.raises(LogAway):
        await health.call(cut, ping=away, again=True)
    assert (cut.calls, health.is_healthy) == (1, False)


async def test_nobody_waits_for_a_ping_of_a_log_that_is_lost_meanwhile() -> None:
    health = healthy()
    call = asyncio.create_task(health.call(Cut(1), ping=hang, again=True))
    await asyncio.sleep(0)
    health.fail("another call found out")
    with pytest.raises(LogAway, match="another call found out"):
        await call
