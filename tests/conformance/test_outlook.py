"""What a group has to look forward to, and the stamp that says when to look."""

import asyncio

from forebay.log.values import Outlook
from tests.conformance.rigs import Rig
from tests.conformance.steps import SECOND, bits, defer, finish, push, take, take_one


async def test_what_nobody_has_claimed_is_ready(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    assert await rig.log.outlook([group]) == [Outlook(group.number, 1, None, None)]
    await push(rig.log, queue, "a", "b")
    (found,) = await rig.log.outlook([group])
    assert (found.next, found.due_at) == (3, None)
    assert found.ready is not None
    claim = await take_one(rig.log, group)
    assert await rig.log.outlook([group]) == [Outlook(group.number, 3, None, None)]
    await finish(rig.log, claim)
    assert await rig.log.outlook([group]) == [Outlook(group.number, 3, None, None)]


async def test_what_is_ready_is_another_when_the_first_was_claimed(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    (one,) = await rig.log.outlook([group])
    await take_one(rig.log, group)
    await push(rig.log, queue, "b")
    (other,) = await rig.log.outlook([group])
    assert other.ready not in (None, one.ready)


async def test_the_first_that_waits_for_its_time_is_told(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await push(rig.log, queue, "b")
    one, other = await take(rig.log, group)
    now = rig.clock.now()
    await defer(rig.log, one, now + 9 * SECOND)
    assert (await rig.log.outlook([group]))[0].due_at == now + 9 * SECOND
    await defer(rig.log, other, now + 5 * SECOND)
    assert await rig.log.outlook([group]) == [Outlook(group.number, 3, None, now + 5 * SECOND)]
    rig.clock.advance(seconds=5)
    await rig.log.due(group, "owner")
    assert (await rig.log.outlook([group]))[0].due_at == now + 9 * SECOND


async def test_what_is_given_back_is_due_at_once(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    await take_one(rig.log, group, "old")
    rig.clock.advance(seconds=1)
    await rig.log.retire("old")
    assert (await rig.log.outlook([group]))[0].due_at == rig.clock.now()


async def test_a_partition_that_is_out_is_ready_when_it_is_settled(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", partition="p")
    claim = await take_one(rig.log, group)
    await push(rig.log, queue, "b", partition="p")
    assert await take(rig.log, group, "other") == []
    assert await rig.log.outlook([group]) == [Outlook(group.number, 3, None, None)]
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0))])
    (found,) = await rig.log.outlook([group])
    assert found.ready is not None


async def test_each_group_has_its_own_and_those_that_are_gone_are_left_out(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    one, other, gone = [await rig.log.create_group(queue, name) for name in ("one", "other", "gone")]
    await push(rig.log, queue, "a")
    await take_one(rig.log, one)
    await rig.log.delete_group(gone)
    found = {outlook.group: outlook.ready for outlook in await rig.log.outlook([other, gone, one])}
    assert found.keys() == {one.number, other.number}
    assert found[one.number] is None
    assert found[other.number] is not None
    assert await rig.log.outlook([]) == []


async def test_a_log_of_one_process_has_no_stamp(rig: Rig) -> None:
    if rig.name in ("memory", "http"):  # the server's log is in memory, too
        assert await rig.log.stamp() is None
    else:
        assert await rig.log.stamp()


async def test_the_stamp_changes_with_what_others_write(durable_rig: Rig) -> None:
    log = durable_rig.log
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "workers")
    seen = [await log.stamp()]
    async with durable_rig._make() as other:
        await push(other, queue, "a")
        seen.append(await log.stamp())
        claim = await take_one(other, group)
        await defer(other, claim, durable_rig.clock.now())
        seen.append(await log.stamp())
    assert len(set(seen)) == 3


async def test_the_stamp_stays_as_it_is_while_nobody_writes(durable_rig: Rig) -> None:
    """On a server that others use, too, it may take a while."""
    async with asyncio.timeout(20):
        while await durable_rig.log.stamp() != await durable_rig.log.stamp():
            pass


async def test_who_only_looks_does_not_change_the_stamp(durable_rig: Rig) -> None:
    """Two who wait must not keep each other awake."""
    log = durable_rig.log
    group = await log.create_group(await log.create_queue("orders"), "workers")
    async with durable_rig._make() as other, asyncio.timeout(20):
        while True:
            before = await log.stamp()
            await other.stamp()
            await other.outlook([group])
            if await log.stamp() == before:
                break


async def test_a_group_that_was_sent_elsewhere_says_so(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a")
    sought = await rig.log.seek(group, "latest")
    (found,) = await rig.log.outlook([group])
    assert (found.sought, found.ready) == (sought.group.sought, None) == (1, None)
