"""Appending: blocks are written once, whole, in an order without gaps."""

import asyncio

import pytest

from forebay.log.values import Append
from forebay.model import (
    Block,
    Conflict,
    Message,
    Rejected,
    TooLarge,
    UnknownQueue,
    mint,
    queue_of,
)
from tests.conformance.rigs import DAY, REMEMBER_SECONDS, Rig
from tests.conformance.steps import append_of, drain, push, sequences, stored


async def test_ids_follow_the_order_of_pushes(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    first = await push(rig.log, queue, "a", "b")
    second = await push(rig.log, queue, "c", "d", "e")
    assert sequences(first) == [1, 2]
    assert sequences(second) == [3, 4, 5]
    assert {queue_of(i) for i in first.ids() + second.ids()} == {queue.number}
    assert not first.known


async def test_what_was_committed_is_readable_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a", "b")
    await rig.log.commit([append])
    (block,) = await rig.log.read(queue)
    assert (block.count, block.id, block.appended_at) == (2, append.block.id, rig.clock.now())
    assert block.decode() == append.block


async def test_headers_partitions_and_start_times_come_back(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    messages = [
        Message(b"a", "north", None, {"flow": "daily"}, 17),
        Message(b"\x00\xff", "sud-été", "t-1", None, None),
    ]
    await rig.log.commit([Append.of(queue, Block.of(messages))])
    (block,) = await rig.log.read(queue)
    assert list(block.decode()) == messages


async def test_concurrent_commits_leave_no_gap(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    pushes = [push(rig.log, queue, *[f"{n}.{i}" for i in range(n % 5 + 1)]) for n in range(60)]
    answers = await asyncio.gather(*pushes)
    ids = sorted(i for answer in answers for i in sequences(answer))
    assert ids == list(range(1, sum(n % 5 + 1 for n in range(60)) + 1))
    blocks = await rig.log.read(queue)
    assert [b.first for b in blocks] == sorted(answer.first for answer in answers)
    for n, answer in enumerate(answers):
        (block,) = [b for b in blocks if b.first == answer.first]
        assert block.decode().payloads[0] == f"{n}.0".encode()


async def test_queues_count_by_themselves(rig: Rig) -> None:
    one, other = await rig.log.create_queue("one"), await rig.log.create_queue("other")
    receipt = await rig.log.commit([append_of(one, "a"), append_of(other, "b", "c"), append_of(one, "d")])
    assert [sequences(answer) for answer in receipt.appended] == [[1], [1, 2], [2]]
    assert await stored(rig.log, one) == ["a", "d"]


async def test_a_block_id_is_written_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a", "b")
    (first,) = (await rig.log.commit([append])).appended
    await push(rig.log, queue, "c")
    (again,) = (await rig.log.commit([append])).appended
    assert again.ids() == first.ids()
    assert again.known
    assert await stored(rig.log, queue) == ["a", "b", "c"]


async def test_a_block_id_is_written_once_by_concurrent_commits(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a", "b")
    receipts = await asyncio.gather(*[rig.log.commit([append]) for _ in range(8)])
    assert {tuple(receipt.appended[0].ids()) for receipt in receipts} == {
        tuple(receipts[0].appended[0].ids())
    }
    assert [receipt.appended[0].known for receipt in receipts].count(False) == 1
    assert await stored(rig.log, queue) == ["a", "b"]


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_block_id_is_written_once_within_a_commit(rig: Rig, *, atomic: bool) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a", "b")
    receipt = await rig.log.commit([append, append], atomic=atomic)
    assert receipt.appended[0].ids() == receipt.appended[1].ids()
    assert await stored(rig.log, queue) == ["a", "b"]


async def test_a_block_id_of_another_block_is_a_conflict(rig: Rig) -> None:
    queue, other = await rig.log.create_queue("orders"), await rig.log.create_queue("other")
    block_id = mint()
    await push(rig.log, queue, "a", "b", id=block_id)
    with pytest.raises(Conflict):
        await push(rig.log, queue, "c", id=block_id)
    with pytest.raises(Conflict):
        await push(rig.log, other, "a", "b", id=block_id)
    assert await stored(rig.log, queue) == ["a", "b"]
    assert await stored(rig.log, other) == []


async def test_an_atomic_commit_with_a_used_block_id_writes_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    block_id = mint()
    await push(rig.log, queue, "a", "b", id=block_id)
    with pytest.raises(Conflict):
        await rig.log.commit([append_of(queue, "c"), append_of(queue, "d", id=block_id)], atomic=True)
    assert await stored(rig.log, queue) == ["a", "b"]


async def test_a_block_id_is_remembered_after_its_block_was_dropped(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": 60.0})
    append = append_of(queue, "a", "b")
    (first,) = (await rig.log.commit([append])).appended
    rig.clock.advance(seconds=3 * DAY)
    await rig.log.trim()
    assert await rig.log.read(queue) == []
    (again,) = (await rig.log.commit([append])).appended
    assert (again.ids(), again.known) == (first.ids(), True)
    assert await rig.log.read(queue) == []


async def test_a_block_id_is_forgotten_in_the_end(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.commit([append])
    rig.clock.advance(seconds=REMEMBER_SECONDS - 1)
    await rig.log.trim()
    assert (await rig.log.commit([append])).appended[0].known
    rig.clock.advance(seconds=REMEMBER_SECONDS + 7 * DAY)
    await rig.log.trim()
    (again,) = (await rig.log.commit([append])).appended
    assert (sequences(again), again.known) == ([2], False)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], Rejected),
        ([Message(b"x" * (1 << 20) + b"x")], TooLarge),
        ([Message(b"")] * 10_001, TooLarge),
        ([Message(b"", "p" * 256)], Rejected),
        ([Message(b"", "line\nbreak")], Rejected),
        ([Message(b"", "", "")], Rejected),
        ([Message(b"", "", "t" * 256)], Rejected),
        ([Message(b"", headers={"h": "v" * (1 << 15)})], TooLarge),
    ],
    ids=["empty", "payload", "count", "partition", "control", "no-id", "long-id", "headers"],
)
async def test_what_is_over_a_limit_is_rejected_and_nothing_written(
    rig: Rig, messages: list[Message], error: type[Exception]
) -> None:
    queue = await rig.log.create_queue("orders")
    with pytest.raises(error):
        await rig.log.commit([append_of(queue, "good"), Append.of(queue, Block.of(messages))])
    assert await stored(rig.log, queue) == []
    assert sequences(await push(rig.log, queue, "next")) == [1]


@pytest.mark.parametrize("atomic", [False, True])
async def test_an_unknown_queue_is_named_and_nothing_written(rig: Rig, *, atomic: bool) -> None:
    queue = await rig.log.create_queue("orders")
    nowhere = Append.of(queue.number + 1, append_of(queue, "a").block)
    with pytest.raises(UnknownQueue):
        await rig.log.commit([append_of(queue, "good"), nowhere], atomic=atomic)
    assert await stored(rig.log, queue) == []


async def test_a_bad_commit_leaves_its_neighbours_alone(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    block_id = mint()
    await push(rig.log, queue, "a", id=block_id)
    results = await asyncio.gather(
        push(rig.log, queue, "b"),
        push(rig.log, queue, "c", "d", id=block_id),
        push(rig.log, queue, "e"),
        return_exceptions=True,
    )
    assert isinstance(results[1], Conflict)
    assert sorted(await stored(rig.log, queue)) == ["a", "b", "e"]


async def test_an_empty_commit_is_answered(rig: Rig) -> None:
    receipt = await rig.log.commit()
    assert (list(receipt.appended), list(receipt.conflicts)) == ([], [])


async def test_a_large_block_arrives_whole(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    payloads = [f"{n:05}" for n in range(10_000)]
    await push(rig.log, queue, *payloads)
    assert await drain(rig.log, group) == payloads
