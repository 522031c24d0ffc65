"""The store when Valkey is flushed, restarted, killed or away: nothing is lost, and soon all is well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.log.sqlite import SqliteLog
from forebay.model import LeaseLost, Unavailable
from forebay.store.store import LogStore
from forebay.warm.valkey import ValkeyWarm
from tests.servers import ValkeyServer

LOSSES = ("flush", "restart", "kill")


@pytest.fixture
async def store(valkey: ValkeyServer, tmp_path: Path) -> AsyncIterator[LogStore]:
    """Give a store on SQLite and that Valkey, by the machine's own clock."""
    async with LogStore(SqliteLog(tmp_path / "log.db"), ValkeyWarm(valkey.url)) as store:
        await store.create_queue("orders", {"visibility_seconds": 600})
        yield store


def lose(valkey: ValkeyServer, how: str) -> None:
    if how == "flush":
        valkey.flush()
    elif how == "restart":
        valkey.stop()
        valkey.start()
    else:
        valkey.kill()
        valkey.start()


async def finish_all(store: LogStore, count: int) -> list[bytes]:
    """Take and finish so many tasks, whatever happens in between."""
    seen: list[bytes] = []
    async with asyncio.timeout(20):
        while len(seen) < count:
            try:
                tasks = await store.get_task("orders", 50, wait_seconds=1)
                await store.done_task(tasks)
            except (Unavailable, LeaseLost):
                continue
            seen += [task.data for task in tasks]
    return seen


def is_shared(store: LogStore) -> bool:
    """Whether the store uses the shared tier now."""
    (window,) = store._windows.values()
    return window.tiers.active.warm.shared


@pytest.mark.parametrize("how", LOSSES)
async def test_the_loss_of_the_tier_is_repaired_without_waiting_for_leases(
    store: LogStore, valkey: ValkeyServer, how: str
) -> None:
    await store.put_task("orders", *[b"%d" % i for i in range(100)])
    before = await store.get_task("orders", 40)
    await asyncio.to_thread(lose, valkey, how)
    async with asyncio.timeout(20):  # leases are of ten minutes
        again: list[bytes] = []
        attempts: dict[bytes, int] = {}
        while len(again) < 100:
            try:
                tasks = await store.get_task("orders", 100, wait_seconds=1)
            except Unavailable:
                continue
            again += [task.data for task in tasks]
            attempts |= {task.data: task.attempts for task in tasks}
    assert sorted(again) == sorted(b"%d" % i for i in range(100))
    handed = {task.data for task in before}
    assert attempts == {data: int(data in handed) for data in attempts}
    with pytest.raises(LeaseLost):
        await store.done_task(before)
    (group,) = (await store.log.stats()).queues[0].groups
    assert (group.done, group.difference) == (0, 0)


@pytest.mark.parametrize("how", LOSSES)
async def test_loss_under_load_loses_nothing(store: LogStore, valkey: ValkeyServer, how: str) -> None:
    done: list[bytes] = []
    total = 6_000

    async def produce() -> None:
        for begin in range(0, total, 100):
            await store.put_task("orders", *[b"%d" % i for i in range(begin, begin + 100)])

    async def work() -> None:
        while len(done) < total:
            try:
                tasks = await store.get_task("orders", 20, wait_seconds=0.2)
                await store.done_task(tasks)
            except (Unavailable, LeaseLost):
                continue
            done.extend(task.data for task in tasks)

    async def disturb() -> None:
        for _ in range(3):
            at = len(done)
            while len(done) < min(total, at + 500):  # noqa: ASYNC110 - progress is what is waited for
                await asyncio.sleep(0)
            await asyncio.to_thread(lose, valkey, how)

    async with asyncio.timeout(60):
        await asyncio.gather(produce(), disturb(), *(work() for _ in range(8)))
    assert {int(data) for data in done} == set(range(total))
    (group,) = (await store.log.stats()).queues[0].groups
    assert (group.done, group.ready, group.deferred, group.difference) == (total, 0, 0, 0)


async def test_while_it_is_away_the_store_goes_on_from_memory_and_returns(
    store: LogStore, valkey: ValkeyServer
) -> None:
    await store.put_task("orders", b"held", b"ready")
    (held,) = await store.get_task("orders")
    await asyncio.to_thread(valkey.kill)
    await store.put_task("orders", *[b"away %d" % i for i in range(50)])
    seen = await finish_all(store, 52)
    assert set(seen) == {b"held", b"ready", *(b"away %d" % i for i in range(50))}
    assert not is_shared(store)
    with pytest.raises(LeaseLost):
        await store.done_task([held])
    await asyncio.to_thread(valkey.start)
    async with asyncio.timeout(10):
        while not is_shared(store):
            await store.tick()
    await store.put_task("orders", *[b"back %d" % i for i in range(50)])
    assert len(await finish_all(store, 50)) == 50
    (group,) = (await store.log.stats()).queues[0].groups
    assert (group.done, group.ready, group.held, group.deferred) == (102, 0, 0, 0)


async def test_what_is_out_when_it_goes_away_can_still_be_settled(
    store: LogStore, valkey: ValkeyServer
) -> None:
    await store.put_task("orders", b"x", b"y")
    done, retried = await store.get_task("orders", 2)
    await asyncio.to_thread(valkey.kill)
    await store.done_task([done])
    await store.retry_task([retried])
    (group,) = (await store.log.stats()).queues[0].groups
    # What is retried is deferred until the store brings it back by itself, which may have happened by now.
    assert (group.done, group.held + group.deferred) == (1, 1)
    (again,) = await store.get_task("orders")
    assert (again.data, again.attempts) == (b"y", 1)


async def test_a_store_opens_while_it_is_away(valkey: ValkeyServer, tmp_path: Path) -> None:
    await asyncio.to_thread(valkey.kill)
    async with LogStore(SqliteLog(tmp_path / "log.db"), ValkeyWarm(valkey.url)) as store:
        await store.create_queue("orders")
        await store.put_task("orders", b"x")
        assert await finish_all(store, 1) == [b"x"]
