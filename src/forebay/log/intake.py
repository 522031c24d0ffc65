"""What happens to a block between the caller and the transaction: checks, dedupe digests, the answer.

A duplicate is a message whose transaction id is known for its queue and partition. Duplicates inside the
block are dropped before the first attempt; those that the log finds are dropped after it, and the block
is tried again under the same id. `Intake` remembers what was dropped, by index of the original push:
an id of the first message, or ~j for "the same as message j of this push".
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from forebay.log.values import Append, Appended, Queue
from forebay.model import (
    Block,
    Conflict,
    Limits,
    Rejected,
    check_block,
    check_partition,
    encode,
    format_id,
    queue_of,
)

_encode_duplicates = msgspec.msgpack.Encoder().encode
_decode_duplicates = msgspec.msgpack.Decoder(dict[int, int]).decode


class Answer(msgspec.Struct, frozen=True):
    """What the log says to one append.

    Written now (`first`, `count`), written before (`known`, with what was dropped at that time), or
    refused because of `found`: index in the block as offered, and id of the first message.
    """

    first: int = 0
    count: int = 0
    known: bool = False
    dropped: bytes | None = None
    found: tuple[tuple[int, int], ...] = ()


class Intake:
    """One block on its way in; `block`, `body` and `digests` are what the next attempt offers."""

    __slots__ = ("_dropped", "_kept", "block", "body", "digests", "partition", "queue", "total")

    def __init__(self, append: Append, queue: Queue, limits: Limits) -> None:
        check_block(append.block, limits)
        self.queue = queue.number
        self.block: Block = append.block
        self.body = append.body
        self.total = len(append.block)
        self.partition = _only_partition(append.block, queue) if queue.settings.ordered else None
        self._kept: list[int] | range = range(self.total)
        self._dropped: dict[int, int] = {}
        self.digests: list[bytes | None] | None = None
        if append.block.transaction_ids is not None and queue.settings.dedupe_seconds > 0:
            self._digest()

    @property
    def id(self) -> bytes:
        """The block id."""
        return self.block.id

    @property
    def dropped(self) -> bytes | None:
        """What has been dropped so far, to be remembered with the block id."""
        return _encode_duplicates(self._dropped) if self._dropped else None

    def drop(self, found: tuple[tuple[int, int], ...]) -> None:
        """Leave out the messages that the log knows already."""
        for index, message_id in found:
            self._dropped[self._kept[index]] = message_id
        self._leave_out({index for index, _ in found})

    def appended(self, answer: Answer) -> Appended:
        """The answer to the caller, by the indexes of the original push."""
        if not answer.known:
            return resolve(answer, self._dropped)
        if self.differs(answer):
            text = f"block id {format_id(self.id)} was used for another block"
            raise Conflict(text, hint="mint a new id for a new block")
        return resolve(answer)

    def differs(self, answer: Answer) -> bool:
        """Whether the block id was used before, for a block of another queue or size."""
        known = resolve(answer)
        total = known.count + len(known.duplicates)
        return total != self.total or queue_of(answer.first) != self.queue

    def _digest(self) -> None:
        block, seen, same = self.block, dict[bytes, int](), set[int]()
        digests: list[bytes | None] = []
        for index, transaction_id in enumerate(block.transaction_ids or ()):
            digest = None
            if transaction_id is not None:
                digest = _digest_of(self.queue, block.partition(index), transaction_id)
                first = seen.setdefault(digest, index)
                if first != index:
                    self._dropped[index] = ~first
                    same.add(index)
            digests.append(digest)
        self.digests = digests if seen else None
        if same:
            self._leave_out(same)

    def _leave_out(self, indexes: set[int]) -> None:
        self._kept = [kept for i, kept in enumerate(self._kept) if i not in indexes]
        self.block = self.block.without(indexes)
        self.body = encode(self.block)
        if self.digests is not None:
            self.digests = [d for i, d in enumerate(self.digests) if i not in indexes]


def resolve(answer: Answer, dropped: dict[int, int] | None = None) -> Appended:
    """The ids of a push, given what was dropped from it (by default what the answer remembers)."""
    if dropped is None:
        dropped = _decode_duplicates(answer.dropped) if answer.dropped else {}
    if not dropped:
        return Appended(answer.first, answer.count, {}, answer.known)
    fresh = iter(range(answer.first, answer.first + answer.count))
    total = answer.count + len(dropped)
    ids = [dropped[i] if i in dropped else next(fresh) for i in range(total)]
    duplicates = {i: ids[~value] if value < 0 else value for i, value in dropped.items()}
    return Appended(answer.first, answer.count, duplicates, answer.known)


def _digest_of(queue: int, partition: str, transaction_id: str) -> bytes:
    """16 bytes that stand for a transaction id within its queue and partition."""
    key = f"{queue}:{len(partition)}:{partition}:{transaction_id}"
    return blake2b(key.encode(), digest_size=16).digest()


def _only_partition(block: Block, queue: Queue) -> str:
    partitions = block.partition_table
    if len(partitions) != 1:
        text = f"a block of the ordered queue {queue.name!r} holds {len(partitions)} partitions"
        raise Rejected(text, hint="write one block per partition")
    check_partition(partitions[0])
    return partitions[0]
