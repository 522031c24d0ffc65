"""Dedupe: a transaction id is written once within its queue, partition and window."""

import asyncio

import pytest

from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import append_of, push, push_named, sequences, stored


async def test_a_known_transaction_id_is_not_written_again(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1", "t2")
    again = await push_named(rig.log, queue, "t2", "t3", "t1")
    assert sequences(again) == [2, 3, 1]
    assert (again.count, set(again.duplicates), again.known) == (1, {0, 2}, False)
    assert await stored(rig.log, queue) == ["t1", "t2", "t3"]


async def test_a_transaction_id_twice_in_a_block_is_written_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    answer = await push_named(rig.log, queue, "t1", "t2", "t1", "t1", "t3")
    assert sequences(answer) == [1, 2, 1, 1, 3]
    assert await stored(rig.log, queue) == ["t1", "t2", "t3"]


async def test_duplicates_within_and_across_blocks_mix(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1", "t2")
    answer = await push_named(rig.log, queue, "t3", "t2", "t3", "t4", "t2", None)
    assert sequences(answer) == [3, 2, 3, 4, 2, 5]
    assert await stored(rig.log, queue) == ["t1", "t2", "t3", "t4", "None"]


async def test_of_concurrent_pushes_one_wins(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    answers = await asyncio.gather(*[push_named(rig.log, queue, f"own-{n}", "shared") for n in range(20)])
    assert len({answer.ids()[1] for answer in answers}) == 1
    assert sum(answer.count for answer in answers) == 21
    assert sorted(await stored(rig.log, queue)) == sorted([*(f"own-{n}" for n in range(20)), "shared"])


@pytest.mark.parametrize("atomic", [False, True])
async def test_blocks_of_one_commit_are_compared_too(rig: Rig, *, atomic: bool) -> None:
    queue = await rig.log.create_queue("orders")
    appends = [
        append_of(queue, "a", "b", transaction_ids=["t1", "t2"]),
        append_of(queue, "c", "d", transaction_ids=["t2", "t3"]),
    ]
    receipt = await rig.log.commit(appends, atomic=atomic)
    assert [sequences(answer) for answer in receipt.appended] == [[1, 2], [2, 3]]
    again = await rig.log.commit(appends, atomic=atomic)
    assert [sequences(answer) for answer in again.appended] == [[1, 2], [2, 3]]
    assert await stored(rig.log, queue) == ["a", "b", "d"]


async def test_a_transaction_id_is_accepted_again_after_the_window(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"dedupe_seconds": 60.0})
    await push_named(rig.log, queue, "t1")
    rig.clock.advance(seconds=59)
    assert sequences(await push_named(rig.log, queue, "t1")) == [1]
    rig.clock.advance(seconds=1)
    assert sequences(await push_named(rig.log, queue, "t1")) == [2]
    rig.clock.advance(seconds=59)
    assert sequences(await push_named(rig.log, queue, "t1")) == [2]


async def test_trim_keeps_the_window(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"dedupe_seconds": 4 * DAY, "keep_seconds": 1.0})
    await push_named(rig.log, queue, "t1")
    rig.clock.advance(seconds=3 * DAY)
    await rig.log.trim()
    assert sequences(await push_named(rig.log, queue, "t1")) == [1]


async def test_another_partition_or_queue_is_no_duplicate(rig: Rig) -> None:
    queue, other = await rig.log.create_queue("orders"), await rig.log.create_queue("other")
    await push_named(rig.log, queue, "t1", partition="north")
    assert (await push_named(rig.log, queue, "t1", partition="south")).count == 1
    assert (await push_named(rig.log, other, "t1", partition="north")).count == 1
    assert (await push_named(rig.log, queue, "t1", partition="north")).count == 0


async def test_names_that_run_together_are_no_duplicates(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    assert (await push_named(rig.log, queue, "b:c", partition="a")).count == 1
    assert (await push_named(rig.log, queue, "c", partition="a:b")).count == 1
    assert (await push_named(rig.log, queue, "1:b:c", partition="a")).count == 1


async def test_a_push_of_duplicates_only_writes_nothing_and_is_repeatable(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1", "t2")
    append = append_of(queue, "x", "y", transaction_ids=["t2", "t1"])
    (first,) = (await rig.log.commit([append])).appended
    assert (sequences(first), first.count) == ([2, 1], 0)
    rig.clock.advance(seconds=2 * 3600)
    (again,) = (await rig.log.commit([append])).appended
    assert (sequences(again), again.known) == ([2, 1], True)
    assert await stored(rig.log, queue) == ["t1", "t2"]
    assert sequences(await push(rig.log, queue, "next")) == [3]


async def test_a_repeated_push_with_duplicates_answers_the_same_ids(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1")
    ids = ["t0", "t1", "t2", "t2", None, "t0"]
    append = append_of(queue, *"abcdef", transaction_ids=ids)
    (first,) = (await rig.log.commit([append])).appended
    assert sequences(first) == [2, 1, 3, 3, 4, 2]
    await push_named(rig.log, queue, "t3")
    (again,) = (await rig.log.commit([append])).appended
    assert (again.ids(), again.known) == (first.ids(), True)
    assert await stored(rig.log, queue) == ["t1", "a", "c", "e", "t3"]


async def test_messages_without_a_transaction_id_are_all_written(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    assert sequences(await push(rig.log, queue, "same", "same")) == [1, 2]
    assert sequences(await push(rig.log, queue, "same", "same")) == [3, 4]
    assert sequences(await push_named(rig.log, queue, None, "t1", None)) == [5, 6, 7]
    assert sequences(await push_named(rig.log, queue, None, "t1", None)) == [8, 6, 9]


async def test_a_window_of_zero_switches_dedupe_off(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"dedupe_seconds": 0.0})
    assert sequences(await push_named(rig.log, queue, "t1", "t1")) == [1, 2]
    assert sequences(await push_named(rig.log, queue, "t1")) == [3]


async def test_an_ordered_queue_dedupes_too(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    await push_named(rig.log, queue, "t1", partition="p")
    assert sequences(await push_named(rig.log, queue, "t2", "t1", partition="p")) == [2, 1]


async def test_a_deleted_queue_leaves_no_duplicates_behind(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1")
    await rig.log.delete_queue("orders")
    rig.clock.advance(seconds=1)
    queue = await rig.log.create_queue("orders")
    assert (await push_named(rig.log, queue, "t1")).count == 1


async def test_duplicates_within_an_atomic_commit_name_the_right_message(rig: Rig) -> None:
    """Also when blocks before them shrink, and while others push."""
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, "t1")
    used = append_of(queue, "u", transaction_ids=["t7"])
    await rig.log.commit([used])
    appends = [
        append_of(queue, "a", "b", transaction_ids=[None, "t1"]),
        used,
        append_of(queue, "c", "d", "e", transaction_ids=["t2", "t2", "t3"]),
        append_of(queue, "f", "g", "h", "i", transaction_ids=["t3", "t1", "t3", "t7"]),
        append_of(queue, "j", "k", transaction_ids=["t4", "t3"]),
    ]
    receipt, _ = await asyncio.gather(
        rig.log.commit(appends, atomic=True),
        asyncio.gather(*[push(rig.log, queue, "x") for _ in range(5)]),
    )
    a, u, c, f, j = (sequences(answer) for answer in receipt.appended)
    assert (a[1], u) == (1, [2])
    assert c == [a[0] + 1, a[0] + 1, a[0] + 2]
    assert f == [c[2], 1, c[2], 2]
    assert j == [c[2] + 1, c[2]]
    again = await rig.log.commit(appends, atomic=True)
    assert [sequences(answer) for answer in again.appended] == [a, u, c, f, j]
    found = [text for text in await stored(rig.log, queue) if text != "x"]
    assert found == ["t1", "u", "a", "c", "e", "j"]
