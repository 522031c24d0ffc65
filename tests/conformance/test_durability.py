"""Durability: a log that is opened again is as it was."""

import pytest

from forebay.log.values import Death, Deferral, Room
from forebay.model import Message, Unavailable, bitmap, mint
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    append_of,
    bits,
    drain,
    finish,
    first_texts,
    push,
    push_named,
    sequences,
    stored,
    take,
    unfinished,
)


async def test_everything_is_as_before(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders", {"keep_seconds": 7.0})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abcdef")
    await push(rig.log, queue, "g")
    claim, _ = await take(rig.log, group)
    due_at = rig.clock.now() + SECOND
    outcome = claim.settle(
        done=bits(claim, 0),
        deferred=(Deferral(1, due_at, 2, 5),),
        dead=(Death(2, "broken", 3, Message(b"c")),),
        worker="w",
    )
    await rig.log.mark([claim.mark(handed=bits(claim, 3))])
    await rig.log.commit(settlements=[outcome], id=mint())
    await push(rig.log, queue, "h")
    before = (
        await rig.log.stats(),
        await rig.log.queues(),
        await rig.log.groups(queue),
        await rig.log.read(queue),
        await rig.log.dead_letters(group),
        await rig.log.outcomes(group, claim.first),
    )
    await rig.reopen()
    assert before == (
        await rig.log.stats(),
        await rig.log.queues(),
        await rig.log.groups(queue),
        await rig.log.read(queue),
        await rig.log.dead_letters(group),
        await rig.log.outcomes(group, claim.first),
    )
    taken, last = (await rig.log.reclaim(group, "new", ALL, of=["owner"])).claims
    assert bitmap.indexes(taken.done) == [0, 1, 2]
    assert bitmap.indexes(taken.handed) == [3]
    assert unfinished([last]) == ["g"]
    rig.clock.set(due_at)
    (back,) = (await rig.log.due(group, "new", ALL)).claims
    assert (unfinished([back]), back.attempts, back.prev_start_time) == (["b"], 2, 5)
    assert await drain(rig.log, group) == ["h"]


async def test_a_token_outlives_the_process(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    (claim,) = await take(rig.log, group)
    await rig.reopen()
    await push(rig.log, queue, "c")
    (other,) = await take(rig.log, group)
    assert other.token != claim.token
    await finish(rig.log, claim, other)


async def test_ids_and_transaction_ids_are_remembered(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    append = append_of(queue, "a", "b", "b", transaction_ids=["t1", "t2", "t2"])
    (first,) = (await rig.log.commit([append])).appended
    (claim,) = await take(rig.log, group)
    commit_id, outcome = mint(), claim.settle(done=bits(claim, 0))
    await rig.log.commit(settlements=[outcome], id=commit_id)
    await rig.reopen()
    (again,) = (await rig.log.commit([append])).appended
    assert (again.ids(), again.known) == (first.ids(), True)
    assert sequences(await push_named(rig.log, queue, "t2", "t3")) == [2, 3]
    receipt = await rig.log.commit(settlements=[outcome], id=commit_id)
    assert list(receipt.conflicts) == []
    assert await stored(rig.log, queue) == ["a", "b", "t3"]


async def test_an_ordered_queue_keeps_its_places(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    for text in ("a1", "b1", "a2", "c1"):
        await push(rig.log, queue, text, partition=text[0])
    (held,) = (await rig.log.claim(group, "owner", Room(1), partition="a")).claims
    await rig.reopen()
    assert sorted(await drain(rig.log, group)) == ["b1", "c1"]
    await rig.reopen()
    await finish(rig.log, held)
    assert await drain(rig.log, group) == ["a2"]


async def test_a_stage_outlives_the_process(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    await rig.reopen()
    await rig.log.publish("epoch-1", [append.block.id])
    await rig.reopen()
    (again,) = (await rig.log.publish("epoch-1", [append.block.id])).appended
    assert (sequences(again), again.known) == ([1], True)
    assert await stored(rig.log, queue) == ["a"]


async def test_quarantine_outlives_the_process(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await rig.flip_bit(queue, 1)
    await rig.reopen()
    assert len((await rig.log.claim(group, "owner", ALL)).corrupt) == 1
    before = await rig.log.quarantined(queue)
    await rig.reopen()
    assert await rig.log.quarantined(queue) == before


async def test_owners_are_known_after_reopening(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await take(rig.log, group, "old")
    await rig.log.heartbeat("old")
    await rig.reopen()
    rig.clock.advance(seconds=29)
    assert list((await rig.log.reclaim(group, "new")).claims) == []
    rig.clock.advance(seconds=1)
    assert first_texts(await rig.log.reclaim(group, "new")) == [["a"]]


async def test_a_closed_log_takes_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    log = rig.log
    append = append_of(queue, "a")
    await rig.close()
    with pytest.raises(Unavailable):
        await log.commit([append])


async def test_marks_outlive_the_process(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abc")
    (claim,) = await take(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 0, 2))])
    await rig.reopen()
    await rig.log.mark([claim.mark(returned=bits(claim, 0))])
    await rig.reopen()
    (taken,) = (await rig.log.reclaim(group, "new", of=["old"])).claims
    assert bitmap.indexes(taken.handed) == [2]


async def test_a_closed_log_marks_nothing(durable_rig: Rig) -> None:
    rig = durable_rig
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    (claim,) = await take(rig.log, group)
    log = rig.log
    await rig.close()
    with pytest.raises(Unavailable):
        await log.mark([claim.mark(handed=bits(claim, 0))])
