"""The values that cross the log seam: what is written, what is claimed, what is counted.

Positions are sequence numbers (from 1, without gaps, per queue); a message id packs the queue's number
and the sequence number in one int64. Times are microseconds UTC. All values are immutable. It is long because
what crosses the seam is read in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from forebay.model import (
    Block,
    BlockLike,
    Conflict,
    Corrupt,
    Flow,
    Message,
    bitmap,
    decode,
    encode,
    peek_header,
    sequence_of,
    verify,
)

Decoded = TypeVar("Decoded", bound=BlockLike)
_ANOTHER: Final = "the body belongs to another block"


class Position(msgspec.Struct, frozen=True):
    """A place in a queue: the first message to hand out, by its sequence number."""

    sequence: int


Start = Literal["earliest", "latest"] | int | Position
"""Where a group begins: at the oldest kept message, after the newest, at a time (µs), or at a position."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue can be told; every field has a default that suits most queues."""

    ordered: bool = False
    """Partitions are handed out one run at a time, in push order. Fixed at creation."""
    dedupe_seconds: float = 3600.0
    """Two pushes of a transaction id that are accepted within this time are one; 0 switches dedupe off."""
    keep_seconds: float = 86_400.0
    """How long blocks stay readable after every group has finished with them.

    A push that waited in a spool is compared with transaction ids of its time if it comes within this time,
    and within the time for which ids are remembered.
    """
    expire_seconds: float | None = None
    """When set, blocks older than this are dropped even if a group still needs them."""
    visibility_seconds: float = 60.0
    """How long a worker may take before its tasks go to another; `extend` prolongs it."""
    retries_max: int | None = None
    """How often a message may come back before it is a dead letter; none sets no limit."""
    in_memory_queue_size: int | None = None
    """Messages of a group in the warm tier at most; none for the store's own setting."""
    in_memory_queue_bytes: int | None = None
    """The same in bytes of payload."""
    paused: bool = False
    """Nothing is handed out while it is; pushes go on."""
    labels: dict[str, Any] = msgspec.field(default_factory=dict)
    """What programs keep with a queue; in `flows`, which of its groups are flows, for the metrics."""


class Queue(msgspec.Struct, frozen=True):
    """A named, numbered log of blocks."""

    number: int
    name: str
    settings: QueueSettings
    created_at: int


class Group(msgspec.Struct, frozen=True):
    """A consumer group: its own cursor over one queue."""

    number: int
    queue: int
    name: str
    start: int
    """The first sequence number that the group sees, since it last sought."""
    sought: int = 0
    """How often it was sent to another place: what was claimed before that is claimed no more."""


