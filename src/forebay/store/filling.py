"""Filling a shelf from the log: what came due, what nobody has claimed, what was only noted.

Either all that is there, as far as it fits; or as much as is asked for of one partition, for which others
that nobody has asked for make room.

Invariants: nothing newer is brought while something older of the same flow (ordered: partition) is cold;
what can't be handed out yet goes back to the log before anything else of its claim is offered; a fill
that breaks off leaves a doubt behind, and the next one looks for claims that never came to the shelf.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import islice
from time import monotonic
from typing import Final, TypeVar

import msgspec

from forebay.log.seam import Log, LogAway
from forebay.log.values import Claim, Claimed, Group, Queue, Room, Settlement, StoredBlock
from forebay.model import Block, Clock, Flow, mint, sequence_of
from forebay.store.handing import wanted_of
from forebay.store.settling import withdrawal_of
from forebay.store.tail import Tail
from forebay.store.tier import Tier
from forebay.store.unpacking import Unpacked, defer, pick, unpack
from forebay.warm.memory import MemoryWarm
from forebay.warm.seam import EpochLost
from forebay.warm.values import Fill, Parcel

T = TypeVar("T")

STEP_MESSAGES: Final = 1_000
"""At most so many messages are claimed at once, so that the first of them are not kept waiting."""
NOTED_MAX: Final = 10_000
"""At most so many parcels are noted before the log is left alone."""
PARCELS: Final = 20
"""A shelf has room for so many parcels at least."""
PARCEL_MESSAGES_MAX: Final = 250
PARCEL_MESSAGES_MIN: Final = 10
"""In a parcel of a flow that has to share the shelf with one that holds most of it."""
HOG_SHARE: Final = 0.5
"""A flow that holds more of the shelf than this makes room for others that wait in the log."""
LATE_SECONDS: Final = 30.0
"""So long after the log was away a shared shelf's doubt is left alone: what isn't on the shelf may have been
settled by another server, which has not told the log yet."""
NOTED_STEP: Final = 200
"""About so many messages that were only noted are brought at once."""
READ_MESSAGES: Final = 1_000
"""At most so many messages are read at once to bring what was noted."""
READ_BYTES: Final = 8 << 20
READ_GAP_MESSAGES: Final = 16
"""Noted messages that lie further apart are not read together."""
NEVER: Final = 1e9
"""Seconds that nobody is silent for."""
NO_TIME: Final = (1 << 62) - 1
"""Later than any time: nothing is deferred."""


class Filled(msgspec.Struct, frozen=True):
    """What a fill brought, and what it found."""

    brought: int
    held: int
    drained: bool
    """Nothing is left in the log that could be handed out now."""
    next_due_at: int | None
    hog: Flow | None
    """A flow that holds most of the shelf."""
    noted: frozenset[Flow]
    """Flows of which something is only noted."""
    partitions: Collection[str]
    """Of which something was brought."""


class Fetched(msgspec.Struct, frozen=True):
    """What it took to fetch something of one partition."""

    held: int
    next_due_at: int | None
    """When more of the partition comes due, if the log was asked, and knows."""
    spared: Collection[str]
    """Partitions that went back to the log to make room."""
    is_cramped: bool
    """Whether some had to be left out, since all that the shelf holds is out."""


class Filler:
    """Fills the shelf of one group. One fill at a time."""

    def __init__(self, log: Log, clock: Clock, queue: Queue, group: Group, tail: Tail) -> None:
        self.queue = queue
        self.log = log
        self.clock = clock
        self.group = group
        self.tail = tail
        self._decoded: tuple[tuple[int, bytes], Block] | None = None
        self._away_at = -LATE_SECONDS

    async def fill(self, tier: Tier, next_due_at: int | None, *, share: bool) -> Filled | None:
        """Bring what fits; None while somebody else is at it.

        `next_due_at` says when something deferred comes due, if it is known; `share` makes room for flows
        that wait behind one that holds most of the shelf.
        """
        return await self._do(tier, next_due_at, lambda work, doubt: work.run(doubt=doubt, share=share))

    async def fetch(self, tier: Tier, partition: str, count: int, *, goes_on: bool) -> Fetched | None:
        """See to it that `count` messages of one partition are ready, if there are so many.

        None while somebody else fills. Nothing is fetched of a partition that is out, unless it `goes_on`:
        whoever has it takes what comes after, too.
        """
        return await self._do(
            tier,
            None,
            lambda work, doubt: work.fetch(partition, count, doubt=doubt, goes_on=goes_on),
        )

    async def empty(self, tier: Tier, own: MemoryWarm) -> int:
        """Give all that isn't out with a worker back to the log; how many pieces it was.

        What is out stays until it is settled, or its lease expires.
        """
        found = await self._do(tier, None, lambda work, doubt: work.empty(own, doubt=doubt))
        return found or 0

    async def _do(
        self, tier: Tier, next_due_at: int | None, job: Callable[[_Work, bool], Awaitable[T]]
    ) -> T | None:
        fill = await tier.warm.begin(tier.shelf, tier.epoch or await tier.open())
        if fill is None:
            return None
        doubt, tier.doubt = fill.doubt or tier.doubt, False
        later = doubt and tier.warm.shared and monotonic() - self._away_at < LATE_SECONDS
        try:
            done = await job(_Work(self, tier, fill, next_due_at), doubt and not later)
            await tier.warm.end(tier.shelf, fill, doubt=later)
        except BaseException as error:
            tier.doubt = True
            if isinstance(error, LogAway):
                self._away_at = monotonic()
            await _end_in_doubt(tier, fill)
            raise
        return done

    async def block_of(self, claim: Claim) -> Block:
        """The whole block of a claim, from memory where it is there."""
        first = claim.block.first
        key = first, claim.block.id  # a dead letter's own copy may begin where its block does
        if self._decoded is not None and self._decoded[0] == key:
            return self._decoded[1]
        if claim.block.body:
            block = claim.block.decode(self.queue.name, checked=True)
        else:
            block = self.tail.get(first) or await self.read(claim.first)
        self._decoded = (key, block)
        return block

    async def read(self, message_id: int) -> Block:
        """The block that holds a message, from the log."""
        (stored,) = await self.log.read(self.queue, sequence_of(message_id), messages=1)
        return stored.decode(self.queue.name)


class _Work:
    """One fill."""

    def __init__(self, filler: Filler, tier: Tier, fill: Fill, next_due_at: int | None) -> None:
        self._filler = filler
        self._log = filler.log
        self._group = filler.group
        self._tier = tier
        self._fill = fill
        self._next_due_at = next_due_at
        self._owner = tier.owner(fill.epoch)
        self._held = fill.messages
        self._bytes = fill.bytes
        self._brought = 0
        self._flows = dict(fill.flows)
        self._noted = dict(fill.noted)
        self._no_bytes = False
        self._hogs: set[Flow] = set()
        self._late: dict[str, int] = {}
        self._partitions: set[str] = set()
        self._spared: set[str] = set()
        self._wanted: str | None = None
        """The partition for which others make room."""

    @property
    def _room(self) -> int:
        return self._tier.shelf.messages_max - self._held

    async def run(self, *, doubt: bool, share: bool) -> Filled:
        hog = self._hog()
        if share and hog is not None:
            self._hogs.add(hog)
        if doubt:
            await self._recover()
        if self._fill.noted and self._room > 0:
            await self._bring_noted()
        if self._is_due():
            await self._bring_due()
        drained = await self._bring_new() and not self._noted
        return Filled(
            self._brought, self._held, drained, self._next_due_at, self._hog(),
            frozenset(self._noted), self._partitions,
        )  # fmt: skip

    async def fetch(self, partition: str, count: int, *, doubt: bool, goes_on: bool) -> Fetched:
        """Bring as many messages of a partition as it takes to have so many ready."""
        if doubt:
            await self._recover()
        lane = await self._tier.warm.lane(self._tier.shelf, self._fill, partition)
        count = min(count, self._tier.shelf.messages_max) - lane.ready
        is_all = True
        if count > 0 and (goes_on or not lane.out):
            self._wanted = partition
            is_all = await self._fetch(partition, count, lane.noted)
        return Fetched(self._held, self._next_due_at, self._spared, not is_all)

    async def empty(self, own: MemoryWarm, *, doubt: bool) -> int:
        """Give back all that isn't out; with a `doubt`, also what the log holds and the shelf never got."""
        given = await self._withdraw_all(own)
        if doubt:
            await self._recover()
            given += await self._withdraw_all(own)
        return given

    async def _withdraw_all(self, own: MemoryWarm) -> int:
        shelf, now = self._tier.shelf, self._filler.clock.now()
        pieces = await own.withdraw_all(shelf, self._fill.epoch)
        for begin in range(0, len(pieces), STEP_MESSAGES):
            some = pieces[begin : begin + STEP_MESSAGES]
            receipt = await self._log.commit(settlements=[withdrawal_of(p, now) for p in some], id=mint())
            await own.finish(shelf, wanted_of(some))
            if receipt.conflicts:  # the log may have heard some of it before: the next one finds the rest
                self._tier.doubt = True
        return len(pieces)

    async def _fetch(self, partition: str, count: int, noted: int) -> bool:
        """Tells whether all that came is on the shelf."""
        count += self._brought  # by looking for what was lost
        if noted:
            shelf, warm = self._tier.shelf, self._tier.warm
            found = await warm.noted(shelf, self._fill, count - self._brought, partition=partition)
            is_all = await self._unnote(found)
            if not is_all or len(found) < noted:
                return is_all  # nothing newer before the rest of it
        while self._brought < count:
            room = Room(count - self._brought, self._tier.shelf.bytes_max)
            claimed = await self._claim_of(partition, room)
            if not (claimed.claims or claimed.corrupt):
                break
            if not await self._offer(claimed):
                return False
        return True

    async def _claim_of(self, partition: str, room: Room) -> Claimed:
        """What comes next of a partition: what is new, unless something of it is deferred."""
        known = self._filler.tail.known
        claimed = await self._log.claim(self._group, self._owner, room, partition=partition, known=known)
        if not claimed.claims and not claimed.corrupt:
            claimed = await self._log.due(self._group, self._owner, room, partition=partition)
            self._next_due_at = claimed.next_due_at
        return claimed

    async def _make_room(self, parcels: Sequence[Parcel]) -> None:
        """Have partitions that nobody has asked for go back to the log, as many as it takes."""
        shelf, warm = self._tier.shelf, self._tier.warm
        messages = self._held + sum(map(len, parcels)) - shelf.messages_max
        size = self._bytes + sum(parcel.size for parcel in parcels) - shelf.bytes_max
        if self._wanted is None or (messages <= 0 and size <= 0):
            return
        spared = await warm.spare(shelf, self._fill, messages, size, besides=self._wanted)
        if not spared:
            return
        now = self._filler.clock.now()
        await self._log.commit(settlements=[withdrawal_of(piece, now) for piece in spared], id=mint())
        await warm.finish(shelf, wanted_of(spared))
        self._spared.update(piece.lease.partition or "" for piece in spared)
        off = [piece for piece in spared if piece.deadline > piece.since]  # the others were only noted
        self._held -= sum(len(piece.places) for piece in off)
        self._bytes -= sum({piece.parcel.key: piece.parcel.size for piece in off}.values())

    def _hog(self) -> Flow | None:
        most = HOG_SHARE * self._tier.shelf.messages_max
        if self._tier.shelf.ordered:
            return None
        return next((flow for flow, count in self._flows.items() if count > most), None)

    async def _recover(self) -> None:
        """Find the claims of this shelf that never came to it: the answer was lost, or a server died."""
        known = await self._tier.warm.claims(self._tier.shelf, self._fill)
        while True:
            claimed = await self._log.reclaim(
                self._group, self._owner, self._space(), of=[self._owner], silent_seconds=NEVER, besides=known
            )
            known.update(claim.token for claim in claimed.claims)
            if not claimed.claims:
                return
            if self._tier.shelf.ordered:
                # Nobody knows why they aren't here: something before them may have gone back to the log.
                last = {
                    claim.block.partition or "": claim.first + claim.count - 1 for claim in claimed.claims
                }
                await self._tier.warm.note_returns(self._tier.shelf, self._fill.epoch, last)
            await self._offer(claimed)

    async def _bring_noted(self) -> None:
        """Bring what was noted, step by step.

        A fill that takes too long goes on at another server. What is on the shelf by then stays there: a slow
        log delays it, and doesn't undo it every time.
        """
        shelf, warm = self._tier.shelf, self._tier.warm
        while self._room > 0:
            found = await warm.noted(shelf, self._fill, min(self._room, NOTED_STEP), self._hogs)
            if not found or not await self._unnote(found):
                return

    async def _unnote(self, noted: Sequence[Parcel]) -> bool:
        """Bring the bodies of what was noted; tells whether all of it is on the shelf."""
        fitting = []
        for parcel in noted:
            too_large = len(parcel) > 1 and parcel.size > self._tier.shelf.bytes_max
            if too_large or len(parcel) > self._tier.shelf.messages_max:
                # The limits were lowered. It is cut anew once that costs nobody a lease.
                if self._held:
                    break
                await self._tier.renew()
                raise EpochLost("what was noted no longer fits on the shelf", hint="fill again")
            fitting.append(parcel)
        blocks = await self._read_claims(fitting)
        parcels = []
        for parcel in fitting:
            part = pick(blocks[parcel.claim], 0, parcel.offsets)
            parcels.append(msgspec.structs.replace(parcel, block=part))
            self._count_noted(parcel.flow, -1)
        return await self._put(parcels) and len(parcels) == len(noted)

    async def _read_claims(self, parcels: Sequence[Parcel]) -> dict[int, Block]:
        """The messages of the claims that parcels were cut from, by claim.

        Many small blocks are noted at a time: those that lie together are read together.
        """
        claims = {parcel.claim: parcel for parcel in parcels}
        wanted = sorted(claims.values(), key=lambda parcel: parcel.first)
        blocks: dict[int, Block] = {}
        stored: deque[StoredBlock] = deque()
        for place, parcel in enumerate(wanted):
            while stored and stored[0].last < parcel.first:
                stored.popleft()
            if not stored:
                first, messages = sequence_of(parcel.first), _reach(wanted, place)
                page = await self._log.read(self._filler.queue, first, messages=messages, bytes=READ_BYTES)
                stored.extend(page)
            if not stored or stored[0].first > parcel.first:
                # Dropped by retention, or a dead letter with a body of its own: the log knows what to do.
                await self._tier.renew()
                raise EpochLost("a block that was noted is no longer kept", hint="fill again")
            begin = parcel.first - stored[0].first
            block = stored[0].decode(self._filler.queue.name)
            blocks[parcel.claim] = block.slice(begin, begin + parcel.count)
        return blocks

    def _is_due(self) -> bool:
        return self._room > 0 and (self._next_due_at is None or self._next_due_at <= self._filler.clock.now())

    async def _bring_due(self) -> None:
        while self._room > 0 and not self._is_held_up():
            claimed = await self._log.due(self._group, self._owner, self._space())
            self._next_due_at = NO_TIME if claimed.next_due_at is None else claimed.next_due_at
            if not claimed.claims:
                return
            await self._offer(claimed)

    async def _bring_new(self) -> bool:
        """Claim what is new; tells whether that was all."""
        while self._room > 0 and sum(self._noted.values()) < NOTED_MAX and not self._is_held_up():
            known = self._filler.tail.known
            claimed = await self._log.claim(self._group, self._owner, self._space(), known=known)
            if not claimed.claims and not claimed.corrupt:
                return True
            await self._offer(claimed)
            if self._hogs and self._brought:
                break
        return False

    def _is_held_up(self) -> bool:
        """Whether there are no bytes left for more: it would only be noted."""
        return not self._hogs and self._no_bytes

    def _space(self) -> Room:
        messages = STEP_MESSAGES if self._hogs else min(self._room, STEP_MESSAGES)
        return Room(max(1, messages), max(1, self._tier.shelf.bytes_max - self._bytes))

    def _most(self) -> int:
        """How many messages a parcel may have: few, where they have to fit in what others leave free."""
        if self._hogs:
            return PARCEL_MESSAGES_MIN
        return max(1, min(PARCEL_MESSAGES_MAX, self._tier.shelf.messages_max // PARCELS))

    async def _offer(self, claimed: Claimed) -> bool:
        """Bring claims to the shelf; tells whether all that can be handed out is on it."""
        now, shelf = self._filler.clock.now(), self._tier.shelf
        self._late.clear()
        parcels: list[Parcel] = []
        settlements: list[Settlement] = []
        for claim in claimed.claims:
            block = await self._filler.block_of(claim)
            unpacked = unpack(claim, block, now, self._filler.queue.settings, most=self._most())
            if shelf.ordered:
                unpacked = self._keep_behind(claim, unpacked, now)
            parcels.extend(unpacked.parcels)
            if unpacked.deferred or unpacked.dead:
                settlements.append(claim.settle(deferred=unpacked.deferred, dead=unpacked.dead))
        if settlements:
            await self._log.commit(settlements=settlements, id=mint())
            self._note_due(settlements)
        return await self._put(parcels)

    def _keep_behind(self, claim: Claim, unpacked: Unpacked, now: int) -> Unpacked:
        """In an ordered queue, what comes after a deferred message of its partition waits along."""
        partition = claim.block.partition or ""
        due_at = self._late.get(partition)
        if due_at is not None:
            behind = [o for parcel in unpacked.parcels for o in parcel.offsets]
            waiting = defer(behind, due_at, claim.attempts, claim.prev_start_time)
            unpacked = Unpacked((), unpacked.deferred + waiting, unpacked.dead)
        if unpacked.deferred:
            self._late[partition] = max(now, *(d.due_at for d in unpacked.deferred))
        return unpacked

    def _note_due(self, settlements: Sequence[Settlement]) -> None:
        earliest = min((d.due_at for s in settlements for d in s.deferred), default=NO_TIME)
        if self._next_due_at is not None and earliest < self._next_due_at:
            self._next_due_at = earliest  # unless it isn't known what else is due

    async def _put(self, parcels: Sequence[Parcel]) -> bool:
        """Offer parcels; tells whether none of them is only noted."""
        if self._hogs:
            parcels = [msgspec.structs.replace(p, block=None) if p.flow in self._hogs else p for p in parcels]
        if not parcels:
            return True
        await self._make_room(parcels)
        noted = {parcel.key for parcel in await self._tier.warm.offer(self._tier.shelf, self._fill, parcels)}
        for parcel in parcels:
            if parcel.key in noted:
                self._count_noted(parcel.flow, 1)
                self._no_bytes = self._no_bytes or parcel.size > self._tier.shelf.bytes_max - self._bytes
                continue
            self._held += len(parcel)
            self._bytes += parcel.size
            self._brought += len(parcel)
            self._partitions.add(parcel.partition or "")
            self._flows[parcel.flow] = self._flows.get(parcel.flow, 0) + len(parcel)
        return not noted

    def _count_noted(self, flow: Flow, change: int) -> None:
        self._noted[flow] = self._noted.get(flow, 0) + change
        if not self._noted[flow]:
            del self._noted[flow]


def _reach(parcels: Sequence[Parcel], place: int) -> int:
    """How many messages to read from the one at a place on, to get those that lie close behind it, too."""
    first = parcels[place].first
    end = first + parcels[place].count
    for parcel in islice(parcels, place + 1, None):
        if parcel.first - end > READ_GAP_MESSAGES or parcel.first + parcel.count - first > READ_MESSAGES:
            break
        end = max(end, parcel.first + parcel.count)
    return end - first


async def _end_in_doubt(tier: Tier, fill: Fill) -> None:
    try:
        await tier.warm.end(tier.shelf, fill, doubt=True)
    except Exception:  # noqa: BLE001 - a fill that is never ended leaves the same doubt
        return
