"""Flows of stretches of blocks, kept in memory so that the backlog of a group is counted once.

A queue's blocks never change, they go from the oldest on, and none ever comes between others: what a stretch
of them holds stays true for as long as its last block is there. So a process that counts a group again reads
only what came since, and what lies between the group's cursor and the first stretch behind it.

Invariants: stretches hold whole blocks, in their order, each block at most once; a plan is folded with pages
that were read at one moment with the cursor; it counts everything, or says that there is more to read first;
what is kept may be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from forebay.log.flows import FlowGroup, FlowTally, FlowTotals

__all__ = ["BlockFlows", "FlowGap", "FlowMemory", "FlowPlan", "FlowRead", "FlowStretches", "Stretch"]

PAGE_BLOCKS: Final = 2_000
"""How many blocks are read at once. A stretch that has more is learnt anew when the cursor comes to it."""
STRETCH_BLOCKS: Final = 250
"""How many blocks a stretch has to begin with, and how many may be read again and again."""
STRETCHES_MIN: Final = 16
STRETCHES_MAX: Final = 512
"""Past it neighbours are joined."""
TOTALS_MAX: Final = 50_000
"""Numbers of flows in the stretches of a group: with many flows the stretches are fewer."""
MEMORY_TOTALS_MAX: Final = 200_000
"""Numbers of flows that a process keeps for all its groups."""


class BlockFlows(NamedTuple):
    """A block as a log lists it: the id of its last message, how many it has, when it came, and its flows."""

    last: int
    messages: int
    appended_at: int
    flows: bytes | None

    @property
    def first(self) -> int:
        """The id of the first message."""
        return self.last - self.messages + 1


class Stretch(msgspec.Struct, frozen=True):
    """Blocks that follow each other: from the first message id to the last."""

    first: int
    last: int
    last_at: int
    """When the last block came."""
    blocks: int
    totals: FlowTotals

    @classmethod
    def of(cls, blocks: Sequence[BlockFlows]) -> Stretch:
        """A stretch of whole blocks."""
        tally = FlowTally()
        for group in _alike(blocks):
            tally.add_group(group)
        newest = blocks[-1]
        return cls(blocks[0].first, newest.last, newest.appended_at, len(blocks), tally.totals())

    @classmethod
    def join(cls, run: Sequence[Stretch]) -> Stretch:
        """One stretch of several that follow each other."""
        tally = FlowTally()
        for stretch in run:
            tally.add_totals(stretch.totals)
        blocks = sum(stretch.blocks for stretch in run)
        return cls(run[0].first, run[-1].last, run[-1].last_at, blocks, tally.totals())

    def ends_with(self, block: BlockFlows) -> bool:
        """Tell if this is its last block."""
        return (block.last, block.appended_at) == (self.last, self.last_at)


class FlowGap(NamedTuple):
    """Blocks that must be read: those that end between two message ids, of which none came before `since`."""

    first: int
    last: int
    since: int
    behind: Stretch | None = None
    """The stretch that ends with the first of them, which is read to see that it is still there."""
    keep: bool = True
    """Whether to keep what they hold."""


class FlowRead(NamedTuple):
    """What was read: what to remember, and everything that is unclaimed, if that is all of it."""

    known: FlowStretches
    tally: FlowTally | None
    cut: FlowGroup | None = None
    """The block at the cursor, where it takes its body to count it: it is not in the tally yet."""


class FlowPlan(NamedTuple):
    """How to count what lies behind a cursor: gaps between stretches are read, in their order."""

    position: int
    stretches: tuple[Stretch, ...]
    """Those to keep."""
    counted: tuple[Stretch, ...]
    """Those that lie behind the cursor as a whole."""
    gaps: tuple[FlowGap, ...]

    @property
    def whole_from(self) -> int:
        """Where the first stretch begins that is counted as a whole; a cursor up to there fits the plan."""
        return self.counted[0].first if self.counted else self.gaps[-1].last

    def fold(self, pages: Iterable[Sequence[BlockFlows]]) -> FlowRead:
        """Add what was found in the gaps, up to `PAGE_BLOCKS` in each."""
        learnt, rest, is_all = list[Stretch](), list[BlockFlows](), True
        for gap, page in zip(self.gaps, pages, strict=True):
            if gap.behind is not None and not (page and gap.behind.ends_with(page[0])):
                return FlowRead(FlowStretches(), None)  # the log fell back, and went on another way
            found = page[1:] if gap.behind is not None else page
            is_done = len(page) < PAGE_BLOCKS or page[-1].last >= gap.last
            whole = [block for block in found if block.first >= self.position]
            if gap.keep:
                learnt += _cut(whole, is_growing=is_done and gap.last == self.gaps[-1].last)
            rest.extend(found)
            is_all = is_all and is_done
        known = FlowStretches(_joined(sorted((*self.stretches, *learnt), key=lambda stretch: stretch.first)))
        return self._counted(known, rest) if is_all else FlowRead(known, None)

    def _counted(self, known: FlowStretches, rest: Sequence[BlockFlows]) -> FlowRead:
        tally = FlowTally()
        for stretch in self.counted:
            tally.add_totals(stretch.totals)
        cut = None
        if rest and rest[0].first < self.position:
            block, rest = rest[0], rest[1:]
            left = block.last + 1 - self.position
            group = FlowGroup(block.flows, 1, left, block.appended_at, cut=block.last)
            cut = None if tally.add_group(group) else group
        for group in _alike(rest):
            tally.add_group(group)
        return FlowRead(known, tally, cut)


class FlowStretches(msgspec.Struct, frozen=True):
    """What is known of the backlog of one group."""

    stretches: tuple[Stretch, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(len(stretch.totals) for stretch in self.stretches)

    def plan(self, position: int, since: int, end: int) -> FlowPlan:
        """Plan to count from message id `position` up to `end`; no block from there on came before `since`.

        What the cursor has passed is forgotten. The stretch that it is in is read from there on, again and
        again if it is short; a long one is learnt anew, in pieces.
        """
        ahead = [stretch for stretch in self.stretches if stretch.last >= position]
        kept, gaps, at, at_since = list(ahead), list[FlowGap](), position, since
        if ahead and ahead[0].first < position:
            begun = ahead.pop(0)
            if begun.blocks > PAGE_BLOCKS:
                kept.pop(0)
            else:
                gaps.append(FlowGap(position, begun.last, since, keep=False))
                at, at_since = begun.last + 1, begun.last_at
        for stretch in ahead:
            if stretch.first > at:
                gaps.append(FlowGap(at, stretch.first - 1, at_since))
            at, at_since = stretch.last + 1, stretch.last_at
        newest = kept[-1] if kept else None
        first = at if newest is None else newest.last
        gaps.append(FlowGap(first, end, at_since, newest))
        return FlowPlan(position, tuple(kept), tuple(ahead), tuple(gaps))


class FlowMemory:
    """What a process knows of the backlogs of its groups; those that were not asked for longest go first."""

    def __init__(self) -> None:
        self._groups: dict[int, FlowStretches] = {}

    def get(self, group: int) -> FlowStretches:
        """What is known of a group."""
        return self._groups.get(group, FlowStretches())

    def keep(self, group: int, known: FlowStretches) -> None:
        """Remember what was read."""
        self._groups.pop(group, None)
        if known.stretches:
            self._groups[group] = known
        size = sum(each.size for each in self._groups.values())
        while size > MEMORY_TOTALS_MAX and len(self._groups) > 1:
            size -= self._groups.pop(next(iter(self._groups))).size


def _cut(blocks: Sequence[BlockFlows], *, is_growing: bool) -> list[Stretch]:
    """Stretches of these blocks; the last few are left alone where more will come."""
    starts = range(0, len(blocks), STRETCH_BLOCKS)
    pieces = [blocks[start : start + STRETCH_BLOCKS] for start in starts]
    return [Stretch.of(piece) for piece in pieces if len(piece) == STRETCH_BLOCKS or not is_growing]


def _alike(blocks: Iterable[BlockFlows]) -> Iterable[FlowGroup]:
    """Whole blocks with equal columns together; they come by age."""
    found: dict[bytes | None, tuple[int, int, int]] = {}
    for block in blocks:
        number, messages, oldest_at = found.get(block.flows, (0, 0, block.appended_at))
        found[block.flows] = (number + 1, messages + block.messages, oldest_at)
    return [FlowGroup(flows, *counted) for flows, counted in found.items()]


def _joined(stretches: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """Few enough: neighbours are joined, but for the first ones, which the cursor comes to next."""
    flows_max = max((len(stretch.totals) for stretch in stretches), default=0)
    limit = max(STRETCHES_MIN, min(STRETCHES_MAX, TOTALS_MAX // max(1, flows_max)))
    if len(stretches) <= limit:
        return tuple(stretches)
    blocks_max = 4 * sum(stretch.blocks for stretch in stretches) // limit
    soon, later = stretches[: limit // 8], stretches[limit // 8 :]
    runs, blocks = [[later[0]]], later[0].blocks
    for before, stretch in pairwise(later):
        blocks += stretch.blocks
        if stretch.first == before.last + 1 and blocks <= blocks_max:
            runs[-1].append(stretch)
        else:
            runs.append([stretch])
            blocks = stretch.blocks
    return (*soon, *(Stretch.join(run) for run in runs))
