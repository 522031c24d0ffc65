"""Reading: the log as a log, from any message on, without disturbing anyone."""

import pytest

from forebay.model import UnknownQueue, sequence_of
from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import append_of, counts, push


async def firsts(
    rig: Rig, name: str, first: int = 1, *, messages: int = 10_000, bytes_max: int = 64 << 20
) -> list[int]:
    """The sequence numbers where the blocks begin that a read gives."""
    blocks = await rig.log.read(await rig.log.queue(name), first, messages=messages, bytes=bytes_max)
    return [sequence_of(block.first) for block in blocks]


async def test_reading_begins_with_the_block_that_holds_the_message(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    for payloads in ("abc", "d", "efgh"):
        await push(rig.log, queue, *payloads)
    wanted = {1: [1, 4, 5], 2: [1, 4, 5], 3: [1, 4, 5], 4: [4, 5], 5: [5], 8: [5], 9: []}
    assert {first: await firsts(rig, "orders", first) for first in wanted} == wanted


async def test_reading_stays_within_its_limits_but_gives_one_block(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    appends = [append_of(queue, *payloads) for payloads in ("abc", "de", "f")]
    await rig.log.commit(appends)
    two = len(appends[0].body) + len(appends[1].body)
    assert await firsts(rig, "orders", messages=1) == [1]
    assert await firsts(rig, "orders", messages=4) == [1]
    assert await firsts(rig, "orders", messages=5) == [1, 4]
    assert await firsts(rig, "orders", bytes_max=1) == [1]
    assert await firsts(rig, "orders", bytes_max=two) == [1, 4]
    assert await firsts(rig, "orders", 2, bytes_max=two - 1) == [1]


async def test_an_empty_queue_reads_as_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await rig.log.create_queue("other")
    assert await rig.log.read(queue) == []


async def test_reading_keeps_to_its_queue(rig: Rig) -> None:
    one, other = await rig.log.create_queue("one"), await rig.log.create_queue("other")
    await push(rig.log, one, "a")
    await push(rig.log, other, "b")
    assert await firsts(rig, "one") == [1]
    assert await firsts(rig, "one", 2) == []


async def test_reading_disturbs_no_group(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await rig.log.read(queue)
    assert (await counts(rig.log, group)).ready == 1


async def test_after_a_trim_reading_begins_at_the_floor(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"keep_seconds": DAY})
    await push(rig.log, queue, "a", "b")
    rig.clock.advance(seconds=20 * DAY)
    await push(rig.log, queue, "c")
    await rig.log.trim()
    assert await firsts(rig, "orders") == [3]
    assert await firsts(rig, "orders", 2) == [3]
    (stats,) = (await rig.log.stats()).queues
    assert (stats.floor, stats.next) == (3, 4)
    group = await rig.log.create_group(queue, "late")
    assert group.start == 3


async def test_a_deleted_queue_is_not_read(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push(rig.log, queue, "a")
    await rig.log.delete_queue("orders")
    with pytest.raises(UnknownQueue):
        await rig.log.read(queue)


async def test_ordered_blocks_name_their_partition(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    plain = await rig.log.create_queue("plain")
    await push(rig.log, queue, "a", partition="north")
    await push(rig.log, plain, "a", partition="north")
    assert [block.partition for block in await rig.log.read(queue)] == ["north"]
    assert [block.partition for block in await rig.log.read(plain)] == [None]
