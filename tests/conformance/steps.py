"""The steps that conformance tests are made of: push, read back, finish, and the balance of the books."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from forebay.log.values import Append, Appended, Claim, Claimed, Deferral, GroupStats, Room
from forebay.model import Block, Message, bitmap, decode, mint, sequence_of

if TYPE_CHECKING:
    from forebay.log.seam import Log
    from forebay.log.values import Group, Queue

SECOND = 1_000_000
DAY_SECONDS = 86_400
ALL = Room(messages=1_000_000, bytes=1 << 40)


def block_of(
    *payloads: str,
    partition: str = "",
    transaction_ids: Sequence[str | None] | None = None,
    id: bytes | None = None,
) -> Block:
    """A block of text messages, in one partition."""
    ids = transaction_ids or [None] * len(payloads)
    messages = [
        Message(payload.encode(), partition, transaction_id)
        for payload, transaction_id in zip(payloads, ids, strict=True)
    ]
    return Block.of(messages, id=id or mint())


def append_of(
    queue: Queue,
    *payloads: str,
    partition: str = "",
    transaction_ids: Sequence[str | None] | None = None,
    id: bytes | None = None,
) -> Append:
    """A block of text messages on its way into a queue."""
    block = block_of(*payloads, partition=partition, transaction_ids=transaction_ids, id=id)
    return Append.of(queue, block)


async def push(
    log: Log,
    queue: Queue,
    *payloads: str,
    partition: str = "",
    transaction_ids: Sequence[str | None] | None = None,
    id: bytes | None = None,
) -> Appended:
    """Commit one block of text messages."""
    append = append_of(queue, *payloads, partition=partition, transaction_ids=transaction_ids, id=id)
    receipt = await log.commit([append])
    return receipt.appended[0]


async def push_named(log: Log, queue: Queue, *transaction_ids: str | None, partition: str = "") -> Appended:
    """Commit one block whose messages carry these transaction ids, and say no more."""
    receipt = await log.commit([named(queue, *transaction_ids, partition=partition)])
    return receipt.appended[0]


def named(queue: Queue, *transaction_ids: str | None, partition: str = "") -> Append:
    """A block whose messages carry these transaction ids, and say no more, on its way into a queue."""
    payloads = [str(transaction_id) for transaction_id in transaction_ids]
    return append_of(queue, *payloads, partition=partition, transaction_ids=transaction_ids)


def sequences(appended: Appended) -> list[int]:
    """The sequence numbers of a push."""
    return [sequence_of(message_id) for message_id in appended.ids()]


async def stored(log: Log, queue: Queue) -> list[str]:
    """All payloads that the queue keeps."""
    found: list[str] = []
    first = 1
    while blocks := await log.read(queue, first):
        for block in blocks:
            found.extend(payload.decode() for payload in block.decode().payloads)
        first = sequence_of(blocks[-1].last) + 1
    return found


def texts(claim: Claim) -> list[str]:
    """The payloads of a claim, finished ones too."""
    start = claim.first - claim.block.first
    payloads = decode(claim.block.body).payloads[start : start + claim.count]
    return [payload.decode() for payload in payloads]


def unfinished(claims: Iterable[Claim]) -> list[str]:
    """The payloads of claims that are not finished, in order."""
    return [
        text
        for claim in claims
        for text, index in zip(texts(claim), range(claim.count), strict=True)
        if index not in bitmap.indexes(claim.done)
    ]


def first_texts(claimed: Claimed) -> list[list[str]]:
    """The payloads of each claim."""
    return [texts(claim) for claim in claimed.claims]


async def take(log: Log, group: Group, owner: str = "owner", room: Room = ALL) -> list[Claim]:
    """Claim, and expect nothing corrupt."""
    claimed = await log.claim(group, owner, room)
    assert not claimed.corrupt
    return list(claimed.claims)


async def take_one(log: Log, group: Group, owner: str = "owner") -> Claim:
    """Claim, and expect one block."""
    (claim,) = await take(log, group, owner)
    return claim


async def drain(log: Log, group: Group, owner: str = "owner", room: Room = ALL) -> list[str]:
    """Claim and finish until there is nothing left; what came, in order."""
    found: list[str] = []
    for _ in range(1_000):
        claims = await take(log, group, owner, room)
        if not claims:
            return found
        found.extend(unfinished(claims))
        await finish(log, *claims)
    raise AssertionError("it never ends")


async def finish(log: Log, *claims: Claim) -> None:
    """Settle claims as done."""
    receipt = await log.commit(settlements=[claim.settle_all() for claim in claims])
    receipt.raise_for_conflicts()


async def defer(log: Log, claim: Claim, due_at: int, *, attempts: int = 0, prev: int | None = None) -> None:
    """Send all of a claim back until a time."""
    deferral = Deferral(0, due_at, attempts, prev, claim.count)
    receipt = await log.commit(settlements=[claim.settle(deferred=(deferral,))])
    receipt.raise_for_conflicts()


def bits(claim: Claim, *indexes: int) -> bytes:
    """The bitmap of some messages of a claim."""
    return bitmap.of(indexes, claim.count)


async def counts(log: Log, group: Group) -> GroupStats:
    """Where the messages of a group are."""
    for queue in (await log.stats()).queues:
        for stats in queue.groups:
            if stats.group.number == group.number:
                return stats
    raise AssertionError(f"no group {group.name}")


async def check_ledger(log: Log) -> None:
    """Nothing is lost, counted twice, or below zero."""
    for queue in (await log.stats()).queues:
        for stats in queue.groups:
            parts = (stats.ready, stats.held, stats.deferred, stats.done)
            assert min(*parts, stats.dead, stats.purged, stats.expired, stats.corrupt) >= 0, stats
            assert stats.difference == 0, stats
