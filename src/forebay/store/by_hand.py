"""What people do with single messages: give one up, bring one forward, skip a partition.

It is done in the log alone, under an owner that exists for one call. Invariants: what is settled is settled
as a worker would, under a claim's token; whatever else had to be held on the way goes back, in its order,
with no attempt counted, at the time it was to come; a crash leaves claims of an owner that falls silent,
and is retired like others. Shelves hear nothing of it: what they still hold is refused when it is marked.

Who has messages of the same run out loses their lease, and they are handed out again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import ROOM, Claim, Death, Deferral, Found, Group, Queue, Room, Settlement, Standing
from forebay.model import Block, Clock, Rejected, Unavailable, bitmap, mint, pack, sequence_of
from forebay.store.giving_up import without_start
from forebay.store.unpacking import defer

FORWARD: Final = "brought forward by hand"
_PAGE: Final = Room(100_000, 1 << 40)
"""Claims without their bodies."""
_REACH_MAX: Final = 1_000_000
"""So many messages may lie before one that is to be had out of turn."""
_SETTLED_STEP: Final = 1_000
_ROUNDS: Final = 20
"""How often it is looked for what changes hands at the same time."""
_TEN_YEARS: Final = 10 * 365 * 86_400.0
"""Nobody has been silent for so long: only what the owner has itself is taken over."""
_NO_BODIES: Final = 1


class ByHand:
    """See the module; for one group. `name` is this process's."""

    def __init__(self, log: Log, clock: Clock, queue: Queue, group: Group, name: str) -> None:
        self._log = log
        self._clock = clock
        self._queue = queue
        self._group = group
        self._name = name

    async def bury(self, message_id: int, reason: str) -> bool:
        """Make a message a dead letter, wherever it is; False when it is finished."""
        for _ in range(_ROUNDS):
            found = await self._log.find(message_id)
            if not self._is_open(found, message_id):
                return False
            if await self._bury(message_id, reason, found):
                return True
        raise _restless(message_id)

    async def hasten(self, message_id: int) -> bool:
        """Let a message come now that is delayed, and those before it in its partition.

        False when it doesn't, as it is out with a worker, or finished.
        """
        for _ in range(_ROUNDS):
            found = await self._log.find(message_id)
            claim = self._standing(found).claim
            if not self._is_open(found, message_id) or (claim is not None and claim.handed):
                return False
            if (claim is not None and claim.owner is not None) or await self._hasten(message_id, found):
                return True
        return False

    async def skip(self, partition: str) -> int:
        """Do without all that a partition has by now; how many messages. Costs by its blocks."""
        end = pack(self._queue.number, (await self._log.find(pack(self._queue.number, 1))).next)
        skipped = idle = 0
        async with self._owner() as owner:
            for _ in range(_ROUNDS):
                await self._log.heartbeat(owner)
                some = await self._skip(owner, partition, end)
                skipped += some
                idle = 0 if some else idle + 1
                if idle > 1:  # between one look and the next something may have changed hands
                    break
        return skipped

    async def _skip(self, owner: str, partition: str, end: int) -> int:
        skipped, more = 0, True
        await self._log.seize(self._group, owner, partition=partition)
        while claims := [claim for claim in await self._reclaim(owner, ()) if claim.first < end]:
            skipped += await self._expire(owner, claims)
        while more:
            taken = await self._log.claim(self._group, owner, _PAGE, partition=partition, known=_NO_BODIES)
            mine = [claim for claim in taken.claims if claim.first < end]
            skipped += await self._expire(owner, mine)
            more = bool(taken.claims) and len(mine) == len(taken.claims)
        return skipped

    async def _bury(self, message_id: int, reason: str, found: Found) -> bool:
        async with self._owner() as owner:
            if not await self._log.seize(self._group, owner, ids=[message_id]) and self._is_ordered:
                await self._log.seize(self._group, owner, partition=_partition_of(found))
            claims = await self._reach(owner, message_id, found)
            meant = [claim for claim in claims if _holds(claim, message_id)]
            if not meant:
                return False
            others = [claim for claim in claims if claim is not meant[0]]
            first = _burial(meant[0], message_id, reason, found, self._clock.now())
            late = await self._settle([first, *self._put_off(others)])
            await self._unmark(claims)
            return meant[0].token not in late

    async def _hasten(self, message_id: int, found: Found) -> bool:
        async with self._owner() as owner:
            if self._is_ordered:
                await self._log.seize(self._group, owner, partition=_partition_of(found), held=False)
            else:
                await self._log.seize(self._group, owner, ids=[message_id], held=False)
            claims = await self._reach(owner, message_id, found)
            if not any(_holds(claim, message_id) for claim in claims):
                return False
            return await self._bring_forward(claims, message_id)

    def _standing(self, found: Found) -> Standing:
        return next(one for one in found.standings if one.group.number == self._group.number)

    def _is_open(self, found: Found, message_id: int) -> bool:
        """Whether the group has something to do with a message yet."""
        stands = self._standing(found)
        is_new = not stands.claimed and sequence_of(message_id) >= stands.group.start
        return stands.claim is not None or (is_new and found.block is not None)

    @property
    def _is_ordered(self) -> bool:
        return self._queue.settings.ordered

    @asynccontextmanager
    async def _owner(self) -> AsyncIterator[str]:
        """Have an owner; what it still holds in the end is there for others."""
        # Its name is not one of this process's, which nobody retires as long as that lives.
        owner = f"by hand|{self._name}|{mint().hex()}"
        try:
            yield owner
        finally:
            await self._log.retire(owner)

    async def _reach(self, owner: str, message_id: int, found: Found) -> list[Claim]:
        """What the owner has, without bodies but for the one that counts; up to the message if need be."""
        claims: list[Claim] = []
        while more := await self._reclaim(owner, [claim.token for claim in claims]):
            claims += [claim if _holds(claim, message_id) else _light(claim) for claim in more]
        if any(_holds(claim, message_id) for claim in claims):
            return claims
        partition, passed = _partition_of(found) if self._is_ordered else None, 0
        while not claims or claims[-1].first <= message_id:
            taken = await self._log.claim(self._group, owner, _PAGE, partition=partition, known=_NO_BODIES)
            claims += taken.claims
            passed += sum(claim.count for claim in taken.claims)
            if not taken.claims or any(_holds(claim, message_id) for claim in taken.claims):
                break
            if passed > _REACH_MAX:
                text = f"message {message_id} has more than {_REACH_MAX} others before it"
                raise Rejected(text, hint="wait until fewer are left, or let the group seek")
        return claims

    async def _reclaim(self, owner: str, besides: Sequence[int]) -> Sequence[Claim]:
        taken = await self._log.reclaim(
            self._group, owner, ROOM, of=[owner], silent_seconds=_TEN_YEARS, besides=besides
        )
        return taken.claims

    def _put_off(self, claims: Sequence[Claim]) -> list[Settlement]:
        """What is delayed comes back when it was to come; the rest goes back as it is."""
        now = self._clock.now()
        return [
            claim.settle(deferred=_deferred(claim, _left(claim), claim.start_time))
            for claim in claims
            if claim.start_time > now and _left(claim)
        ]

    async def _bring_forward(self, claims: Sequence[Claim], message_id: int) -> bool:
        now = self._clock.now()
        settlements: list[Settlement] = []
        died: list[int] = []
        for claim in await self._with_bodies(claims, message_id):
            settlement = _forwarded(claim, message_id, now, alone=not self._is_ordered)
            died += [claim.first + death.offset for death in settlement.dead]
            settlements.append(settlement)
        late = await self._settle(settlements)
        if died:
            await self._log.redrive(self._group, died)
        return not late

    async def _with_bodies(self, claims: Sequence[Claim], message_id: int) -> list[Claim]:
        """The claims up to a message that may be delayed, whole; those behind it as they are."""
        before = [claim.token for claim in claims if claim.first <= message_id and not claim.block.body]
        whole: dict[int, Claim] = {}
        for begin in range(0, len(before), _SETTLED_STEP):
            page = await self._log.recall(self._group, before[begin : begin + _SETTLED_STEP])
            whole.update((claim.token, claim) for claim in page)
        return [whole.get(claim.token, claim) for claim in claims if _left(claim)]

    async def _expire(self, owner: str, claims: Sequence[Claim]) -> int:
        left = {claim.token: claim.remaining() for claim in claims if claim.remaining()}
        settlements = [
            claim.settle(expired=bitmap.minus(bitmap.full(claim.count), claim.done))
            for claim in claims
            if claim.token in left
        ]
        late = await self._settle(settlements)
        await self._log.heartbeat(owner)
        return sum(count for token, count in left.items() if token not in late)

    async def _settle(self, settlements: Sequence[Settlement]) -> set[int]:
        """Commit, step by step; the tokens of what came too late."""
        late: set[int] = set()
        for begin in range(0, len(settlements), _SETTLED_STEP):
            step = settlements[begin : begin + _SETTLED_STEP]
            receipt = await self._log.commit(settlements=step, id=mint())
            late.update(step[i].token for i in receipt.conflicts)
        return late

    async def _unmark(self, claims: Sequence[Claim]) -> None:
        """Say that nothing is out with workers: what comes back by hand counts no attempt."""
        marks = [claim.mark(returned=claim.handed) for claim in claims if any(claim.handed)]
        if marks:
            await self._log.mark(marks)