class Append:
    """A block on its way into a queue, encoded once: by whoever needs its bytes first, in any thread.

    One that is `replayed` was accepted at its `created_at`, and waited in a spool since then: its transaction
    ids are compared with those of that time. Others are accepted when they are written.
    """

    __slots__ = ("_body", "block", "queue", "replayed")

    def __init__(
        self, queue: int, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> None:
        self.queue = queue
        self.block = block
        self._body = body
        self.replayed = replayed

    @classmethod
    def of(
        cls, queue: Queue | int, block: Block | Sequence[Message | bytes], *, replayed: bool = False
    ) -> Append:
        """A block for a queue; messages become a block with a fresh id."""
        number = queue if isinstance(queue, int) else queue.number
        return cls(number, block if isinstance(block, Block) else Block.of(block), replayed=replayed)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same block on its way into the same queue."""
        return isinstance(other, Append) and (other.queue, other.block) == (self.queue, self.block)

    def __hash__(self) -> int:
        """By the id, which no two blocks share."""
        return hash(self.block.id)

    def __repr__(self) -> str:
        """Name the block without showing its payloads."""
        return f"<Append of {self.block!r} to queue {self.queue}>"

    @property
    def body(self) -> bytes:
        """The block as bytes; it must have passed `check_block`."""
        if self._body is None:
            self._body = encode(self.block)
        return self._body


Where = Literal["log", "spool", "buffered"]
"""Where messages are: in the log, on local disk on their way to it, or in memory, if that was asked for."""


Durable = Literal["log", "spool"]
"""Where an outcome is: in the log, and final, or on local disk on its way to it."""


class Appended(msgspec.Struct, frozen=True):
    """Where the messages of one block are now.

    `count` messages were written, beginning at message id `first`; `duplicates` maps the index of a
    message that was not written, because its transaction id was known, to the id of the first one.
    `known` says that the block id had been written before: this is the answer of that time.

    What is not in the log yet has no ids: `first` is 0, and duplicates are found later.
    """

    first: int
    count: int
    duplicates: Mapping[int, int] = {}
    known: bool = False
    where: Where = "log"

    def ids(self) -> list[int]:
        """The message ids in the order of the push; none as long as they are not in the log."""
        if self.where != "log":
            return []
        if not self.duplicates:
            return list(range(self.first, self.first + self.count))
        fresh = iter(range(self.first, self.first + self.count))
        total = self.count + len(self.duplicates)
        return [self.duplicates[index] if index in self.duplicates else next(fresh) for index in range(total)]


class Deferral(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a claim that come back at a time: a retry, a delay, an expired lease."""

    offset: int
    due_at: int
    attempts: int = 0
    prev_start_time: int | None = None
    count: int = 1
    reason: str = ""
    """Why, where somebody said it."""


class Death(msgspec.Struct, frozen=True, array_like=True):
    """One message of a claim that goes to the dead letters, with a copy of itself.

    A log wants the copy; who keeps outcomes for a log that is away looks it up later.
    """

    offset: int
    reason: str
    attempts: int
    message: Message | None


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to messages of one claim. Offsets and bitmaps count from the claim's first message.

    A message is finished once: as done, expired, deferred or dead. A settlement finishes at least one.
    """

    group: int
    token: int
    first: int
    """The id of the claim's first message."""
    count: int
    """The number of messages in the claim."""
    done: bytes = b""
    expired: bytes = b""
    deferred: tuple[Deferral, ...] = ()
    dead: tuple[Death, ...] = ()
    worker: str = ""
    code: int = 0
    """A number for it of who settled, such as the status of an HTTP answer; 0 is none."""

    def finished(self) -> bytes:
        """The bitmap of all messages that this settlement finishes."""
        bits = bitmap.union(bitmap.empty(self.count), self.done)
        bits = bitmap.union(bits, self.expired)
        offsets = [offset for d in self.deferred for offset in range(d.offset, d.offset + d.count)]
        offsets.extend(death.offset for death in self.dead)
        return bitmap.union(bits, bitmap.of(offsets, self.count)) if offsets else bits


class Mark(msgspec.Struct, frozen=True):
    """Which messages of a claim went out to a worker, and which came back unused.

    A message that is `handed` when its claim is taken over was out with a worker that never answered.
    What is in both is returned. Of an unordered queue marks of finished messages mean nothing.
    """

    group: int
    token: int
    count: int
    """The number of messages in the claim."""
    handed: bytes = b""
    returned: bytes = b""


class Record(msgspec.Struct, frozen=True):
    """A small value that is kept beside the blocks, by space and key, and written with them."""

    space: str
    """Which feature it belongs to: up to 64 bytes."""
    key: str
    """1 to 1,024 bytes; any character but NUL, which PostgreSQL can't store."""
    value: bytes | None = None
    """Up to 1 MiB; None removes it."""
    expires_at: int | None = None
    """From then on it isn't there."""
    version: int | None = None
    """Write only if it is at this version; 0: only if it isn't there; None: in any case."""


class Kept(msgspec.Struct, frozen=True):
    """A record as the log has it."""

    key: str
    value: bytes
    version: int
    """1 for the first write, one more for each; it begins again when the record was not there meanwhile."""
    updated_at: int
    expires_at: int | None


class Receipt(msgspec.Struct, frozen=True):
    """The answer to a commit: durable when the caller sees it."""

    appended: Sequence[Appended] = ()
    conflicts: Sequence[int] = ()
    """Indexes of the settlements that changed nothing: their claim is no longer held, or was settled."""
    where: Durable = "log"
    """In the spool it is not known yet which settlements conflict."""

    def raise_for_conflicts(self) -> None:
        """Raise Conflict when a settlement came too late."""
        if self.conflicts:
            listed = ", ".join(map(str, self.conflicts))
            text = f"settlements {listed} came too late: the claim is held by another owner or was settled"
            raise Conflict(text, hint="drop the work; its messages are handed out again")


def accepted_at(created_at: int, appended_at: int) -> int:
    """When a block was accepted, by when it says that it was made: not after the log had it.

    0 says nothing, as in the copy that a dead letter has of its message.
    """
    return created_at if 0 < created_at < appended_at else appended_at


class StoredBlock(msgspec.Struct, frozen=True):
    """A block as the log holds it: `count` messages from message id `first` on."""

    first: int
    count: int
    id: bytes
    appended_at: int
    partition: str | None
    body: bytes

    @property
    def last(self) -> int:
        """The id of the last message."""
        return self.first + self.count - 1

    @property
    def accepted_at(self) -> int:
        """When its messages were accepted: before it was appended, where it waited in a spool."""
        try:
            return accepted_at(peek_header(self.body).created_at, self.appended_at)
        except Corrupt:  # or it was left out
            return self.appended_at

    def check(self) -> None:
        """Raise Corrupt unless the body is whole and the one that was written here."""
        header = verify(self.body)
        if header.count != self.count or header.id != self.id:
            raise Corrupt(_ANOTHER)

    def decode(self, queue: str | None = None, *, checked: bool = False) -> Block:
        """Decode the body; Corrupt names the queue and the sequence range.

        A body that was `checked` in this process, as that of every claim, is not checked again.
        """
        return self.decode_by(lambda body: decode(body, checked=checked), queue)

    def decode_by(self, read: Callable[[bytes], Decoded], queue: str | None = None) -> Decoded:
        """Decode the body by a function that raises Corrupt for what is no block, or not a whole one."""
        try:
            return self._own(read(self.body))
        except Corrupt as error:
            first, last = sequence_of(self.first), sequence_of(self.last)
            raise Corrupt(str(error), queue=queue, first=first, last=last) from error

    def _own(self, block: Decoded) -> Decoded:
        if len(block) != self.count or block.id != self.id:
            raise Corrupt(_ANOTHER)
        return block


class Claim(msgspec.Struct, frozen=True):
    """A run of consecutive messages of one block, held by one owner for one group.

    `done` marks what is finished already, `handed` what was out with a worker when the claim was taken
    over. Whoever holds the `token` may settle; taking a claim over gives it a new token.
    """

    token: int
    group: int
    first: int
    count: int
    done: bytes
    handed: bytes
    attempts: int
    start_time: int
    prev_start_time: int | None
    block: StoredBlock

    def unfinished(self) -> list[tuple[int, Message]]:
        """The messages that are left to do, each with its offset in the claim."""
        block, begin = self.block.decode(), self.first - self.block.first
        left = bitmap.minus(bitmap.full(self.count), self.done)
        return [(offset, block.message(begin + offset)) for offset in bitmap.indexes(left)]

    def remaining(self) -> int:
        """How many messages are not finished."""
        return self.count - bitmap.count(self.done)

    def settle(
        self,
        *,
        done: bytes = b"",
        expired: bytes = b"",
        deferred: tuple[Deferral, ...] = (),
        dead: tuple[Death, ...] = (),
        worker: str = "",
        code: int = 0,
    ) -> Settlement:
        """A settlement of this claim."""
        return Settlement(
            group=self.group,
            token=self.token,
            first=self.first,
            count=self.count,
            done=done,
            expired=expired,
            deferred=deferred,
            dead=dead,
            worker=worker,
            code=code,
        )

    def settle_all(self) -> Settlement:
        """A settlement that finishes everything that is left as done."""
        return self.settle(done=bitmap.minus(bitmap.full(self.count), self.done))

    def mark(self, *, handed: bytes = b"", returned: bytes = b"") -> Mark:
        """A mark on this claim."""
        return Mark(self.group, self.token, self.count, handed, returned)


REJECTED_MAX: Final = 1_000
"""Rejected rows of an inbox that are counted: of more it is enough to know that there are so many."""


class RejectedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the SQL inbox that no block can hold. Its payload is in the database."""

    id: int
    """Its number in the table `forebay.inbox_rejected`."""
    queue: str
    """Also where it was deleted, as the reason says."""
    payload_bytes: int
    partition: str
    transaction_id: str | None
    reason: str
    rejected_at: int
    """µs."""


class Claimed(msgspec.Struct, frozen=True):
    """What a claim brought: claims to work on, and blocks that could not be read and are quarantined."""

    claims: Sequence[Claim] = ()
    corrupt: Sequence[Corrupt] = ()
    next_due_at: int | None = None
    """When `due` will have more: the earliest time of what still waits. Only `due` says it."""


class Outlook(msgspec.Struct, frozen=True):
    """What a group has to look forward to, by its number."""

    group: int
    next: int
    """The sequence number of the next message that is put in its queue."""
    ready: int | None
    """Stands for what would be claimed next, and is another number when that is something else.

    None when there is nothing to claim. In an ordered queue it may be there for nothing, until somebody tries
    to claim: whether the partition of a new block is out is not looked at before.
    """
    due_at: int | None
    """When the first of what is deferred, or was given back, is due; None when nothing is."""
    sought: int = 0
    """How often the group was sent elsewhere, as in `Group`."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """The same from a row of a log, with a group's cursor and the first of its lanes that is ready."""
        group, upcoming, position, lane, due_at, sought = row
        ready = position if lane is None and position < upcoming else lane
        return cls(group, upcoming, ready, due_at, sought)


class Owner(msgspec.Struct, frozen=True):
    """Whoever holds claims, or did, and when it was last heard of."""

    name: str
    beat_at: int


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What it means for a group to go on from another place."""

    group: Group
    """As it is now."""
    skipped: int
    """Messages before the place that were not finished: they count as purged."""
    again: int
    """Messages from the place on that the group had done with, or never saw: accepted counts them again."""
    returned: int
    """Messages from the place on that were held or deferred: they are ready again, as on their first day."""


class Room(msgspec.Struct, frozen=True):
    """How much a claim may bring. One message always fits, whatever its size."""

    messages: int = 5_000
    bytes: int = 64 * 1024 * 1024


ROOM = Room()
"""Room enough for most."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a group gave up, with the reason."""

    message_id: int
    died_at: int
    reason: str
    attempts: int
    body: bytes

    def message(self) -> Message:
        """The message itself."""
        return decode(self.body).message(0)


class FlowCount(msgspec.Struct, frozen=True):
    """How many messages of a flow a group has not claimed; `oldest_at` is when their first block came."""

    flow: Flow
    count: int
    oldest_at: int
    is_held: bool = False
    """Whether an owner has claimed them, and not handed them out."""


class Outcome(msgspec.Struct, frozen=True):
    """One entry of the outcome log: what one settlement did to the messages from `first` on."""

    first: int
    at: int
    count: int
    done: bytes
    expired: bytes
    deferred: tuple[Deferral, ...]
    dead: tuple[tuple[int, str, int], ...]
    """(offset, reason, attempts)"""
    worker: str
    code: int = 0


class Letter(msgspec.Struct, frozen=True):
    """A dead letter as the log keeps it, on the list or off it."""

    letter: DeadLetter
    state: Literal["dead", "purged", "redriven"]
    changed_at: int
    """When it was last redriven, purged or restored; when it died, if never."""


class OpenClaim(msgspec.Struct, frozen=True):
    """The open claim by which a message is held, or waits for its time."""

    owner: str | None
    """None: it is deferred, or was given back."""
    due_at: int
    attempts: int
    handed: bool
    """Whether it is out with a worker, as far as the owner has said."""


class OpenRun(msgspec.Struct, frozen=True, array_like=True):
    """An open claim without its block: messages that a group has claimed and not all finished."""

    token: int
    first: int
    count: int
    done: bytes
    handed: bytes
    is_held: bool
    """Whether an owner has it; otherwise it is deferred, or was given back."""
    due_at: int
    start_time: int
    attempts: int


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has come, at one moment.

    Of the messages that are kept, those from its position on are not claimed; those in `open` are claimed and
    not finished, but for what is `done`; those in `dead` are dead letters; all others are finished.
    """

    at: int
    group: Group
    earlier: int
    """How many messages were accepted before the group began where it last began."""
    purged: int
    """As in `GroupStats`."""
    next: int
    """The sequence number that the next message of the queue will get."""
    floor: int
    """The oldest sequence number that is still kept."""
    position: int
    """The first sequence number that is not claimed; of an ordered queue, in partitions without a lane."""
    lanes: Mapping[str, int]
    """The same of the partitions of an ordered queue of which something was claimed."""
    open: Sequence[OpenRun]
    """By first message."""
    dead: Sequence[tuple[int, int]]
    """Dead letters by message id, each with the time when it died."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is for one group, as the log knows it."""

    group: Group
    claimed: bool
    """Whether the group's cursor is past it."""
    claim: OpenClaim | None
    """Of several (see `finding.soonest`) the one to come first."""
    letter: Letter | None
    corrupt: bool
    """Whether its block is in quarantine."""
    outcomes: Sequence[Outcome]
    """The entries of the outcome log that are about it, oldest first; of very many the newest."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log has a message, at one moment."""

    at: int
    queue: Queue
    next: int
    """The sequence number that the next message of the queue will get."""
    block: StoredBlock | None
    """None when it was dropped, and when there is no such message yet."""
    standings: Sequence[Standing]
    """One for each group of the queue, by number."""


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages of one group are. The ledger: accepted equals the sum of the rest.

    A log counts what it has. What a server keeps until it can be reached, `spooled`, was accepted too.
    """

    group: Group
    accepted: int
    ready: int
    """Nobody has claimed them, and their time has come."""
    held: int
    deferred: int
    done: int
    dead: int
    purged: int
    """Dead letters that were taken off the list, and what was skipped by a seek."""
    expired: int
    corrupt: int
    handed: int
    """Of what is held: messages that are out with workers."""
    due: int
    """Of what is deferred: messages whose time has come."""
    spooled: int = 0
    """On a server's own disk, on their way to the log."""
    delayed: int = 0
    """Nobody has claimed them, and their start time is to come. Once claimed, they are deferred."""
    answered: int = 0
    """Settled or given back in a server's spool: a log that hasn't heard of it yet counts them as held."""

    @property
    def unclaimed(self) -> int:
        """What lies behind the group's cursor, whether its time has come or not."""
        return self.ready + self.delayed

    @property
    def difference(self) -> int:
        """Accepted minus accounted for: 0, or something is lost."""
        parts = self.unclaimed + self.held + self.deferred + self.done + self.dead + self.purged
        return self.accepted - parts - self.expired - self.corrupt - self.spooled - self.answered


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of an ordered queue, as one group sees it."""

    partition: str
    first: int
    """The id of the oldest message that is kept."""
    last: int
    """The id of the newest."""
    oldest_at: int
    """When the oldest was appended."""
    newest_at: int
    messages: int
    """Kept in the log, whether the group sees them or not."""
    waiting: int
    """Of those that the group sees: not finished, and not out with a worker. Redriven ones count as well."""
    handed: int
    """Out with workers."""
    oldest_waiting_at: int | None
    """When the oldest of those that wait was appended; a redriven one is as old as its letter."""


class Span(msgspec.Struct, frozen=True):
    """From where to where a partition of an ordered queue is kept: message ids, and when they came."""

    partition: str
    first: int
    last: int
    oldest_at: int
    newest_at: int


class Spans(msgspec.Struct, frozen=True):
    """Partitions of a queue at one moment."""

    at: int
    """When something was last appended to the queue: whatever is appended later has this time, or a later
    one."""
    spans: list[Span]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue and its groups."""

    queue: Queue
    next: int
    """The sequence number that the next message will get."""
    floor: int
    """The oldest sequence number that is still kept."""
    groups: Sequence[GroupStats]
    spooled: int = 0
    """Messages that are on their way to it, on a server's own disk."""


class Stats(msgspec.Struct, frozen=True):
    """Queues at one moment."""

    at: int
    queues: Sequence[QueueStats]
    next: int | None = None
    """Of a page: the number after which the next one begins; None when there is none."""
    is_last_known: bool = False
    """The log is away: they are as a snapshot has them, with what the answering server has spooled since."""


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of retention removed."""

    blocks: int = 0
    receipts: int = 0
    postponed: int = 0
    """Pieces that could be dropped but were in use; the next round tries again."""
    records: int = 0
    """Records whose time was over."""


_ID_AT = slice(16, 32)
"""Where the id is in a body: see docs/explanation/block-format.md."""


def letter_block(message_id: int, died_at: int, partition: str | None, body: bytes) -> StoredBlock:
    """The block that a redriven message comes with: its letter's own copy, as old as the letter."""
    return StoredBlock(message_id, 1, body[_ID_AT].ljust(16, b"\0"), died_at, partition, body)


def dead_letter_body(death: Death) -> bytes:
    """The copy of a dead message: a block of one."""
    assert death.message is not None, "a death without its message"
    return encode(Block.of([death.message], created_at=0))
