"""What became of tasks while the log was away: as entries of the spool, and from there to the log.

Invariants: an entry that is replayed twice is written once; marks are replayed in the order in which they
were spooled, and so are settlements; where only some of a settlement's messages were settled before, the
others are settled; what comes after its claim has changed hands is settled if it still can be (`late`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from forebay.failover.late import named, settle_late
from forebay.log.seam import Log
from forebay.log.values import Group, Mark, Settlement
from forebay.model import Block, Corrupt, UnknownGroup, bitmap, mint, queue_of
from forebay.spool.lines import SpooledSettlement, derive_id
from forebay.store.settling import singly

RECALLED_STEP: Final = 16
"""So many blocks are read at once to look up messages that are dead."""
COMMITS_MAX: Final = 100
"""Settlements that are on their way at a time."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Outcomes that were settled in one call."""

    settlements: tuple[Settlement, ...]


class Marked(msgspec.Struct, frozen=True, array_like=True, tag="marked"):
    """What went out to workers, and came back unused."""

    marks: tuple[Mark, ...]


Outcome = Settled | Marked
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final[Callable[[bytes], Outcome]] = msgspec.msgpack.Decoder(Settled | Marked).decode


def entry_of(outcome: Outcome, id: bytes | None = None) -> SpooledSettlement:
    """An outcome for the spool; `id` is that of the commit that it would have been."""
    return SpooledSettlement(id or mint(), _encode(outcome))


def outcome_of(entry: SpooledSettlement) -> Outcome:
    """The outcome in an entry; Corrupt if there is none."""
    try:
        return _decode(entry.payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"this is no outcome: {error}") from None


def tasks_of(outcome: Outcome) -> Counter[int]:
    """How many tasks an outcome settles or gives back unused, by the number of their group."""
    found: Counter[int] = Counter()
    if isinstance(outcome, Settled):
        for settlement in outcome.settlements:
            found[settlement.group] += bitmap.count(settlement.finished())
    else:
        for mark in outcome.marks:
            found[mark.group] += bitmap.count(mark.returned)
    return +found


async def replay(log: Log, entries: Sequence[SpooledSettlement]) -> int:
    """Tell the log what became of tasks; how many it was told of too late.

    Marks come first, all at once: they say nothing of what is settled, and workers who take and settle in
    turns would make a commit of each.
    """
    outcomes = [(entry.id, outcome_of(entry)) for entry in entries]
    await log.mark([mark for _, outcome in outcomes if isinstance(outcome, Marked) for mark in outcome.marks])
    return await _settle(log, [(id, o.settlements) for id, o in outcomes if isinstance(o, Settled)])


async def _settle(log: Log, calls: Sequence[tuple[bytes, tuple[Settlement, ...]]]) -> int:
    """Settle what was settled in several calls, each under its own id."""
    late = 0
    for begin in range(0, len(calls), COMMITS_MAX):
        several = [(id, *await _sorted_out(log, told)) for id, told in calls[begin : begin + COMMITS_MAX]]
        late += sum(await asyncio.gather(*(_commit(log, id, known, lost) for id, known, lost in several)))
    return late


async def _commit(log: Log, id: bytes, known: Sequence[Settlement], lost: Sequence[Settlement]) -> int:
    """Settle what was settled in one call; how many messages it was too late for.

    The claims of `lost` are known to have changed hands.
    """
    conflicts = [known[place] for place in (await log.commit(settlements=known, id=id)).conflicts]
    parts = [part for settlement in conflicts for part in singly(settlement)]
    if parts:
        again = await log.commit(settlements=parts, id=derive_id(id, 0))
        parts = [parts[place] for place in again.conflicts]
    parts += [part for settlement in lost for part in singly(settlement)]
    # What was to come back comes back all the same.
    ended = [part for part in parts if any(part.done) or part.dead]
    return await settle_late(log, id, ended) if ended else 0


async def _sorted_out(
    log: Log, settlements: Sequence[Settlement]
) -> tuple[Sequence[Settlement], Sequence[Settlement]]:
    """The same with the messages of what is dead; apart, those whose claims nobody holds any more."""
    nameless = [s for s in settlements if any(death.message is None for death in s.dead)]
    if not nameless:
        return settlements, ()
    blocks = await _blocks_of(log, nameless)
    known = [
        named(s, *blocks[s.group, s.token]) if s in nameless else s
        for s in settlements
        if s not in nameless or (s.group, s.token) in blocks
    ]
    return known, [s for s in nameless if (s.group, s.token) not in blocks]


async def _blocks_of(log: Log, settlements: Sequence[Settlement]) -> dict[tuple[int, int], tuple[Block, int]]:
    """The block of each claim that is still held, and the id of its first message."""
    found: dict[tuple[int, int], tuple[Block, int]] = {}
    for number in {s.group for s in settlements}:
        mine = [s for s in settlements if s.group == number]
        group = Group(number, queue_of(mine[0].first), "", 0)
        tokens = sorted({s.token for s in mine})
        with suppress(UnknownGroup):  # it was deleted, and its tasks with it
            for begin in range(0, len(tokens), RECALLED_STEP):
                for claim in await log.recall(group, tokens[begin : begin + RECALLED_STEP]):
                    found[number, claim.token] = claim.block.decode(checked=True), claim.block.first
    return found
