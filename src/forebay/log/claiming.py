"""Rules of handing out that hold for every log: what fits, what a settlement says, what is corrupt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from forebay.log.intake import digest_of
from forebay.log.values import (
    Claim,
    Deferral,
    Group,
    Mark,
    Outcome,
    Queue,
    Room,
    Settlement,
    StoredBlock,
)
from forebay.model import (
    MESSAGE_ID_MAX,
    Conflict,
    Corrupt,
    Rejected,
    UnknownGroup,
    bitmap,
    queue_of,
    sequence_of,
)

STAGE_NAME_MAX = 255
PUBLISHED_MAX = 20_000
"""How many blocks one call may publish."""
LETTERS_MAX = 10_000
"""How many dead letters one call may change."""
RECALLED_MAX = 1_000
"""How many claims one call may recall."""
HELD_MAX = 10_000
"""How many messages one call may look for in claims."""
LOCATED_MAX = 20_000
"""How many transaction ids one call may look up."""
LANES_MAX = 10_000
"""How many partitions one call may list."""
TOKEN_MAX = (1 << 63) - 1


class Space:
    """Room that fills up: whole runs as long as they fit, and the first one cut to fit."""

    def __init__(self, room: Room) -> None:
        if room.messages < 1 or room.bytes < 1:
            raise Rejected(f"no room for a message: {room}", hint="ask for 1 or more")
        self._messages = room.messages
        self._bytes = room.bytes
        self._empty = True

    def take(self, count: int, size: int) -> int:
        """How many of `count` messages fit; 0 when the run doesn't."""
        if self._empty:
            count = min(count, self._messages)
        elif count > self._messages or size > self._bytes:
            return 0
        self._empty = False
        self._messages -= count
        self._bytes -= size
        return count

    def fits(self, count: int, size: int) -> bool:
        """Like `take` for runs that cannot be cut: the first always fits."""
        if not self._empty and (count > self._messages or size > self._bytes):
            return False
        self._empty = False
        self._messages -= count
        self._bytes -= size
        return True


def check_settlement(settlement: Settlement) -> None:
    """Raise Rejected unless something is finished, each message once, and all within the claim."""
    count = settlement.count
    bitmaps = (settlement.done, settlement.expired)
    runs = [(d.offset, d.count) for d in settlement.deferred]
    runs.extend((death.offset, 1) for death in settlement.dead)
    if not _are_within(bitmaps, count) or any(
        offset < 0 or length < 1 or offset + length > count for offset, length in runs
    ):
        text = f"a settlement names messages outside its claim of {count}"
        raise Rejected(text, hint="count offsets from the claim's first message")
    finished = sum(map(bitmap.count, bitmaps)) + sum(length for _, length in runs)
    if not finished:
        text = "a settlement finishes nothing"
        raise Rejected(text, hint="leave it out; what is only out with a worker is marked")
    if (runs or settlement.expired) and bitmap.count(settlement.finished()) != finished:
        text = "a settlement finishes a message twice"
        raise Rejected(text, hint="settle each message as done, expired, deferred or dead")


def handed_after(handed: bytes, mark: Mark | None, count: int) -> bytes:
    """Which messages of a claim are out after a mark, if there is one for it."""
    if mark is None or mark.count != count:
        return handed
    return bitmap.minus(bitmap.union(handed, mark.handed), mark.returned)


def check_mark(mark: Mark) -> None:
    """Raise Rejected unless all that is marked lies within the claim."""
    if not _are_within((mark.handed, mark.returned), mark.count):
        text = f"a mark names messages outside its claim of {mark.count}"
        raise Rejected(text, hint="count bits from the claim's first message")


def _are_within(bitmaps: tuple[bytes, ...], count: int) -> bool:
    """Whether there are messages, and bitmaps (empty ones aside) are over just as many."""
    size = (count + 7) // 8
    return count > 0 and not any(
        bits and (len(bits) != size or bits[-1] >> (count % 8 or 8)) for bits in bitmaps
    )


class Behind(msgspec.Struct, frozen=True):
    """The part of a claim behind a message that went back: from an offset on, until a time."""

    offset: int
    due_at: int

    def runs(self, done: bytes, count: int) -> list[tuple[int, int]]:
        """The runs of it that are not finished, given what is: the offset and length of each."""
        found: list[tuple[int, int]] = []
        for o in bitmap.indexes(bitmap.minus(bitmap.full(count), done)):
            if o > self.offset:
                begin, length = found[-1] if found else (0, 0)
                if found and begin + length == o:
                    found[-1] = (begin, length + 1)
                else:
                    found.append((o, 1))
        return found


def returns_of(settlements: Iterable[Settlement]) -> dict[int, Behind]:
    """By claim: the first message that goes back, and when the last does.

    In an ordered queue what is left of the claim behind it goes back along, whether who settles knows of it
    or not. Otherwise it would be out, or come again, before what it comes after.
    """
    found: dict[int, Behind] = {}
    for settlement in settlements:
        for d in settlement.deferred:
            known = found.get(settlement.token, Behind(d.offset, d.due_at))
            found[settlement.token] = Behind(min(known.offset, d.offset), max(known.due_at, d.due_at))
    return found


