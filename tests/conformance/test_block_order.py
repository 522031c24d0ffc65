"""The blocks of one commit keep their order, whatever some of them repeat, or are refused for."""

from __future__ import annotations

import asyncio

import pytest

from forebay.model import Conflict, UnknownQueue
from tests.conformance.rigs import Rig
from tests.conformance.steps import append_of, drain, named, push, push_named, sequences, stored

KINDS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


@KINDS
async def test_a_block_with_a_duplicate_is_not_overtaken(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": ordered})
    group = await rig.log.create_group(queue, "g")
    await push_named(rig.log, queue, "1", partition="p")
    page = [named(queue, "1", "10", partition="p"), named(queue, "20", partition="p")]
    receipt = await rig.log.commit(page)
    assert [sequences(answer) for answer in receipt.appended] == [[1, 2], [3]]
    assert await drain(rig.log, group) == ["1", "10", "20"]
    again = await rig.log.commit(page)
    assert [sequences(answer) for answer in again.appended] == [[1, 2], [3]]
    assert await stored(rig.log, queue) == ["1", "10", "20"]


@KINDS
async def test_each_block_may_repeat_the_one_before(rig: Rig, *, ordered: bool) -> None:
    """As a caller does that pushes again whatever it isn't sure of."""
    queue = await rig.log.create_queue("orders", {"ordered": ordered})
    await push_named(rig.log, queue, "0")
    page = [named(queue, str(n), str(n + 1)) for n in range(30)]
    receipt = await rig.log.commit(page)
    assert [sequences(answer) for answer in receipt.appended] == [[n + 1, n + 2] for n in range(30)]
    assert await stored(rig.log, queue) == [str(n) for n in range(31)]


async def test_every_partition_and_queue_keeps_its_order(rig: Rig) -> None:
    queues = [await rig.log.create_queue(name, {"ordered": name == "lanes"}) for name in ("lanes", "plain")]
    for queue in queues:
        await push_named(rig.log, queue, "p0", partition="p")
        await push_named(rig.log, queue, "q0", partition="q")
    page = [
        named(queue, *(f"{lane}{n}" for n in turn), partition=lane)
        for turn in ((0, 1), (2,), (3, 1), (0,), (4, 5))
        for lane in ("p", "q")
        for queue in queues
    ]
    await rig.log.commit(page)
    for queue in queues:
        found = await stored(rig.log, queue)
        for lane in ("p", "q"):
            assert [text for text in found if text[0] == lane] == [f"{lane}{n}" for n in range(6)]


async def test_order_is_kept_while_others_commit(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    await push_named(rig.log, queue, *(f"{c}-0" for c in range(8)))

    async def commit(caller: int) -> None:
        pages = [(0, 1), (2,), (1, 3), (4,), (4, 0), (5,)]
        await rig.log.commit([named(queue, *(f"{caller}-{n}" for n in page)) for page in pages])

    await asyncio.gather(*map(commit, range(8)), *(push(rig.log, queue, "x") for _ in range(8)))
    found = await stored(rig.log, queue)
    for caller in range(8):
        assert [t for t in found if t.startswith(f"{caller}-")] == [f"{caller}-{n}" for n in range(6)]


async def test_a_block_id_that_was_used_otherwise_leaves_the_order_of_the_others(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "g")
    await push_named(rig.log, queue, "1")
    used = append_of(queue, "used")
    await rig.log.commit([used])
    odd = append_of(queue, "odd", "30", transaction_ids=[None, "30"], id=used.block.id)
    page = [named(queue, "1", "10"), odd, named(queue, "20"), named(queue, "10", "30")]
    with pytest.raises(Conflict):
        await rig.log.commit(page)
    assert await drain(rig.log, group) == ["1", "used", "10", "20", "30"]


async def test_a_queue_that_is_gone_leaves_nothing_of_the_commit(rig: Rig) -> None:
    queue, other = await rig.log.create_queue("orders"), await rig.log.create_queue("other")
    await push_named(rig.log, queue, "1")
    page = [named(queue, "1", "10"), named(other, "x"), named(queue, "20")]
    await rig.log.delete_queue("other")
    with pytest.raises(UnknownQueue):
        await rig.log.commit(page)
    assert await stored(rig.log, queue) == ["1"]
    await rig.log.commit([page[0], page[2]])
    assert await stored(rig.log, queue) == ["1", "10", "20"]


@pytest.mark.parametrize("atomic", [False, True])
async def test_settlements_come_with_blocks_that_hold_duplicates(rig: Rig, *, atomic: bool) -> None:
    queue = await rig.log.create_queue("orders")
    group = await rig.log.create_group(queue, "g")
    await push_named(rig.log, queue, "1")
    (claim,) = (await rig.log.claim(group, "owner")).claims
    page = [named(queue, "1", "10"), named(queue, "20")]
    receipt = await rig.log.commit(page, [claim.settle_all()], atomic=atomic)
    assert (list(receipt.conflicts), [a.count for a in receipt.appended]) == ([], [1, 1])
    assert await drain(rig.log, group) == ["10", "20"]
    if not atomic:
        late = await rig.log.commit([named(queue, "10", "30"), named(queue, "40")], [claim.settle_all()])
        assert list(late.conflicts) == [0]
        assert await drain(rig.log, group) == ["30", "40"]


async def test_staged_blocks_keep_their_order(rig: Rig) -> None:
    queue = await rig.log.create_queue("orders", {"ordered": True})
    await push_named(rig.log, queue, "1")
    page = [named(queue, "1", "10"), named(queue, "20"), named(queue, "20", "30")]
    await rig.log.stage("s", page)
    await rig.log.publish("s", [append.block.id for append in page])
    assert await stored(rig.log, queue) == ["1", "10", "20", "30"]
