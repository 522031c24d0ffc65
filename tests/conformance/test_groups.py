"""Groups: each has its own cursor, and sees every message from its start on."""

import asyncio

import pytest

from forebay.model import Rejected, UnknownGroup, UnknownQueue
from tests.conformance.rigs import Rig
from tests.conformance.steps import SECOND, counts, drain, finish, push, take_one


async def test_earliest_sees_what_was_there_before(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push(rig.log, queue, "a", "b")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "c")
    assert group.start == 1
    assert await drain(rig.log, group) == ["a", "b", "c"]


async def test_latest_sees_only_what_comes(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push(rig.log, queue, "a", "b")
    group = await rig.log.create_group(queue, "workers", "latest")
    assert await drain(rig.log, group) == []
    await push(rig.log, queue, "c")
    assert await drain(rig.log, group) == ["c"]
    assert (await counts(rig.log, group)).accepted == 1


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_start_in_time_begins_with_the_first_block_from_then_on(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": ordered})
    times = []
    for text in ("a", "b", "c"):
        times.append(rig.clock.advance(seconds=10))
        await push(rig.log, queue, text, text.upper())
    starts = {
        "before": times[0] - 1,
        "at": times[1],
        "between": times[1] + 5 * SECOND,
        "after": times[2] + 1,
    }
    groups = {name: await rig.log.create_group(queue, name, at) for name, at in starts.items()}
    await push(rig.log, queue, "d")
    found = {name: await drain(rig.log, group) for name, group in groups.items()}
    assert found == {
        "before": ["a", "A", "b", "B", "c", "C", "d"],
        "at": ["b", "B", "c", "C", "d"],
        "between": ["c", "C", "d"],
        "after": ["d"],
    }


async def test_groups_do_not_disturb_each_other(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    one = await rig.log.create_group(queue, "one")
    other = await rig.log.create_group(queue, "other")
    await push(rig.log, queue, "a", "b")
    await finish(rig.log, await take_one(rig.log, one))
    assert (await counts(rig.log, one)).done == 2
    assert (await counts(rig.log, other)).ready == 2
    assert await drain(rig.log, other) == ["a", "b"]


async def test_creating_a_group_twice_gives_the_same(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    assert await rig.log.create_group(queue, "workers", "latest") == group
    assert await rig.log.groups(queue) == [group]
    assert await drain(rig.log, group) == ["a"]


async def test_groups_created_at_once_are_one(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    made = await asyncio.gather(*[rig.log.create_group(queue, "workers") for _ in range(5)])
    assert set(made) == set(await rig.log.groups(queue))
    assert len(set(made)) == 1


async def test_the_same_group_name_in_two_queues_is_two_groups(rig: Rig) -> None:
    one, other = await rig.log.create_queue("one"), await rig.log.create_queue("other")
    first = await rig.log.create_group(one, "workers")
    second = await rig.log.create_group(other, "workers")
    assert first.number != second.number
    assert await rig.log.groups(one) == [first]
    assert await rig.log.groups(other) == [second]


async def test_a_deleted_group_is_gone_and_begins_anew(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b")
    claim = await take_one(rig.log, group)
    assert await rig.log.delete_group(group)
    assert not await rig.log.delete_group(group)
    assert await rig.log.groups(queue) == []
    with pytest.raises(UnknownGroup):
        await rig.log.claim(group, "owner")
    with pytest.raises(UnknownGroup):
        await rig.log.due(group, "owner")
    with pytest.raises(UnknownGroup):
        await rig.log.reclaim(group, "owner")
    with pytest.raises(UnknownGroup):
        await rig.log.dead_letters(group)
    assert list((await rig.log.commit(settlements=[claim.settle_all()])).conflicts) == [0]
    anew = await rig.log.create_group(queue, "workers")
    assert anew.number != group.number
    assert await drain(rig.log, anew) == ["a", "b"]


@pytest.mark.parametrize("name", ["", " ", " a", "a\n", "..", "g" * 256])
async def test_bad_group_names_are_rejected(rig: Rig, name: str) -> None:
    queue = await rig.log.create_queue("orders")
    with pytest.raises(Rejected):
        await rig.log.create_group(queue, name)
    assert await rig.log.groups(queue) == []


async def test_a_group_of_an_unknown_queue_is_refused(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await rig.log.delete_queue("orders")
    with pytest.raises(UnknownQueue):
        await rig.log.create_group(queue, "workers")
