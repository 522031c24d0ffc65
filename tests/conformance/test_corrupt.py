"""Corruption: what cannot be read is set aside and reported, and holds up nobody."""

import pytest

from forebay.log.values import Room
from forebay.model import Corrupt
from tests.conformance.rigs import Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    counts,
    defer,
    drain,
    finish,
    first_texts,
    push,
    take,
)


async def test_a_damaged_block_is_reported_and_the_rest_claimed(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    for payloads in ("ab", "cde", "f"):
        await push(rig.log, queue, *payloads)
    await rig.flip_bit(queue, 4)
    claimed = await rig.log.claim(group, "owner", ALL)
    assert first_texts(claimed) == [["a", "b"], ["f"]]
    (error,) = claimed.corrupt
    assert (error.queue, error.first, error.last) == ("orders", 3, 5)
    stats = await counts(rig.log, group)
    assert (stats.corrupt, stats.held, stats.difference) == (3, 3, 0)
    await finish(rig.log, *claimed.claims)
    assert await drain(rig.log, group) == []


async def test_a_damaged_block_is_kept_as_it_was_found(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    answer = await push(rig.log, queue, "a", "b")
    assert await rig.log.quarantined(queue) == []
    await rig.flip_bit(queue, 1)
    await rig.log.claim(group, "owner", ALL)
    (block,) = await rig.log.quarantined(queue)
    assert (block.first, block.count) == (answer.first, 2)
    with pytest.raises(Corrupt):
        block.decode()
    other = await rig.log.create_queue("other")
    assert await rig.log.quarantined(other) == []


async def test_each_group_counts_a_damaged_block(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    groups = [await rig.log.create_group(queue, name) for name in ("one", "two")]
    await push(rig.log, queue, "a", "b")
    await rig.flip_bit(queue, 1)
    for group in groups:
        assert len((await rig.log.claim(group, "owner", ALL)).corrupt) == 1
        assert (await counts(rig.log, group)).corrupt == 2
    assert len(await rig.log.quarantined(queue)) == 1


async def test_a_damaged_block_taken_in_parts_is_counted_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, *"abcde")
    await push(rig.log, queue, "f")
    await rig.flip_bit(queue, 1)
    found: list[list[str]] = []
    for _ in range(5):
        found += first_texts(await rig.log.claim(group, "owner", Room(2)))
    assert found == [["f"]]
    assert (await counts(rig.log, group)).corrupt == 5


async def test_damage_to_a_deferred_message_is_found_when_it_is_due(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    (claim,) = await take(rig.log, group)
    due_at = rig.clock.now() + SECOND
    await defer(rig.log, claim, due_at)
    await rig.flip_bit(queue, 1)
    rig.clock.set(due_at)
    claimed = await rig.log.due(group, "owner", ALL)
    assert (len(claimed.claims), len(claimed.corrupt)) == (0, 1)
    assert (await counts(rig.log, group)).corrupt == 2


@pytest.mark.parametrize("ordered", [False, True])
async def test_damage_to_a_known_body_is_found_when_it_is_read(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": ordered})
    group = await rig.log.create_group(queue, "workers")
    first = (await push(rig.log, queue, "a", "b")).first
    await rig.flip_bit(queue, 1)
    claimed = await rig.log.claim(group, "old", ALL, known=first)
    assert (len(claimed.claims), len(claimed.corrupt)) == (1, 0)
    claimed = await rig.log.reclaim(group, "new", ALL, of=["old"])
    assert (len(claimed.claims), len(claimed.corrupt)) == (0, 1)
    assert (await counts(rig.log, group)).corrupt == 2


async def test_a_reader_sees_the_damage_and_the_neighbours(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    for payloads in ("ab", "cd", "ef"):
        await push(rig.log, queue, *payloads)
    await rig.flip_bit(queue, 3)
    first, damaged, last = await rig.log.read(queue)
    assert first.decode("orders").payloads == [b"a", b"b"]
    assert last.decode("orders").payloads == [b"e", b"f"]
    with pytest.raises(Corrupt) as caught:
        damaged.decode("orders")
    assert (caught.value.queue, caught.value.first, caught.value.last) == ("orders", 3, 4)


async def test_a_damaged_block_frees_its_partition(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a1", partition="a")
    await rig.flip_bit(queue, 1)
    assert len((await rig.log.claim(group, "owner", ALL)).corrupt) == 1
    await push(rig.log, queue, "a2", partition="a")
    assert await drain(rig.log, group) == ["a2"]