def _restless(message_id: int) -> Unavailable:
    text = f"message {message_id} changes hands faster than it can be had"
    return Unavailable(text, hint="try again", retry_after_seconds=1.0)


def _partition_of(found: Found) -> str:
    return (found.block.partition or "") if found.block is not None else ""


def _holds(claim: Claim, message_id: int) -> bool:
    """Whether a message is among those of a claim that are not finished."""
    offset = message_id - claim.first
    return 0 <= offset < claim.count and not (claim.done and claim.done[offset // 8] >> offset % 8 & 1)


def _light(claim: Claim) -> Claim:
    return msgspec.structs.replace(claim, block=msgspec.structs.replace(claim.block, body=b""))


def _left(claim: Claim) -> list[int]:
    """The offsets of what is not finished."""
    return bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))


def _deferred(claim: Claim, offsets: Sequence[int], due_at: int) -> tuple[Deferral, ...]:
    return defer(offsets, due_at, claim.attempts, claim.prev_start_time) if offsets else ()


def _block_of(claim: Claim, found: Found) -> Block:
    """The block of a claim, which may have come without its body."""
    stored = claim.block if claim.block.body or found.block is None else found.block
    return stored.decode(checked=bool(claim.block.body))


def _burial(claim: Claim, message_id: int, reason: str, found: Found, now: int) -> Settlement:
    """The message is dead; the others of its claim wait on if they did."""
    offset = message_id - claim.first
    message = _block_of(claim, found).message(message_id - claim.block.first)
    others = [o for o in _left(claim) if o != offset] if claim.start_time > now else []
    return claim.settle(
        dead=(Death(offset, reason, claim.attempts, without_start(message)),),
        deferred=_deferred(claim, others, claim.start_time),
    )


def _forwarded(claim: Claim, message_id: int, now: int, *, alone: bool) -> Settlement:
    """What is before the message, and the message, comes now; the rest when it was to come.

    A message whose own start time is to come is delayed by it again, whatever its claim says: it takes
    the way of a dead letter that is redriven, whose copy has none.
    """
    left = _left(claim)
    early = [o for o in left if (claim.first + o == message_id if alone else claim.first + o <= message_id)]
    later = [o for o in left if o not in set(early)]
    dead: tuple[Death, ...] = ()
    if early and not claim.attempts:
        block, begin = claim.block.decode(checked=True), claim.first - claim.block.first
        starts = block.start_times or [None] * len(block)
        bound = [o for o in early if (starts[begin + o] or 0) > now]
        dead = tuple(Death(o, FORWARD, 0, without_start(block.message(begin + o))) for o in bound)
        early = [o for o in early if o not in set(bound)]
    comes = max(now, claim.start_time)
    return claim.settle(deferred=_deferred(claim, early, now) + _deferred(claim, later, comes), dead=dead)
