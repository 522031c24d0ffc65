"""Claims to unpack, and leases to settle, as a log and a tier would give them."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.log.values import Claim, StoredBlock
from forebay.model import Block, Message, bitmap, encode
from forebay.store.values import Task
from forebay.warm.values import Lease

NOW = 1_800_000_000_000_000
FIRST = 101
"""The id of the first message of a block."""


def block_of(*messages: Message | bytes) -> Block:
    """A block of messages."""
    return Block.of([m if isinstance(m, Message) else Message(m) for m in messages], created_at=NOW)


def claim_of(
    block: Block,
    *,
    begin: int = 0,
    count: int | None = None,
    done: Sequence[int] = (),
    handed: Sequence[int] = (),
    attempts: int = 0,
    start_time: int = NOW,
    prev_start_time: int | None = None,
) -> Claim:
    """A claim on some messages of a block."""
    size = len(block) - begin if count is None else count
    stored = StoredBlock(FIRST, len(block), block.id, NOW, block.partition(0), encode(block))
    return Claim(
        token=7,
        group=3,
        first=FIRST + begin,
        count=size,
        done=bitmap.of(done, size),
        handed=bitmap.of(handed, size),
        attempts=attempts,
        start_time=start_time,
        prev_start_time=prev_start_time,
        block=stored,
    )


def lease_of(*, attempts: int = 0, count: int = 8) -> Lease:
    """A lease on a claim of so many messages."""
    return Lease(3, "m1", 1, 7, FIRST, count, attempts, NOW)


def task_of(offset: int, lease: Lease, prev_start_time: int | None = None) -> Task:
    """A task of a lease."""
    return Task(
        lease.first + offset, 1, b"%d" % offset, lease.attempts, NOW, lease.start_time, prev_start_time,
        lease, NOW + 60_000_000, "p",
    )  # fmt: skip
