"""The fold of one slice of a queue: blocks that changed are looked at again, all others are left alone.

A slice is folded from what it was (its blocks, and the image of its groups at that time) to what the log says
now. Invariants: what comes out is the same whatever it was before, so a fold that is done twice, or begins
with an older state, ends the same; bodies are read when a block is new, or when something changes of a block
that was settled; outcomes are read of blocks of which something changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Group, Outcome
from forebay.model import UnknownGroup, pack, sequence_of
from forebay.observe.labels import LabelRules
from forebay.spark.snapshot.block_fold import BlockFold, count_up, ends_of, labelled, lone
from forebay.spark.snapshot.counts import Counts, decode_counts, encode_counts, total
from forebay.spark.snapshot.image import SLICE, GroupImage, Image, SliceTask, changed, encode_image

__all__ = ["SliceState", "decode_state", "encode_state", "fold_slice", "is_quiet"]

_AT_ONCE: Final = 16
"""Blocks whose outcomes are asked for at once."""
_OUTCOMES_MAX: Final = 1_000_000
"""Entries of the outcome log on one block."""
MERGED_MESSAGES_MAX: Final = 4_096
"""Settled blocks are kept as one up to so many messages: so many are read again when something changes."""
_PAGE: Final = 10_000
_PAGE_BYTES: Final = 16 << 20


class SliceState(msgspec.Struct, array_like=True):
    """What is known of a slice."""

    image: Image
    blocks: list[BlockFold]
    """By first message."""
    read_to: int
    """Blocks that begin before it are known."""
    sums: bytes
    """What all blocks add up to, without ages: a round changes only what changed."""


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(SliceState).decode


def is_quiet(image: Image, before: bytes | None, next_due: int | None, now: int) -> bool:
    """Whether nothing has happened in a slice, and nothing has become due."""
    return before == encode_image(image) and (next_due is None or next_due > now)


async def fold_slice(
    log: Log, task: SliceTask, before: SliceState | None, rules: LabelRules, now: int
) -> tuple[SliceState, Counts]:
    """Fold a slice from what it was to what it is; what all of it adds up to."""
    if before is not None and before.image.rules != task.image.rules:
        before = None
    return await _Fold(log, task, rules, now).run(before)


class _Fold:
    """One run over a slice."""

    def __init__(self, log: Log, task: SliceTask, rules: LabelRules, now: int) -> None:
        self._log = log
        self._queue = task.queue
        self._low = task.place * SLICE
        self._image = task.image
        self._groups = {group.number: group for group in task.image.groups}
        self._rules = rules
        self._now = now
        self._blocks: dict[int, BlockFold] = {}
        self._cut: list[BlockFold] = []
        """Settled blocks that are kept as one, and of which some were dropped."""
        self._stale: dict[int, set[int]] = {}
        """Blocks of which something may have changed, each with the groups whose outcomes are to be read."""

    async def run(self, before: SliceState | None) -> tuple[SliceState, Counts]:
        """Fold; the state afterwards, and what it adds up to."""
        known = [] if before is None else before.blocks
        counted = {(block.first, block.count): block.counts for block in known}
        sums = Counts() if before is None else decode_counts(before.sums)
        self._keep(known)
        self._look_for_changes({} if before is None else {each.number: each for each in before.image.groups})
        await self._open_settled()
        begin = max(self._low, self._image.floor, 0 if before is None else before.read_to)
        read_to = await self._read(begin, min(self._low + SLICE, self._image.next))
        await self._find_letters()
        await self._hear()
        for first, block in self._blocks.items():
            if first in self._stale or (block.next_due is not None and block.next_due <= self._now):
                self._count(block)
        _move(sums, counted, {(block.first, block.count): block.counts for block in self._blocks.values()})
        data = encode_counts(sums)
        for block in self._blocks.values():
            if block.ages:
                sums.add(decode_counts(block.ages))
        return SliceState(self._image, _merged(self._blocks), read_to, data), sums

    def _keep(self, blocks: Sequence[BlockFold]) -> None:
        """Take along what is still there."""
        wanted, floor = self._wanted(), self._image.floor
        for block in blocks:
            if not block.is_lone and block.first < floor < block.end:
                self._cut.append(block)
            elif block.first in wanted if block.is_lone else block.first >= floor:
                self._blocks[block.first] = block
        for first in wanted - self._blocks.keys():
            self._blocks[first] = BlockFold(first, 1, b"", is_lone=True)
            self._stale[first] = set()

    def _wanted(self) -> set[int]:
        """Messages whose blocks are gone, and that are still to be done, or dead."""
        low, floor = self._low, min(self._image.floor, self._low + SLICE)
        dead = {at for group in self._groups.values() for at, _ in group.dead if low <= at < floor}
        runs = [run for group in self._groups.values() for run in group.runs if run.first < floor]
        return dead | {at for run in runs for at in range(max(low, run.first), min(run.end, floor))}

    def _look_for_changes(self, old: Mapping[int, GroupImage]) -> None:
        if old.keys() - self._groups.keys() or bool(old) != bool(self._groups):
            for first in self._blocks:
                self._stale.setdefault(first, set())
        for number, group in self._groups.items():
            stretches = changed(old.get(number), group)
            for first, block in self._blocks.items():
                if stretches is None or any(at < block.end and end > first for at, end in stretches):
                    self._stale.setdefault(first, set()).add(number)

    async def _open_settled(self) -> None:
        """Read those again that were settled, and of which something changed, or a part was dropped."""
        for block in self._cut:
            await self._read(self._image.floor, block.end)
        for first, block in list(self._blocks.items()):
            if not block.is_lone and block.labelled is None and first in self._stale and block.counts:
                del self._blocks[first]
                del self._stale[first]
                await self._read(first, block.end)

    async def _read(self, begin: int, end: int) -> int:
        """Read the blocks that begin from there to before `end`; where the next one begins."""
        at = begin
        while at < end:
            page = await self._log.read(self._queue, at, messages=_PAGE, bytes=_PAGE_BYTES)
            # What came since the survey is left for the next one: its groups may not know of it.
            page = [stored for stored in page if sequence_of(stored.first) < end]
            if not page:
                break
            for stored in page:
                if (first := sequence_of(stored.first)) >= begin:
                    found = labelled(self._image.queue, stored, self._rules)
                    self._blocks[first] = BlockFold(first, stored.count, b"", labelled=found)
                    self._stale[first] = set(self._groups)
            at = sequence_of(page[-1].last) + 1
        return at

    async def _find_letters(self) -> None:
        for first, block in self._blocks.items():
            if block.is_lone and block.labelled is None and first in self._stale:
                found = await self._log.find(pack(self._queue.number, first))
                bodies = [each.letter.letter.body for each in found.standings if each.letter is not None]
                block.labelled = lone(self._image.queue, bodies[0] if bodies else None, self._rules)

    async def _hear(self) -> None:
        """Read what the outcome log says of blocks of which something changed."""
        calls = [
            (block, self._groups[number])
            for first, numbers in self._stale.items()
            if (block := self._blocks.get(first)) is not None and not block.is_lone
            for number in sorted(numbers)
            if not _is_untouched(block, self._groups[number])
        ]
        for i in range(0, len(calls), _AT_ONCE):
            part = calls[i : i + _AT_ONCE]
            answers = await asyncio.gather(*(self._outcomes(block, group) for block, group in part))
            for (block, group), outcomes in zip(part, answers, strict=True):
                assert block.labelled is not None, "it was opened again"
                places = block.labelled.places(block.count)
                block.ends[group.number] = ends_of(block.first, block.count, outcomes, places)

    async def _outcomes(self, block: BlockFold, group: GroupImage) -> list[Outcome]:
        asked = Group(group.number, self._queue.number, group.name, 1)
        try:
            return await self._log.outcomes(asked, pack(self._queue.number, block.first), limit=_OUTCOMES_MAX)
        except UnknownGroup:  # it was deleted meanwhile: the next image says so
            return []

    def _count(self, block: BlockFold) -> None:
        counts, is_settled = count_up(block, list(self._groups.values()), self._now)
        sums, ages = counts.apart()
        block.counts, block.next_due = encode_counts(sums), counts.next_due
        block.ages = encode_counts(ages) if ages != Counts() else b""
        if is_settled:
            block.labelled, block.ends = None, {}


def _move(
    sums: Counts, before: Mapping[tuple[int, int], bytes], now: Mapping[tuple[int, int], bytes]
) -> None:
    """Change sums by the blocks that came, went, or count otherwise."""
    for place in before.keys() | now.keys():
        old, new = before.get(place), now.get(place)
        if old != new:
            sums.add(decode_counts(new) if new else Counts())
            sums.take_off(decode_counts(old) if old else Counts())


def _is_untouched(block: BlockFold, group: GroupImage) -> bool:
    """Whether a group has never claimed anything of a block."""
    return group.is_fresh and not group.lanes and group.position <= block.first


def _merged(blocks: Mapping[int, BlockFold]) -> list[BlockFold]:
    """The blocks in order, settled ones that follow each other as one."""
    found: list[BlockFold] = []
    waiting: list[BlockFold] = []
    for first in sorted(blocks):
        block = blocks[first]
        if waiting and not _fits(waiting, block):
            found.append(_one(waiting))
            waiting = []
        if block.labelled is None and not block.is_lone:
            waiting.append(block)
        else:
            found.append(block)
    return found + ([_one(waiting)] if waiting else [])


def _fits(waiting: Sequence[BlockFold], block: BlockFold) -> bool:
    count = sum(each.count for each in waiting) + block.count
    is_next = waiting[-1].end == block.first
    return is_next and block.labelled is None and not block.is_lone and count <= MERGED_MESSAGES_MAX


def _one(blocks: Sequence[BlockFold]) -> BlockFold:
    if len(blocks) == 1:
        return blocks[0]
    counts = total(decode_counts(block.counts) for block in blocks)
    return BlockFold(blocks[0].first, sum(block.count for block in blocks), encode_counts(counts))
