"""Groups that are sent elsewhere: what workers get, what they lose, and how other servers notice."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from forebay.log.values import GroupStats, Position
from forebay.model import LeaseLost, Message, Rejected, UnknownGroup, UnknownQueue
from forebay.store.seam import Store
from forebay.store.values import Purged, Task
from tests.conformance.store.rigs import StoreRig, all_waiting

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


def data(tasks: list[Task]) -> list[str]:
    return sorted(task.data.decode() for task in tasks)


async def counts(store: Store, group: str = "workers") -> GroupStats:
    groups = (await store.ledger()).queues[0].groups
    return next(found for found in groups if found.group.name == group)


async def filled(store: Store, *, ordered: bool = False) -> None:
    """Six tasks in two blocks of two partitions."""
    await store.create_queue("q", {"ordered": ordered})
    for partition in "ab":
        await store.put_task("q", *[Message(f"{partition}{i}".encode(), partition) for i in range(3)])


async def gathered(count: int, *stores: Store) -> list[Task]:
    """So many tasks, whichever server has them; one that fills a shelf keeps the others waiting a moment."""
    tasks: list[Task] = []
    async with asyncio.timeout(20):
        while len(tasks) < count:
            for store in stores:
                tasks += await store.get_task("q", count - len(tasks) or 1, wait_seconds=0.05)
    return tasks


@KINDS
async def test_what_was_done_comes_again(store: Store, *, ordered: bool) -> None:
    await filled(store, ordered=ordered)
    await store.done_task(await store.get_task("q", 10))
    assert await store.get_task("q") == []

    assert await store.seek("q", "workers", Position(3)) == Purged({"workers": 0}, {"workers": 4})

    tasks = await store.get_task("q", 10)
    assert data(tasks) == ["a2", "b0", "b1", "b2"]
    await store.done_task(tasks)
    assert ((await counts(store)).accepted, (await counts(store)).done) == (10, 10)


@KINDS
async def test_leases_are_lost_and_the_shelf_is_let_go(store: Store, *, ordered: bool) -> None:
    await filled(store, ordered=ordered)
    tasks = await store.get_task("q", 2)  # the others are ready, on the shelf

    assert await store.seek("q", "workers", "latest") == Purged({"workers": 6}, {"workers": 0})

    assert await store.get_task("q") == []
    assert await store.running() == []
    for call in (store.done_task, store.retry_task, store.release, store.extend):
        with pytest.raises(LeaseLost):
            await call(tasks)
    await store.put_task("q", b"new")
    assert data(await store.get_task("q", 10)) == ["new"]
    found = await counts(store)
    assert (found.accepted, found.purged, found.held, found.difference) == (7, 6, 1, 0)


async def test_what_is_delayed_is_skipped_too(rig: StoreRig) -> None:
    await filled(rig.store)
    await rig.store.retry_task(await rig.store.get_task("q", 6), delay=5)
    await rig.store.seek("q", "workers", "latest")
    rig.clock.advance(seconds=5)
    await rig.embedded.tick()
    assert await rig.store.get_task("q") == []


async def test_dead_letters_stay(store: Store) -> None:
    await filled(store)
    await store.bury(await store.get_task("q", 2), "bad")
    await store.seek("q", "workers", "latest")
    assert len(await store.dead_letters("q")) == 2
    assert len(await store.redrive("q")) == 2
    assert data(await store.get_task("q", 10)) == ["a0", "a1"]


async def test_whoever_waits_gets_what_comes_again(rig: StoreRig) -> None:
    store = rig.store
    await filled(store)
    await store.done_task(await store.get_task("q", 10))
    waiting = asyncio.create_task(store.get_task("q", 10, wait_seconds=60))
    await all_waiting(rig.embedded)
    await store.seek("q", "workers", "earliest")
    async with asyncio.timeout(10):
        assert len(await waiting) == 6


@KINDS
async def test_another_server_that_holds_tasks_recovers_by_itself(rig: StoreRig, *, ordered: bool) -> None:
    await filled(rig.store, ordered=ordered)
    held = await rig.store.get_task("q", 1)
    other = await rig.open()

    await other.seek("q", "workers", Position(2))

    with pytest.raises(LeaseLost):
        await rig.store.done_task(held)
    tasks = await gathered(5, rig.store, other)
    assert data(tasks) == ["a1", "a2", "b0", "b1", "b2"]
    for store in (rig.store, other):  # each has its own, where the tier isn't shared
        with suppress(LeaseLost):
            await store.done_task(tasks)
    found = await counts(rig.store)
    assert (found.done, found.purged, found.accepted) == (5, 1, 6)


@KINDS
async def test_a_shelf_full_of_what_another_server_skipped_is_let_go_at_once(
    rig: StoreRig, *, ordered: bool
) -> None:
    await rig.store.create_queue("q", {"ordered": ordered})
    for i in range(20):
        await rig.store.put_task("q", *[b"old"] * 50, partition=str(i))
    await rig.store.get_task("q", 1)
    other = await rig.open()
    await other.seek("q", "workers", "latest")

    assert await rig.store.get_task("q", 1) == []
    assert (await rig.store.flow_stats()).groups[0].messages == 0


async def test_a_server_notices_by_itself_when_its_workers_have_all_that_is_void(rig: StoreRig) -> None:
    await filled(rig.store)
    await rig.store.get_task("q", 6)
    other = await rig.open()
    await other.seek("q", "workers", "earliest")
    await rig.embedded._rounds._keep_up()
    assert await rig.store.running() == []
    assert len(await gathered(6, rig.store, other)) == 6


@KINDS
async def test_a_server_that_died_after_it_had_told_the_log_leaves_no_trouble(
    rig: StoreRig, *, ordered: bool
) -> None:
    store = rig.store
    await filled(store, ordered=ordered)
    held = await store.get_task("q", 1)
    (group,) = await store.groups("q")
    await rig.embedded.log.seek(group, Position(2))

    tasks = await gathered(5, store)

    assert data(tasks) == ["a1", "a2", "b0", "b1", "b2"]
    with pytest.raises(LeaseLost):
        await store.done_task(held)
    await store.done_task(tasks)


async def test_tasks_taken_since_are_not_lost_when_others_notice(shared_rig: StoreRig) -> None:
    rig = shared_rig
    await filled(rig.store)
    await rig.store.get_task("q", 1)
    other = await rig.open()
    await other.get_task("q", 1)
    await other.seek("q", "workers", "earliest")
    tasks = await gathered(3, other)

    await rig.embedded._rounds._keep_up()
    await rig.embedded.tick()
    await rig.embedded._rounds._keep_up()

    await other.done_task(tasks)
    assert (await counts(other)).done == 3


@KINDS
async def test_a_purge_skips_all_that_waits_in_every_group(store: Store, *, ordered: bool) -> None:
    await filled(store, ordered=ordered)
    await store.create_group("q", "audit")
    await store.done_task((await store.get_task("q", 1))[:1])

    expected = {"workers": 5, "audit": 6}
    dry = await store.purge_queue("q", dry_run=True)
    assert (dict(dry.skipped), dry.dry_run) == (expected, True)
    assert len(await store.get_task("q", 1, group="audit")) == 1
    purged = await store.purge_queue("q")

    assert (dict(purged.skipped), purged.dry_run) == (expected, False)
    assert await store.get_task("q") == await store.get_task("q", group="audit") == []
    assert dict((await store.purge_queue("q")).skipped) == {"workers": 0, "audit": 0}


async def test_a_purge_of_one_group_leaves_the_others_alone(store: Store) -> None:
    await filled(store)
    await store.create_group("q", "audit")
    assert dict((await store.purge_queue("q", group="audit")).skipped) == {"audit": 6}
    assert len(await store.get_task("q", 10)) == 6


async def test_what_was_purged_can_be_brought_back(store: Store) -> None:
    await filled(store)
    await store.purge_queue("q")
    purged = await store.seek("q", "workers", "earliest")
    assert (dict(purged.skipped), dict(purged.again)) == ({"workers": 0}, {"workers": 6})
    assert len(await store.get_task("q", 10)) == 6
    assert (await counts(store)).accepted == 12


async def test_a_place_that_does_not_exist_is_rejected_and_changes_nothing(store: Store) -> None:
    await filled(store)
    tasks = await store.get_task("q", 2)
    with pytest.raises(Rejected, match="past the end"):
        await store.seek("q", "workers", Position(100))
    with pytest.raises(UnknownGroup):
        await store.seek("q", "nobody", "latest")
    with pytest.raises(UnknownQueue):
        await store.seek("nothing", "workers", "latest")
    with pytest.raises(UnknownQueue):
        await store.purge_queue("nothing")
    await store.done_task(tasks)


async def test_a_group_may_begin_at_a_position(store: Store) -> None:
    await filled(store)
    await store.create_group("q", "late", Position(5))
    assert data(await store.get_task("q", 10, group="late")) == ["b1", "b2"]
