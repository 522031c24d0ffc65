"""Messages whose start time is to come: counted as delayed, not as ready, before anybody claims them."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from forebay.log.seam import Log
from forebay.log.values import Append, Group, Position, Queue, Room
from forebay.model import Block, Flow, Message, mint
from tests.conformance.rigs import Rig
from tests.conformance.steps import SECOND, counts, finish, take

MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
ORDER = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


async def put(
    log: Log,
    queue: Queue,
    *starts: int | None,
    partition: str = "p",
    flows: str = "",
    transactions: str = "",
) -> None:
    """Append a block of messages with these start times."""
    messages = [
        Message(
            str(n).encode(),
            partition,
            transactions[n] if transactions else None,
            headers={"flow": flows[n]} if flows else {},
            start_time=start,
        )
        for n, start in enumerate(starts)
    ]
    await log.commit([Append.of(queue, Block.of(messages, created_at=1))])


async def made(rig: Rig, *, ordered: bool = False) -> tuple[Queue, Group]:
    queue = await rig.log.create_queue("orders", {"ordered": ordered})
    return queue, await rig.log.create_group(queue, "workers")


async def ready_and_delayed(log: Log, group: Group) -> tuple[int, int]:
    found = await counts(log, group)
    assert found.difference == 0
    assert found.unclaimed == found.ready + found.delayed
    return found.ready, found.delayed


@ORDER
async def test_what_is_to_come_is_delayed_until_its_time(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    now = rig.clock.now()
    await put(rig.log, queue, None, now + 10 * SECOND, now + 20 * SECOND, now - SECOND)
    await put(rig.log, queue, *[now + 20 * SECOND] * 3)
    await put(rig.log, queue, None)
    assert await ready_and_delayed(rig.log, group) == (3, 5)
    rig.clock.advance(seconds=10)
    assert await ready_and_delayed(rig.log, group) == (4, 4)
    rig.clock.advance(seconds=10)
    assert await ready_and_delayed(rig.log, group) == (8, 0)


@ORDER
async def test_each_group_counts_from_where_it_is_also_within_a_block(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    other = await rig.log.create_group(queue, "others")
    now = rig.clock.now()
    await put(rig.log, queue, None, now + MINUTE, now + 2 * MINUTE, now + 3 * MINUTE)
    await take(rig.log, group, room=Room(messages=2))
    assert await ready_and_delayed(rig.log, group) == (0, 2)
    assert await ready_and_delayed(rig.log, other) == (1, 3)
    rig.clock.advance(seconds=121)
    assert await ready_and_delayed(rig.log, group) == (1, 1)
    assert await ready_and_delayed(rig.log, other) == (3, 1)
    late = await rig.log.create_group(queue, "late", Position(4))
    assert await ready_and_delayed(rig.log, late) == (0, 1)


@ORDER
async def test_what_a_group_seeks_back_to_is_delayed_again(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    now = rig.clock.now()
    await put(rig.log, queue, now + MINUTE, now + MINUTE)
    await finish(rig.log, *await take(rig.log, group))
    assert await ready_and_delayed(rig.log, group) == (0, 0)
    sought = await rig.log.seek(group, "earliest")
    assert await ready_and_delayed(rig.log, sought.group) == (0, 2)
    sought = await rig.log.seek(sought.group, "latest")
    assert await ready_and_delayed(rig.log, sought.group) == (0, 0)


@ORDER
async def test_what_retention_dropped_is_not_delayed(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": ordered, "expire_seconds": 5})
    group = await rig.log.create_group(queue, "workers")
    await put(rig.log, queue, rig.clock.now() + 10 * DAY)
    rig.clock.advance(seconds=3 * 86_400)  # PostgreSQL drops days
    await put(rig.log, queue, rig.clock.now() + 10 * DAY, None)
    await rig.log.trim()
    found = await counts(rig.log, group)
    assert (found.ready, found.delayed, found.expired, found.difference) == (1, 1, 1, 0)
    await rig.log.delete_queue("orders")
    queue, group = await made(rig, ordered=ordered)
    assert await ready_and_delayed(rig.log, group) == (0, 0)


async def test_trimming_forgets_no_start_time_that_is_to_come(rig: Rig) -> None:
    queue, group = await made(rig)
    await put(rig.log, queue, rig.clock.now() + SECOND)
    await put(rig.log, queue, rig.clock.now() + MINUTE)
    rig.clock.advance(seconds=2)
    await rig.log.trim()
    assert await ready_and_delayed(rig.log, group) == (1, 1)


async def test_duplicates_are_not_counted(rig: Rig) -> None:
    queue, group = await made(rig)
    later = rig.clock.now() + MINUTE
    await put(rig.log, queue, None, later, later, transactions="abc")
    await put(rig.log, queue, later, None, later, later, transactions="bcdd")
    assert await ready_and_delayed(rig.log, group) == (1, 3)


@ORDER
async def test_staged_blocks_are_counted_once_they_are_published(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    later = rig.clock.now() + MINUTE
    blocks = [
        Block.of([Message(b"x", "p", text, start_time=start) for text, start in row], id=mint(), created_at=1)
        for row in ([("a", later), ("b", None)], [("a", later), ("c", later), ("d", None)])
    ]
    await rig.log.stage("stage", [Append.of(queue, block) for block in blocks])
    assert await ready_and_delayed(rig.log, group) == (0, 0)
    await rig.log.publish("stage", [block.id for block in blocks])
    assert await ready_and_delayed(rig.log, group) == (2, 2)


@ORDER
async def test_flows_leave_out_what_is_delayed(rig: Rig, *, ordered: bool) -> None:
    queue, group = await made(rig, ordered=ordered)
    later = rig.clock.now() + MINUTE
    await put(rig.log, queue, None, later, None, later, flows="aabb")
    await put(rig.log, queue, later, later, flows="cc")
    assert [(c.flow, c.count) for c in await rig.log.flows(group)] == [(Flow("a"), 1), (Flow("b"), 1)]
    await take(rig.log, group, room=Room(messages=3))
    assert await rig.log.flows(group) == []
    rig.clock.advance(seconds=60)
    assert [(c.flow, c.count) for c in await rig.log.flows(group)] == [(Flow("b"), 1), (Flow("c"), 2)]


@ORDER
async def test_any_times_are_counted_as_they_are(rig: Rig, *, ordered: bool) -> None:
    rng, (queue, group) = Random(7), await made(rig, ordered=ordered)
    begin, starts = rig.clock.now(), dict[str, list[int]]()
    for _ in range(30):
        name = rng.choice("xy")
        times = [rng.choice([None, begin + rng.randrange(60) * SECOND]) for _ in range(rng.randrange(1, 6))]
        await put(rig.log, queue, *times, partition=name)
        starts.setdefault(name if ordered else "", []).extend(time or 0 for time in times)
    for step in range(12):
        now = rig.clock.now()
        left = [time for times in starts.values() for time in times]
        late = sum(time > now for time in left)
        assert await ready_and_delayed(rig.log, group) == (len(left) - late, late)
        for claim in await take(rig.log, group, room=Room(messages=rng.randrange(1, 9))):
            mine = starts[(claim.block.partition or "") if ordered else ""]
            del mine[: claim.count]
            await finish(rig.log, claim)
        rig.clock.advance(seconds=rng.randrange(10))
        if step % 4 == 3:
            await rig.log.trim()
