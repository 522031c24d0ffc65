"""What happens to a block between the caller and the transaction: checks, dedupe digests, the answer.

A duplicate is a message whose transaction id is known for its queue and partition. Duplicates inside the
block are dropped before the first attempt; those that the log finds are dropped after it, and the block
is tried again under the same id. `Intake` remembers what was dropped, by index of the original push:
an id of the first message, ~j for "the same as message j of this push", or -(2**40 + n) for "the
message n places before this block", where an atomic commit holds a transaction id in two blocks: they
are written next to each other, so n is known before the ids are.

Two messages with one transaction id are the same if they were accepted within the queue's window of each
other, in whichever order they come to the log. Of several, the one that was accepted last is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from forebay.log.delays import Delays, delays_of
from forebay.log.flows import encode_flows
from forebay.log.values import Append, Appended, Queue, QueueSettings
from forebay.model import (
    Block,
    Conflict,
    Limits,
    Rejected,
    check_block,
    check_partition,
    flow_counts,
    format_id,
    queue_of,
)

_BACK = 1 << 40
_SECOND = 1_000_000
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
    """One block on its way in; `block`, `body` and `digests` are what the next attempt offers.

    `size` is how many bytes its body took before compression when it came.
    """

    __slots__ = (
        "_append",
        "_dropped",
        "_found",
        "_kept",
        "_links",
        "_offered",
        "_window",
        "accepted_at",
        "block",
        "digests",
        "partition",
        "queue",
        "size",
        "total",
    )

    def __init__(self, append: Append, queue: Queue, limits: Limits) -> None:
        self.size = check_block(append.block, limits)
        self.queue = queue.number
        self.total = len(append.block)
        self.partition = _only_partition(append.block, queue) if queue.settings.ordered else None
        self.accepted_at = append.block.created_at if append.replayed else None
        """When it was accepted, if that is before it is written; a log takes no time of its future."""
        self._offered = append
        self._window = dedupe_us(queue.settings)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Offer the block as it came, but for what it repeats itself."""
        self.block: Block = self._offered.block
        self._found: dict[int, int] = {}
        self._append = self._offered
        self._kept: list[int] | range = range(self.total)
        self._dropped: dict[int, int] = {}
        self._links: dict[int, tuple[Intake, int]] = {}
        self.digests: list[bytes | None] | None = None
        if self._window and self.block.transaction_ids is not None:
            self._digest()

    @property
    def id(self) -> bytes:
        """The block id."""
        return self.block.id

    @property
    def body(self) -> bytes:
        """What the next attempt offers, as bytes; whoever asks first has it encoded."""
        return self._append.body

    @property
    def dropped(self) -> bytes | None:
        """What has been dropped so far, to be remembered with the block id."""
        return _encode_duplicates(self._dropped) if self._dropped else None

    @property
    def flows(self) -> bytes | None:
        """What the next attempt writes beside the block, for `flows` to count without its body."""
        return encode_flows(flow_counts(self.block))

    @property
    def delays(self) -> Delays | None:
        """The start times of what the next attempt offers, to be counted without its body."""
        return delays_of(self.block)

    def drop(self, found: tuple[tuple[int, int], ...]) -> None:
        """Leave out the messages that the log knows already."""
        if not found:
            return
        for index, message_id in found:
            self._found[self._kept[index]] = message_id
        self._dropped |= self._found
        self._leave_out({index for index, _ in found})

    def take_back(self) -> None:
        """Offer again what was left to earlier blocks, since the log has found some of theirs."""
        if self._links:
            found = self._found
            self.begin_anew()
            places = {place: index for index, place in enumerate(self._kept)}
            self.drop(tuple((places[place], message_id) for place, message_id in found.items()))

    def leave_to(self, seen: dict[bytes, tuple[Intake, int]]) -> None:
        """Leave out the messages that an earlier block of the commit holds, and add to `seen`."""
        same = set()
        for index, digest in enumerate(self.digests or ()):
            if digest is not None:
                place = self._kept[index]
                first = seen.setdefault(digest, (self, place))
                if first[0] is self:
                    continue
                if self._is_near(first[0]):
                    self._links[place] = first
                    self._dropped[place] = -_BACK
                    same.add(index)
                elif (self.accepted_at or 0) > (first[0].accepted_at or 0):
                    seen[digest] = (self, place)
        if same:
            self._leave_out(same)

    def _is_near(self, other: Intake) -> bool:
        """Whether another block of the commit was accepted within the window of this one."""
        if self.accepted_at is None or other.accepted_at is None:
            return True
        return abs(self.accepted_at - other.accepted_at) < self._window

    @property
    def leaves_some(self) -> bool:
        """Whether messages were left to earlier blocks."""
        return bool(self._links)

    def links(self, answer: Answer, ids: Mapping[Intake, tuple[Answer, list[int]]]) -> dict[int, int]:
        """Where the messages are that were left to earlier blocks, in the words of `dropped`."""
        links = {}
        for place, (earlier, index) in self._links.items():
            known, message_id = ids[earlier][0].known, ids[earlier][1][index]
            links[place] = message_id if known else message_id - answer.first - _BACK
        return {} if answer.known else links

    def note(self, links: dict[int, int]) -> None:
        """Remember where the messages are that were left to earlier blocks."""
        self._dropped |= links

    def has_noted(self, links: dict[int, int]) -> bool:
        """Whether what is remembered holds."""
        return links.items() <= self._dropped.items()

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
        if not answer.known:
            return False
        known = resolve(answer)
        total = known.count + len(known.duplicates)
        return total != self.total or queue_of(answer.first) != self.queue

    def _digest(self) -> None:
        block, seen, same = self.block, dict[bytes, int](), set[int]()
        digests: list[bytes | None] = []
        for index, transaction_id in enumerate(block.transaction_ids or ()):
            digest = None
            if transaction_id is not None:
                digest = digest_of(self.queue, block.partition(index), transaction_id)
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
        self._append = Append(self.queue, self.block)
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
    ids = [_place(dropped[i], answer.first) if i in dropped else next(fresh) for i in range(total)]
    duplicates = {i: ids[~v] if -_BACK < v < 0 else ids[i] for i, v in dropped.items()}
    return Appended(answer.first, answer.count, duplicates, answer.known)