class OutcomeBody(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the outcome log as it is stored."""

    done: bytes
    expired: bytes
    deferred: tuple[Deferral, ...]
    dead: tuple[tuple[int, str, int], ...]
    worker: str
    code: int = 0


_encode_outcome = msgspec.msgpack.Encoder().encode
_decode_outcome = msgspec.msgpack.Decoder(OutcomeBody).decode


def encode_outcome(settlement: Settlement) -> bytes:
    """What the outcome log keeps of a settlement."""
    dead = tuple((d.offset, d.reason, d.attempts) for d in settlement.dead)
    s = settlement
    return _encode_outcome(OutcomeBody(s.done, s.expired, s.deferred, dead, s.worker, s.code))


def decode_outcome(first: int, at: int, count: int, body: bytes) -> Outcome:
    """The entry of the outcome log on `count` messages from message id `first` on."""
    b = _decode_outcome(body)
    return Outcome(first, at, count, b.done, b.expired, b.deferred, b.dead, b.worker, b.code)


def corrupt_block(queue: str, block: StoredBlock, error: Corrupt) -> Corrupt:
    """The report on a block that was set aside."""
    first, last = sequence_of(block.first), sequence_of(block.last)
    text = f"block {first}..{last} of queue {queue!r} can't be read and is in quarantine: {error}"
    return Corrupt(text, queue=queue, first=first, last=last)


def unknown_group(group: Group) -> UnknownGroup:
    """The error for a group that was deleted."""
    return UnknownGroup(f"there is no group {group.name!r}", hint="create it first")


def check_stage_name(stage: str) -> str:
    """A stage's name, or Rejected."""
    if not 0 < len(stage) <= STAGE_NAME_MAX:
        text = f"a stage's name has 1 to {STAGE_NAME_MAX} characters, this one {len(stage)}"
        raise Rejected(text, hint="shorten it")
    return stage


def check_publish(stage: str, ids: Sequence[bytes]) -> None:
    """Raise Rejected unless so many blocks of a stage may be published at once."""
    check_stage_name(stage)
    if len(ids) > PUBLISHED_MAX:
        text = f"{len(ids)} blocks at once, over {PUBLISHED_MAX}"
        raise Rejected(text, hint="stage larger blocks: what is published together is one transaction")


def check_letters(ids: Sequence[int]) -> list[int]:
    """The ids in order, each once, but for those that no message can have; Rejected if they are too many."""
    if len(ids) > LETTERS_MAX:
        text = f"{len(ids)} dead letters at once, over {LETTERS_MAX}"
        raise Rejected(text, hint="name fewer of them, in more calls")
    return sorted({i for i in ids if 0 < i <= MESSAGE_ID_MAX})


def check_tokens(tokens: Sequence[int]) -> list[int]:
    """The tokens, each once, but for those that no claim can have; Rejected if they are too many."""
    if len(tokens) > RECALLED_MAX:
        text = f"{len(tokens)} claims at once, over {RECALLED_MAX}"
        raise Rejected(text, hint="name fewer of them, in more calls")
    return sorted({token for token in tokens if 0 <= token <= TOKEN_MAX})


def check_held(group: Group, ids: Sequence[int]) -> list[int]:
    """The ids in order, each once, but for those of other queues; Rejected if they are too many."""
    if len(ids) > HELD_MAX:
        text = f"{len(ids)} messages at once, over {HELD_MAX}"
        raise Rejected(text, hint="name fewer of them, in more calls")
    return sorted({i for i in ids if 0 < i <= MESSAGE_ID_MAX and queue_of(i) == group.queue})


def digests_of(queue: Queue, keys: Sequence[tuple[str, str]]) -> list[bytes]:
    """What stands for messages by partition and transaction id; Rejected if they are too many."""
    if len(keys) > LOCATED_MAX:
        text = f"{len(keys)} transaction ids at once, over {LOCATED_MAX}"
        raise Rejected(text, hint="name fewer of them, in more calls")
    return [digest_of(queue.number, partition, transaction_id) for partition, transaction_id in keys]


def check_lanes(limit: int) -> int:
    """How many partitions to list, or Rejected."""
    if not 0 < limit <= LANES_MAX:
        raise Rejected(f"{limit} partitions at once", hint=f"ask for 1 to {LANES_MAX}")
    return limit


def check_spans(partitions: Sequence[str] | None, limit: int) -> None:
    """Raise Rejected unless so many partitions may be asked for."""
    check_lanes(limit)
    if partitions is not None and len(partitions) > LANES_MAX:
        raise Rejected(f"{len(partitions)} partitions at once", hint=f"name up to {LANES_MAX}")


def recalled(claims: Iterable[Claim], queue: str) -> list[Claim]:
    """Claims by their first message, all of whose blocks can be read; Corrupt names one that can't."""
    found = sorted(claims, key=lambda claim: (claim.first, claim.count))
    for claim in found:
        try:
            claim.block.check()
        except Corrupt as error:
            first, last = sequence_of(claim.block.first), sequence_of(claim.block.last)
            text = f"block {first}..{last} of queue {queue!r} can't be read: {error}"
            raise Corrupt(text, queue=queue, first=first, last=last) from error
    return found


def nothing_staged(stage: str, missing: int) -> Conflict:
    """The error for a publish of blocks that were never staged."""
    text = f"{missing} of the blocks were never staged under {stage!r}"
    return Conflict(text, hint="stage them first; nothing was published")
