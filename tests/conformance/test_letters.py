"""Dead letters: handed out again under their own ids, taken off the list, listed again; nothing is lost."""

import asyncio

import pytest

from forebay.log.values import Claim, Death, Deferral, Group, Queue, Room
from forebay.model import Message, Rejected, UnknownGroup
from tests.conformance.rigs import DAY, REMEMBER_SECONDS, Rig
from tests.conformance.steps import (
    ALL,
    SECOND,
    bits,
    check_ledger,
    counts,
    drain,
    finish,
    push,
    stored,
    take,
    unfinished,
)


class Yard:
    """A queue whose group has given up all that was pushed so far."""

    def __init__(self, rig: Rig, queue: Queue, group: Group) -> None:
        self.rig = rig
        self.queue = queue
        self.group = group

    @classmethod
    async def make(cls, rig: Rig, *payloads: str, ordered: bool = False, partition: str = "") -> "Yard":
        """Make the queue, and bury these messages of one block."""
        queue = await rig.log.create_queue("orders", {"ordered": ordered, "keep_seconds": 1.0})
        yard = cls(rig, queue, await rig.log.create_group(queue, "workers"))
        await push(rig.log, queue, *payloads, partition=partition)
        for claim in await take(rig.log, yard.group):
            await yard.bury(claim)
        return yard

    async def bury(self, claim: Claim, reason: str = "tired") -> None:
        """Give up all messages of a claim, with copies of themselves."""
        deaths = [Death(offset, reason, 3, message) for offset, message in claim.unfinished()]
        receipt = await self.rig.log.commit(settlements=[claim.settle(dead=tuple(deaths))])
        receipt.raise_for_conflicts()

    async def listed(self) -> list[int]:
        """The ids of what is dead."""
        return [letter.message_id for letter in await self.rig.log.dead_letters(self.group)]

    async def due(self, owner: str = "owner", room: Room = ALL) -> list[Claim]:
        """What is due now."""
        claimed = await self.rig.log.due(self.group, owner, room)
        assert not claimed.corrupt
        return list(claimed.claims)

    async def places(self) -> tuple[int, int, int, int, int]:
        """What is held, deferred, done, dead and purged."""
        await check_ledger(self.rig.log)
        stats = await counts(self.rig.log, self.group)
        return stats.held, stats.deferred, stats.done, stats.dead, stats.purged

    async def drop_blocks(self) -> None:
        """Let retention drop the blocks."""
        self.rig.clock.advance(seconds=3 * DAY)
        await self.rig.log.trim()
        await self.rig.log.trim()
        assert await stored(self.rig.log, self.queue) == []


async def test_a_redriven_message_comes_again_as_new(rig: Rig) -> None:
    yard = await Yard.make(rig, *"abc")
    ids = await yard.listed()
    rig.clock.advance(seconds=5)
    assert await rig.log.redrive(yard.group, [ids[2], ids[0]]) == [ids[0], ids[2]]
    assert await yard.listed() == [ids[1]]
    assert await yard.places() == (0, 2, 0, 1, 0)
    one, two = await yard.due()
    assert [one.first, two.first] == [ids[0], ids[2]]
    assert unfinished([one, two]) == ["a", "c"]
    assert (one.attempts, one.start_time, one.prev_start_time) == (0, rig.clock.now(), None)
    assert (one.count, one.block.first, one.block.count) == (1, ids[0], 1)
    assert await yard.places() == (2, 0, 0, 1, 0)
    await finish(rig.log, one, two)
    assert await yard.places() == (0, 0, 2, 1, 0)
    assert await yard.due() == []


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_redriven_message_does_not_need_its_block(rig: Rig, *, ordered: bool) -> None:
    yard = await Yard.make(rig, "a", "b", ordered=ordered, partition="p")
    ids = await yard.listed()
    await yard.drop_blocks()
    assert await rig.log.redrive(yard.group, ids[:1]) == ids[:1]
    rig.clock.advance(seconds=20 * DAY)
    await rig.log.trim()  # it doesn't expire with its block, nor is its letter forgotten
    (claim,) = await yard.due()
    assert unfinished([claim]) == ["a"]
    assert claim.block.partition == ("p" if ordered else None)
    (taken,) = (await rig.log.reclaim(yard.group, "other", ALL, of=["owner"])).claims
    assert unfinished([taken]) == ["a"]
    await finish(rig.log, taken)
    assert await yard.places() == (0, 0, 1, 1, 0)