def leave_to_earlier(intakes: Sequence[Intake]) -> None:
    """Leave out of each block of a commit the messages that an earlier one holds."""
    seen: dict[bytes, tuple[Intake, int]] = {}
    for intake in intakes:
        intake.leave_to(seen)


def note_links(intakes: Sequence[Intake], answers: Sequence[Answer]) -> None:
    """Remember where the messages are that blocks of a commit leave to each other."""
    for intake, links in zip(intakes, find_links(intakes, answers), strict=True):
        intake.note(links)


def find_links(intakes: Sequence[Intake], answers: Sequence[Answer]) -> list[dict[int, int]]:
    """`Intake.links` for the blocks of a commit, all of them answered."""
    if not any(intake.leaves_some for intake in intakes):
        return [{} for _ in intakes]
    pairs = list(zip(intakes, answers, strict=True))
    ids = {intake: (answer, intake.appended(answer).ids()) for intake, answer in pairs}
    return [intake.links(answer, ids) for intake, answer in pairs]


def dedupe_us(settings: QueueSettings) -> int:
    """The window of a queue; 0 where nothing is compared."""
    return int(settings.dedupe_seconds * _SECOND)


def remembered_us(settings: QueueSettings, remember_us: int) -> int:
    """How long a transaction id is remembered after its message was written.

    Longer than the window by as long as a push may wait in a spool: what it is compared with was accepted up
    to a window before it, and blocks, and ids of blocks, are kept no longer than that either.
    """
    window = dedupe_us(settings)
    return window + min(int(settings.keep_seconds * _SECOND), remember_us) if window else 0


def _place(value: int, first: int) -> int:
    return first + value + _BACK if value <= -_BACK else value


def digest_of(queue: int, partition: str, transaction_id: str) -> bytes:
    """16 bytes that stand for a transaction id within its queue and partition, also if none can be so."""
    key = f"{queue}:{len(partition)}:{partition}:{transaction_id}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _only_partition(block: Block, queue: Queue) -> str:
    partitions = block.partition_table
    if len(partitions) != 1:
        text = f"a block of the ordered queue {queue.name!r} holds {len(partitions)} partitions"
        raise Rejected(text, hint="write one block per partition")
    check_partition(partitions[0])
    return partitions[0]
