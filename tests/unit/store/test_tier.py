"""A tier's epochs: whatever was held in one that is over goes back to the log, sooner or later."""

from __future__ import annotations

import pytest

from forebay.log.memory import MemoryLog
from forebay.log.values import Append, Group, Queue
from forebay.model import ManualClock, Message, Unavailable
from forebay.store.tier import Tier
from forebay.warm.memory import MemoryWarm
from forebay.warm.values import Shelf

BEGIN = 1_800_000_000_000_000


class Rig:
    """A tier on a log whose `retire` can be switched off."""

    def __init__(self) -> None:
        self.log = MemoryLog(clock=ManualClock(BEGIN))
        self.warm = MemoryWarm("me", clock=ManualClock(BEGIN))
        self.away = False
        self._retire = self.log.retire
        self.log.retire = self.retire  # type: ignore[method-assign]

    async def retire(self, owner: str) -> int:
        if self.away:
            raise Unavailable("the log is away")
        return await self._retire(owner)

    async def open(self) -> Tier:
        self.queue: Queue = await self.log.create_queue("orders")
        self.group: Group = await self.log.create_group(self.queue, "workers")
        self.shelf = Shelf(self.queue.number, self.group.number, "orders/workers")
        return Tier(self.log, self.warm, self.group, self.shelf)

    async def held(self) -> int:
        return (await self.log.stats()).queues[0].groups[0].held


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def claim(rig: Rig, tier: Tier) -> None:
    """Claim a message in the epoch that the tier is in."""
    await rig.log.commit([Append.of(rig.queue, [Message(b"x")])])
    await rig.log.claim(rig.group, tier.owner(await tier.open()))


async def test_an_epoch_is_begun_once_and_named_in_the_log(rig: Rig) -> None:
    tier = await rig.open()
    epoch = await tier.open()
    assert await tier.open() == epoch == tier.epoch
    assert tier.owner(epoch) == f"me|{rig.group.number}|{epoch}"


async def test_an_epoch_from_before_the_group_was_sent_elsewhere_is_over(rig: Rig) -> None:
    tier = await rig.open()
    before = await tier.open()
    tier.shelf = Shelf(rig.queue.number, rig.group.number, "orders/workers", sought=2)
    epoch = await tier.open()
    assert epoch == tier.epoch != before
    assert await tier.open() == epoch
    tier.shelf = Shelf(rig.queue.number, rig.group.number, "orders/workers", sought=1)
    assert await tier.open() == epoch, "one that began later than we know of is in order"


async def test_a_lost_epoch_gives_back_what_it_held(rig: Rig) -> None:
    tier = await rig.open()
    await claim(rig, tier)
    assert await rig.held() == 1
    await rig.warm.renew(rig.shelf, tier.epoch)
    await tier.open()
    assert await rig.held() == 0


async def test_what_cannot_be_given_back_now_is_given_back_later(rig: Rig) -> None:
    tier = await rig.open()
    await claim(rig, tier)
    rig.away = True
    with pytest.raises(Unavailable):
        await tier.renew()
    assert await rig.held() == 1
    rig.away = False
    await tier.open()
    assert await rig.held() == 0


async def test_a_renewal_before_the_first_epoch_does_nothing(rig: Rig) -> None:
    tier = await rig.open()
    await tier.renew()
    assert tier.epoch is None
    await tier.beat()
    assert await rig.log.owners() == []


async def test_closing_gives_back_what_is_our_own(rig: Rig) -> None:
    tier = await rig.open()
    await claim(rig, tier)
    await tier.beat()
    await tier.close()
    assert (await rig.held(), await rig.log.owners(), tier.epoch) == (0, [], None)


async def test_closing_leaves_what_is_shared(rig: Rig) -> None:
    tier = await rig.open()
    rig.warm.shared = True
    await claim(rig, tier)
    await tier.close()
    assert await rig.held() == 1


async def test_closing_while_the_log_is_away_is_no_error(rig: Rig) -> None:
    tier = await rig.open()
    await claim(rig, tier)
    rig.away = True
    await tier.close()
    assert await rig.held() == 1
