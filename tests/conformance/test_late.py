"""Outcomes that come from a spool after their claims have changed hands: they win if they still can."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from forebay.failover.outcomes import Settled, entry_of, replay
from forebay.log.values import Claim, Death, Deferral, Group, Queue, Settlement
from forebay.model import IdMint, bitmap
from forebay.spool.lines import SpooledSettlement
from tests.conformance.rigs import Rig
from tests.conformance.steps import SECOND, bits, counts, push, take_one


@dataclass
class Scene:
    """A claim of which everything is out, and of which it is said that some is done."""

    rig: Rig
    queue: Queue
    group: Group
    claim: Claim

    def said(self, *settlements: Settlement) -> SpooledSettlement:
        """The outcome as it is spooled, now."""
        id = IdMint(self.rig.clock).mint()
        self.rig.clock.advance(seconds=1)
        return entry_of(Settled(settlements), id)

    def done(self, *offsets: int) -> SpooledSettlement:
        """Tasks are done."""
        return self.said(self.claim.settle(done=bits(self.claim, *offsets)))

    async def give_back(self) -> None:
        """The server is taken for dead."""
        await self.rig.log.retire("old")

    async def take_over(self) -> Claim:
        """Another server counts the attempts, and has the messages on its shelf."""
        await self.give_back()
        (back,) = (await self.rig.log.due(self.group, "new")).claims
        assert bitmap.count(back.handed) == back.count
        deferral = Deferral(0, self.rig.clock.now(), 1, back.start_time, back.count)
        await self.rig.log.commit(settlements=[back.settle(deferred=(deferral,))])
        (again,) = (await self.rig.log.due(self.group, "new")).claims
        return again


@pytest.fixture(params=["unordered", "ordered"])
async def scene(rig: Rig, request: pytest.FixtureRequest) -> Scene:
    queue = await rig.log.create_queue("orders", {"ordered": request.param == "ordered"})
    group = await rig.log.create_group(queue, "workers")
    await push(rig.log, queue, "a", "b", "c", partition="p")
    claim = await take_one(rig.log, group, "old")
    await rig.log.mark([claim.mark(handed=bits(claim, 0, 1, 2))])
    rig.clock.advance(seconds=1)
    return Scene(rig, queue, group, claim)


async def test_what_was_given_back_and_not_taken_is_settled(scene: Scene) -> None:
    said, log = scene.done(0, 1), scene.rig.log
    await scene.give_back()
    assert await replay(log, [said]) == 0
    stats = await counts(log, scene.group)
    assert (stats.done, stats.deferred, stats.held) == (2, 1, 0)
    (left,) = (await log.due(scene.group, "new")).claims
    assert bitmap.indexes(left.done) == [0, 1]
    assert bitmap.indexes(left.handed) == [0, 1, 2]  # so its attempt is counted
    assert not [owner for owner in await log.owners() if owner.name.startswith("late")]


async def test_said_twice_it_is_settled_once(scene: Scene) -> None:
    said, log = scene.done(0, 1, 2), scene.rig.log
    await scene.give_back()
    assert await replay(log, [said]) == 0
    await replay(log, [said])
    stats = await counts(log, scene.group)
    assert (stats.done, stats.deferred, stats.held) == (3, 0, 0)


async def test_what_is_dead_is_buried_though_nobody_brought_its_message(scene: Scene) -> None:
    log = scene.rig.log
    said = scene.said(scene.claim.settle(dead=(Death(1, "broken", 0, None),)))
    await scene.give_back()
    assert await replay(log, [said]) == 0
    (letter,) = await log.dead_letters(scene.group)
    assert (letter.message_id, letter.reason) == (scene.claim.first + 1, "broken")
    assert (await counts(log, scene.group)).deferred == 2


async def test_what_is_on_the_shelf_of_another_server_is_settled(scene: Scene) -> None:
    said, log = scene.done(0, 1, 2), scene.rig.log
    again = await scene.take_over()
    assert await replay(log, [said]) == 0
    assert (await counts(log, scene.group)).done == 3
    assert list(await log.mark([again.mark(handed=bits(again, 0))])) == [0]  # nobody gets it


async def test_what_was_handed_out_again_after_it_was_said_is_settled(scene: Scene) -> None:
    said, log = scene.done(0, 1, 2), scene.rig.log
    again = await scene.take_over()
    await log.mark([again.mark(handed=bits(again, 0, 1, 2))])
    assert await replay(log, [said]) == 0
    assert (await counts(log, scene.group)).done == 3
    receipt = await log.commit(settlements=[again.settle(done=bits(again, 0, 1, 2))])
    assert list(receipt.conflicts) == [0]


async def test_what_was_handed_out_again_before_it_was_said_stays_with_whoever_has_it(scene: Scene) -> None:
    log = scene.rig.log
    again = await scene.take_over()
    await log.mark([again.mark(handed=bits(again, 0, 1, 2))])
    scene.rig.clock.advance(seconds=1)
    assert await replay(log, [scene.done(0, 1)]) == 2
    assert (await counts(log, scene.group)).done == 0
    receipt = await log.commit(settlements=[again.settle(done=bits(again, 0, 1, 2))])
    assert list(receipt.conflicts) == []


async def test_what_was_settled_otherwise_stays_so(scene: Scene) -> None:
    said, log = scene.done(0, 1), scene.rig.log
    again = await scene.take_over()
    await log.commit(settlements=[again.settle(done=bits(again, 0))])
    assert await replay(log, [said]) == 1
    assert (await counts(log, scene.group)).done == 2


async def test_what_waits_for_its_time_goes_on_to_wait(scene: Scene) -> None:
    said, log = scene.done(0), scene.rig.log
    again = await scene.take_over()
    due_at = scene.rig.clock.now() + 60 * SECOND
    later = Deferral(0, due_at, 2, again.start_time, again.count)
    await log.commit(settlements=[again.settle(deferred=(later,))])
    assert await replay(log, [said]) == 0
    found = await log.due(scene.group, "new")
    assert (list(found.claims), found.next_due_at) == ([], due_at)
    scene.rig.clock.advance(seconds=60)
    (left,) = (await log.due(scene.group, "new")).claims
    assert (left.first, left.count, left.attempts) == (scene.claim.first + 1, 2, 2)


async def test_what_was_to_come_back_is_not_said_again(scene: Scene) -> None:
    log = scene.rig.log
    deferral = Deferral(0, scene.rig.clock.now() + 60 * SECOND, 1, scene.claim.start_time, 3)
    said = scene.said(scene.claim.settle(deferred=(deferral,)))
    again = await scene.take_over()
    await log.mark([again.mark(handed=bits(again, 0))])
    assert await replay(log, [said]) == 0
    receipt = await log.commit(settlements=[again.settle(done=bits(again, 0, 1, 2))])
    assert list(receipt.conflicts) == []


async def test_a_group_that_was_deleted_meanwhile_is_no_fault(scene: Scene) -> None:
    said = scene.done(0, 1, 2)
    await scene.rig.log.delete_group(scene.group)
    assert await replay(scene.rig.log, [said]) == 3
