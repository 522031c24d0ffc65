"""The families of queues, counted from a real store."""

from __future__ import annotations

from forebay.log.memory import MemoryLog
from forebay.model import ManualClock, Message
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
            "accepted", "ready", "leased", "delayed", "dead", "done", "expired", "purged", "spooled",
            "difference", "warm_limit", "is_cold",
        )} == {
            "accepted": 11, "ready": 6, "leased": 1, "delayed": 2, "dead": 1, "done": 1, "expired": 0,
            "purged": 0, "spooled": 0, "difference": 0, "warm_limit": 4, "is_cold": 1,
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
