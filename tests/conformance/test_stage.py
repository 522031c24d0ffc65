"""Staging: blocks that are unseen until they are published together."""

import asyncio

import pytest

from forebay.log.seam import VersionConflict
from forebay.log.values import Append, Record
from forebay.model import Block, Conflict, Rejected, UnknownQueue, mint, sequence_of
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


async def test_blocks_with_duplicates_are_published_in_their_places(rig: Rig) -> None:
    """In the log already, in the same block, in an earlier one; nothing is left of the last but one."""
    queue = await rig.log.create_queue("orders", {"ordered": True})
    await push(rig.log, queue, "a", partition="p", transaction_ids=["t1"])
    texts = {"bacb": "2132", "dbe": "425", "de": "45", "f": "6"}
    appends = [
        append_of(queue, *text, partition="p", transaction_ids=[f"t{name}" for name in names])
        for text, names in texts.items()
    ]
    await rig.log.stage("epoch-1", appends)
    ids = [append.block.id for append in appends]
    receipt = await rig.log.publish("epoch-1", ids)
    assert [sequences(answer) for answer in receipt.appended] == [[2, 1, 3, 2], [4, 2, 5], [4, 5], [6]]
    again = await rig.log.publish("epoch-1", ids)
    assert [sequences(answer) for answer in again.appended] == [[2, 1, 3, 2], [4, 2, 5], [4, 5], [6]]
    assert await stored(rig.log, queue) == list("abcdef")
    found = await rig.log.locate(queue, [("p", f"t{name}") for name in range(1, 7)])
    assert [sequence_of(i) for i in found if i] == [1, 2, 3, 4, 5, 6]
    later = await push(rig.log, queue, "g", "c", partition="p", transaction_ids=["t7", "t3"])
    assert sequences(later) == [7, 3]
    group = await rig.log.create_group(queue, "workers")
    assert await drain(rig.log, group) == list("abcdefg")


@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_transaction_ids_count_as_the_queue_says_when_it_is_published(rig: Rig, seconds: float) -> None:
    queue = await rig.log.create_queue("orders", {"dedupe_seconds": 60.0 - seconds})
    append = append_of(queue, "a", "b", transaction_ids=["t1", "t1"])
    other = append_of(queue, "c", "d", transaction_ids=["t1", "t2"])
    await rig.log.stage("epoch-1", [append, other])
    await rig.log.configure_queue("orders", {"dedupe_seconds": seconds})
    receipt = await rig.log.publish("epoch-1", [append.block.id, other.block.id])
    assert [sequences(answer) for answer in receipt.appended] == (
        [[1, 1], [1, 2]] if seconds else [[1, 2], [3, 4]]
    )
    assert await stored(rig.log, queue) == (["a", "d"] if seconds else list("abcd"))


async def test_an_id_that_is_asked_for_twice_is_published_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    receipt = await rig.log.publish("epoch-1", [append.block.id] * 2)
    assert [sequences(answer) for answer in receipt.appended] == [[1], [1]]
    assert await stored(rig.log, queue) == ["a"]


async def test_a_queue_that_is_gone_publishes_nothing(rig: Rig) -> None:
    queue, other = await rig.log.create_queue("orders"), await rig.log.create_queue("other")
    kept, lost = append_of(other, "a"), append_of(queue, "b")
    await rig.log.stage("epoch-1", [kept, lost])
    await rig.log.delete_queue("orders")
    with pytest.raises(UnknownQueue):
        await rig.log.publish("epoch-1", [kept.block.id, lost.block.id])
    assert await stored(rig.log, other) == []
    await rig.log.publish("epoch-1", [kept.block.id])
    assert await stored(rig.log, other) == ["a"]


