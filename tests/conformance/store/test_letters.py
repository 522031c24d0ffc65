"""Dead letters in bulk: dry run, redrive, purge, undo."""

from __future__ import annotations

from forebay.log.values import GroupStats
from forebay.store.seam import Store
from tests.conformance.steps import DAY_SECONDS
from tests.conformance.store.rigs import StoreRig


async def bury(store: Store, count: int) -> list[int]:
    """Bury so many tasks, the even ones for another reason than the odd ones."""
    await store.create_queue("orders", {"keep_seconds": 0})
    await store.put_task("orders", *[b"%d" % i for i in range(count)])
    tasks = await store.get_task("orders", count)
    await store.bury(tasks[::2], "no such customer")
    await store.bury(tasks[1::2], "out of stock")
    return [task.id for task in tasks]


async def group(store: Store) -> GroupStats:
    return (await store.ledger()).queues[0].groups[0]


async def test_a_dry_run_changes_nothing(store: Store) -> None:
    ids = await bury(store, 10)
    planned = await store.redrive("orders", dry_run=True)
    assert (list(planned.ids), planned.dry_run) == (ids, True)
    assert list((await store.purge("orders", reason="stock", dry_run=True)).ids) == ids[1::2]
    assert len(await store.dead_letters("orders")) == 10
    assert await store.get_task("orders", 10) == []


async def test_redriven_letters_begin_anew(rig: StoreRig) -> None:
    store = rig.store
    ids = await bury(store, 10)
    rig.clock.advance(seconds=2 * DAY_SECONDS)
    await rig.embedded.log.trim()
    changed = await store.redrive("orders", reason="customer")
    assert list(changed.ids) == ids[::2]
    tasks = await store.get_task("orders", 10)
    assert [task.id for task in tasks] == ids[::2]
    assert {(t.attempts, t.prev_start_time, t.start_time) for t in tasks} == {(0, None, rig.clock.now())}
    await store.done_task(tasks)
    assert [letter.message_id for letter in await store.dead_letters("orders")] == ids[1::2]
    assert ((await group(store)).dead, (await group(store)).done) == (5, 5)


async def test_a_redrive_can_be_undone_until_it_is_taken(store: Store) -> None:
    ids = await bury(store, 3)
    changed = await store.redrive("orders", ids[:2])
    assert list((await store.undo("orders", changed)).ids) == ids[:2]
    await store.redrive("orders", ids[:2])
    tasks = await store.get_task("orders", 3)
    assert [task.id for task in tasks] == ids[:2]
    assert list((await store.undo("orders", changed)).ids) == []
    await store.done_task(tasks)


async def test_a_purge_can_be_undone(store: Store) -> None:
    ids = await bury(store, 4)
    changed = await store.purge("orders", reason="stock")
    assert list(changed.ids) == ids[1::2]
    assert ((await group(store)).dead, (await group(store)).purged) == (2, 2)
    assert list((await store.undo("orders", changed)).ids) == ids[1::2]
    assert ((await group(store)).dead, (await group(store)).purged) == (4, 0)


async def test_thousands_are_changed_by_the_page(store: Store) -> None:
    ids = await bury(store, 2_500)
    assert list((await store.purge("orders")).ids) == ids
    assert await store.dead_letters("orders") == []


async def test_a_message_that_dies_again_is_a_letter_again(store: Store) -> None:
    ids = await bury(store, 1)
    await store.redrive("orders")
    (task,) = await store.get_task("orders")
    await store.bury([task], "still no such customer")
    (letter,) = await store.dead_letters("orders")
    assert (letter.message_id, letter.reason) == (ids[0], "still no such customer")
