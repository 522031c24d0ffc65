"""From claims to parcels: what is handed out alike stays together, what is not to be handed out goes back.

Pure functions. A message whose start time is to come is deferred to it. A message that was out with a
worker when its claim was taken over comes back as an attempt, which is counted durably, by a deferral; if it
may not come back so often, it is given up.
In an ordered queue a run is never split by flow, and what comes after a deferred message waits with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby

import msgspec

from forebay.log.values import Claim, Death, Deferral, QueueSettings, accepted_at
from forebay.model import Block, Flow, bitmap, flow_of
from forebay.store.giving_up import NO_ANSWER, is_last, last_words, without_start
from forebay.warm.values import Parcel

PARCEL_BYTES_MAX = 1 << 20


class Unpacked(msgspec.Struct, frozen=True):
    """What became of a claim's messages."""

    parcels: Sequence[Parcel] = ()
    deferred: tuple[Deferral, ...] = ()
    dead: tuple[Death, ...] = ()


def unpack(claim: Claim, block: Block, now: int, settings: QueueSettings, *, most: int) -> Unpacked:
    """Sort the unfinished messages of a claim, in parcels of at most so many; `block` is its whole block."""
    ordered, begin = settings.ordered, claim.first - claim.block.first
    offsets: Sequence[int] = range(claim.count)
    if any(claim.done):
        offsets = bitmap.indexes(bitmap.minus(bitmap.full(claim.count), claim.done))
    deferred: list[Deferral] = []
    dead: list[Death] = []
    if any(claim.handed):
        if is_last(claim.attempts, settings):
            dead, offsets = _give_up(claim, block, offsets)
        deferred, offsets = _count_attempts(claim, block, offsets, now, ordered=ordered)
    if block.start_times is not None and not claim.attempts:
        later, offsets = _not_yet(claim, block.start_times, offsets, now, ordered=ordered)
        deferred += later
    accepted = accepted_at(block.created_at, claim.block.appended_at)
    parcels = [
        Parcel(
            claim.token, claim.first, claim.count, piece, size, flow, claim.block.partition,
            claim.attempts, accepted, start_time, claim.prev_start_time,
            pick(block, begin, piece),
        )
        for flow, start_time, group in _alike(claim, block, offsets, ordered=ordered)
        for piece, size in _pieces(block, begin, group, most)
    ]  # fmt: skip
    return Unpacked(parcels, tuple(deferred), tuple(dead))


def _give_up(claim: Claim, block: Block, offsets: Sequence[int]) -> tuple[list[Death], Sequence[int]]:
    """Give up what was handed out for the last time."""
    begin, handed = claim.first - claim.block.first, set(bitmap.indexes(claim.handed))
    reason = last_words(claim.attempts, NO_ANSWER)
    dead = [
        Death(o, reason, claim.attempts + 1, without_start(block.message(begin + o)))
        for o in offsets
        if o in handed
    ]
    return dead, [o for o in offsets if o not in handed]


def _count_attempts(
    claim: Claim, block: Block, offsets: Sequence[int], now: int, *, ordered: bool
) -> tuple[list[Deferral], Sequence[int]]:
    """Count what was handed out; in an ordered queue the rest goes back too, to keep its place."""
    handed = set(bitmap.indexes(claim.handed))
    back = list(offsets) if ordered else [o for o in offsets if o in handed]
    starts = _activations(claim, block, ordered=ordered)
    deferred = []
    for start, run in _runs(back, lambda o: starts[o] if o in handed else -1):
        if start < 0:
            deferred.append(Deferral(run[0], now, claim.attempts, claim.prev_start_time, len(run)))
        else:
            deferred.append(Deferral(run[0], now, claim.attempts + 1, start, len(run), NO_ANSWER))
    return deferred, [] if ordered else [o for o in offsets if o not in handed]


def _activations(claim: Claim, block: Block, *, ordered: bool) -> Sequence[int]:
    """When each message of a claim became available; in order, not before what comes before it."""
    count, begin = claim.count, claim.first - claim.block.first
    if block.start_times is None or claim.attempts or claim.prev_start_time is not None:
        return [claim.start_time] * count
    starts = [max(claim.start_time, start or 0) for start in block.start_times[begin : begin + count]]
    return list(accumulate(starts, max)) if ordered else starts


