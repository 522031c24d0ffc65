"""Whoever waits is woken by what another process writes to the log: without a shared tier, and by no tick."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from forebay.log.sqlite import SqliteLog
from forebay.model import Unavailable
from forebay.store.store import LogStore
from forebay.store.values import Task
from forebay.store.watching import PERIOD_SECONDS
from forebay.store.wishes import Wish
from tests.conformance.conftest import _opened
from tests.conformance.rigs import DURABLE_NAMES, Rig
from tests.conformance.store.rigs import all_waiting
from tests.servers.forebay import environment

LONG = 60.0
"""Seconds for which somebody waits who is woken; it never takes so long."""


class Pair:
    """Two stores on one log, each with connections of its own, as in two processes."""

    def __init__(self, rig: Rig, here: LogStore, there: LogStore) -> None:
        self.rig = rig
        self.here = here
        self.there = there

    async def waiting(self, queue: str = "orders", **options: str) -> asyncio.Task[list[Task]]:
        """Somebody who waits here."""
        before = self.waiters
        taking = asyncio.create_task(self.here.get_task(queue, wait_seconds=LONG, **options))  # type: ignore[arg-type]
        await until(lambda: self.waiters > before)
        return taking

    @property
    def waiters(self) -> int:
        """How many wait here."""
        windows = self.here._windows.values()
        named = (named.line for window in windows for named in window.lines._named.values())
        return sum(map(len, [*named, *(window.line for window in windows)]))

    async def leave(self) -> None:
        """Let nobody take anything there any more, so that nothing is brought ahead there."""
        for window in list(self.there._windows.values()):
            await self.there._drop(window)


async def until(condition: Callable[[], bool]) -> None:
    """Return when something has come about that no event tells of."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody be woken by the rounds."""
    monkeypatch.setattr("forebay.store.rounds.TICK_SECONDS", 1e9)


@pytest.fixture(params=DURABLE_NAMES)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Give two stores on each log that processes can share."""
    async for rig in _opened(request.param, tmp_path, request):
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(
                    LogStore(rig._make(), clock=rig.clock, name=f"{os.getpid()}-{n}.")
                )
                for n in range(2)
            ]
            yield Pair(rig, *stores)


def looking(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Can be acquired as often as the store looks what others have written."""
    looks, stamp = asyncio.Semaphore(0), store.log.stamp

    async def noted() -> str | None:
        looks.release()
        return await stamp()

    monkeypatch.setattr(store.log, "stamp", noted)
    return looks


async def got(taking: asyncio.Task[list[Task]]) -> list[bytes]:
    """What somebody who waits gets, in time."""
    async with asyncio.timeout(10):
        return [task.data for task in await taking]


async def test_a_put_elsewhere_wakes_who_waits_here(pair: Pair) -> None:
    await pair.there.create_queue("orders")
    taking = await pair.waiting()
    await pair.there.put_task("orders", b"a")
    assert await got(taking) == [b"a"]


async def test_what_was_put_between_looking_and_waiting_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "others"):
        await pair.there.create_queue(name)
    window = await pair.here._window("orders", "workers")
    ask, looks = window.ask, looking(pair.here, monkeypatch)

    async def ask_too_early() -> None:
        await ask()
        await pair.there.put_task("orders", b"a")
        for _ in range(2):  # for the sake of the one who waits for something else
            await looks.acquire()

    monkeypatch.setattr(window, "ask", ask_too_early)
    other = await pair.waiting("others")
    assert await got(asyncio.create_task(pair.here.get_task("orders", wait_seconds=LONG))) == [b"a"]
    other.cancel()


async def test_one_put_after_the_other_is_noticed(pair: Pair) -> None:
    await pair.there.create_queue("orders")
    for data in (b"a", b"b", b"c"):
        taking = await pair.waiting()
        await pair.there.put_task("orders", data)
        assert await got(taking) == [data]


async def test_a_task_that_is_retried_or_released_elsewhere_comes_here(pair: Pair) -> None:
    await pair.there.create_queue("orders", {"ordered": True})
    await pair.there.put_task("orders", b"a")
    tasks = await pair.there.get_task("orders")
    taking = await pair.waiting()
    await pair.there.retry_task(tasks)
    await pair.leave()
    assert await got(taking) == [b"a"]


