"""The warm tiers of one group: this process's own, and the shared one if there is any.

Invariants: one of them is filled at a time. A shared tier that is away is done without, and is used again
once it can be filled again. What is out of this process's own tier then is settled there; the rest goes back
to the log (`Window.tick`), so that it can be taken at every server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from forebay.log.seam import Log
from forebay.log.values import Group
from forebay.model import Unavailable
from forebay.store.tier import Tier
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import EpochLost, Warm, WarmAway
from forebay.warm.values import Lease, Shelf

T = TypeVar("T")

SECOND: Final = 1_000_000
SILENT_SECONDS: Final = 3.0
"""A shared tier that no server has beaten for so long is down for all of them."""
AWAY_SECONDS: Final = 0.5
"""How often a shared tier that is away is looked for."""
RETRIES: Final = 3
"""How often an epoch may be lost within one call before it is left to the next."""


class Tiers:
    """See the module.

    `lost` is called when what was on the shelf comes back from the log; `later` asks for a check after so
    many seconds.
    """

    def __init__(
        self,
        log: Log,
        group: Group,
        shelf: Shelf,
        own: MemoryWarm,
        shared: Warm | None,
        *,
        lost: Callable[[], None],
        later: Callable[[float], None],
    ) -> None:
        self.own = Tier(log, own, group, shelf)
        self.own_warm = own
        self.shared = Tier(log, shared, group, shelf) if shared is not None else None
        self.active = self.shared or self.own
        self._log = log
        self._lost = lost
        self._later = later
        self._given_up: set[str] = set()

    @property
    def all(self) -> Sequence[Tier]:
        """All tiers that may hold something."""
        return [self.own] if self.shared is None else [self.shared, self.own]

    def configure(self, shelf: Shelf) -> None:
        """Go on with other limits."""
        for tier in self.all:
            tier.shelf = shelf

    async def follow(self, shelf: Shelf) -> None:
        """Go on with a group that was sent elsewhere: what the shelves hold is void."""
        self.configure(shelf)
        for tier in self.all:
            if tier.epoch is not None:
                try:
                    await tier.open()
                except WarmAway:
                    self.fall_back()

    def of(self, lease: Lease) -> Tier:
        """The tier of a lease."""
        return self.own if self.shared is None or lease.epoch == self.own.epoch else self.shared

    def split(self, wanted: Mapping[Lease, T]) -> Iterator[tuple[Tier, dict[Lease, T]]]:
        """What is wanted of leases, by their tiers."""
        if self.shared is None:
            if wanted:
                yield self.own, dict(wanted)
            return
        for tier in self.all:
            mine = {lease: what for lease, what in wanted.items() if self.of(lease) is tier}
            if mine:
                yield tier, mine

    def with_something(self) -> Sequence[Tier]:
        """The tier that is filled, and the own one as long as something is left in it."""
        return [self.own, self.active] if self.is_own_left() else [self.active]

    def is_own_left(self) -> bool:
        """Whether the own tier may hold something although the shared one is filled."""
        return self.active is not self.own and self.own.epoch is not None

    async def call(self, tier: Tier, call: Callable[[Tier, str], Awaitable[T]]) -> T:
        """Call a tier in its epoch, and again in the next one when it was lost."""
        for _ in range(RETRIES):
            epoch = tier.epoch
            try:
                epoch = epoch or await tier.open()
                return await call(tier, epoch)
            except EpochLost:
                if await tier.open() != epoch:
                    self._lost()
            except WarmAway:
                self.fall_back()
                raise
        text = f"the warm tier of {self.active.shelf.name} was lost, or filled by others, {RETRIES} times"
        raise Unavailable(f"{text} in a row", retry_after_seconds=1.0)

    def fall_back(self) -> None:
        """Go on from this process's own memory while the shared tier can't be reached."""
        if self.shared is not None and self.active is self.shared:
            self.active = self.own
            self._lost()
            self._later(AWAY_SECONDS)

    async def check(self) -> None:
        """Notice that a shared tier was lost, is away, or is back."""
        if self.shared is None:
            return
        before = self.shared.epoch
        try:
            epoch = await self.shared.open()
            if epoch in self._given_up:
                await self.shared.renew()
            if self.active is self.own:
                await self._try_to_fill(self.shared)
        except WarmAway:
            self.fall_back()
            await self._give_up_shared()
            return
        if self.active is self.own:
            self.active = self.shared
            self._lost()
        elif before is not None and self.shared.epoch != before:
            self._lost()
        self._given_up.clear()

    async def _try_to_fill(self, tier: Tier) -> None:
        """WarmAway unless the tier takes writes: one that is full, or a replica, can still be read."""
        try:
            fill = await tier.warm.begin(tier.shelf, tier.epoch or "")
            if fill is not None:
                await tier.warm.end(tier.shelf, fill, doubt=fill.doubt)
        except EpochLost:
            return  # the next call finds out about it

    async def _give_up_shared(self) -> None:
        """Give what a shared tier holds back to the log, once no server has reached it for a while."""
        assert self.shared is not None
        epoch = self.shared.epoch
        if epoch is None or epoch in self._given_up:
            return
        await self.own.open()
        await self.own.beat()
        beats = {owner.name: owner.beat_at for owner in await self._log.owners()}
        beat_at = beats.get(self.shared.owner(epoch))
        if beat_at is not None and beat_at > max(beats.values()) - int(SILENT_SECONDS * SECOND):
            self._later(AWAY_SECONDS)
            return
        await self._log.retire(self.shared.owner(epoch))
        self._given_up.add(epoch)
        self._lost()
