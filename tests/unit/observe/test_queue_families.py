"""The families of queues, counted from a real store."""

from __future__ import annotations

import msgspec

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock, Message
from forebay.observe.document import OTHER, Family
from forebay.observe.queue_families import queue_families
from forebay.store.store import LogStore

NOW = 1_800_000_000_000_000


async def shown(store: LogStore) -> dict[str, dict[tuple[str, ...], float]]:
    found = queue_families(await store.ledger(), await store.flow_stats())
    return {family.name: dict(family.series) for family in found}


async def test_every_state_of_a_message_is_counted_where_it_is() -> None:
    clock = ManualClock(NOW)
    async with LogStore(MemoryLog(clock=clock), clock=clock) as store:
        await store.create_queue("orders", {"in_memory_queue_size": 4})
        flow = {"flow": "daily", "flow_type": "TRANSFORM", "action": "sum"}
        await store.put_task("orders", *[Message(b"%d" % n, headers=flow) for n in range(10)])
        await store.put_task("orders", b"later", delay=60)
        clock.advance(seconds=5)
        taken = await store.get_task("orders", 4)
        await store.settle(done=taken[:1], bury=taken[1:2], reason="bad")
        await store.retry_task(taken[2:3], delay=30)
        found = await shown(store)
        key = ("orders", "workers")
        assert {name: found[f"forebay_queue_{name}"][key] for name in (
            "accepted", "ready", "leased", "delayed", "dead", "done", "expired", "purged",
            "difference", "warm_limit", "is_cold",
        )} == {
            "accepted": 11, "ready": 6, "leased": 1, "delayed": 2, "dead": 1, "done": 1, "expired": 0,
            "purged": 0, "difference": 0, "warm_limit": 4, "is_cold": 1,
        }  # fmt: skip
        assert found["forebay_queue_warm"][key] + found["forebay_queue_cold"][key] >= 6
        assert found["forebay_queue_oldest_age_seconds"][key] == NOW / 1_000_000
        assert found["forebay_flow_leased"][*key, "daily", "TRANSFORM", "sum"] == 1
        waiting = [
            found[f"forebay_flow_{name}"][*key, "daily", "TRANSFORM", "sum"] for name in ("warm", "cold")
        ]
        assert sum(waiting) == 6


async def test_an_empty_queue_has_no_age() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders")
        found = await shown(store)
        assert found["forebay_queue_ready"] == {("orders", "workers"): 0}
        assert found["forebay_queue_oldest_age_seconds"] == {}
        assert found["forebay_queue_cold"] == {("orders", "workers"): 0}


CAP = 4


async def many_queues(store: LogStore) -> list[Family]:
    """Six queues, of which the second has most ready and the third most out, beyond a cap of four series."""
    for number, count in enumerate((1, 9, 6, 3, 2, 0)):
        await store.create_queue(f"q{number}")
        if count:
            await store.put_task(f"q{number}", *[b"x"] * count)
    await store.get_task("q2", 5)
    return queue_families(await store.ledger(), await store.flow_stats(), series_max=CAP)


async def test_beyond_the_cap_all_families_keep_the_same_groups() -> None:
    async with LogStore(MemoryLog()) as store:
        families = {each.name: each for each in await many_queues(store)}
        kept = {("q1", "workers"), ("q3", "workers"), ("q4", "workers"), (OTHER, OTHER)}
        for name in ("ready", "leased", "accepted", "difference", "warm", "is_cold"):
            found = families[f"forebay_queue_{name}"]
            assert {labels for labels, _ in found.series} == kept, name
            assert found.folded == 3, name
        assert dict(families["forebay_queue_leased"].series)[OTHER, OTHER] == 5
        assert dict(families["forebay_queue_accepted"].series)[OTHER, OTHER] == 1 + 6 + 0
        assert {labels[0] for labels, _ in families["forebay_flow_warm"].series} == {"q1", "q3", "q4", OTHER}


