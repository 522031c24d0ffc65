"""Messages that are asked for by partition and transaction id, for as long as these are remembered."""

from __future__ import annotations

import pytest

from forebay.model import Rejected, UnknownQueue
from tests.conformance.rigs import Rig
from tests.conformance.steps import push, push_named


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_messages_are_found_by_partition_and_transaction_id(rig: Rig, *, ordered: bool) -> None:
    queue = await rig.log.create_queue("q", {"ordered": ordered})
    other = await rig.log.create_queue("other", {"ordered": ordered})
    first = (await push_named(rig.log, queue, "t1", "t2", None, partition="a")).ids()
    second = (await push_named(rig.log, queue, "t1", "t2", None, partition="b")).ids()
    (elsewhere,) = (await push_named(rig.log, other, "t1", partition="a")).ids()
    asked = [("b", "t2"), ("a", "t1"), ("a", "t3"), ("c", "t1"), ("", "t1"), ("a", "t1")]
    assert await rig.log.locate(queue, asked) == [second[1], first[0], None, None, None, first[0]]
    assert await rig.log.locate(other, [("a", "t1")]) == [elsewhere]
    assert await rig.log.locate(queue, []) == []


async def test_a_duplicate_is_where_the_first_one_is(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    (first,) = (await push_named(rig.log, queue, "t")).ids()
    await push_named(rig.log, queue, "t", "u")
    assert (await rig.log.locate(queue, [("", "t")])) == [first]


async def test_what_is_no_longer_remembered_is_not_found(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"dedupe_seconds": 10.0})
    (first,) = (await push_named(rig.log, queue, "t")).ids()
    rig.clock.advance(seconds=9.999999)
    assert await rig.log.locate(queue, [("", "t")]) == [first]
    rig.clock.advance(seconds=0.000001)
    assert await rig.log.locate(queue, [("", "t")]) == [None]
    (second,) = (await push_named(rig.log, queue, "t")).ids()
    assert second != first
    assert await rig.log.locate(queue, [("", "t")]) == [second]


async def test_a_queue_without_dedupe_remembers_nothing(rig: Rig) -> None:
    queue = await rig.log.create_queue("q", {"dedupe_seconds": 0.0})
    await push_named(rig.log, queue, "t")
    assert await rig.log.locate(queue, [("", "t")]) == [None]


async def test_a_queue_that_was_made_anew_remembers_nothing_of_the_old_one(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    await push_named(rig.log, queue, "t")
    await rig.log.delete_queue("q")
    with pytest.raises(UnknownQueue):
        await rig.log.locate(queue, [("", "t")])
    rig.clock.advance(seconds=1)
    queue = await rig.log.create_queue("q")
    assert await rig.log.locate(queue, [("", "t")]) == [None]


async def test_names_that_nothing_can_have_are_not_found(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    await push(rig.log, queue, "x")
    assert await rig.log.locate(queue, [("\ud800", "t"), ("", "\0"), ("x" * 9_999, "")]) == [None] * 3


async def test_too_many_at_once_are_rejected(rig: Rig) -> None:
    queue = await rig.log.create_queue("q")
    with pytest.raises(Rejected, match="20001"):
        await rig.log.locate(queue, [("", "t")] * 20_001)
