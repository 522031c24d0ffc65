"""Waiting for the disk together: nobody joins a sync that began before their commit."""

import asyncio

import pytest

from forebay.log.postgres.durability import Disk


class Syncs:
    """Syncs that end when they are told to."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[None]] = []

    async def __call__(self) -> None:
        self.begun.append(asyncio.get_running_loop().create_future())
        await self.begun[-1]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_come_together_share_a_sync() -> None:
    syncs = Syncs()
    disk = Disk(syncs)
    waiting = [asyncio.create_task(disk.wait()) for _ in range(10)]
    await turn()
    assert len(syncs.begun) == 1
    syncs.begun[0].set_result(None)
    await asyncio.gather(*waiting)


async def test_who_comes_while_a_sync_runs_waits_for_the_next() -> None:
    syncs = Syncs()
    disk = Disk(syncs)
    early = asyncio.create_task(disk.wait())
    await turn()
    late = [asyncio.create_task(disk.wait()) for _ in range(3)]
    await turn()
    assert len(syncs.begun) == 1
    syncs.begun[0].set_result(None)
    await early
    await turn()
    assert not any(task.done() for task in late)
    assert len(syncs.begun) == 2
    syncs.begun[1].set_result(None)
    await asyncio.gather(*late)


async def test_a_failed_sync_fails_all_who_wait_for_it_and_no_other() -> None:
    syncs = Syncs()
    disk = Disk(syncs)
    waiting = [asyncio.create_task(disk.wait()) for _ in range(2)]
    await turn()
    syncs.begun[0].set_exception(OSError("disk"))
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    after = asyncio.create_task(disk.wait())
    await turn()
    syncs.begun[1].set_result(None)
    await after


async def test_a_waiter_that_gives_up_leaves_the_others() -> None:
    syncs = Syncs()
    disk = Disk(syncs)
    first, second = asyncio.create_task(disk.wait()), asyncio.create_task(disk.wait())
    await turn()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    syncs.begun[0].set_result(None)
    await second
