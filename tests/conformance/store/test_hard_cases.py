"""What random kills of servers have found, each made to happen on purpose."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from forebay.model import Unavailable
from forebay.store.values import Task
from tests.conformance.store.rigs import StoreRig, kill


def data(tasks: list[Task]) -> list[str]:
    return [task.data.decode() for task in tasks]


async def test_what_is_on_its_way_to_the_shelf_does_not_overtake_what_goes_back(rig: StoreRig) -> None:
    """A retry comes between the claim of later messages of a partition and their offer to the shelf."""
    store = rig.store
    await store.create_queue("orders", {"ordered": True})
    for name in "1234":
        await store.put_task("orders", name.encode(), partition="p")
    tasks = await store.get_task("orders", 4)
    await store.configure_queue("orders", {"in_memory_queue_size": 2})
    await store.release(tasks)  # all of them are deferred now, one by one
    (first,) = await store.get_task("orders", 1)
    due = rig.embedded.log.due
    retried = False

    async def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal retried
        claimed = await due(*args, **kwargs)
        if claimed.claims and not retried:
            retried = True
            await store.retry_task([first], delay=10)
        return claimed

    rig.embedded.log.due = slow  # type: ignore[method-assign]
    await store.configure_queue("orders", {"in_memory_queue_size": 9})
    seen = data(await store.get_task("orders", 1))
    rig.clock.advance(seconds=11)
    while tasks := await store.get_task("orders", 1):
        seen += data(tasks)
        await store.done_task(tasks)
    assert retried
    assert seen == ["1", "2", "3", "4"]


async def test_an_epoch_that_nobody_remembers_is_given_back(
    shared_rig: StoreRig, request: pytest.FixtureRequest
) -> None:
    """The tier is lost while no server runs that knew its epoch."""
    store = shared_rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"1", b"2")
    assert data(await store.get_task("orders", 1)) == ["1"]
    await kill(shared_rig.embedded)
    request.getfixturevalue("valkey_server").flush()
    store = await shared_rig.open()
    again = await store.get_task("orders", 9)
    assert sorted((t.data, t.attempts) for t in again) == [(b"1", 1), (b"2", 0)]


async def test_a_poison_message_that_kills_its_process_becomes_a_dead_letter(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"retries_max": 2})
    await store.put_task("orders", b"poison")
    for attempts in range(3):
        (task,) = await store.get_task("orders")
        assert task.attempts == attempts
        store = await rig.crash()
        if rig.shared:
            rig.clock.advance(seconds=60)
            await rig.embedded.tick()
    assert await store.get_task("orders") == []
    (letter,) = await store.dead_letters("orders")
    assert (letter.message().payload, letter.attempts) == (b"poison", 3)


async def test_a_redriven_letter_and_the_rest_of_its_block_are_told_apart(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"1", b"2", b"3")
    one, two, three = await store.get_task("orders", 3)
    await store.bury([one], "tired")
    await store.retry_task([two, three], delay=10)
    await store.put_task("orders", b"another block")
    await store.done_task(await store.get_task("orders", 1))
    await store.redrive("orders")
    again = await store.get_task("orders", 9)
    assert data(again) == ["1"]
    rig.clock.advance(seconds=10)
    assert data(await store.get_task("orders", 9)) == ["2", "3"]


async def test_what_is_left_of_a_lease_comes_back_after_a_settlement_whose_answer_was_lost(
    rig: StoreRig,
) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"1", b"2", b"3")
    tasks = await store.get_task("orders", 3)
    commit = rig.embedded.log.commit

    async def lossy(*args: Any, **kwargs: Any) -> Any:
        await commit(*args, **kwargs)
        rig.embedded.log.commit = commit  # type: ignore[method-assign]
        raise Unavailable("the answer was lost")

    rig.embedded.log.commit = lossy  # type: ignore[method-assign]
    with suppress(Unavailable):  # a client finds out by itself that it is done
        await store.done_task(tasks[:1])
    rig.clock.advance(seconds=60)
    await rig.embedded.tick()
    again = await store.get_task("orders", 9)
    assert [(t.data, t.attempts) for t in again] == [(b"2", 1), (b"3", 1)]


async def test_a_worker_that_comes_as_the_idle_shelf_is_given_back_keeps_its_task(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"1", b"2")
    await store.done_task(await store.get_task("orders", 1))
    window = await rig.embedded._window("orders", "workers")
    while window._filling is not None:
        await asyncio.wait([window._filling])
    rig.clock.advance(seconds=40)
    _, tasks = await asyncio.gather(rig.embedded.tick(), store.get_task("orders", 1))
    await rig.embedded.tick()
    assert data(tasks) == ["2"]
    assert await store.get_task("orders") == []
    await store.done_task(tasks)


async def test_a_task_comes_once_in_a_batch_when_the_tier_is_lost_in_between(
    shared_rig: StoreRig, request: pytest.FixtureRequest
) -> None:
    store = shared_rig.store
    await store.create_queue("orders")
    await store.put_task("orders", b"1")
    window = await shared_rig.embedded._window("orders", "workers")
    top_up = window._top_up

    async def losing(*args: Any) -> list[Task]:
        request.getfixturevalue("valkey_server").flush()
        return await top_up(*args)

    await store.release(await store.get_task("orders"))
    await store.put_task("orders", b"2")
    window._top_up = losing  # type: ignore[method-assign,assignment]
    tasks = await store.get_task("orders", 5)
    assert len({task.id for task in tasks}) == len(tasks) > 0
