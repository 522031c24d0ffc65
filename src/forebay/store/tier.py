"""A warm tier as one group uses it: its epoch, and the owner under which the log holds its claims.

Invariant: whenever an epoch is over, its claims are given back to the log, at once or as soon as the log
can be reached; whoever notices does it, since doing it twice does no harm. Who knew the epoch may have
died with it: so whoever finds the shelf in another one looks in the log for those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from forebay.log.seam import Log
from forebay.log.values import Group, Owner
from forebay.model import Unavailable
from forebay.warm.seam import Warm
from forebay.warm.values import Shelf, is_outdated


class Tier:
    """See the module; `shelf` may be replaced when its limits change."""

    def __init__(self, log: Log, warm: Warm, group: Group, shelf: Shelf) -> None:
        self.warm = warm
        self.shelf = shelf
        self.epoch: str | None = None
        self.doubt = False
        """Whether the log may hold claims for this shelf that never came to it, as far as we know."""
        self._log = log
        self._group = group
        self._over: set[str] = set()

    def owner(self, epoch: str) -> str:
        """The name by which the log knows an epoch."""
        return f"{self.warm.name}|{self._group.number}|{epoch}"

    async def open(self) -> str:
        """The epoch that the shelf is in; a new one if there is none."""
        epoch = await self._current()
        if self.warm.shared and epoch != self.epoch:
            owners = await self._log.owners()
            epoch = await self._current()
            self._note_over(owners, epoch)
        if self.epoch is not None and self.epoch != epoch:
            self._over.add(self.epoch)
        self.epoch = epoch
        await self.give_back()
        return epoch

    async def _current(self) -> str:
        epoch = await self.warm.epoch(self.shelf)
        if epoch is not None and is_outdated(epoch, self.shelf):
            return await self.warm.renew(self.shelf, epoch)
        return epoch or await self.warm.renew(self.shelf, self.epoch)

    def _note_over(self, owners: Sequence[Owner], epoch: str) -> None:
        """Find epochs that are over; the owners must have been listed before the epoch was asked for."""
        ours = self.owner("")
        held = {owner.name.removeprefix(ours) for owner in owners if owner.name.startswith(ours)}
        self._over |= held - {epoch}

    async def give_back_lost(self, owners: Sequence[Owner]) -> None:
        """Give back what somebody claimed for an epoch without having noticed that it was over."""
        epoch = await self.warm.epoch(self.shelf) if self.warm.shared else None
        if epoch is not None:
            self._note_over(owners, epoch)
            await self.give_back()

    async def renew(self) -> None:
        """Begin a new epoch, since what the shelf holds is no longer true."""
        if self.epoch is not None:
            lost, self.epoch = self.epoch, await self.warm.renew(self.shelf, self.epoch)
            self._over.add(lost)
            await self.give_back()

    async def give_back(self) -> None:
        """Give the claims of epochs that are over back to the log."""
        for epoch in list(self._over):
            await self._log.retire(self.owner(epoch))
            self._over.discard(epoch)

    async def beat(self) -> None:
        """Say that the shelf is alive, to the log."""
        if self.epoch is not None:
            await self._log.heartbeat(self.owner(self.epoch))

    async def rest(self) -> None:
        """End the epoch of a shelf that holds nothing: the log hears of it when it is opened again."""
        if self.epoch is not None:
            self._over.add(self.epoch)
            await self.warm.renew(self.shelf, self.epoch)
            self.epoch = None
        await self.give_back()

    async def close(self) -> None:
        """Give back what this process holds; what is shared stays for the others."""
        if self.epoch is not None and not self.warm.shared:
            self._over.add(self.epoch)
            await self.warm.renew(self.shelf, self.epoch)  # it keeps no bodies
            self.epoch = None
        with suppress(Unavailable):  # whoever opens the log next finds that this process is gone
            await self.give_back()
