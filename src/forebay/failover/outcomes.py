"""What became of tasks while the log was away: as entries of the spool, and from there to the log.

Invariants: an entry that is replayed twice is written once; marks and settlements are replayed in the order
in which they were spooled; a settlement whose claim somebody else has by then changes nothing, and counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Group, Mark, Settlement
from forebay.model import Block, Corrupt, UnknownGroup, mint, queue_of
from forebay.spool.lines import SpooledSettlement
from forebay.store.giving_up import without_start

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


async def replay(log: Log, entries: Sequence[SpooledSettlement]) -> int:
    """Tell the log what became of tasks; how many it was told of too late."""
    outcomes = [(entry.id, outcome_of(entry)) for entry in entries]
    late = 0
    for kind, run in groupby(outcomes, key=lambda pair: type(pair[1])):
        if kind is Marked:
            marks = [mark for _, outcome in run if isinstance(outcome, Marked) for mark in outcome.marks]
            await log.mark(marks)
        else:
            late += await _settle(log, [(id, o.settlements) for id, o in run if isinstance(o, Settled)])
    return late


async def _settle(log: Log, calls: Sequence[tuple[bytes, tuple[Settlement, ...]]]) -> int:
    """Settle what was settled in several calls, each under its own id."""
    late = 0
    for begin in range(0, len(calls), COMMITS_MAX):
        several = [
            (id, settlements, await _with_messages(log, settlements))
            for id, settlements in calls[begin : begin + COMMITS_MAX]
        ]
        late += sum(len(asked) - len(known) for _, asked, known in several)
        receipts = await asyncio.gather(*(log.commit(settlements=known, id=id) for id, _, known in several))
        late += sum(len(receipt.conflicts) for receipt in receipts)
    return late


async def _with_messages(log: Log, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
    """The same with the messages of what is dead; those whose claim nobody holds any more are left out."""
    nameless = [s for s in settlements if any(death.message is None for death in s.dead)]
    if not nameless:
        return settlements
    blocks = await _blocks_of(log, nameless)
    return [
        _named(s, *blocks[s.group, s.token]) if s in nameless else s
        for s in settlements
        if s not in nameless or (s.group, s.token) in blocks
    ]


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


def _named(settlement: Settlement, block: Block, first: int) -> Settlement:
    begin = settlement.first - first
    dead = [
        death
        if death.message is not None
        else msgspec.structs.replace(death, message=without_start(block.message(begin + death.offset)))
        for death in settlement.dead
    ]
    return msgspec.structs.replace(settlement, dead=tuple(dead))
