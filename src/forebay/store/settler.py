"""Settler: what became of messages of one group, first to the log, then off the shelf.

Invariants: an outcome is in the log before the shelf forgets the message; a lease that is lost changes
nothing; in an ordered queue whatever comes back takes the rest of its partition with it, also what is out
with workers, and nothing ends past what comes back by the same call; what comes back by the spool only keeps
its partition from being handed out until the log has heard of it (`Withheld`); a plan changes nothing until
it is concluded, and it is concluded after the log has taken all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from forebay.log.seam import Log, LogAway, Unchecked
from forebay.log.values import Claim, Group, Mark, QueueSettings, Settlement
from forebay.model import Clock, Message, Unavailable, UnknownGroup, bitmap, mint
from forebay.store.elsewhere import ASKED_STEP, late_of, rest_of, tickets_of, vouched_of, without_body
from forebay.store.giving_up import without_start
from forebay.store.handing import lost_of, unmark, wanted_of, without
from forebay.store.plans import Plan, Told
from forebay.store.settling import (
    Verdict,
    expiry_of,
    nameless,
    overtaking,
    settlement_of,
    singly,
    withdrawal_of,
)
from forebay.store.tier import Tier
from forebay.store.tiers import SECOND, Tiers
from forebay.store.values import Ticket
from forebay.store.withheld import Withheld
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
"""At most so many leases that are out are looked at."""

_Wanted = Mapping[Lease, Sequence[int]]
_Recalled = tuple[Mapping[Lease, Mapping[int, Message]], Collection[Lease]]
_Recall = Callable[[_Wanted], Awaitable[_Recalled]]


class Settler:
    """See the module. It tells the window what that means for it.

    `freed`: so many messages are off the shelf, and these partitions may be handed out again; `readied`: so
    many are ready; `come_due`: something of these partitions comes back at a time; `later`: what is owed is
    to be paid.
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
        self._withheld = Withheld()
        self._owed: dict[Lease, tuple[Settlement, list[int]]] = {}
        self._elsewhere: str | None = None
        """The epoch of leases that no shelf of ours gave out. Nobody can guess it."""
        self._noticed = 0

    @property
    def owes(self) -> bool:
        """Whether the log is still to be told something."""
        return bool(self._owed or self._withheld)

    async def settle(self, verdicts: Mapping[Lease, Verdict]) -> Told:
        """Record outcomes."""
        told = Told()
        if not self.settings.ordered:
            unused = {lease: sorted(set(v.released)) for lease, v in verdicts.items() if v.released}
            if unused:
                told.add(await self._release(unused))
                verdicts = {lease: v.without_released() for lease, v in verdicts.items()}
                verdicts = {lease: v for lease, v in verdicts.items() if v.offsets()}
        verdicts = await self._vouched(verdicts)
        for tier, mine in self._tiers.split(verdicts):
            told.add(await self._settle(tier, mine))
        return told

    async def expire(self, tier: Tier) -> None:
        """Bring back what was leased for too long: an attempt more, or a dead letter."""
        while expired := await self._tiers.call(
            tier, lambda t, e: t.warm.expire(t.shelf, e, EXPIRED_STEP, EXPIRED_SECONDS)
        ):
            if unheard := await self._unheard(tier, expired):
                now = self._clock.now()
                settlements = {piece.lease: expiry_of(piece, now, self.settings) for piece in unheard}
                await self._commit(Plan(tier, wanted_of(unheard), settlements))

    async def _unheard(self, tier: Tier, expired: Sequence[Leased]) -> Sequence[Leased]:
        """Expired leases, except those whose return is in our spool and waits for the log."""
        known = self._withheld.renew(expired)
        if not known:
            return expired
        try:
            await self._let_go_of_heard(tier)
        except Unavailable:  # the spool is still to tell the log
            unheard = set[Lease]()
        else:  # the spool had nothing to tell it of these
            unheard = self._withheld.forget(known)
        return [piece for piece in expired if piece.lease not in known or piece.lease in unheard]

    async def send_back(self, tier: Tier, pieces: Sequence[Leased]) -> None:
        """Send back what was leased and may not be handed out, with the rest of its partitions, uncounted."""
        now = self._clock.now()
        settlements = {piece.lease: withdrawal_of(piece, now) for piece in pieces}
        await self._commit(Plan(tier, wanted_of(pieces), settlements))

    async def plan(self, verdicts: Mapping[Lease, Verdict]) -> list[Plan]:
        """What is to be committed, for whoever commits it together with other things."""
        verdicts = await self._vouched(verdicts)
        return [await self._plan(tier, mine, self._recall_now) for tier, mine in self._tiers.split(verdicts)]

    async def take_along(self, plan: Plan) -> None:
        """Add to a plan what has to go back after what goes back by it: the rest of its partitions.

        What is ready is withdrawn from the shelf. What is out past it is taken from its holders by the
        commit: until then they may settle it, and the log knows which came first. What has become of the plan
        is to be said then, in any case: `conclude`, `undo` or `doubt`. It must be in one write with the plan:
        where both are of one claim, the log can't tell which comes first.
        """
        returning = plan.returning()
        if not plan.tier.shelf.ordered or not returning:
            return
        back = self._back_of(plan.settlements, returning)
        settled = {(lease.claim, o) for lease, offsets in plan.held.items() for o in offsets}
        for partition, (first, due_at) in back.items():
            for piece in await self._withdraw(plan.tier, partition):
                plan.rest[piece.lease] = (piece, due_at)
            for piece in await self._out_after(plan.tier, partition, first):
                # What is leased to nobody goes back already, by somebody else's plan or by this one.
                if piece.worker and (left := without(piece, settled)) is not None:
                    plan.ended.append((left, due_at))
        elsewhere = [lease for lease in returning if lease.epoch == self._elsewhere]
        if elsewhere:
            claims = [without_body(claim) async for claim in self._claims(elsewhere)]
            plan.beyond = rest_of(claims, back, plan.gone())
        await self._note_returns(plan.tier, plan.last_back())

    async def conclude(self, plan: Plan, *, again: bool) -> None:
        """All that was planned is in the log: take it off the shelf.

        Where it doesn't come so far, the leases expire, and the log says that they were settled. When the
        commit may have been told `again`, it may have had another rest.
        """
        if again:
            self.doubt(plan)
            self._owe(plan.ended)
            with suppress(Unavailable):
                await self.pay()
        await self._forget(plan.tier, plan.gone(), plan.told())

    async def undo(self, plan: Plan) -> None:
        """The log has refused a plan: what was withdrawn for it is ready again, or at least in the log."""
        if not plan.rest:
            return
        ready = [piece for piece, _ in plan.rest.values() if piece.parcel.block is not None]
        try:
            await plan.tier.warm.release(plan.tier.shelf, wanted_of(ready))
        except WarmAway:
            self._tiers.fall_back()
        for piece in ready:
            del plan.rest[piece.lease]
        self._readied(len(ready))
        self.doubt(plan)  # what was noted isn't any more

    async def give_back(self, plan: Plan) -> None:
        """The log has refused a plan, perhaps for what was withdrawn for it: that goes back on its own."""
        self.doubt(plan)
        await self.pay()

    def doubt(self, plan: Plan) -> None:
        """Nobody knows whether a plan is in the log: what was withdrawn is said again until it has heard."""
        self._owe(plan.rest.values())

    def _owe(self, along: Collection[tuple[Leased, int]]) -> None:
        if along:
            now = self._clock.now()
            self._owed.update((p.lease, (withdrawal_of(p, now), p.offsets())) for p, _ in along)
            self._later(1.0)

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
        try:
            claims = [without_body(claim) async for claim in self._claims(held)]
        except UnknownGroup:
            return {lease: list(offsets) for lease, offsets in held.items()}
        missing = sorted(sizes.keys() - {claim.token for claim in claims})
        # What has expired is not recalled, and may be held nevertheless. A mark that says nothing tells.
        late = await self._log.mark([Mark(self._group.number, token, sizes[token]) for token in missing])
        return late_of(held, claims, {missing[i] for i in late})

    async def tickets(self, ids: Sequence[int], since: int) -> dict[int, Ticket]:
        """Tickets for messages that are out under leases that were given out elsewhere."""
        epoch = await self._epoch_elsewhere()
        found: dict[int, Ticket] = {}
        for begin in range(0, len(ids), ASKED_STEP):
            asked = ids[begin : begin + ASKED_STEP]
            claims = await self._log.holding(self._group, asked)
            found.update(tickets_of(claims, asked, since, epoch))
        return found

    async def leases_elsewhere(self, wanted: _Wanted) -> set[Lease]:
        """Those of these leases that another server keeps in its memory, as far as the log knows."""
        strange = self._strange(wanted)
        if not strange:
            return set()
        vouched = await self._vouched({lease: Verdict(done=list(wanted[lease])) for lease in strange})
        known = {(lease.claim, lease.number) for lease in vouched if lease.epoch == self._elsewhere}
        return {lease for lease in strange if (lease.claim, lease.number) in known}

    def _strange(self, leases: Iterable[Lease]) -> list[Lease]:
        """The leases that no shelf which we see can have given out."""
        own = self._tiers.own_warm
        strange = [lease for lease in leases if lease.epoch != self._elsewhere and not own.gave(lease)]
        if self._tiers.shared is None:
            return strange
        # Another server may have worked from its memory while the tier was away.
        return [lease for lease in strange if own.is_kin(lease)]

    async def _vouched(self, verdicts: Mapping[Lease, Verdict]) -> Mapping[Lease, Verdict]:
        """Verdicts on leases of other servers as such that the log vouches for; it may refuse them still.

        The log holds a lease's token until the message comes back or is settled, wherever that happens. What
        it doesn't vouch for stays as it is: no shelf of ours has it. Of a claim that is out from our own
        shelf, that shelf tells, whatever the lease says; a tier that servers share tells of its own leases.
        """
        strange = self._strange(verdicts)
        if not strange:
            return verdicts
        epoch = await self._epoch_elsewhere()
        claims = {claim.token: without_body(claim) async for claim in self._claims(strange)}
        for token in await self._out_here():
            claims.pop(token, None)
        vouched = {lease: verdicts[lease] for lease in verdicts if lease not in strange}
        for lease in strange:
            offsets = set(verdicts[lease].offsets())
            found = vouched_of(lease, claims.get(lease.claim), epoch)
            known, out = (lease, offsets) if found is None else found
            for key, some in ((known, offsets & out), (lease, offsets - out)):
                if some:
                    vouched[key] = verdicts[lease].only(some)
        return vouched

    async def _out_here(self) -> Collection[int]:
        """The tokens of claims of which something is out from a shelf that we see."""
        out, shared = self._tiers.own_warm.out_claims(self._group.number), self._tiers.shared
        if shared is not None:
            with suppress(WarmAway):
                out |= {piece.lease.claim for piece in await shared.warm.running(shared.shelf, OUT_MAX)}
        return out

    async def _epoch_elsewhere(self) -> str:
        if self._elsewhere is None or self._tiers.own.epoch is None:
            await self._show_up()
            self._elsewhere = self._elsewhere or mint().hex()
        return self._elsewhere

    async def _show_up(self) -> None:
        """Let other servers know that we are there, and may settle what they handed out."""
        if self._tiers.shared is None:
            await self._tiers.own.open()
            await self._tiers.own.beat()

    async def _settle(self, tier: Tier, verdicts: Mapping[Lease, Verdict]) -> Told:
        plan = await self._plan(tier, verdicts, self._recall_or_wait)
        told = Told(list(plan.lost))
        if plan.held:
            told.add(await self._commit(plan))
        return told

    async def _plan(self, tier: Tier, verdicts: Mapping[Lease, Verdict], recall: _Recall) -> Plan:
        wanted = {lease: v.offsets() for lease, v in verdicts.items()}
        held = await self._held_of(tier, wanted)
        lost = lost_of(wanted, held)
        kept = {
            lease: verdicts[lease] if len(offsets) == len(wanted[lease]) else verdicts[lease].only(offsets)
            for lease, offsets in held.items()
        }
        settings = self.settings
        for lease, late in overtaking(kept, settings).items() if settings.ordered else ():
            lost += [lease.first + o for o in late]
            _leave_out(lease, late, held, kept)
        needed = {lease: offsets for lease, v in kept.items() if (offsets := nameless(lease, v, settings))}
        messages, missing = await recall(needed) if needed else ({}, ())
        for lease in missing:
            lost += [lease.first + o for o in needed[lease]]
            _leave_out(lease, needed[lease], held, kept)
        now = self._clock.now()
        settlements = {
            lease: settlement_of(lease, v, now, settings, messages.get(lease)) for lease, v in kept.items()
        }
        return Plan(tier, held, settlements, lost)

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
        found: dict[Lease, dict[int, Message]] = {}
        by_claim: dict[tuple[int, int, int], list[Lease]] = {}
        for lease in needed:
            by_claim.setdefault((lease.claim, lease.first, lease.count), []).append(lease)
        async for claim in self._claims(needed):
            block, start = claim.block.decode(checked=True), claim.first - claim.block.first
            for lease in by_claim.get((claim.token, claim.first, claim.count), ()):
                found[lease] = {o: without_start(block.message(start + o)) for o in needed[lease]}
        return found

    async def _claims(self, leases: Iterable[Lease]) -> AsyncIterator[Claim]:
        """The claims of leases, as the log has them now, of which a few are in memory at a time."""
        tokens = sorted({lease.claim for lease in leases})
        for begin in range(0, len(tokens), RECALLED_STEP):
            for claim in await self._log.recall(self._group, tokens[begin : begin + RECALLED_STEP]):
                yield claim

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

    async def _commit(self, plan: Plan) -> Told:
        """Carry out a plan."""
        try:
            await self.take_along(plan)
            everything = plan.told()
            receipt = await self._log.commit(settlements=everything, id=mint())
        except BaseException:
            self.doubt(plan)
            raise
        late: list[int] = []
        if receipt.conflicts:
            asked = {lease.first + offset for lease, offsets in plan.held.items() for offset in offsets}
            found = await self._settle_singly([everything[i] for i in receipt.conflicts])
            late = [task_id for task_id in found if task_id in asked]  # what was withdrawn is nobody's
        if receipt.where == "spool" and plan.tier.shelf.ordered:
            await self._withhold(plan)
        await self._forget(plan.tier, plan.gone(), everything)
        return Told(late, receipt.where)

    async def _withhold(self, plan: Plan) -> None:
        """Keep what comes back out, since the log takes it for handed out until the spool has told it.

        Other servers may have the log at hand: they would let out what comes after it.
        """
        warm, shelf = plan.tier.warm, plan.tier.shelf
        try:
            for counts in (True, False):
                self._withheld.add(await warm.withhold(shelf, plan.back(counts=counts), counts=counts))
        except WarmAway:  # it is out until its lease expires
            self._tiers.fall_back()
        if self._withheld:
            self._later(1.0)

    async def _let_go_of_heard(self, tier: Tier) -> None:
        """Take off the shelf what is withheld, and has come to the log from the spool, or otherwise."""
        withheld = dict(self._tiers.split(self._withheld.wanted())).get(tier)
        if withheld and (heard := await self._late(withheld)):
            self._withheld.forget([lease for lease in heard if len(heard[lease]) == len(withheld[lease])])
            await self._forget(tier, heard, ())
            self._come_due(self._clock.now(), {lease.partition or "" for lease in heard})

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

    def _back_of(
        self, settlements: Mapping[Lease, Settlement], returning: Mapping[Lease, int]
    ) -> dict[str, tuple[int, int]]:
        """The first message that goes back of each partition, and when its rest may come: with the last."""
        back: dict[str, tuple[int, int]] = {}
        for lease, message_id in returning.items():
            first, due_at = back.get(lease.partition or "", (message_id, self._clock.now()))
            times = [d.due_at for d in settlements[lease].deferred]
            back[lease.partition or ""] = min(first, message_id), max([due_at, *times])
        return back

    async def _settle_singly(self, conflicts: Sequence[Settlement]) -> list[int]:
        """Settle what conflicts as a whole message by message; returns the ids that came too late.

        Some may have been settled before, by a call whose answer was lost: the others must not be lost too.
        """
        parts = [part for settlement in conflicts for part in singly(settlement)]
        receipt = await self._log.commit(settlements=parts, id=mint())
        return [parts[i].first + bitmap.indexes(parts[i].finished())[0] for i in receipt.conflicts]

    def _is_empty(self, tier: Tier) -> bool:
        """Tell if a tier holds nothing, as nobody has opened it; a shared one may be open elsewhere."""
        return tier is self._tiers.own and tier.epoch is None

    async def _withdraw(self, tier: Tier, partition: str) -> list[Leased]:
        if self._is_empty(tier):
            return []
        return await self._tiers.call(tier, lambda t, e: t.warm.withdraw(t.shelf, e, partition))

    async def _note_returns(self, tier: Tier, last: Mapping[str, int]) -> None:
        if not self._is_empty(tier):
            await self._tiers.call(tier, lambda t, e: t.warm.note_returns(t.shelf, e, last))

    async def _out_after(self, tier: Tier, partition: str, message_id: int) -> list[Leased]:
        if self._is_empty(tier):
            return []
        return await self._tiers.call(tier, lambda t, e: t.warm.out_after(t.shelf, e, partition, message_id))

    async def pay(self) -> None:
        """Say again what was withdrawn and may not have come to the log; what has come is a conflict now."""
        await self._look_after_withheld()
        if not self._owed:
            return
        owed, self._owed = self._owed, {}
        try:
            receipt = await self._log.commit(settlements=[s for s, _ in owed.values()], id=mint())
            if receipt.conflicts:
                refused = [list(owed)[i] for i in receipt.conflicts]
                await self._pay_in_part({lease: owed[lease] for lease in refused})
        except BaseException:
            self._owed.update(owed)
            raise
        for tier, mine in self._tiers.split({lease: offsets for lease, (_, offsets) in owed.items()}):
            with suppress(WarmAway):
                await tier.warm.finish(tier.shelf, mine)
        partitions = {lease.partition or "" for lease in owed}
        self._come_due(min(d.due_at for s, _ in owed.values() for d in s.deferred), partitions)

    async def _look_after_withheld(self) -> None:
        for tier in self._tiers.all if self._withheld else ():
            with suppress(Unavailable):
                await self._let_go_of_heard(tier)
        if self._withheld:
            self._later(1.0)

    async def _pay_in_part(self, owed: Mapping[Lease, tuple[Settlement, list[int]]]) -> None:
        """Say again of each what the log has not heard, where it has heard some of it."""
        late = await self._late({lease: offsets for lease, (_, offsets) in owed.items()})
        parts = [
            part
            for lease, (settlement, offsets) in owed.items()
            if len(late.get(lease, ())) < len(offsets)
            for part in singly(settlement)
            if part.deferred[0].offset not in late.get(lease, ())
        ]
        if parts:
            await self._log.commit(settlements=parts, id=mint())

    async def _release(self, wanted: Mapping[Lease, Sequence[int]]) -> Told:
        """Make tasks of an unordered queue ready again, unused."""
        told = Told()
        for tier, mine in self._tiers.split(wanted):
            held = await tier.warm.held(tier.shelf, mine)
            noted = await self._log.mark([unmark(lease, offsets) for lease, offsets in held.items()])
            told.add(Told(lost_of(mine, held), "spool" if isinstance(noted, Unchecked) else "log"))
            await tier.warm.release(tier.shelf, held)
            self._readied(sum(map(len, held.values())))
        return told


def _leave_out(
    lease: Lease, offsets: Collection[int], held: dict[Lease, list[int]], kept: dict[Lease, Verdict]
) -> None:
    """Say nothing of some tasks of a lease."""
    held[lease] = [o for o in held[lease] if o not in offsets]
    kept[lease] = kept[lease].only(held[lease])
    if not held[lease]:
        del held[lease], kept[lease]
