"""Flows: what a group has not claimed, or what came back, by what its headers say, counted exactly."""

import pytest

from forebay.log.values import Append, Death, Deferral, FlowCount, Group, Queue, Room
from forebay.model import Flow, Message, UnknownGroup
from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import bits, defer, drain, finish, push, take, take_one

DAILY = Flow("daily", "batch", "load")
HOURLY = Flow("hourly", "batch", "load")
NONE = Flow()


def labelled(flow: Flow, partition: str = "", transaction_id: str | None = None) -> Message:
    """A message of a flow."""
    labels = {"flow": flow.name, "flow_type": flow.type, "action": flow.action}
    headers = {key: value for key, value in labels.items() if value} | {"trace": str(id(labels))}
    return Message(b"x", partition, transaction_id, headers)


async def push_flows(rig: Rig, queue: Queue, *flows: Flow, partition: str = "") -> None:
    """Commit one block of messages of these flows."""
    await rig.log.commit([Append.of(queue, [labelled(flow, partition) for flow in flows])])


async def counted(rig: Rig, group: Group) -> dict[Flow, int]:
    """How much of each flow is not claimed."""
    counts = await rig.log.flows(group)
    assert [c.flow for c in counts] == sorted(c.flow for c in counts)
    return {c.flow: c.count for c in counts}


@pytest.fixture(params=[False, True], ids=["plain", "ordered"])
async def place(rig: Rig, request: pytest.FixtureRequest) -> tuple[Queue, Group]:
    """Give a queue, ordered or not, with a group."""
    queue = await rig.log.create_queue("orders", {"ordered": request.param, "keep_seconds": 1.0})
    return queue, await rig.log.create_group(queue, "workers")


