"""The start times of a block, kept beside it: what is delayed is counted without its body.

A log writes them down with a block of which some message is to come later, and forgets them once the last of
these times is over. `starts` is a msgpack array of [name, type, action, offsets, times] for each flow: which
messages have a start time (nil: all of the block), and what it is (one number where all have the same).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from forebay.model import Block, Flow, flow_of

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(
    list[tuple[str, str, str, list[int] | None, list[int] | int]], strict=True
).decode


class Delays(msgspec.Struct, frozen=True, array_like=True):
    """The start times of a block's messages: the first, the last, how many have one, and all of them."""

    earliest: int
    latest: int
    count: int
    starts: bytes


class DelayedBlocks(msgspec.Struct, frozen=True):
    """Blocks of which a group has messages that are delayed: some with equal columns, or one.

    Without `starts` all `count` of them are: none is claimed, and the first start time is to come. Otherwise
    `blocks` have those start times each, and what is before offset `begin` is claimed.
    """

    count: int
    blocks: int
    begin: int | None = None
    starts: bytes | None = None


def delays_of(block: Block) -> Delays | None:
    """What is to be written down of a block; None where nothing in it has a start time."""
    if block.start_times is None:
        return None
    found: dict[Flow, tuple[list[int], list[int]]] = {}
    times = []
    for offset, (headers, start) in enumerate(zip(block.headers(), block.start_times, strict=True)):
        if start is not None:
            offsets, starts = found.setdefault(flow_of(headers), ([], []))
            offsets.append(offset)
            starts.append(start)
            times.append(start)
    if not times:
        return None
    rows = [
        (
            flow.name,
            flow.type,
            flow.action,
            None if len(offsets) == len(block) else offsets,
            starts[0] if min(starts) == max(starts) else starts,
        )
        for flow, (offsets, starts) in sorted(found.items())
    ]
    return Delays(min(times), max(times), len(times), _encode(rows))


def count_delayed(rows: Iterable[DelayedBlocks], now: int) -> int:
    """How many messages of these blocks are delayed."""
    total = 0
    for row in rows:
        if row.starts is None:
            total += row.count
        else:
            total += row.blocks * sum(count for _, count in _left(row, now))
    return total


def delayed_flows(rows: Iterable[DelayedBlocks], now: int) -> dict[Flow, int]:
    """The same by flow; every row has its `starts`."""
    found: dict[Flow, int] = {}
    for row in rows:
        for flow, count in _left(row, now):
            found[flow] = found.get(flow, 0) + row.blocks * count
    return found


def _left(row: DelayedBlocks, now: int) -> list[tuple[Flow, int]]:
    assert row.starts is not None, "blocks without their start times"
    begin, found = row.begin or 0, []
    for name, type_, action, offsets, times in _decode(row.starts):
        found.append((Flow(name, type_, action), _count(offsets, times, begin, now, row.count)))
    return found


def _count(
    offsets: Sequence[int] | None, times: Sequence[int] | int, begin: int, now: int, count: int
) -> int:
    """Of a block of `count` messages: how many from offset `begin` on have a start time to come."""
    if isinstance(times, int):
        if times <= now:
            return 0
        return max(0, count - begin) if offsets is None else sum(offset >= begin for offset in offsets)
    places = range(len(times)) if offsets is None else offsets
    return sum(offset >= begin and time > now for offset, time in zip(places, times, strict=True))
