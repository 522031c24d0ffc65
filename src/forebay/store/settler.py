"""Settler: what became of messages of one group, first to the log, then off the shelf.

Invariants: an outcome is in the log before the shelf forgets the message; a lease that is lost changes
nothing; in an ordered queue whatever comes back takes the rest of its partition with it; a plan changes
nothing until it is concluded, and it is concluded after the log has taken all of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from forebay.log.seam import Log, LogAway
from forebay.log.values import Claim, Group, Mark, QueueSettings, Settlement
from forebay.model import Clock, Message, Unavailable, UnknownGroup, bitmap, mint
from forebay.store.elsewhere import ASKED_STEP, late_of, tickets_of
from forebay.store.giving_up import without_start
from forebay.store.handing import lost_of, unmark, wanted_of
from forebay.store.settling import Verdict, expiry_of, nameless, settlement_of, singly, withdrawal_of
from forebay.store.tier import Tier
from forebay.store.tiers import SECOND, Tiers
from forebay.store.values import Ticket
from forebay.warm.seam import WarmAway
from forebay.warm.values import Lease, Leased

EXPIRED_SECONDS: Final = 5.0
"""How long the return of an expired lease may take before another server tries."""
EXPIRED_STEP: Final = 1_000
RECALLED_STEP: Final = 16
"""So many blocks are read at once to bury messages that their callers did not bring."""
NOTICED_SECONDS: Final = 5.0
"""What is out for so long may have been settled by another server."""
NOTICED_STEP: Final = 64
"""So many leases are looked at in one go, since their blocks are read for it."""
OUT_MAX: Final = 1_000
"""Of so many leases that are out."""

_Wanted = Mapping[Lease, Sequence[int]]
_Recalled = tuple[Mapping[Lease, Mapping[int, Message]], Collection[Lease]]
_Recall = Callable[[_Wanted], Awaitable[_Recalled]]


@dataclass(slots=True)
class Plan:
    """What is said of tasks of one tier: the log is to be told, and then the shelf."""

    tier: Tier
    held: dict[Lease, list[int]]
    settlements: dict[Lease, Settlement]
    returning: dict[Lease, str]
    """The partition of each lease of which something goes back."""
    lost: list[int]
    """The ids of tasks that are no longer held: the rest is about the others."""


class Settler:
    """See the module. It tells the window what that means for it.

    `freed`: so many messages are off the shelf, and these partitions may be handed out again; `readied`: so
    many are ready; `come_due`: something of these partitions comes back at a time; `later`: what is owed is
    to be paid; `returned`: messages of these leases go back to the log.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        group: Group,
        tiers: Tiers,
        settings: QueueSettings,
        *,
        freed: Callable[[int, Collection[str]], None],
        readied: Callable[[int], None],
        come_due: Callable[[int, Collection[str]], None],
        later: Callable[[float], None],
        returned: Callable[[Iterable[Lease]], None],
    ) -> None:
        self.settings = settings
        self._log = log
        self._clock = clock
        self._group = group
        self._tiers = tiers
        self._freed = freed
        self._readied = readied
        self._come_due = come_due
        self._later = later
        self._returned = returned
        self._owed: dict[Lease, tuple[Settlement, list[int]]] = {}
        self._elsewhere: str | None = None
        """The epoch of leases that no shelf of ours gave out. Nobody can guess it."""
        self._noticed = 0

    async def settle(self, verdicts: Mapping[Lease, Verdict]) -> list[int]:
        """Record outcomes; returns the ids of messages whose lease was lost, about which nothing was."""
        lost: list[int] = []
        if not self.settings.ordered:
            unused = {lease: sorted(set(v.released)) for lease, v in verdicts.items() if v.released}
            if unused:
                lost.extend(await self._release(unused))
                verdicts = {lease: v.without_released() for lease, v in verdicts.items()}
                verdicts = {lease: v for lease, v in verdicts.items() if v.offsets()}
        for tier, mine in self._tiers.split(verdicts):
            lost.extend(await self._settle(tier, mine))
        return lost

    async def expire(self, tier: Tier) -> None:
        """Bring back what was leased for too long: an attempt more, or a dead letter."""
        while True:
            expired = await self._tiers.call(
                tier, lambda t, e: t.warm.expire(t.shelf, e, EXPIRED_STEP, EXPIRED_SECONDS)
            )
            if not expired:
                return
            now = self._clock.now()
            await self._commit(
                tier,
                wanted_of(expired),
                {piece.lease: expiry_of(piece, now, self.settings) for piece in expired},
                {piece.lease: piece.parcel.partition or "" for piece in expired},
            )

    async def plan(self, verdicts: Mapping[Lease, Verdict]) -> list[Plan]:
        """What is to be committed, for whoever commits it together with other things."""
        return [await self._plan(tier, mine, self._recall_now) for tier, mine in self._tiers.split(verdicts)]

    async def conclude(self, plan: Plan) -> None:
        """All that was planned is in the log: take it off the shelf.

        Where it doesn't come so far, the leases expire, and the log says that they were settled.
        """
        rest = await self._take_along(plan)
        await self._forget(plan.tier, {**plan.held, **rest}, plan.settlements.values())

    def doubt(self, plan: Plan) -> None:
        """Nobody knows whether what was planned is in the log: what may have gone back is waited for."""
        if plan.tier.shelf.ordered:
            self._returned(plan.returning)

    async def drop_late(self, plan: Plan) -> list[int]:
        """Take off the shelf what the log no longer lets us settle, of a plan that it refused; the ids."""
        late = await self._late(plan.held)
        if late:
            await self._forget(plan.tier, late, ())
        return [lease.first + o for lease, offsets in late.items() for o in offsets]

    async def notice(self, tier: Tier) -> None:
        """Take off the shelf what another server has settled (see `tickets`).

        Some of what is out for a while is looked at, by turns; the rest waits for its lease to expire.
        """
        until = self._clock.now() - int(NOTICED_SECONDS * SECOND)
        out = [p for p in await tier.warm.running(tier.shelf, OUT_MAX) if p.since <= until]
        begin = self._noticed if self._noticed < len(out) else 0
        self._noticed = begin + NOTICED_STEP
        late = await self._late(wanted_of(out[begin : self._noticed]))
        if late:
            await self._forget(tier, late, ())

    async def _late(self, held: _Wanted) -> dict[Lease, list[int]]:
        """What of this the log no longer lets us settle."""
        sizes = {lease.claim: lease.count for lease in held}
        tokens, claims = sorted(sizes), list[Claim]()
        try:
            for begin in range(0, len(tokens), RECALLED_STEP):
                claims += await self._log.recall(self._group, tokens[begin : begin + RECALLED_STEP])
        except UnknownGroup:
            return {lease: list(offsets) for lease, offsets in held.items()}
        missing = sorted(sizes.keys() - {claim.token for claim in claims})
        # What has expired is not recalled, and may be held nevertheless. A mark that says nothing tells.
        late = await self._log.mark([Mark(self._group.number, token, sizes[token]) for token in missing])
        return late_of(held, claims, {missing[i] for i in late})

    async def tickets(self, ids: Sequence[int], since: int) -> dict[int, Ticket]:
        """Tickets for messages that are out under leases that were given out elsewhere."""
        if self._elsewhere is None:
            await self._show_up()
            self._elsewhere = mint().hex()
        found: dict[int, Ticket] = {}
        for begin in range(0, len(ids), ASKED_STEP):
            asked = ids[begin : begin + ASKED_STEP]
            claims = await self._log.holding(self._group, asked)
            found.update(tickets_of(claims, asked, since, self._elsewhere))
        return found

    async def _show_up(self) -> None:
        """Let other servers know that we are there, and may settle what they handed out."""
        if self._tiers.shared is None:
            await self._tiers.own.open()
            await self._tiers.own.beat()

    async def _settle(self, tier: Tier, verdicts: Mapping[Lease, Verdict]) -> list[int]:
        plan = await self._plan(tier, verdicts, self._recall_or_wait)
        if not plan.held:
            return plan.lost
        return plan.lost + await self._commit(tier, plan.held, plan.settlements, plan.returning)

    async def _plan(self, tier: Tier, verdicts: Mapping[Lease, Verdict], recall: _Recall) -> Plan:
        wanted = {lease: v.offsets() for lease, v in verdicts.items()}
        held = await self._held_of(tier, wanted)
        lost = lost_of(wanted, held)
        kept = {
            lease: verdicts[lease] if len(offsets) == len(wanted[lease]) else verdicts[lease].only(offsets)
            for lease, offsets in held.items()
        }
        settings = self.settings
        needed = {lease: offsets for lease, v in kept.items() if (offsets := nameless(lease, v, settings))}
        messages, missing = await recall(needed) if needed else ({}, ())
        for lease in missing:
            lost += [lease.first + o for o in needed[lease]]
            held[lease] = [o for o in held[lease] if o not in needed[lease]]
            kept[lease] = kept[lease].only(held[lease])
            if not held[lease]:
                del held[lease], kept[lease]
        now = self._clock.now()
        settlements = {
            lease: settlement_of(lease, v, now, settings, messages.get(lease)) for lease, v in kept.items()
        }
        returning = {lease: lease.partition or "" for lease, v in kept.items() if v.returns}
        return Plan(tier, held, settlements, returning, lost)

    async def _recall_or_wait(self, needed: _Wanted) -> _Recalled:
        """The messages of leases, and the leases that have none any more.

        While the log is away and its outcomes are kept elsewhere, they are looked up later.
        """
        try:
            return await self._recall_now(needed)
        except LogAway:
            return {}, ()

    async def _recall_now(self, needed: _Wanted) -> _Recalled:
        messages = await self._recall(needed)
        return messages, needed.keys() - messages.keys()

    async def _recall(self, needed: Mapping[Lease, Sequence[int]]) -> dict[Lease, dict[int, Message]]:
        """The messages of leases, from the log; what is no longer held isn't there."""
        tokens = sorted({lease.claim for lease in needed})
        found: dict[Lease, dict[int, Message]] = {}
        for begin in range(0, len(tokens), RECALLED_STEP):
            claims = await self._log.recall(self._group, tokens[begin : begin + RECALLED_STEP])
            blocks = {(claim.token, claim.first, claim.count): claim for claim in claims}
            for lease, offsets in needed.items():
                claim = blocks.get((lease.claim, lease.first, lease.count))
                if claim is not None:
                    block, start = claim.block.decode(checked=True), claim.first - claim.block.first
                    found[lease] = {o: without_start(block.message(start + o)) for o in offsets}
        return found

    async def _held_of(self, tier: Tier, wanted: _Wanted) -> dict[Lease, list[int]]:
        here = wanted if self._elsewhere is None else self._here(wanted)
        held = {lease: list(offsets) for lease, offsets in wanted.items() if lease not in here}
        try:
            return held | await tier.warm.held(tier.shelf, here)
        except WarmAway:
            # The log knows whether the claim is still ours, which is what counts.
            self._tiers.fall_back()
            return {lease: list(offsets) for lease, offsets in wanted.items()}

    def _here(self, wanted: _Wanted) -> _Wanted:
        """What a shelf of ours may hold."""
        return {lease: offsets for lease, offsets in wanted.items() if lease.epoch != self._elsewhere}

    async def _commit(
        self,
        tier: Tier,
        wanted: Mapping[Lease, Sequence[int]],
        settlements: Mapping[Lease, Settlement],
        returning: Mapping[Lease, str],
    ) -> list[int]:
        """Commit settlements, then take their messages off the shelf; returns the ids that came too late.

        In an ordered queue the rest of a partition goes back along with what goes back of it: `returning`
        says the partition of each lease of which something does.
        """
        rest: dict[Lease, tuple[Settlement, list[int]]] = {}
        try:
            if tier.shelf.ordered:
                for partition, due_at in self._due_of(settlements, returning).items():
                    for piece in await self._withdraw(tier, partition):
                        rest[piece.lease] = (withdrawal_of(piece, due_at), piece.offsets())
                self._returned([*returning, *rest])
            everything = [*settlements.values(), *(settlement for settlement, _ in rest.values())]
            receipt = await self._log.commit(settlements=everything, id=mint())
        except BaseException:
            if rest:  # the shelf has forgotten some of it: it is said again until the log has heard
                self._owed.update(rest)
                self._later(1.0)
            raise
        gone = {**wanted, **{lease: offsets for lease, (_, offsets) in rest.items()}}
        late: list[int] = []
        if receipt.conflicts:
            asked = {lease.first + offset for lease, offsets in wanted.items() for offset in offsets}
            found = await self._settle_singly([everything[i] for i in receipt.conflicts])
            late = [task_id for task_id in found if task_id in asked]  # what was withdrawn is nobody's
        await self._forget(tier, gone, everything)
        return late

    async def _forget(self, tier: Tier, gone: _Wanted, settlements: Iterable[Settlement]) -> None:
        """Take off the shelf what the log has heard of."""
        try:
            await tier.warm.finish(tier.shelf, gone)
        except WarmAway:
            self._tiers.fall_back()  # what the shelf still holds of it is refused when it is marked
        here = gone if self._elsewhere is None else self._here(gone)
        partitions = [lease.partition or "" for lease in gone] if tier.shelf.ordered else ()
        self._freed(sum(map(len, here.values())), partitions)
        due = [d.due_at for s in settlements for d in s.deferred]
        if due:
            self._come_due(min(due), ())

    async def _take_along(self, plan: Plan) -> dict[Lease, list[int]]:
        """Send the rest of the partitions of which something went back after it; what went, by lease.

        By a write of its own, which may fail alone: what was planned stands. Until the shelf has heard of
        that, the partition is out, and afterwards the log refuses to let the rest overtake.
        """
        rest: dict[Lease, tuple[Settlement, list[int]]] = {}
        if not plan.tier.shelf.ordered or not plan.returning:
            return {}
        self._returned(plan.returning)
        try:
            for partition, due_at in self._due_of(plan.settlements, plan.returning).items():
                for piece in await self._withdraw(plan.tier, partition):
                    rest[piece.lease] = (withdrawal_of(piece, due_at), piece.offsets())
            self._returned(rest)
            told = [settlement for settlement, _ in rest.values()]
            receipt = await self._log.commit(settlements=told, id=mint())
            if receipt.conflicts:
                await self._settle_singly([told[i] for i in receipt.conflicts])
        except BaseException as error:
            self._owed.update(rest)
            self._later(1.0)
            if not isinstance(error, Unavailable):
                raise
            return {}
        return {lease: offsets for lease, (_, offsets) in rest.items()}

    def _due_of(
        self, settlements: Mapping[Lease, Settlement], returning: Mapping[Lease, str]
    ) -> dict[str, int]:
        """When the rest of each partition may come again: with the last that goes back of it."""
        due: dict[str, int] = {}
        for lease, partition in returning.items():
            times = [d.due_at for d in settlements[lease].deferred]
            due[partition] = max([due.get(partition, self._clock.now()), *times])
        return due

    async def _settle_singly(self, conflicts: Sequence[Settlement]) -> list[int]:
        """Settle what conflicts as a whole message by message; returns the ids that came too late.

        Some may have been settled before, by a call whose answer was lost: the others must not be lost too.
        """
        parts = [part for settlement in conflicts for part in singly(settlement)]
        receipt = await self._log.commit(settlements=parts, id=mint())
        return [parts[i].first + bitmap.indexes(parts[i].finished())[0] for i in receipt.conflicts]

    async def _withdraw(self, tier: Tier, partition: str) -> list[Leased]:
        if tier.epoch is None:
            return []
        return await self._tiers.call(tier, lambda t, e: t.warm.withdraw(t.shelf, e, partition))

    async def pay(self) -> None:
        """Say again what was withdrawn and may not have come to the log; what has come is a conflict now."""
        if not self._owed:
            return
        owed, self._owed = self._owed, {}
        try:
            await self._log.commit(settlements=[s for s, _ in owed.values()], id=mint())
        except BaseException:
            self._owed.update(owed)
            raise
        for tier, mine in self._tiers.split({lease: offsets for lease, (_, offsets) in owed.items()}):
            with suppress(WarmAway):
                await tier.warm.finish(tier.shelf, mine)
        partitions = {lease.partition or "" for lease in owed}
        self._come_due(min(d.due_at for s, _ in owed.values() for d in s.deferred), partitions)

    async def _release(self, wanted: Mapping[Lease, Sequence[int]]) -> list[int]:
        """Make tasks of an unordered queue ready again, unused; returns the ids whose lease was lost."""
        lost: list[int] = []
        for tier, mine in self._tiers.split(wanted):
            held = await tier.warm.held(tier.shelf, mine)
            lost.extend(lost_of(mine, held))
            await self._log.mark([unmark(lease, offsets) for lease, offsets in held.items()])
            await tier.warm.release(tier.shelf, held)
            self._readied(sum(map(len, held.values())))
        return lost