def _not_yet(
    claim: Claim, start_times: Sequence[int | None], offsets: Sequence[int], now: int, *, ordered: bool
) -> tuple[list[Deferral], Sequence[int]]:
    """Defer what starts later; in an ordered queue all that comes after it waits along."""
    begin = claim.first - claim.block.first
    starts = {o: start_times[begin + o] or 0 for o in offsets}
    if ordered:
        held_up = 0
        for o in offsets:
            held_up = starts[o] = max(starts[o], held_up) if held_up > now else starts[o]
            held_up = max(held_up, starts[o])
    late = [o for o in offsets if starts[o] > now]
    deferred = [
        Deferral(run[0], start, claim.attempts, claim.prev_start_time, len(run))
        for start, run in _runs(late, lambda o: starts[o])
    ]
    return deferred, [o for o in offsets if starts[o] <= now]


def defer(
    offsets: Sequence[int], due_at: int, attempts: int, prev_start_time: int | None, reason: str = ""
) -> tuple[Deferral, ...]:
    """Deferrals of these messages of a claim, one for each run of consecutive ones."""
    runs = _runs(offsets, lambda _: 0)
    return tuple(Deferral(run[0], due_at, attempts, prev_start_time, len(run), reason) for _, run in runs)


def pick(block: Block, begin: int, offsets: Sequence[int]) -> Block:
    """The messages of a block at these offsets, counted from message `begin` on."""
    low, high = begin + offsets[0], begin + offsets[-1] + 1
    if len(offsets) == len(block):
        return block
    part = block.slice(low, high)
    if high - low == len(offsets):
        return part
    keep = set(offsets)
    return part.without([i for i in range(high - low) if i + offsets[0] not in keep])


def _runs(offsets: Sequence[int], kind: Callable[[int], int]) -> list[tuple[int, list[int]]]:
    """Runs of consecutive offsets of one kind, each with its kind."""
    keyed = groupby(enumerate(offsets), key=lambda pair: (kind(pair[1]), pair[1] - pair[0]))
    return [(key[0], [o for _, o in run]) for key, run in keyed]


def _alike(
    claim: Claim, block: Block, offsets: Sequence[int], *, ordered: bool
) -> list[tuple[Flow, int, Sequence[int]]]:
    """Split by flow and by the time of activation; an ordered run only by the time."""
    if not offsets:
        return []
    begin = claim.first - claim.block.first
    table = [flow_of(headers) for headers in block.header_table or ({},)]
    index = block.header_index
    if block.start_times is None and (ordered or index is None):
        return [(table[0 if index is None else index[begin + offsets[0]]], claim.start_time, offsets)]
    starts = _activations(claim, block, ordered=ordered)
    groups: dict[tuple[Flow, int], list[int]] = {}
    for o in offsets:
        flow = table[0 if index is None else index[begin + (offsets[0] if ordered else o)]]
        groups.setdefault((flow, starts[o]), []).append(o)
    return [(flow, start, group) for (flow, start), group in groups.items()]


def _pieces(block: Block, begin: int, offsets: Sequence[int], most: int) -> list[tuple[Sequence[int], int]]:
    """Cut into pieces that fit on a shelf with others; each with its bytes of payload."""
    if len(offsets) == len(block) <= most:
        total = sum(map(len, block.payloads))
        if total <= PARCEL_BYTES_MAX:
            return [(offsets, total)]
    sizes = list(map(len, block.payloads))
    pieces: list[tuple[Sequence[int], int]] = []
    start, size = 0, 0
    for i, o in enumerate(offsets):
        if i > start and (i - start == most or size + sizes[begin + o] > PARCEL_BYTES_MAX):
            pieces.append((offsets[start:i], size))
            start, size = i, 0
        size += sizes[begin + o]
    pieces.append((offsets[start:], size))
    return pieces