async def test_unclaimed_messages_are_counted_by_flow(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    assert await rig.log.flows(group) == []
    await push_flows(rig, queue, DAILY, HOURLY, DAILY, NONE)
    await push_flows(rig, queue, DAILY)
    await push(rig.log, queue, "a", "b")
    assert await counted(rig, group) == {NONE: 3, DAILY: 3, HOURLY: 1}
    await take(rig.log, group)
    assert await rig.log.flows(group) == []
    other = await rig.log.create_group(queue, "others")
    assert await counted(rig, other) == {NONE: 3, DAILY: 3, HOURLY: 1}


async def test_the_oldest_block_of_a_flow_says_how_old_it_is(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    times = []
    for flows in ([HOURLY], [HOURLY, DAILY], [NONE, DAILY]):
        times.append(rig.clock.now())
        await push_flows(rig, queue, *flows)
        rig.clock.advance(seconds=1)
    assert {c.flow: c.oldest_at for c in await rig.log.flows(group)} == {
        HOURLY: times[0],
        DAILY: times[1],
        NONE: times[2],
    }
    await take(rig.log, group, room=Room(1))
    assert {c.flow: c.oldest_at for c in await rig.log.flows(group)}[HOURLY] == times[1]


async def test_a_block_that_is_claimed_in_part_is_counted_exactly(
    rig: Rig, place: tuple[Queue, Group]
) -> None:
    queue, group = place
    await push_flows(rig, queue, DAILY, HOURLY, NONE, DAILY)
    await push_flows(rig, queue, HOURLY, HOURLY, HOURLY)
    left = []
    for _ in range(6):
        await finish(rig.log, *await take(rig.log, group, room=Room(1)))
        left.append(await counted(rig, group))
    assert left == [
        {NONE: 1, DAILY: 1, HOURLY: 4},
        {NONE: 1, DAILY: 1, HOURLY: 3},
        {DAILY: 1, HOURLY: 3},
        {HOURLY: 3},
        {HOURLY: 2},
        {HOURLY: 1},
    ]


async def test_what_can_not_be_read_is_counted_as_well_as_can_be(
    rig: Rig, place: tuple[Queue, Group]
) -> None:
    queue, group = place
    await push_flows(rig, queue, DAILY, HOURLY, DAILY)
    await take(rig.log, group, room=Room(1))
    await rig.flip_bit(queue, 1)
    assert await counted(rig, group) == {NONE: 2}


async def test_lanes_are_counted_each_from_its_own_place(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    group = await rig.log.create_group(queue, "workers")
    for partition in "abc":
        await push_flows(rig, queue, DAILY, HOURLY, HOURLY, partition=partition)
        await push_flows(rig, queue, HOURLY, partition=partition)
    await push_flows(rig, queue, Flow("c"), partition="c")
    await rig.log.claim(group, "owner", Room(5), partition="c")  # ahead of the others
    assert await counted(rig, group) == {DAILY: 2, HOURLY: 6}
    await rig.log.claim(group, "owner", Room(1), partition="b")  # a block of a busy lane is cut
    assert await counted(rig, group) == {DAILY: 1, HOURLY: 6}
    await push_flows(rig, queue, DAILY, partition="b")
    await push_flows(rig, queue, DAILY, partition="new")
    assert await counted(rig, group) == {DAILY: 3, HOURLY: 6}
    await rig.log.claim(group, "owner", Room(4))
    assert await counted(rig, group) == {DAILY: 2, HOURLY: 3}


async def test_what_came_back_and_is_due_is_counted_again(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    began = rig.clock.now()
    await push_flows(rig, queue, DAILY, DAILY)
    await push_flows(rig, queue, NONE)
    await push_flows(rig, queue, HOURLY, DAILY, HOURLY, NONE)
    claims = await take(rig.log, group)
    assert await rig.log.flows(group) == []
    mixed = claims[-1]
    later = Deferral(2, began, 1, began, 1)
    await rig.log.commit(settlements=[mixed.settle(done=bits(mixed, 0), deferred=(later,))])
    along = {NONE: 1} if queue.settings.ordered else {}
    assert await counted(rig, group) == {HOURLY: 1} | along
    rig.clock.advance(seconds=5)
    await rig.log.retire("owner")
    assert await counted(rig, group) == {NONE: 2, DAILY: 3, HOURLY: 1}
    assert {c.oldest_at for c in await rig.log.flows(group)} == {began}


async def test_what_is_deferred_is_counted_when_it_is_due(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    await push_flows(rig, queue, HOURLY, DAILY)
    claim = await take_one(rig.log, group)
    due_at = rig.clock.now() + 1_000_000
    await defer(rig.log, claim, due_at, attempts=1)
    assert await rig.log.flows(group) == []
    rig.clock.advance(seconds=2)
    assert await rig.log.flows(group) == [FlowCount(DAILY, 1, due_at), FlowCount(HOURLY, 1, due_at)]


async def test_a_letter_that_is_handed_out_again_is_counted(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    await push_flows(rig, queue, HOURLY, DAILY)
    claim = await take_one(rig.log, group)
    dead = Death(1, "bad", 1, labelled(DAILY))
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0), dead=(dead,))])
    assert await rig.log.flows(group) == []
    await rig.log.redrive(group, [claim.first + 1])
    assert await counted(rig, group) == {DAILY: 1}
    rig.clock.advance(seconds=20 * DAY)
    await rig.log.trim()
    assert await counted(rig, group) == {DAILY: 1}, "its block is gone, and it isn't"


async def test_what_owners_hold_and_have_not_handed_out_is_counted_apart(
    rig: Rig, place: tuple[Queue, Group]
) -> None:
    queue, group = place
    began = rig.clock.now()
    await push_flows(rig, queue, DAILY, HOURLY, partition="a")
    rig.clock.advance(seconds=1)
    await push_flows(rig, queue, DAILY, DAILY, DAILY, partition="b")
    await push_flows(rig, queue, HOURLY, NONE, partition="c")
    await push_flows(rig, queue, HOURLY, NONE, partition="d")
    (mixed,) = await take(rig.log, group, "one", Room(2))
    alike, *whole = await take(rig.log, group, "other", Room(7))
    assert len(whole) == 2
    await rig.log.mark([mixed.mark(handed=bits(mixed, 0)), alike.mark(handed=bits(alike, 0))])
    await rig.log.commit(settlements=[alike.settle(done=bits(alike, 1))])
    later = began + 1_000_000
    of_other = [
        FlowCount(NONE, 2, later, is_held=True),
        FlowCount(DAILY, 1, later, is_held=True),
        FlowCount(HOURLY, 2, later, is_held=True),
    ]
    assert await rig.log.flows(group) == []
    assert await rig.log.flows(group, besides=["one", "other"]) == []
    assert await rig.log.flows(group, besides=["one"]) == of_other
    assert await rig.log.flows(group, besides=["other"]) == [FlowCount(HOURLY, 1, began, is_held=True)]
    of_both = [*of_other[:2], FlowCount(HOURLY, 3, began, is_held=True)]
    assert await rig.log.flows(group, besides=[]) == of_both
    await push_flows(rig, queue, DAILY, partition="e")
    assert await rig.log.flows(group, besides=[]) == [FlowCount(DAILY, 1, later), *of_both]
    await rig.log.commit(settlements=[mixed.settle(done=bits(mixed, 0, 1))])
    assert await rig.log.flows(group, besides=["other"]) == [FlowCount(DAILY, 1, later)]


async def test_a_letter_that_an_owner_holds_again_is_counted_by_its_own_copy(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await push_flows(rig, queue, DAILY, HOURLY)
    claim = await take_one(rig.log, group)
    deaths = (Death(1, "broken", 1, labelled(HOURLY)),)
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0), dead=deaths)])
    await rig.log.redrive(group, [claim.first + 1])
    (again,) = (await rig.log.due(group, "owner", Room(10))).claims
    (held,) = await rig.log.flows(group, besides=[])
    assert (held.flow, held.count, held.is_held) == (HOURLY, 1, True)
    await rig.log.mark([again.mark(handed=bits(again, 0))])
    assert await rig.log.flows(group, besides=[]) == []


