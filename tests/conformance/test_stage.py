"""Staging: blocks that are unseen until they are published together."""

import pytest

from forebay.log.values import Append
from forebay.model import Block, Conflict, Rejected, UnknownQueue, mint
from tests.conformance.rigs import DAY, REMEMBER_SECONDS, Rig
from tests.conformance.steps import append_of, counts, drain, push, sequences, stored


async def test_staged_blocks_are_unseen_until_published(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    append = append_of(queue, "a", "b")
    await rig.log.stage("epoch-1", [append])
    assert await stored(rig.log, queue) == []
    assert (await counts(rig.log, group)).accepted == 0
    assert sequences(await push(rig.log, queue, "before")) == [1]
    (answer,) = (await rig.log.publish("epoch-1", [append.block.id])).appended
    assert (sequences(answer), answer.known) == ([2, 3], False)
    assert await drain(rig.log, group) == ["before", "a", "b"]


async def test_blocks_are_published_in_the_order_asked_for(rig: Rig) -> None:
    queue, other = await rig.log.create_queue("orders"), await rig.log.create_queue("other")
    appends = [append_of(queue, "a"), append_of(other, "b"), append_of(queue, "c", "d")]
    for append in appends:
        await rig.log.stage("epoch-1", [append])
    ids = [appends[i].block.id for i in (2, 1, 0)]
    receipt = await rig.log.publish("epoch-1", ids)
    assert [sequences(answer) for answer in receipt.appended] == [[1, 2], [1], [3]]
    assert await stored(rig.log, queue) == ["c", "d", "a"]
    assert await stored(rig.log, other) == ["b"]


async def test_publishing_twice_answers_the_same(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push(rig.log, queue, "a", transaction_ids=["t1"])
    append = append_of(queue, "b", "a", transaction_ids=["t2", "t1"])
    await rig.log.stage("epoch-1", [append])
    (first,) = (await rig.log.publish("epoch-1", [append.block.id])).appended
    (again,) = (await rig.log.publish("epoch-1", [append.block.id])).appended
    assert sequences(first) == sequences(again) == [2, 1]
    assert again.known
    await rig.log.stage("epoch-1", [append])
    (third,) = (await rig.log.publish("epoch-1", [append.block.id])).appended
    assert (sequences(third), third.known) == ([2, 1], True)
    assert await stored(rig.log, queue) == ["a", "b"]


async def test_staging_twice_is_staging_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append, append])
    await rig.log.stage("epoch-1", [append])
    await rig.log.publish("epoch-1", [append.block.id])
    assert await stored(rig.log, queue) == ["a"]


async def test_publishing_what_was_never_staged_writes_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    await rig.log.stage("epoch-2", [append_of(queue, "b")])
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-1", [append.block.id, mint()])
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-2", [append.block.id])
    with pytest.raises(Conflict):
        await rig.log.publish("never", [mint()])
    assert await stored(rig.log, queue) == []
    await rig.log.publish("epoch-1", [append.block.id])
    assert await stored(rig.log, queue) == ["a"]


async def test_what_is_not_published_is_forgotten(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    wanted, leftover = append_of(queue, "a"), append_of(queue, "b")
    await rig.log.stage("epoch-1", [leftover, wanted])
    await rig.log.publish("epoch-1", [wanted.block.id])
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-1", [leftover.block.id])
    assert await stored(rig.log, queue) == ["a"]


async def test_an_old_stage_is_trimmed(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    rig.clock.advance(seconds=REMEMBER_SECONDS / 2)
    await rig.log.trim()
    await rig.log.publish("epoch-1", [append.block.id])
    late = append_of(queue, "b")
    await rig.log.stage("epoch-2", [late])
    rig.clock.advance(seconds=REMEMBER_SECONDS + 7 * DAY)
    await rig.log.trim()
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-2", [late.block.id])


async def test_published_blocks_are_deduped(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    appends = [
        append_of(queue, "a", "b", transaction_ids=["t1", "t2"]),
        append_of(queue, "b", "c", transaction_ids=["t2", "t3"]),
    ]
    await rig.log.stage("epoch-1", appends)
    receipt = await rig.log.publish("epoch-1", [append.block.id for append in appends])
    assert [sequences(answer) for answer in receipt.appended] == [[1, 2], [2, 3]]
    assert await stored(rig.log, queue) == ["a", "b", "c"]


async def test_a_bad_block_is_refused_when_it_is_staged(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    good, empty = append_of(queue, "a"), Append.of(queue, Block.of([]))
    with pytest.raises(Rejected):
        await rig.log.stage("epoch-1", [good, empty])
    with pytest.raises(UnknownQueue):
        await rig.log.stage("epoch-1", [good, Append.of(queue.number + 1, good.block)])
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-1", [good.block.id])


@pytest.mark.parametrize("name", ["", "s" * 256])
async def test_a_stage_has_a_name_of_some_length(rig: Rig, name: str) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    with pytest.raises(Rejected):
        await rig.log.stage(name, [append])
    with pytest.raises(Rejected):
        await rig.log.publish(name, [append.block.id])


async def test_publishing_nothing_forgets_the_stage(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    assert list((await rig.log.publish("epoch-1", [])).appended) == []
    with pytest.raises(Conflict):
        await rig.log.publish("epoch-1", [append.block.id])
