"""Per-flow metrics: what waits, warm and cold, and who works on what."""

from __future__ import annotations

from forebay.model import Flow, Message
from forebay.store.seam import Store
from forebay.store.values import GroupState
from tests.conformance.steps import SECOND
from tests.conformance.store.rigs import StoreRig

FAST = {"flow": "fast", "flow_type": "TRANSFORM", "action": "load"}
SLOW = {"flow": "slow", "flow_type": "DATA_SINK", "action": "send"}
FAST_FLOW, SLOW_FLOW = Flow("fast", "TRANSFORM", "load"), Flow("slow", "DATA_SINK", "send")


async def rows(store: Store) -> dict[Flow, tuple[int, int, int, int | None]]:
    stats = await store.flow_stats()
    return {s.flow: (s.warm, s.cold, s.taken, s.oldest_at) for s in stats.flows}


async def state(store: Store) -> GroupState:
    (found,) = (await store.flow_stats()).groups
    return found


async def test_warm_and_cold_are_counted_by_flow(rig: StoreRig) -> None:
    store, begin = rig.store, rig.clock.now()
    await store.create_queue("orders", {"in_memory_queue_size": 60})
    await store.put_task("orders", *[b"x"] * 40, headers=FAST)
    rig.clock.advance(seconds=1)
    await store.put_task("orders", *[b"x"] * 40, headers=SLOW)
    rig.clock.advance(seconds=1)
    await store.put_task("orders", *[b"x"] * 40)
    assert await rows(store) == {
        FAST_FLOW: (0, 40, 0, begin),
        SLOW_FLOW: (0, 40, 0, begin + SECOND),
        Flow(): (0, 40, 0, begin + 2 * SECOND),
    }
    tasks = await store.get_task("orders", 10)
    found = await rows(store)
    assert sum(row[0] + row[2] for row in found.values()) == 60
    assert {flow: row[0] + row[1] + row[2] for flow, row in found.items()} == dict.fromkeys(found, 40)
    assert sum(row[2] for row in found.values()) == 10
    assert found[SLOW_FLOW][3] == begin + SECOND
    await store.done_task(tasks)
    stats = await store.flow_stats()
    assert stats.at == rig.clock.now()
    assert sum(s.warm + s.cold + s.taken for s in stats.flows) == 110


async def test_several_flows_in_one_block_are_told_apart(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[Message(b"x", headers=h) for h in (FAST, SLOW, FAST, None, SLOW)])
    await store.get_task("orders", 1)
    found = await rows(store)
    assert {flow: row[0] + row[2] for flow, row in found.items()} == {FAST_FLOW: 2, SLOW_FLOW: 2, Flow(): 1}


async def test_what_a_flow_reads_waits_for_it_whatever_its_messages_say(store: Store) -> None:
    labels = {"flows": {"clean": {"flow": "clean-orders", "flow_type": "TRANSFORM", "action": "total"}}}
    await store.create_queue("orders", {"labels": labels})
    await store.create_group("orders", "clean")
    await store.put_task("orders", b"x", b"x", headers=SLOW)
    await store.put_task("orders", b"x")
    found = {(s.group, s.flow): s.warm + s.cold for s in (await store.flow_stats()).flows}
    assert found == {
        ("clean", Flow("clean-orders", "TRANSFORM", "total")): 3,
        ("workers", SLOW_FLOW): 2,
        ("workers", Flow()): 1,
    }


async def test_running_tasks_say_who_and_since_when(rig: StoreRig) -> None:
    store, begin = rig.store, rig.clock.now()
    await store.create_queue("orders")
    ids = await store.put_task("orders", *[b"x"] * 3, headers=SLOW)
    first = await store.get_task("orders", 2, worker="one")
    rig.clock.advance(seconds=5)
    await store.get_task("orders", 2, worker="two")
    running = await store.running()
    assert [(r.worker, r.first, r.count, r.since, r.flow) for r in running] == [
        ("one", ids[0], 2, begin, SLOW_FLOW),
        ("two", ids[2], 1, begin + 5 * SECOND, SLOW_FLOW),
    ]
    assert running[0].deadline == begin + 60 * SECOND
    await store.done_task(first)
    assert [r.worker for r in await store.running()] == ["two"]


async def test_what_came_back_and_is_not_on_the_shelf_is_cold(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"in_memory_queue_size": 10})
    await store.put_task("orders", *[b"x"] * 30, headers=SLOW)
    for _ in range(3):
        await store.retry_task(await store.get_task("orders", 10), delay=5)
    assert (await store.flow_stats()).flows == []
    rig.clock.advance(seconds=6)
    assert [(s.flow, s.warm + s.cold) for s in (await store.flow_stats()).flows] == [(SLOW_FLOW, 30)]
    await store.get_task("orders", 2)
    assert (await rows(store))[SLOW_FLOW][:3] == (8, 20, 2)
    store = await rig.crash()
    found = (await rows(store))[SLOW_FLOW]
    assert sum(found[:3]) == 30


async def test_servers_that_share_a_tier_tell_the_same(shared_rig: StoreRig) -> None:
    store, other = shared_rig.store, await shared_rig.open()
    await store.create_queue("orders", {"in_memory_queue_size": 10})
    await store.put_task("orders", *[b"x"] * 30, headers=SLOW)
    await store.get_task("orders", 4, worker="one")
    assert await rows(other) == await rows(store)
    assert (await rows(other))[SLOW_FLOW][:3] == (6, 20, 4)
    assert (await state(other)).messages == (await state(store)).messages == 10
    assert await other.running() == await store.running() != []


async def test_flows_are_served_in_turn(store: Store) -> None:
    await store.create_queue("orders")
    await store.put_task("orders", *[b"slow"] * 50, headers=SLOW)
    await store.put_task("orders", *[b"fast"] * 50, headers=FAST)
    taken = [task.data for task in await store.get_task("orders", 20)]
    assert (taken.count(b"slow"), taken.count(b"fast")) == (10, 10)


async def test_a_flow_behind_one_that_fills_the_shelf_is_found(rig: StoreRig) -> None:
    store = rig.store
    await store.create_queue("orders", {"in_memory_queue_size": 100})
    for _ in range(10):
        await store.put_task("orders", *[b"slow"] * 50, headers=SLOW)
    await store.put_task("orders", *[b"fast"] * 50, headers=FAST)
    slow = await store.get_task("orders", 50)
    seen: list[bytes] = []
    for task in slow:
        rig.clock.advance(seconds=0.5)
        await store.done_task([task])
        more = await store.get_task("orders", 1)
        seen += [t.data for t in more]
        assert (await store.flow_stats()).groups[0].messages <= 100
    assert seen.count(b"fast") >= 20
    left = [task for _ in range(30) for task in await store.get_task("orders", 50)]
    assert len(left) <= 100
