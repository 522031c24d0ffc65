"""From leases to tasks and back: what workers get, what the log is told of it. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat

import msgspec

from forebay.log.values import Mark
from forebay.model import bitmap
from forebay.store.values import Peeked, Task
from forebay.warm.values import Lease, Leased, Parcel


def tasks_of(piece: Leased, queue_num: int) -> list[Task]:
    """The tasks of one lease."""
    lease, parcel, block = piece.lease, piece.parcel, piece.parcel.block
    assert block is not None, "a lease without bodies"
    first, offsets, deadline = parcel.first, parcel.offsets, piece.deadline
    attempts, created_at = parcel.attempts, parcel.created_at
    start_time, previous = parcel.start_time, parcel.prev_start_time
    if block.partition_index is None and block.transaction_ids is None and block.header_index is None:
        headers = (block.header_table[0] if block.header_table else None) or None
        begin, end = piece.places[0], piece.places[-1] + 1
        whole = end - begin == len(piece.places)
        payloads = block.payloads[begin:end] if whole else [block.payloads[p] for p in piece.places]
        return list(
            map(
                Task,
                [first + offset for offset in piece.span()], repeat(queue_num), payloads, repeat(attempts),
                repeat(created_at), repeat(start_time), repeat(previous), repeat(lease), repeat(deadline),
                repeat(block.partition_table[0]), repeat(None), repeat(headers),
            )
        )  # fmt: skip
    tasks = []
    for place in piece.places:
        m = block.message(place)
        tasks.append(
            Task(
                first + offsets[place], queue_num, m.payload, attempts, created_at, start_time,
                previous, lease, deadline, m.partition, m.transaction_id, m.headers,
            )
        )  # fmt: skip
    return tasks


def peeked_of(parcel: Parcel, place: int, queue_num: int) -> Peeked:
    """A message that is looked at."""
    assert parcel.block is not None, "ready without a body"
    m = parcel.block.message(place)
    return Peeked(
        parcel.first + parcel.offsets[place], queue_num, m.payload, parcel.attempts, parcel.created_at,
        parcel.start_time, parcel.prev_start_time, m.partition, m.transaction_id, m.headers,
    )  # fmt: skip


def wanted_of(leased: Sequence[Leased]) -> dict[Lease, list[int]]:
    """The messages of leases, as offsets in their claims."""
    return {piece.lease: piece.offsets() for piece in leased}


def leases_of(tasks: Sequence[Task]) -> dict[Lease, list[int]]:
    """Tasks by their leases, as offsets in their claims."""
    wanted: dict[Lease, list[int]] = {}
    for task in tasks:
        wanted.setdefault(task.lease, []).append(task.id - task.lease.first)
    return wanted


def mark_of(piece: Leased) -> Mark:
    """What the log is told when messages go out."""
    lease = piece.lease
    return Mark(lease.group, lease.claim, lease.count, handed=bitmap.of(piece.span(), lease.count))


def unmark(lease: Lease, offsets: Sequence[int]) -> Mark:
    """What the log is told when messages come back unused."""
    return Mark(lease.group, lease.claim, lease.count, returned=bitmap.of(offsets, lease.count))


def lost_of(wanted: Mapping[Lease, Sequence[int]], held: Mapping[Lease, Sequence[int]]) -> list[int]:
    """The ids of messages that are wanted and not held."""
    lost: list[int] = []
    for lease, offsets in wanted.items():
        found = held.get(lease, ())
        if len(found) != len(offsets):
            kept = set(found)
            lost.extend(lease.first + o for o in offsets if o not in kept)
    return lost


def without(piece: Leased, settled: Collection[tuple[int, int]]) -> Leased | None:
    """What is left of a lease beside some messages, each by claim and offset; None if that is nothing."""
    claim, offsets = piece.lease.claim, piece.parcel.offsets
    places = [place for place in piece.places if (claim, offsets[place]) not in settled]
    if len(places) == len(piece.places):
        return piece
    return msgspec.structs.replace(piece, places=places) if places else None
