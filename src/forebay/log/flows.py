"""The flows of blocks as a column: how it is written, and how counts are made of it.

The column is nothing where no message of the block has a flow; otherwise a msgpack array of
[name, type, action, count], sorted, whose counts add up to the block's. Equal columns are counted
together, so a log groups by it and reads no body, but for a block that the cursor cuts.
"""

from __future__ import annotations

import msgspec

from forebay.log.values import FlowCount
from forebay.model import Block, Corrupt, Flow, decode, flow_counts

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, str, int]]).decode


class FlowGroup(msgspec.Struct, frozen=True):
    """Unclaimed blocks with equal columns: how many, their messages, and when the first came.

    A block that was claimed in part is alone: `cut` is its `last`, and `unclaimed` what is left of it.
    """

    flows: bytes | None
    blocks: int
    unclaimed: int
    oldest_at: int
    cut: int | None = None


class FlowTally:
    """Adds up flows."""

    def __init__(self) -> None:
        self._counts: dict[Flow, tuple[int, int]] = {}

    def add(self, flow: Flow, count: int, appended_at: int) -> None:
        """Count messages of a block."""
        before, oldest_at = self._counts.get(flow, (0, appended_at))
        self._counts[flow] = (before + count, min(oldest_at, appended_at))

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

    def counts(self) -> list[FlowCount]:
        """What was counted, by flow."""
        return [FlowCount(flow, *counted) for flow, counted in sorted(self._counts.items())]


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