async def test_a_task_that_is_put_off_elsewhere_comes_when_it_is_due(pair: Pair) -> None:
    await pair.there.create_queue("orders")
    await pair.there.put_task("orders", b"a")
    tasks = await pair.there.get_task("orders")
    taking = await pair.waiting()
    await pair.there.retry_task(tasks, delay=0.3)
    await pair.leave()
    window = await pair.here._window("orders", "workers")
    due_at = pair.rig.clock.now() + 300_000
    await until(lambda: window._next_due_at == due_at)
    assert not taking.done()
    pair.rig.clock.advance(seconds=0.3)
    assert await got(taking) == [b"a"]


async def test_a_partition_that_is_settled_elsewhere_goes_on_here(pair: Pair) -> None:
    await pair.there.create_queue("orders", {"ordered": True, "in_memory_queue_size": 1})
    await pair.there.put_task("orders", b"a", partition="p")
    tasks = await pair.there.get_task("orders")
    await pair.there.put_task("orders", b"b", partition="p")
    taking = await pair.waiting()
    await pair.there.done_task(tasks)
    await pair.leave()
    assert await got(taking) == [b"b"]


async def test_who_waits_for_a_partition_is_woken_by_a_put_into_it_elsewhere(pair: Pair) -> None:
    await pair.there.create_queue("orders", {"ordered": True})
    taking = await pair.waiting(partition="p")
    await pair.there.put_task("orders", b"other", partition="q")
    await pair.there.put_task("orders", b"a", partition="p")
    assert await got(taking) == [b"a"]


async def test_of_many_partitions_those_look_in_which_something_was_put(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.there.create_queue("orders", {"ordered": True})
    takings = [await pair.waiting(partition=f"p{n}") for n in range(300)]
    window = await pair.here._window("orders", "workers")
    await until(lambda: window in pair.here._watch._seen)
    looked = []
    grab = window.grab_partition

    async def noted(wish: Wish) -> list[Task]:
        looked.append(wish.partition)
        return await grab(wish)

    monkeypatch.setattr(window, "grab_partition", noted)
    await until(lambda: pair.waiters == 300)
    looked.clear()
    await pair.there.put_task("orders", b"a", partition="p290")
    assert await got(takings[290]) == [b"a"]
    assert looked[0] == "p290"
    for taking in takings:
        taking.cancel()


async def test_nothing_is_asked_while_nobody_waits(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.here.create_queue("orders")
    looks = looking(pair.here, monkeypatch)
    await pair.here.put_task("orders", b"a")
    assert await pair.here.get_task("orders", wait_seconds=LONG)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(looks.acquire(), 4 * PERIOD_SECONDS)
    taking = await pair.waiting()
    await asyncio.wait_for(looks.acquire(), 10)
    taking.cancel()


async def test_a_put_here_is_not_looked_for_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process puts reaches who waits by itself; the log is claimed from once for it."""
    await pair.here.create_queue("orders")
    claims = 0
    claim = pair.here.log.claim

    async def counted(*arguments: object, **options: object) -> object:
        nonlocal claims
        claims += 1
        return await claim(*arguments, **options)  # type: ignore[arg-type]

    first, second = await pair.waiting(), await pair.waiting()
    await all_waiting(pair.here, 2)
    monkeypatch.setattr(pair.here.log, "claim", counted)
    await pair.here.put_task("orders", b"a")
    await got(first)
    before, looks = claims, looking(pair.here, monkeypatch)
    for _ in range(3):
        await asyncio.wait_for(looks.acquire(), 10)
    assert claims <= before + 1
    second.cancel()


async def test_a_log_that_was_away_is_watched_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.store.watching.AWAY_SECONDS", 0.01)
    await pair.there.create_queue("orders")
    refused = asyncio.Event()

    async def away() -> str | None:
        refused.set()
        raise Unavailable("the log is away")

    with monkeypatch.context() as patch:
        patch.setattr(pair.here.log, "stamp", away)
        taking = await pair.waiting()
        await asyncio.wait_for(refused.wait(), 10)
        await pair.there.put_task("orders", b"a")
        assert not taking.done()
    assert await got(taking) == [b"a"]


PUT = """
import asyncio, sys
import forebay

async def put():
    async with forebay.open(sys.argv[1]) as store:
        await store.put_task("orders", b"a")

asyncio.run(put())
"""


async def test_another_process_on_the_same_file_wakes_who_waits(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with LogStore(SqliteLog(path)) as store:
        await store.create_queue("orders")
        taking = asyncio.create_task(store.get_task("orders", wait_seconds=LONG))
        await all_waiting(store)
        putting = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PUT, f"sqlite:///{path}", env=environment()
        )
        assert await putting.wait() == 0
        assert await got(taking) == [b"a"]