async def test_duplicates_are_not_counted(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    await rig.log.commit([Append.of(queue, [labelled(DAILY, transaction_id="1")])])
    again = [labelled(DAILY, transaction_id="1"), labelled(HOURLY, transaction_id="2")]
    await rig.log.commit([Append.of(queue, [*again, again[1]])])
    assert await counted(rig, group) == {DAILY: 1, HOURLY: 1}


async def test_published_blocks_are_counted(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "workers")
    append = Append.of(queue, [labelled(DAILY), labelled(HOURLY)])
    await rig.log.stage("s", [append])
    assert await rig.log.flows(group) == []
    await rig.log.publish("s", [append.block.id])
    assert await counted(rig, group) == {DAILY: 1, HOURLY: 1}


async def test_what_is_dropped_is_not_counted(rig: Rig, place: tuple[Queue, Group]) -> None:
    queue, group = place
    await rig.log.configure_queue("orders", {"expire_seconds": DAY})
    await push_flows(rig, queue, DAILY, HOURLY)
    rig.clock.advance(seconds=20 * DAY)
    await rig.log.trim()
    await push_flows(rig, queue, HOURLY)
    assert await counted(rig, group) == {HOURLY: 1}
    await drain(rig.log, group)


async def test_flows_outlive_the_process(durable_rig: Rig) -> None:
    queue = await durable_rig.log.create_queue("orders")
    group = await durable_rig.log.create_group(queue, "workers")
    await push_flows(durable_rig, queue, DAILY, NONE)
    await durable_rig.reopen()
    assert await counted(durable_rig, group) == {NONE: 1, DAILY: 1}


async def test_a_deleted_group_has_no_flows(rig: Rig, place: tuple[Queue, Group]) -> None:
    _, group = place
    await rig.log.delete_group(group)
    with pytest.raises(UnknownGroup):
        await rig.log.flows(group)
