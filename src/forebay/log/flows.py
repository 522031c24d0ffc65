"""The flows of blocks as a column: how it is written, and how counts are made of it.

The column is nothing where no message of the block has a flow; otherwise a msgpack array of
[name, type, action, count], sorted, whose counts add up to the block's. Equal columns are counted
together, so a log groups by it and reads no body, but for a block that the cursor cuts, and for what came
back of a block with several flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from forebay.log.values import FlowCount
from forebay.model import Block, Corrupt, Flow, bitmap, decode, flow_counts, flow_of

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, str, int]]).decode


FlowTotals: TypeAlias = dict[Flow, tuple[int, int]]
"""Messages of flows, and when the first block with one of each came."""


class FlowGroup(msgspec.Struct, frozen=True):
    """Unclaimed blocks with equal columns: how many, their messages, and when the first came.

    A block that was claimed in part is alone: `cut` is its `last`, and `unclaimed` what is left of it.
    """

    flows: bytes | None
    blocks: int
    unclaimed: int
    oldest_at: int
    cut: int | None = None


class Returned(msgspec.Struct, frozen=True):
    """A claim that nobody has, of a block with several flows, or with a body of its own: a dead letter's."""

    block: tuple[int, bool]
    """What tells the body from others: an id, and whether it is a letter's."""
    begin: int
    """Where it begins in its block."""
    count: int
    done: bytes
    since: int
    """When its messages became available."""

    def left(self) -> list[int]:
        """The places of messages in their block that are not finished."""
        done = self.done or bitmap.empty(self.count)
        return [self.begin + o for o in bitmap.indexes(bitmap.minus(bitmap.full(self.count), done))]


class FlowTally:
    """Adds up flows."""

    def __init__(self) -> None:
        self._counts: FlowTotals = {}
        self._bodies: dict[tuple[int, bool], Sequence[Flow]] = {}
        """The flows of messages in blocks of which something came back; nothing of one that can't be read."""

    def add(self, flow: Flow, count: int, appended_at: int) -> None:
        """Count messages of a block."""
        before, oldest_at = self._counts.get(flow, (0, appended_at))
        self._counts[flow] = (before + count, min(oldest_at, appended_at))

    def add_totals(self, totals: FlowTotals) -> None:
        """Count what another tally has counted."""
        for flow, (count, oldest_at) in totals.items():
            self.add(flow, count, oldest_at)

    def totals(self) -> FlowTotals:
        """What was counted so far."""
        return dict(self._counts)

    def add_group(self, group: FlowGroup) -> bool:
        """Count blocks by their column; False where that takes the body: see `add_body`."""
        if group.flows is None:
            self.add(Flow(), group.unclaimed, group.oldest_at)
            return True
        flows = _decode(group.flows)
        if group.cut is not None and len(flows) > 1:
            return False
        for name, type_, action, count in flows:
            unclaimed = count * group.blocks if group.cut is None else group.unclaimed
            self.add(Flow(name, type_, action), unclaimed, group.oldest_at)
        return True

    def add_body(self, body: bytes, unclaimed: int, appended_at: int) -> None:
        """Count the last messages of a block; those of a body that can't be read have no flow."""
        for flow, count in _rest(body, unclaimed).items():
            self.add(flow, count, appended_at)

    def add_alike(self, flows: bytes | None, count: int, since: int) -> None:
        """Count what came back of blocks that have one flow, or none."""
        name, type_, action, _ = ("", "", "", 0) if flows is None else _decode(flows)[0]
        self.add(Flow(name, type_, action), count, since)

    def add_held(self, flows: bytes | None, blocks: int, left: int, since: int) -> None:
        """Count what an owner has of whole blocks, or, with no `blocks`, of a part of one with one flow."""
        if blocks:
            self.add_group(FlowGroup(flows, blocks, left, since))
        elif left:
            self.add_alike(flows, left, since)

    def hold_back(self, delayed: Mapping[Flow, int]) -> None:
        """Leave out messages that were counted, and whose start time is to come."""
        for flow, count in delayed.items():
            before, oldest_at = self._counts.get(flow, (0, 0))
            if before > count:
                self._counts[flow] = (before - count, oldest_at)
            else:
                self._counts.pop(flow, None)

    def knows(self, claim: Returned) -> bool:
        """Whether the body of its block was given before."""
        return claim.block in self._bodies

    def add_returned(self, claim: Returned, body: bytes = b"") -> None:
        """Count what came back, by a body that is given or known; what can't be read has no flow."""
        if claim.block not in self._bodies:
            self._bodies[claim.block] = _flows_in(body)
        flows = self._bodies[claim.block]
        for place in claim.left():
            self.add(flows[place] if flows else Flow(), 1, claim.since)

    def counts(self, *, is_held: bool = False) -> list[FlowCount]:
        """What was counted, by flow."""
        return [FlowCount(flow, *counted, is_held) for flow, counted in sorted(self._counts.items())]


def encode_flows(counts: dict[Flow, int]) -> bytes | None:
    """The column of a block."""
    if not counts.keys() - {Flow()}:
        return None
    return _encode([(flow.name, flow.type, flow.action, count) for flow, count in sorted(counts.items())])


def _rest(body: bytes, unclaimed: int) -> dict[Flow, int]:
    try:
        block: Block = decode(body)
    except Corrupt:
        return {Flow(): unclaimed}
    return flow_counts(block.slice(len(block) - unclaimed, len(block)))


def _flows_in(body: bytes) -> Sequence[Flow]:
    try:
        block: Block = decode(body)
    except Corrupt:
        return ()
    return [flow_of(headers) for headers in block.headers()]
