"""What waited in a spool is compared with the transaction ids of the time when it was accepted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.log.values import Append, Appended, Queue
from forebay.model import Block, Message
from tests.conformance.rigs import DAY, Rig
from tests.conformance.steps import SECOND, push_named, sequences, stored

WINDOW = 60.0
HOW = pytest.mark.parametrize("how", ["commit", "atomic", "publish"])


class Spool:
    """Blocks that were accepted at some time, and come to the log later, in one of the ways to it."""

    def __init__(self, rig: Rig, how: str = "commit") -> None:
        self.rig = rig
        self.how = how
        self.blocks: list[Append] = []

    def add(self, queue: Queue, *names: str, at: int | None = None) -> None:
        """Accept a block now, or at another time."""
        messages = [Message(name.encode(), "", name) for name in names]
        block = Block.of(messages, created_at=self.rig.clock.now() if at is None else at)
        self.blocks.append(Append.of(queue, block, replayed=True))

    async def replay(self) -> Sequence[Appended]:
        """Bring all of them to the log."""
        log, blocks, self.blocks = self.rig.log, self.blocks, []
        if self.how != "publish":
            return (await log.commit(blocks, atomic=self.how == "atomic")).appended
        ids = [append.block.id for append in blocks]
        await log.stage("spool", blocks)
        return (await log.publish("spool", ids, replayed=True)).appended


async def queue_of(rig: Rig, **settings: float) -> Queue:
    return await rig.log.create_queue("orders", {"dedupe_seconds": WINDOW, **settings})


@HOW
async def test_a_duplicate_is_found_however_long_it_waited(rig: Rig, how: str) -> None:
    queue, spool = await queue_of(rig), Spool(rig, how)
    await push_named(rig.log, queue, "t1")
    rig.clock.advance(seconds=WINDOW - 1)
    spool.add(queue, "t1", "t2")
    rig.clock.advance(seconds=DAY - 1)
    await rig.log.trim()
    (answer,) = await spool.replay()
    assert (sequences(answer), answer.count) == ([1, 2], 1)


@HOW
async def test_what_was_accepted_after_the_window_is_no_duplicate(rig: Rig, how: str) -> None:
    """Also where all of it comes to the log at one moment."""
    queue, spool = await queue_of(rig), Spool(rig, how)
    for _ in range(3):
        spool.add(queue, "t1")
        rig.clock.advance(seconds=WINDOW / 2)
        spool.add(queue, "t1")
        rig.clock.advance(seconds=WINDOW / 2)
    answers = await spool.replay()
    assert [sequences(answer) for answer in answers] == [[1], [1], [2], [2], [3], [3]]
    assert await stored(rig.log, queue) == ["t1"] * 3


@HOW
async def test_the_window_of_a_known_message_is_not_prolonged_by_its_duplicates(rig: Rig, how: str) -> None:
    queue, spool = await queue_of(rig), Spool(rig, how)
    await push_named(rig.log, queue, "t1")
    rig.clock.advance(seconds=50)
    spool.add(queue, "t1")
    rig.clock.advance(seconds=50)
    spool.add(queue, "t1", "t2")
    rig.clock.advance(seconds=20)
    spool.add(queue, "t1")
    answers = await spool.replay()
    assert [sequences(answer) for answer in answers] == [[1], [2, 3], [2]]
    assert await stored(rig.log, queue) == ["t1", "t1", "t2"]


@HOW
async def test_what_others_pushed_meanwhile_counts_by_its_own_time(rig: Rig, how: str) -> None:
    queue, spool = await queue_of(rig), Spool(rig, how)
    spool.add(queue, "near", "far")
    rig.clock.advance(seconds=WINDOW - 1)
    await push_named(rig.log, queue, "near")
    rig.clock.advance(seconds=1)
    await push_named(rig.log, queue, "far")
    (answer,) = await spool.replay()
    assert sequences(answer) == [1, 3]
    rig.clock.advance(seconds=WINDOW - 1)
    assert sequences(await push_named(rig.log, queue, "far")) == [2]
    assert await stored(rig.log, queue) == ["near", "far", "far"]


@HOW
async def test_a_push_is_compared_with_what_was_replayed_by_when_that_was_accepted(
    rig: Rig, how: str
) -> None:
    queue, spool = await queue_of(rig), Spool(rig, how)
    spool.add(queue, "t1")
    rig.clock.advance(seconds=WINDOW - 1)
    await spool.replay()
    assert sequences(await push_named(rig.log, queue, "t1")) == [1]
    rig.clock.advance(seconds=1)
    assert sequences(await push_named(rig.log, queue, "t1")) == [2]


@HOW
async def test_a_time_of_the_future_is_now_and_one_of_long_ago_harms_nobody(rig: Rig, how: str) -> None:
    queue, spool = await queue_of(rig), Spool(rig, how)
    await push_named(rig.log, queue, "t1")
    spool.add(queue, "t1", "t2", at=rig.clock.now() + int(400 * DAY * SECOND))
    spool.add(queue, "t1", "t3", at=0)
    spool.add(queue, "t3", at=5)
    answers = await spool.replay()
    assert [sequences(answer) for answer in answers] == [[1, 2], [3, 4], [4]]
    assert sequences(await push_named(rig.log, queue, "t1", "t2")) == [1, 2]
    await rig.log.trim()
    assert sequences(await push_named(rig.log, queue, "t1", "t2")) == [1, 2]


@pytest.mark.parametrize(("keep_seconds", "bound"), [(DAY, DAY), (0.0, 0.0), (100 * DAY, 7 * DAY)])
async def test_ids_are_remembered_beyond_the_window_as_long_as_blocks_are_kept(
    rig: Rig, keep_seconds: float, bound: float
) -> None:
    """And no longer than ids of blocks. PostgreSQL forgets by the hour, or by the test's pieces."""
    queue, spool = await queue_of(rig, keep_seconds=keep_seconds), Spool(rig)
    await push_named(rig.log, queue, "t1")
    at = rig.clock.now() + int((WINDOW - 1) * SECOND)
    rig.clock.advance(seconds=WINDOW + bound - 1)
    await rig.log.trim()
    spool.add(queue, "t1", at=at)
    (answer,) = await spool.replay()
    assert (answer.count, len(answer.duplicates)) == (0, 1)
    rig.clock.advance(seconds=2 * DAY)
    await rig.log.trim()
    spool.add(queue, "t1", at=at)
    (answer,) = await spool.replay()
    assert answer.count == 1


async def test_what_was_replayed_is_located_for_as_long_as_what_was_pushed(rig: Rig) -> None:
    queue, spool = await queue_of(rig), Spool(rig)
    spool.add(queue, "t1")
    rig.clock.advance(seconds=10 * WINDOW)
    (answer,) = await spool.replay()
    rig.clock.advance(seconds=WINDOW - 1)
    assert await rig.log.locate(queue, [("", "t1")]) == answer.ids()
    rig.clock.advance(seconds=1)
    assert await rig.log.locate(queue, [("", "t1")]) == [None]


async def test_a_queue_made_anew_compares_with_nothing_of_the_old_one(rig: Rig) -> None:
    queue, spool = await queue_of(rig), Spool(rig)
    await push_named(rig.log, queue, "t1")
    spool.add(queue, "t1")
    await rig.log.delete_queue("orders")
    rig.clock.advance(seconds=1)
    await queue_of(rig)
    (answer,) = await spool.replay()
    assert answer.count == 1
    rig.clock.advance(seconds=1)
    assert (await push_named(rig.log, queue, "t1")).count == 0
