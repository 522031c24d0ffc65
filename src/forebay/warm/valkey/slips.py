"""Parcels as the scripts know them: slips of msgpack, and ranges instead of lists.

Invariants: a slip is all of a parcel but its block; scripts read its first nine fields, and no more. What
they read holds no bytes (their msgpack has only text), and no number past 2**53 that must be exact: an id
comes as two numbers of nine decimal digits and the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from forebay.model import Flow
from forebay.warm.values import Lease, Parcel, Shelf, ShelfFlow

_BILLION: Final = 10**9
_HEX_DIGITS: Final = 8


class Slip(msgspec.Struct, frozen=True, array_like=True):
    """A parcel without its block."""

    messages: int
    first_high: int
    first_low: int
    base: int
    """The first offset."""
    holes: str | None
    """All offsets, 8 hexadecimal digits each, where they are not consecutive."""
    start_time: int
    size: int
    flow: str
    partition: str | None
    claim: int
    first: int
    count: int
    attempts: int
    created_at: int
    prev_start_time: int | None


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A lease as the scripts write it down."""

    parcel: str
    worker: str
    ranges: list[int]


_encoder: Final = msgspec.msgpack.Encoder()
_slips: Final = msgspec.msgpack.Decoder(Slip)
_records: Final = msgspec.msgpack.Decoder(Record)
pack = _encoder.encode


def name_of(parcel: Parcel) -> str:
    """What tells a parcel from all others of its shelf."""
    return f"{parcel.claim}.{parcel.offsets[0]}"


def to_slip(parcel: Parcel) -> bytes:
    """Write down a parcel without its block."""
    offsets = parcel.offsets
    holes = None
    if offsets[-1] - offsets[0] + 1 != len(offsets):
        holes = "".join([f"{offset:0{_HEX_DIGITS}x}" for offset in offsets])
    high, low = divmod(parcel.first, _BILLION)
    return _encoder.encode(
        Slip(
            len(offsets), high, low, offsets[0], holes, parcel.start_time, parcel.size,
            flow_text(parcel.flow), parcel.partition, parcel.claim, parcel.first, parcel.count,
            parcel.attempts, parcel.created_at, parcel.prev_start_time,
        )
    )  # fmt: skip


def to_parcel(raw: bytes) -> Parcel:
    """Read a parcel, without its block."""
    slip = _slips.decode(raw)
    offsets: Sequence[int]
    if slip.holes is None:
        offsets = range(slip.base, slip.base + slip.messages)
    else:
        digits = slip.holes
        offsets = [int(digits[i : i + _HEX_DIGITS], 16) for i in range(0, len(digits), _HEX_DIGITS)]
    return Parcel(
        slip.claim, slip.first, slip.count, offsets, slip.size, flow_of_text(slip.flow), slip.partition,
        slip.attempts, slip.created_at, slip.start_time, slip.prev_start_time, None,
    )  # fmt: skip


def lease_of(shelf: Shelf, epoch: str, number: int, parcel: Parcel) -> Lease:
    """The lease of that number on messages of a parcel."""
    return Lease(
        shelf.group,
        epoch,
        number,
        parcel.claim,
        parcel.first,
        parcel.count,
        parcel.attempts,
        parcel.start_time,
        parcel.prev_start_time,
        parcel.partition,
    )


def read_record(raw: bytes) -> Record:
    """Read what is written down of a lease."""
    return _records.decode(raw)


@lru_cache(1024)
def flow_text(flow: Flow) -> str:
    """A flow as text that no other flow has."""
    return msgspec.json.encode((flow.name, flow.type, flow.action)).decode()


@lru_cache(1024)
def flow_of_text(text: str) -> Flow:
    """The flow that `flow_text` wrote."""
    return Flow(*msgspec.json.decode(text, type=tuple[str, str, str]))


def to_ranges(numbers: Sequence[int]) -> list[int]:
    """Numbers in any order as half-open ranges, ascending: begin, end, begin, end and so on.

    >>> to_ranges([7, 1, 2, 3, 2])
    [1, 4, 7, 8]
    """
    if not numbers:
        return []
    if isinstance(numbers, range) and numbers.step == 1:
        return [numbers.start, numbers.stop]
    first, last = numbers[0], numbers[-1]
    if last - first + 1 == len(numbers) and list(numbers) == list(range(first, last + 1)):
        return [first, last + 1]
    ranges: list[int] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1] == number:
            ranges[-1] = number + 1
        else:
            ranges += (number, number + 1)
    return ranges


def from_ranges(ranges: Sequence[int]) -> Sequence[int]:
    """The numbers of half-open ranges.

    >>> list(from_ranges([1, 4, 7, 8]))
    [1, 2, 3, 7]
    """
    if len(ranges) == 2:  # noqa: PLR2004 - one range, by far the most frequent
        return range(ranges[0], ranges[1])
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return [number for begin, end in pairs for number in range(begin, end)]


def pairs_of(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Fields and values of a hash, as a script answers them."""
    return zip(flat[::2], flat[1::2], strict=True)


def count_flows(
    parcels: Sequence[bytes], left: Sequence[bytes], records: Iterable[bytes], noted: Iterable[bytes]
) -> list[ShelfFlow]:
    """Add up what a shelf holds by flow, from the hashes in which it is written down."""
    out: dict[str, int] = {}
    for raw in records:
        record = read_record(raw)
        size = sum(record.ranges[1::2]) - sum(record.ranges[::2])
        out[record.parcel] = out.get(record.parcel, 0) + size
    remaining = {name: int(count) for name, count in pairs_of(left)}
    rows: dict[str, list[int]] = {}
    oldest: dict[str, int] = {}

    def add(slip: Slip, ready: int, leased: int, only_noted: int) -> None:
        row = rows.setdefault(slip.flow, [0, 0, 0])
        row[:] = row[0] + ready, row[1] + leased, row[2] + only_noted
        if ready or only_noted:
            oldest[slip.flow] = min(oldest.get(slip.flow, slip.start_time), slip.start_time)

    for name, raw in pairs_of(parcels):
        leased = out.get(name.decode(), 0)
        add(_slips.decode(raw), remaining[name] - leased, leased, 0)
    for raw in noted:
        slip = _slips.decode(raw)
        add(slip, 0, 0, slip.messages)
    counts = [
        ShelfFlow(flow_of_text(text), row[0], row[1], row[2], oldest.get(text)) for text, row in rows.items()
    ]
    return sorted(counts, key=lambda count: count.flow)