async def test_a_redriven_message_does_not_keep_blocks(rig: Rig) -> None:
    yard = await Yard.make(rig, "a")
    await push(rig.log, yard.queue, "b")
    await drain(rig.log, yard.group)
    await rig.log.redrive(yard.group, await yard.listed())
    await yard.drop_blocks()
    assert unfinished(await yard.due()) == ["a"]


async def test_a_redriven_message_can_be_deferred_and_retired(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b")
    await rig.log.redrive(yard.group, await yard.listed())
    await yard.drop_blocks()
    one, two = await yard.due()
    later = Deferral(0, rig.clock.now() + SECOND, 7, one.start_time)
    await rig.log.commit(settlements=[one.settle(deferred=(later,))])
    assert await rig.log.retire("owner") == 1
    (again,) = await yard.due("other")
    assert (again.first, unfinished([again])) == (two.first, ["b"])
    rig.clock.advance(seconds=1)
    (deferred,) = await yard.due("other")
    assert (unfinished([deferred]), deferred.attempts) == (["a"], 7)
    await finish(rig.log, again, deferred)
    assert await yard.places() == (0, 0, 2, 0, 0)


@pytest.mark.parametrize("dropped", [False, True])
async def test_a_redriven_message_that_dies_again_is_a_dead_letter_again(rig: Rig, *, dropped: bool) -> None:
    yard = await Yard.make(rig, "a", "b")
    ids = await yard.listed()
    for reason in ("again", "and again"):
        await rig.log.redrive(yard.group, ids[:1])
        if dropped:
            await yard.drop_blocks()
        rig.clock.advance(seconds=1)
        (claim,) = await yard.due()
        await yard.bury(claim, reason)
        assert await yard.places() == (0, 0, 0, 2, 0)
        letter, _ = await rig.log.dead_letters(yard.group)
        assert (letter.message_id, letter.reason, letter.died_at) == (ids[0], reason, rig.clock.now())


async def test_letters_that_are_purged_leave_the_list(rig: Rig) -> None:
    yard = await Yard.make(rig, *"abc")
    ids = await yard.listed()
    assert await rig.log.purge(yard.group, ids[1:]) == ids[1:]
    assert await yard.listed() == ids[:1]
    assert await yard.places() == (0, 0, 0, 1, 2)
    assert await rig.log.redrive(yard.group, ids) == ids[:1]
    assert await yard.places() == (0, 1, 0, 0, 2)


async def test_what_was_purged_or_redriven_is_restored(rig: Rig) -> None:
    yard = await Yard.make(rig, *"abcd")
    ids = await yard.listed()
    before = await rig.log.dead_letters(yard.group)
    await rig.log.purge(yard.group, ids[:2])
    await rig.log.redrive(yard.group, ids[2:])
    assert await rig.log.restore(yard.group, ids[::-1]) == ids
    assert await rig.log.dead_letters(yard.group) == before
    assert await yard.places() == (0, 0, 0, 4, 0)
    assert await yard.due() == []


async def test_what_an_owner_took_is_not_restored(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b", "c")
    ids = await yard.listed()
    await rig.log.redrive(yard.group, ids)
    held, done = await yard.due(room=Room(2))
    await finish(rig.log, done)
    assert await rig.log.restore(yard.group, ids) == ids[2:]
    assert await yard.places() == (1, 0, 1, 1, 0)
    await rig.log.retire("owner")
    assert await rig.log.restore(yard.group, ids) == [held.first]
    assert await yard.places() == (0, 0, 1, 2, 0)


async def test_repeating_a_call_changes_nothing(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b")
    first, second = ids = await yard.listed()
    for verb in (rig.log.purge, rig.log.restore, rig.log.redrive):
        assert await verb(yard.group, [first, first]) == [first]
        assert await verb(yard.group, [first]) == []
    unknown = [second + 1, second + 7, 1 << 62, 1 << 80, 0, -1]
    for each in (rig.log.purge, rig.log.restore, rig.log.redrive):
        assert await each(yard.group, unknown) == []
        assert await each(yard.group, []) == []
    assert await yard.places() == (0, 1, 0, 1, 0)
    assert await rig.log.redrive(yard.group, [*ids, *unknown]) == [second]


async def test_a_letter_is_changed_once_however_many_ask(rig: Rig) -> None:
    yard = await Yard.make(rig, *"abcdefgh")
    ids = await yard.listed()
    log, group = rig.log, yard.group
    for verbs in ([log.redrive, log.purge], [log.restore, log.restore], [log.purge, log.redrive]):
        asked = (verb(group, ids[n % 3 :][:: (-1) ** n]) for n in range(6) for verb in verbs)
        changed = [i for answer in await asyncio.gather(*asked) for i in answer]
        assert sorted(changed) == ids
        await check_ledger(log)


async def test_letters_of_another_group_are_left_alone(rig: Rig) -> None:
    yard = await Yard.make(rig, "a")
    other = await rig.log.create_group(yard.queue, "others")
    ids = await yard.listed()
    for verb in (rig.log.redrive, rig.log.purge, rig.log.restore):
        assert await verb(other, ids) == []
    assert await yard.listed() == ids


async def test_old_letters_are_forgotten_and_stay_counted(rig: Rig) -> None:
    yard = await Yard.make(rig, *"abcd")
    ids = await yard.listed()
    await rig.log.purge(yard.group, ids[:1])
    await rig.log.redrive(yard.group, ids[1:3])
    (claim,) = await yard.due(room=Room(1))
    await finish(rig.log, claim)
    rig.clock.advance(seconds=REMEMBER_SECONDS)
    await rig.log.trim()
    rig.clock.advance(seconds=0.000001)
    assert await rig.log.restore(yard.group, ids[:1]) == ids[:1]
    await rig.log.purge(yard.group, ids[:1])
    rig.clock.advance(seconds=REMEMBER_SECONDS + 1)
    await rig.log.trim()
    assert await rig.log.restore(yard.group, ids) == [ids[2]]  # it was still waiting
    assert await yard.listed() == ids[2:]
    assert await yard.places() == (0, 0, 1, 2, 1)


async def test_too_many_letters_at_once_are_refused(rig: Rig) -> None:
    yard = await Yard.make(rig, "a")
    ids = list(range(1, 10_001))
    for verb in (rig.log.redrive, rig.log.purge, rig.log.restore):
        assert await verb(yard.group, ids) == []
        with pytest.raises(Rejected, match="fewer"):
            await verb(yard.group, [*ids, 10_001])


async def test_a_deleted_group_has_no_letters(rig: Rig) -> None:
    yard = await Yard.make(rig, "a")
    ids = await yard.listed()
    await rig.log.redrive(yard.group, ids)
    await rig.log.delete_group(yard.group)
    for verb in (rig.log.redrive, rig.log.purge, rig.log.restore):
        with pytest.raises(UnknownGroup):
            await verb(yard.group, ids)
    await rig.log.create_group(yard.queue, "workers")
    await check_ledger(rig.log)


async def test_letters_outlive_the_process(durable_rig: Rig) -> None:
    yard = await Yard.make(durable_rig, *"abc")
    ids = await yard.listed()
    await durable_rig.log.redrive(yard.group, ids[:1])
    await durable_rig.log.purge(yard.group, ids[1:2])
    await durable_rig.reopen()
    assert await yard.listed() == ids[2:]
    assert await yard.places() == (0, 1, 0, 1, 1)
    assert unfinished(await yard.due()) == ["a"]
    assert await durable_rig.log.restore(yard.group, ids) == ids[1:2]


async def test_a_redriven_message_holds_up_its_partition(rig: Rig) -> None:
    yard = await Yard.make(rig, "a1", ordered=True, partition="a")
    await push(rig.log, yard.queue, "a2", partition="a")
    await push(rig.log, yard.queue, "b1", partition="b")
    ids = await yard.listed()
    await rig.log.redrive(yard.group, ids)
    assert await drain(rig.log, yard.group) == ["b1"]
    assert not (await rig.log.claim(yard.group, "owner", partition="a")).claims
    assert await rig.log.restore(yard.group, ids) == ids
    assert await drain(rig.log, yard.group) == ["a2"]
    await push(rig.log, yard.queue, "a3", partition="a")
    await rig.log.redrive(yard.group, ids)
    (claim,) = await yard.due()
    assert await take(rig.log, yard.group) == []
    await finish(rig.log, claim)
    assert await drain(rig.log, yard.group) == ["a3"]


async def test_a_redriven_message_holds_up_a_partition_that_was_forgotten(rig: Rig) -> None:
    yard = await Yard.make(rig, "a1", ordered=True, partition="a")
    await yard.drop_blocks()
    await rig.log.redrive(yard.group, await yard.listed())
    await push(rig.log, yard.queue, "a2", partition="a")
    assert await take(rig.log, yard.group) == []
    (claim,) = await yard.due()
    assert await take(rig.log, yard.group) == []
    await finish(rig.log, claim)
    assert await drain(rig.log, yard.group) == ["a2"]


async def test_what_a_redriven_message_holds_up_is_not_dropped(rig: Rig) -> None:
    yard = await Yard.make(rig, "a1", ordered=True, partition="a")
    await push(rig.log, yard.queue, "b1", partition="b")
    await push(rig.log, yard.queue, "a2", "a3", partition="a")
    await finish(rig.log, *await take(rig.log, yard.group, room=Room(1)))
    await rig.log.redrive(yard.group, await yard.listed())
    assert await take(rig.log, yard.group) == []  # though its partition was met, and ready
    rig.clock.advance(seconds=3 * DAY)
    await rig.log.trim()
    await rig.log.trim()
    await finish(rig.log, *await yard.due())
    assert await drain(rig.log, yard.group) == ["a2", "a3"]


async def test_outcomes_of_a_redriven_message_are_kept_with_its_block(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b")
    ids = await yard.listed()
    rig.clock.advance(seconds=1)
    await rig.log.redrive(yard.group, ids[1:])
    (claim,) = await yard.due()
    await rig.log.commit(settlements=[claim.settle(done=bits(claim, 0), worker="w")])
    buried, done = await rig.log.outcomes(yard.group, ids[0])
    assert (len(buried.dead), done.first, done.worker) == (2, ids[1], "w")


async def test_a_letter_keeps_the_copy_that_it_was_given(rig: Rig) -> None:
    yard = await Yard.make(rig, "a")
    (first,) = await yard.listed()
    await rig.log.redrive(yard.group, [first])
    (claim,) = await yard.due()
    message = Message(b"changed", "", "t", {"flow": "daily"}, 5)
    await rig.log.commit(settlements=[claim.settle(dead=(Death(0, "r", 1, message),))])
    await rig.log.redrive(yard.group, [first])
    (again,) = await yard.due()
    assert again.unfinished() == [(0, message)]


async def test_a_letter_that_can_not_be_read_is_set_aside(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b", ordered=True, partition="p")
    await push(rig.log, yard.queue, "c", partition="p")
    ids = await yard.listed()
    await rig.flip_letter(yard.group, ids[0])
    await rig.log.redrive(yard.group, ids)
    claimed = await rig.log.due(yard.group, "owner", ALL)
    assert unfinished(claimed.claims) == ["b"]
    (error,) = claimed.corrupt
    assert (error.queue, error.first, error.last) == ("orders", 1, 1)
    (block,) = await rig.log.quarantined(yard.queue)
    assert (block.first, block.count, block.partition) == (ids[0], 1, "p")
    assert (await counts(rig.log, yard.group)).corrupt == 1
    assert await rig.log.restore(yard.group, ids) == []
    await finish(rig.log, *claimed.claims)
    assert await drain(rig.log, yard.group) == ["c"]


async def test_a_damaged_block_does_not_matter_to_its_letters(rig: Rig) -> None:
    yard = await Yard.make(rig, "a", "b")
    await rig.flip_bit(yard.queue, 1)
    await rig.log.redrive(yard.group, await yard.listed())
    assert unfinished(await yard.due()) == ["a", "b"]
