"""Outcomes that come after their claim has changed hands: the server was cut off, and another took over.

A message that is done or dead by such an outcome is settled, unless it was settled otherwise meanwhile, or
was handed out again before the outcome was said: then its lease was lost, as a server that can reach the log
would have answered.

Invariants: a message is settled once; whoever has it under a newer lease is told that it is lost; whatever
else had to be held on the way goes back as it was; said twice, by a crash in between, it comes to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import ROOM, Claim, Deferral, Group, Settlement
from forebay.model import Block, UnknownGroup, bitmap, id_time, queue_of
from forebay.spool.lines import derive_id
from forebay.store.giving_up import without_start
from forebay.store.settling import singly
from forebay.store.unpacking import defer

ASKED_STEP: Final = 100
"""So many messages are looked for at once, since their blocks come along."""
LATE_STEP: Final = 1 << 64
"""Ids of what is settled late are derived apart from those of other parts of a call."""
NEVER: Final = 1e9
"""Seconds that nobody is silent for."""

_Wanted = Mapping[int, Settlement]
"""Settlements of single messages, by their ids."""


async def settle_late(log: Log, id: bytes, parts: Sequence[Settlement]) -> int:
    """Settle single messages, of a call under that id, wherever they are now; how many it is too late for."""
    said_at = id_time(id) or 0
    late = 0
    for number in sorted({part.group for part in parts}):
        mine = {_ended_by(part)[0]: part for part in parts if part.group == number}
        group = Group(number, queue_of(next(iter(mine))), "", 0)
        ids = sorted(mine)
        for begin in range(0, len(ids), ASKED_STEP):
            wanted = {message: mine[message] for message in ids[begin : begin + ASKED_STEP]}
            settled: set[int] = set()
            with suppress(UnknownGroup):  # it was deleted, and its tasks with it
                call = derive_id(id, LATE_STEP + (number << 32 | begin))
                settled = await _settle_some(log, group, wanted, call, said_at)
            late += len(wanted.keys() - settled)
    return late


async def _settle_some(log: Log, group: Group, wanted: _Wanted, id: bytes, said_at: int) -> set[int]:
    """Settle some messages of a group; those that are settled by it."""
    owner = f"late|{id.hex()}"  # the same when it is said again: it finds what it has
    await log.seize(group, owner, ids=list(wanted), held=False)
    try:
        idle = await _reclaimed(log, group, owner)
        mine = {claim.token for claim in idle}
        out = [claim for claim in await log.holding(group, list(wanted)) if claim.token not in mine]
        said = [_said_of_idle(claim, wanted) for claim in idle]
        said += [settlement for claim in out if (settlement := _said_of_held(claim, wanted, said_at))]
        return await _commit(log, id, said)
    finally:
        await log.retire(owner)


async def _reclaimed(log: Log, group: Group, owner: str) -> list[Claim]:
    claims: list[Claim] = []
    while True:
        known = [claim.token for claim in claims]
        more = await log.reclaim(group, owner, ROOM, of=[owner], silent_seconds=NEVER, besides=known)
        if not more.claims and not more.corrupt:
            return claims
        claims.extend(more.claims)


async def _commit(log: Log, id: bytes, settlements: Sequence[Settlement]) -> set[int]:
    """The messages that are done or dead by it."""
    if not settlements:
        return set()
    conflicts = (await log.commit(settlements=settlements, id=derive_id(id, 0))).conflicts
    settled = {m for place, s in enumerate(settlements) if place not in conflicts for m in _ended_by(s)}
    parts = [part for place in conflicts for part in singly(settlements[place])]
    if parts:  # some of them were settled otherwise in between
        late = (await log.commit(settlements=parts, id=derive_id(id, 1))).conflicts
        settled |= {m for place, part in enumerate(parts) if place not in late for m in _ended_by(part)}
    return settled


def _said_of_idle(claim: Claim, wanted: _Wanted) -> Settlement:
    """What is said of a claim that nobody held. What else it has goes back when its owner retires.

    But at once, and with an attempt counted, if it was out. So what wasn't out goes on to wait, as before.
    """
    left = _left(claim)
    ends = [o for o in left if claim.first + o in wanted]
    waiting = [] if any(claim.handed) else [o for o in left if claim.first + o not in wanted]
    deferred = defer(waiting, claim.start_time, claim.attempts, claim.prev_start_time) if waiting else ()
    return _ends(claim, wanted, ends, deferred)


def _said_of_held(claim: Claim, wanted: _Wanted, said_at: int) -> Settlement | None:
    """What is said of a claim that somebody has.

    What is out since before it was said is his. A message that comes back has a later start time than before.
    """
    out = set(bitmap.indexes(claim.handed)) if said_at >= claim.start_time else set()
    ends = [o for o in _left(claim) if claim.first + o in wanted and o not in out]
    return _ends(claim, wanted, ends, ()) if ends else None


def _ends(claim: Claim, wanted: _Wanted, ends: Sequence[int], deferred: tuple[Deferral, ...]) -> Settlement:
    done = [o for o in ends if not wanted[claim.first + o].dead]
    dying = {o: wanted[claim.first + o].dead[0] for o in ends if wanted[claim.first + o].dead}
    dead = tuple(msgspec.structs.replace(death, offset=o) for o, death in dying.items())
    said = {(wanted[claim.first + o].worker, wanted[claim.first + o].code) for o in ends}
    worker, code = said.pop() if len(said) == 1 else ("", 0)
    settlement = claim.settle(
        done=bitmap.of(done, claim.count) if done else b"",
        deferred=deferred,
        dead=dead,
        worker=worker,
        code=code,
    )
    if all(death.message is not None for death in dead):
        return settlement
    return named(settlement, claim.block.decode(checked=True), claim.block.first)


def named(settlement: Settlement, block: Block, first: int) -> Settlement:
    """The same with the messages of what is dead, out of their block, whose first message has id `first`."""
    begin = settlement.first - first
    dead = [
        death
        if death.message is not None
        else msgspec.structs.replace(death, message=without_start(block.message(begin + death.offset)))
        for death in settlement.dead
    ]
    return msgspec.structs.replace(settlement, dead=tuple(dead))


def _left(claim: Claim) -> list[int]:
    """The offsets of what is not finished."""
    return bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))


def _ended_by(settlement: Settlement) -> list[int]:
    """The messages that are done or dead by a settlement."""
    offsets = [*bitmap.indexes(settlement.done), *(death.offset for death in settlement.dead)]
    return [settlement.first + offset for offset in offsets]