async def test_beyond_the_cap_differences_of_both_signs_do_not_cancel() -> None:
    async with LogStore(MemoryLog()) as store:
        await many_queues(store)
        books, flows = await store.ledger(), await store.flow_stats()
        off = {"q0": 5, "q1": -5, "q2": 4, "q3": 3, "q4": -3}
        queues = [
            msgspec.structs.replace(
                queue,
                groups=[
                    msgspec.structs.replace(group, accepted=group.accepted + off.get(queue.queue.name, 0))
                    for group in queue.groups
                ],
            )
            for queue in books.queues
        ]
        families = queue_families(msgspec.structs.replace(books, queues=queues), flows, series_max=CAP)
        (found,) = [each for each in families if each.name == "forebay_queue_difference"]
        assert dict(found.series) == {
            ("q0", "workers"): 5, ("q1", "workers"): -5, ("q2", "workers"): 4, (OTHER, OTHER): 6,
        }  # fmt: skip


async def test_beyond_the_cap_flows_that_wait_most_are_kept_in_all_families() -> None:
    async with LogStore(MemoryLog()) as store:
        await store.create_queue("orders")
        for number, count in enumerate((1, 4, 3, 2, 5)):
            await store.put_task("orders", *[Message(b"x", headers={"flow": f"f{number}"})] * count)
        await store.get_task("orders", 1)
        families = queue_families(await store.ledger(), await store.flow_stats(), series_max=3)
        for family in families:
            if family.name.startswith("forebay_flow_") and "oldest" not in family.name:
                assert [labels[2] for labels, _ in family.series] == ["f1", "f4", OTHER], family.name
                assert family.folded == 3


async def test_what_other_servers_hold_in_memory_of_their_own_is_counted_by_each() -> None:
    clock = ManualClock(NOW)
    log = MemoryLog(clock=clock)
    async with LogStore(log, clock=clock, name="a") as one, LogStore(log, clock=clock, name="b") as other:
        await other.create_queue("orders")
        flow = {"flow": "daily", "flow_type": "TRANSFORM", "action": "sum"}
        await other.put_task("orders", *[Message(b"%d" % n, headers=flow) for n in range(10)])
        clock.advance(seconds=5)
        taken = await other.get_task("orders", 3)
        assert len(taken) == 3
        found, its = await shown(one), await shown(other)
        key = ("orders", "workers")
        for name in ("ready", "leased", "warm", "cold", "oldest_age_seconds", "is_cold"):
            assert found[f"forebay_queue_{name}"] == its[f"forebay_queue_{name}"], name
        assert (found["forebay_queue_ready"][key], found["forebay_queue_leased"][key]) == (7, 3)
        assert (found["forebay_queue_warm"][key], found["forebay_queue_is_cold"][key]) == (10, 0)
        assert found["forebay_queue_oldest_age_seconds"][key] == NOW / 1_000_000
        assert found["forebay_flow_warm"] == its["forebay_flow_warm"] == {(*key, *flow.values()): 7}


async def test_two_servers_with_memory_of_their_own_count_each_message_once() -> None:
    clock = ManualClock(NOW)
    log = MemoryLog(clock=clock)
    async with LogStore(log, clock=clock, name="a") as one, LogStore(log, clock=clock, name="b") as other:
        await one.create_queue("orders", {"in_memory_queue_size": 4})
        for number in range(12):
            await one.put_task("orders", b"%d" % number)
        await one.get_task("orders", 1)
        await other.get_task("orders", 1)
        for store in (one, other):
            found = await shown(store)
            (warm,), (cold,) = found["forebay_flow_warm"].values(), found["forebay_flow_cold"].values()
            assert found["forebay_queue_ready"] == {("orders", "workers"): 10}
            assert warm + cold == 10
            assert found["forebay_queue_warm"] == {("orders", "workers"): 8}