async def test_records_are_written_with_what_is_published(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    await rig.log.publish("epoch-1", [append.block.id], records=[Record("sink", "app", b"1", version=0)])
    assert await stored(rig.log, queue) == ["a"]
    assert [(k.value, k.version) for k in await rig.log.records("sink", ["app"])] == [(b"1", 1)]


async def test_a_record_at_another_version_publishes_nothing_and_the_stage_stays(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await rig.log.commit(records=[Record("sink", "app", b"other")])
    append = append_of(queue, "a", "b", transaction_ids=["t1", "t2"])
    leftover = append_of(queue, "c")
    await rig.log.stage("epoch-1", [append, leftover])
    refused = [Record("sink", "new", b"1"), Record("sink", "app", b"1", version=0)]
    with pytest.raises(VersionConflict) as caught:
        await rig.log.publish("epoch-1", [append.block.id], records=refused)
    assert (caught.value.space, caught.value.key, caught.value.found) == ("sink", "app", 1)
    assert await stored(rig.log, queue) == []
    assert [k.value for k in await rig.log.records("sink", ["new", "app"])] == [b"other"]
    assert sequences(await push(rig.log, queue, "x", transaction_ids=["t2"])) == [1]
    both = [leftover.block.id, append.block.id]
    receipt = await rig.log.publish("epoch-1", both, records=[Record("sink", "app", b"2", version=1)])
    assert [sequences(answer) for answer in receipt.appended] == [[2], [3, 1]]
    assert [(k.value, k.version) for k in await rig.log.records("sink", ["app"])] == [(b"2", 2)]


async def test_a_second_publish_answers_the_same_and_looks_at_its_records_again(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    ids, records = [append.block.id], [Record("sink", "app", b"1", version=0)]
    await rig.log.publish("epoch-1", ids, records=records)
    with pytest.raises(VersionConflict):
        await rig.log.publish("epoch-1", ids, records=records)
    later = Record("sink", "app", b"2", version=1)
    (again,) = (await rig.log.publish("epoch-1", ids, records=[later])).appended
    assert (sequences(again), again.known) == ([1], True)
    assert [k.value for k in await rig.log.records("sink", ["app"])] == [b"2"]
    assert await stored(rig.log, queue) == ["a"]


async def test_records_can_be_written_by_a_publish_of_nothing(rig: Rig) -> None:
    await rig.log.publish("epoch-1", [], records=[Record("sink", "app", b"1", version=0)])
    with pytest.raises(VersionConflict):
        await rig.log.publish("epoch-1", [], records=[Record("sink", "app", b"1", version=0)])
    assert [k.version for k in await rig.log.records("sink", ["app"])] == [1]


async def test_what_is_published_at_once_is_bounded(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    append = append_of(queue, "a")
    await rig.log.stage("epoch-1", [append])
    with pytest.raises(Rejected):
        await rig.log.publish("epoch-1", [append.block.id, *(mint() for _ in range(20_000))])
    with pytest.raises(Rejected):
        await rig.log.publish("epoch-1", [append.block.id], records=[Record("", "app", b"1")])
    await rig.log.publish("epoch-1", [append.block.id])
    assert await stored(rig.log, queue) == ["a"]


async def test_one_of_two_publishers_of_one_record_wins(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    appends = {name: append_of(queue, name) for name in ("a", "b")}
    for name, append in appends.items():
        await rig.log.stage(name, [append])
    record = Record("sink", "app", b"1", version=0)
    answers = await asyncio.gather(
        *(rig.log.publish(name, [append.block.id], records=[record]) for name, append in appends.items()),
        return_exceptions=True,
    )
    assert sorted(type(answer) is VersionConflict for answer in answers) == [False, True]
    assert len(await stored(rig.log, queue)) == 1


async def test_one_stage_can_be_published_by_several_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    appends = [append_of(queue, text, transaction_ids=[text]) for text in "abc"]
    await rig.log.stage("epoch-1", appends)
    ids = [append.block.id for append in appends]
    answers = await asyncio.gather(
        rig.log.publish("epoch-1", ids),
        rig.log.commit([appends[1]]),
        rig.log.publish("epoch-1", ids),
        push(rig.log, queue, "x"),
    )
    assert sorted(await stored(rig.log, queue)) == list("abcx")
    assert [a.ids() for a in answers[0].appended] == [a.ids() for a in answers[2].appended]
