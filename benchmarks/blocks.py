"""Forebay's own contestant: batches as blocks of a queue of some log."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.payloads import Batch, fresh_ids
from forebay.log.seam import Log
from forebay.log.values import Append, Claim, Group, Queue, Room
from forebay.model import Block

_OWNER: Final = "benchmark"
_ROOM: Final = Room(messages=5_000)


class BlockQueue:
    """A fresh queue with one group. Every push is encoded here: that is part of its price."""

    def __init__(
        self, log: Log, queue: Queue, group: Group, pushes: Sequence[Batch], *, with_ids: bool
    ) -> None:
        self._log = log
        self._queue = queue
        self._group = group
        self._pushes = pushes
        self._with_ids = with_ids

    @classmethod
    async def make(
        cls, log: Log, name: str, pushes: Sequence[Batch], *, with_ids: bool = False
    ) -> "BlockQueue":
        """Create the queue; by `with_ids`, each message carries a transaction id of its own."""
        queue = await log.create_queue(name)
        group = await log.create_group(queue, "benchmark")
        return cls(log, queue, group, pushes, with_ids=with_ids)

    async def push(self, _pusher: int, turn: int) -> None:
        """Push a batch as one block."""
        block = Block.of(self._pushes[turn % len(self._pushes)].payloads)
        if self._with_ids:
            block = msgspec.structs.replace(block, transaction_ids=fresh_ids())
        await self._log.commit([Append.of(self._queue, block)])

    async def claim(self, room: Room = _ROOM) -> Sequence[Claim]:
        """Claim what fits, and expect nothing corrupt."""
        claimed = await self._log.claim(self._group, _OWNER, room)
        assert not claimed.corrupt
        return claimed.claims

    async def settle(self, claim: Claim) -> None:
        """Settle one claim by a commit of its own."""
        receipt = await self._log.commit(settlements=[claim.settle_all()])
        receipt.raise_for_conflicts()

    async def finish(self, _consumer: int) -> int:
        """Claim, decode, and settle each claim by a commit of its own, all of them in flight."""
        claims = await self.claim()
        count = sum(len(claim.block.decode(checked=True)) for claim in claims)  # the log has checked them
        await asyncio.gather(*(self.settle(claim) for claim in claims))
        return count
