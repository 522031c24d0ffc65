"""Values, locks and semaphores of the newer client, also as part of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.queen.packages import package
from tests.queen.steps import pop_all, until
from tests.servers import ForebayServer

Name = Callable[[str], str]


@pytest.fixture
async def newer(server: ForebayServer) -> AsyncIterator[Any]:
    """Give a client that has values."""
    async with package("2.6.0").Queen(server.url) as client:
        yield client


async def test_a_value_is_there_until_it_is_removed_or_has_ended(newer: Any, name: Name) -> None:
    kv, key = newer.kv, name("k/ä")
    assert not await kv.get("tests", key)
    put = await kv.put("tests", key, {"a": [1, None]}, forever=True)
    found = await kv.get("tests", key)
    assert (found["value"], found["version"], found["expiresAt"]) == ({"a": [1, None]}, put["version"], None)
    assert await kv.put("tests", key, None, ttl_seconds=60)
    null = await kv.get("tests", key)
    assert (null["found"], null["value"]) == (True, None)
    assert null["version"] > put["version"]

    assert await kv.put("tests", key, None, ttl_seconds=1)
    async with asyncio.timeout(20):
        while await kv.get("tests", key):
            pass
    again = await kv.put_if_absent("tests", key, 1, forever=True)
    assert again["applied"]
    assert again["version"] > null["version"]
    assert await kv.delete("tests", key)
    assert (await kv.delete("tests", key))["reason"] == "absent"


async def test_of_many_who_write_on_one_condition_one_wins(newer: Any, name: Name) -> None:
    kv, key = newer.kv, name("k")
    wins = await asyncio.gather(*(kv.put_if_absent("tests", key, n, forever=True) for n in range(20)))
    assert sum(map(bool, wins)) == 1
    (winner,) = [win for win in wins if win]
    assert {lost["version"] for lost in wins if not lost} == {winner["version"]}
    swaps = await asyncio.gather(
        *(kv.put("tests", key, n, forever=True, expect=winner["version"]) for n in range(20))
    )
    assert sum(map(bool, swaps)) == 1
    assert {swap.get("reason") for swap in swaps if not swap} == {"version"}


async def test_increments_add_up_and_stop_at_their_bounds(newer: Any, name: Name) -> None:
    kv, key = newer.kv, name("n")
    counts = await asyncio.gather(*(kv.incr("tests", key, max=30, forever=True) for _ in range(40)))
    assert sum(map(bool, counts)) == 30
    assert (await kv.get("tests", key))["value"] == 30
    assert (await kv.incr("tests", key, delta=-0.5, forever=True))["value"] == 29.5
    await kv.put("tests", key, "text", forever=True)
    assert (await kv.incr("tests", key, forever=True))["reason"] == "type"


async def test_several_operations_are_one_write(newer: Any, name: Name) -> None:
    kv, op, keys = newer.kv, newer.kv.op, [name(f"{n}") for n in range(3)]
    await kv.put("tests", keys[0], "old", forever=True)
    results = await kv.batch(
        [
            op.get("tests", keys[0]),
            op.put("tests", keys[0], "new", forever=True),
            op.get_many("tests", [*keys, "missing"]),
            op.put("tests", keys[1], 1, forever=True),
        ]
    )
    assert results[0]["value"] == "old"
    assert [row["value"] for row in results[2]["rows"]] == ["new", 1]
    assert results[2]["missing"] == [keys[2], "missing"]
    lost = await newer.kv._http_client.post(
        "/api/v1/kv",
        {
            "operations": [
                op.put("tests", keys[2], 1, forever=True),
                op.check("tests", keys[0], expect=0, required=True),
            ]
        },
    )
    assert (lost["ok"], lost["failedIndex"], lost["kvReason"]) == (False, 1, "exists")
    assert not await kv.get("tests", keys[2])


async def test_keys_are_listed_by_their_beginning_page_by_page(newer: Any, name: Name) -> None:
    kv, prefix = newer.kv, name("p")
    for number in range(7):
        await kv.put("tests", f"{prefix}/{number}", number, forever=True)
    page = await kv.get_prefix("tests", f"{prefix}/", limit=3)
    assert (len(page["rows"]), page["truncated"]) == (3, True)
    rows = await kv.list_all("tests", f"{prefix}/", limit=3)
    assert [row["value"] for row in rows] == list(range(7))


async def test_a_transaction_writes_values_along_or_nothing_at_all(newer: Any, name: Name) -> None:
    queue, key = name("q"), name("once")
    results = []
    for _ in range(2):
        bundle = newer.transaction().once("tests", key, ttl_seconds=60)
        results.append(await bundle.queue(queue).push([{"data": 1}]).commit())
    first, second = results
    assert (bool(first), bool(second)) == (True, False)
    assert (second["reason"], second["kvReason"], second["failedIndex"]) == ("kv_precondition", "exists", 1)
    assert len(await pop_all(lambda: newer.queue(queue).batch(10), 1)) == 1


async def test_a_lock_has_one_holder_and_its_token_fences(newer: Any, name: Name) -> None:
    queue, lock = name("q"), newer.lock(name("lock"), ttl_seconds=4, auto_renew=False)
    other = newer.lock(name("lock"), ttl_seconds=60)
    assert await lock.acquire()
    assert not await other.acquire()
    token = lock.token
    assert await lock.renew()
    assert lock.token > token
    assert (await newer.locks.get(name("lock")))["holders"][0]["owner"] == lock.owner
    stale = lock.guard()
    assert await other.acquire(wait=20)
    assert other.token > stale["expect"]
    body = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": "late"}]}], "kv": [stale]}
    late = await newer.kv._http_client.post("/api/v1/transaction", body)
    assert (late["success"], late["kvReason"]) == (False, "version")
    assert await newer.transaction().guard(other).queue(queue).push([{"data": "in time"}]).commit()
    (message,) = await pop_all(lambda: newer.queue(queue).batch(10), 1)
    assert message["data"] == "in time"
    assert await other.release()


async def test_a_semaphore_has_as_many_holders_as_it_may(newer: Any, name: Name) -> None:
    permits = [newer.semaphore(name("s"), 3, ttl_seconds=30) for _ in range(5)]
    taken = await asyncio.gather(*(permit.acquire() for permit in permits))
    assert sum(taken) == 3
    holder = next(permit for permit in permits if permit.held)
    assert await holder.release()
    waiting = next(permit for permit in permits if not permit.held and permit is not holder)
    assert await waiting.acquire()
    await until(lambda: sum(permit.held for permit in permits) == 3, "three hold it")
    for permit in permits:
        await permit.release()
