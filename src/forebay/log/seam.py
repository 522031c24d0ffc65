"""The log: where blocks live for good. The seam that every cold tier implements.

What every implementation promises:

- A commit that returns is durable, and visible to every later call. Concurrent commits share a
  transaction; each gets its own answer.
- A block id is written once, and answers the same way when it is written again, also after its block
  has been dropped, for as long as ids are remembered. The same holds for the id of a commit that settles.
- Sequence numbers have no gaps and follow the order of commits: a cursor can never skip a block.
- A message of a group is at any moment in exactly one place: ready, held, deferred or finished.
  Finished is for good, but for a dead letter that is redriven.
- Only the holder of a claim's token settles it; everybody else gets a conflict, and nothing changes.
- In an ordered queue a partition of a group is out in one run at a time. What goes back of a claim takes
  along what is left behind it, so that claims of a partition never lie within each other.
- A call that raises has changed nothing, but for a commit of several parts that isn't atomic: there each
  part stands for itself. After `Unavailable` it is not known: repeat the call with the same id.
- Records change with the blocks and settlements of their commit, or not at all.
- No call's cost grows with the backlog, but for `lanes`, and for `flows` where a process asks for the first
  time or the queue is ordered: these count blocks in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from forebay.log.values import (
    ROOM,
    Append,
    Claim,
    Claimed,
    DeadLetter,
    FlowCount,
    Found,
    Group,
    Kept,
    LaneStats,
    Mark,
    Outcome,
    Outlook,
    Owner,
    Progress,
    Queue,
    Receipt,
    Record,
    RejectedRow,
    Room,
    Settlement,
    Sought,
    Spans,
    Start,
    Stats,
    StoredBlock,
    Trimmed,
)
from forebay.model import Conflict, Unavailable


class LogAway(Unavailable):
    """The log can't be reached, and what is settled is kept elsewhere until it can.

    Only a log that has such a place raises it: see `forebay.failover`. It also takes deaths without their
    messages then, since they can't be looked up.
    """


class Unchecked(tuple[int, ...]):
    """The answer to marks that are kept elsewhere while the log is away: it has not looked at them."""

    __slots__ = ()


class VersionConflict(Conflict):
    """A record is not at the version that the commit expected: nothing was written.

    `found` is the version that it is at, 0 where it isn't there.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, space: str = "", key: str = "", found: int = 0
    ) -> None:
        super().__init__(message, hint=hint)
        self.space = space
        self.key = key
        self.found = found


class Log(Protocol):
    """The verbs of the cold tier. Open it with `async with`; opening brings the schema up to date."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    # Queues and groups

    async def create_queue(
        self, name: str, settings: dict[str, Any] | None = None, *, number: int | None = None
    ) -> Queue:
        """Make a queue, or return the one of that name; `number` asks for a certain queue number.

        Settings of a queue that exists are left alone; `configure_queue` changes them.
        """
        ...

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        """Merge `settings` into the queue's own; what isn't named keeps its value."""
        ...

    async def queue(self, name: str) -> Queue:
        """The queue of that name; UnknownQueue names the nearest one."""
        ...

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        """Queues by number: all of them, or up to `limit` from the first number past `after` on.

        `numbers` asks for these only (up to 10,000); those that aren't there are left out. Costs by the
        queues that are returned.
        """
        ...

    async def delete_queue(self, name: str) -> bool:
        """Remove a queue with its blocks, groups and dead letters. Its number is not used again."""
        ...

    async def create_group(self, queue: Queue, name: str, start: Start = "earliest") -> Group:
        """Make a group, or return the one of that name (its start stays what it was)."""
        ...

    async def groups(self, queue: Queue) -> list[Group]:
        """The groups of a queue, by number."""
        ...

    async def seek(self, group: Group, start: Start, *, dry_run: bool = False) -> Sought:
        """Send a group to another place, durably and at once. With `dry_run`, only say what would happen.

        All its claims end, and their tokens with them. What lies before the place and is not finished is
        purged; what lies from it on is handed out, also what was finished. Dead letters stay; those that
        were redriven and are not finished are dead letters again. Costs by claims, lanes and, in an ordered
        queue, by the blocks that are handed out again. Before the oldest kept message is at it; Rejected
        past the end.
        """
        ...

    async def advance(self, group: Group, to: int, dead: Sequence[DeadLetter] = ()) -> int:
        """Say that a group has done with everything before sequence number `to`; how many it finished by it.

        For readers that keep their own place. What lies before it and is not finished is done, however it was
        held; what lies from it on is ready, like after a seek, also what was finished: all claims end, but
        for those on redriven letters. Never goes back: where nothing before it is left to do, nothing
        changes, and the answer is 0. So it can be repeated. Rejected past the end. Costs like a seek, and
        next to nothing where there are no claims.

        `dead` are messages before the place, up to 10,000, that become dead letters and not done; they die
        now. Those that the group has come past already stay what they are. Rejected while workers of the
        group hold claims.
        """
        ...

    async def delete_group(self, group: Group) -> bool:
        """Remove a group with its cursor, claims and dead letters."""
        ...

    # The one write

    async def commit(
        self,
        appends: Sequence[Append] = (),
        settlements: Sequence[Settlement] = (),
        *,
        id: bytes | None = None,
        atomic: bool = False,
        records: Sequence[Record] = (),
    ) -> Receipt:
        """Append blocks, settle outcomes and write records, durably.

        Each append and each settlement stands for itself: a conflict of one leaves the others alone. Blocks
        for one partition, or for one unordered queue, are written in their order, also without duplicates.
        With `atomic`, and with `records`, all of them happen or none, and a conflict raises: VersionConflict
        where a record is not at the version that was expected. `id` makes settlements and records
        repeatable: what was written under it is not written again, and is answered as the first time. A
        caller that may have to repeat them brings it.

        In an ordered queue what is left of a claim behind a message that goes back goes back along after the
        whole commit, uncounted, and no earlier than that message.

        Up to 20,000 records at once, each key once, 64 MiB of values in all.
        """
        ...

    # Handing out

    async def claim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        partition: str | None = None,
        known: int | None = None,
    ) -> Claimed:
        """The next messages of a group, held by `owner` from now on.

        Whole blocks as long as they fit in `room`; the first is cut to fit. `partition` asks an ordered
        queue for one partition, of which something may be out already, if all of that is with `owner`. The
        caller has the blocks from message id `known` on: their bodies are left out (empty), and not checked.
        """
        ...

    async def mark(self, marks: Sequence[Mark]) -> Sequence[int]:
        """Note what is out with workers; the indexes of marks that are refused.

        Those whose claim is no longer held; and in an ordered queue those by which messages would go out that
        are finished or have gone back, or that come after others of their partition: what is earlier must be
        finished, or out with its own claim's owner, if only by this very call.

        Survives the end of this process. Until the next commit a power failure may undo it.
        """
        ...

    async def due(
        self, group: Group, owner: str, room: Room = ROOM, *, partition: str | None = None
    ) -> Claimed:
        """Deferred messages whose time has come, and claims that were given back, by their time.

        `partition` asks for those of one partition only. `next_due_at` says when the next of them comes, if
        any is left: now, when there was no room.
        """
        ...

    async def heartbeat(self, owner: str | Sequence[str]) -> None:
        """Say that an owner is alive, or several (up to 10,000) in one write."""
        ...

    async def reclaim(
        self,
        group: Group,
        owner: str,
        room: Room = ROOM,
        *,
        of: Sequence[str] = (),
        silent_seconds: float = 30.0,
        besides: Collection[int] = (),
    ) -> Claimed:
        """Take over, under new tokens, claims of the owners named by `of` and of those silent for so long.

        By first message; where a group went back, a message comes before its letter that was redriven. Those
        whose tokens are in `besides` stay. An owner that may hold claims it never heard of, since
        an answer was lost, names itself, besides the tokens that it knows; it gets those back even where an
        earlier run of their partition is elsewhere, since otherwise nobody would.
        """
        ...

    async def recall(self, group: Group, tokens: Sequence[int]) -> list[Claim]:
        """The claims that are held under these tokens (up to 1,000), as they are now, with their blocks.

        By first message. Those that nobody holds, or whose block has expired, are left out. Corrupt where a
        block can't be read; it stays where it is.
        """
        ...

    async def holding(self, group: Group, ids: Sequence[int]) -> list[Claim]:
        """The claims, held by any owner, in which these messages (up to 10,000) are not finished.

        Each claim once, otherwise like `recall`.
        """
        ...

    async def seize(
        self,
        group: Group,
        owner: str,
        *,
        ids: Sequence[int] = (),
        partition: str | None = None,
        held: bool = True,
    ) -> int:
        """Give claims to an owner, whoever has them, or whether they wait for their time; how many.

        Those in which the messages `ids` (up to 10,000) are not finished, and all of an ordered queue's
        `partition`. Without `held`, only what nobody holds. The owner gets them by `reclaim`, naming itself;
        from then on whoever had them settles nothing more, and what is on a shelf of his is not handed out.
        """
        ...

    async def owners(self) -> list[Owner]:
        """Everybody who claimed, was heard of since the ids are remembered, and did not retire; by name."""
        ...

    async def retire(self, owner: str) -> int:
        """Give back all claims of an owner at once, for others to take as due; how many there were."""
        ...

    # Noticing what others write

    async def stamp(self) -> str | None:
        """Another text than before if another process has written since then, and perhaps otherwise, too.

        None where no other process can. Two that are equal: there is nothing new to look for. Costs next to
        nothing, and writes nothing, so that it can be asked many times a second.
        """
        ...

    async def outlook(self, groups: Sequence[Group]) -> list[Outlook]:
        """What groups have to look forward to; those that are gone are left out. Writes nothing."""
        ...

    # Reading

    async def read(
        self,
        queue: Queue,
        first: int = 1,
        *,
        messages: int = 10_000,
        bytes: int = 64 << 20,
        partition: str | None = None,
    ) -> list[StoredBlock]:
        """Blocks from the one that holds sequence number `first` (or the oldest kept) on.

        At least one block, if there is one; then as many as fit in `messages` and `bytes`. `partition` asks
        for the blocks of one partition of an ordered queue; an unordered one has none.
        """
        ...

    async def spans(
        self,
        queue: Queue,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Spans:
        """From where to where partitions of an ordered queue are kept; those without messages are left out.

        Those that are named (up to 10,000), as they come; or all of them by name, as `lanes` lists them.
        Costs by partitions, not by blocks.
        """
        ...

    async def dead_letters(self, group: Group, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """What is dead now, by message id, from the first id past `after`."""
        ...

    async def outcomes(self, group: Group, first: int, *, limit: int = 100) -> list[Outcome]:
        """The outcome log's entries on the block that holds message id `first`, oldest first."""
        ...

    async def progress(self, group: Group) -> Progress:
        """How far a group has come: by it and the outcome log, what became of each message is known.

        Costs by the group's open claims, dead letters and lanes; reads no block.
        """
        ...

    async def find(self, message_id: int) -> Found:
        """Where one message is, for every group of its queue; UnknownQueue if there is no such queue.

        A message that is not there yet is found nowhere: `next` tells.
        """
        ...

    async def locate(self, queue: Queue, keys: Sequence[tuple[str, str]]) -> list[int | None]:
        """The ids of messages by partition and transaction id (up to 20,000), as the keys come.

        None where it isn't remembered: it never was there, or the queue's `dedupe_seconds` are over. An id
        may be of a message that was dropped meanwhile.
        """
        ...

    async def records(self, space: str, keys: Sequence[str]) -> list[Kept]:
        """The records of these keys (up to 20,000) that are there, as the keys come; others are left out."""
        ...

    async def scan(self, space: str, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Kept]:
        """The records whose keys begin with `prefix`, from the first key past `after`, up to 10,000.

        By key, in the order of UTF-8's bytes.
        """
        ...

    async def quarantined(self, queue: Queue) -> list[StoredBlock]:
        """Blocks of a queue that could not be read, as they were found."""
        ...

    async def flows(self, group: Group, *, besides: Collection[str] | None = None) -> list[FlowCount]:
        """What a group has not claimed yet, or what came back, is due and with nobody, by flow.

        A message whose start time is to come isn't counted; a flow is as old as its oldest unclaimed block.
        Messages without one come under `Flow()`. Blocks from before flows were counted have none; so has the
        rest of a block that was claimed in part, or came back, and can't be read.

        With `besides`, what other owners than these have claimed and not handed out is counted too, apart:
        `is_held`. That costs by the claims of the group.

        Costs by the blocks that came since this process asked last, up to two thousand others, and by claims
        that nobody has; by all unclaimed blocks, in pages, where it asks for the first time, and always in an
        ordered queue. The memory log reads everything.
        """
        ...

    async def lanes(self, group: Group, *, after: str | None = None, limit: int = 100) -> list[LaneStats]:
        """The partitions of an ordered queue that have messages in the log, from the first past `after`.

        By name, in the order of UTF-8's bytes; up to 10,000. Without `after` from the first one, which may
        have the empty name. Nothing for an unordered queue. Costs by the blocks of the partitions that are
        listed, and by the names of other ordered queues' partitions that lie between them.
        """
        ...

    async def lane_count(self, queue: Queue) -> int:
        """How many partitions of an ordered queue have messages in the log.

        Costs by the names of all ordered queues' partitions, not by blocks.
        """
        ...

    async def stats(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> Stats:
        """Where everything is, at one moment: of all queues, or of some, chosen as by `queues`.

        Costs by the queues that are returned, and by their open claims.
        """
        ...

    # Dead letters. Each verb is one durable transaction, takes up to 10,000 ids, leaves out those that it
    # can do nothing with, and returns the others, sorted.

    async def redrive(self, group: Group, ids: Sequence[int]) -> list[int]:
        """Hand these messages out again: by `due`, from now on, under their ids, with no attempts.

        A claim on one carries the letter's own copy, as a block of one message that is as old as the
        letter. In an ordered queue it holds up its partition like any other that is deferred.
        """
        ...

    async def purge(self, group: Group, ids: Sequence[int]) -> list[int]:
        """Take letters off the list."""
        ...

    async def restore(self, group: Group, ids: Sequence[int]) -> list[int]:
        """List letters again that were purged, or redriven and are with no owner at present.

        For as long as ids are remembered; a letter that waits to be handed out is kept longer.
        """
        ...

    # Two steps, for writers that must publish together

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        """Keep blocks under a name, unseen. Idempotent by block id."""
        ...

    async def publish(
        self, stage: str, ids: Sequence[bytes], *, records: Sequence[Record] = (), replayed: bool = False
    ) -> Receipt:
        """Append the staged blocks of these ids, in this order, and forget the rest of the stage.

        Up to 20,000 of them, all at once, together with `records`, under the rules of `commit`: after
        VersionConflict nothing was published, and the stage is as it was. A second publish of the same ids
        answers like the first; its records are looked at again: their versions tell that it is the second.
        `replayed` says of all of them what it says of an `Append`.
        """
        ...

    # Upkeep

    def hang_up(self) -> None:
        """Drop connections that may be dead: what is under way on them fails, or is tried again on others."""
        ...

    async def sweep(self, limit: int = 10_000) -> int:
        """Move messages that users left in the log's inbox into blocks; how many there were.

        Only a log that users can write to directly has an inbox: see `forebay.push()` of PostgreSQL.
        """
        ...

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """Rows of the inbox that a sweep set aside, in the order of their ids, from beyond `after` on."""
        ...

    async def trim(self) -> Trimmed:
        """Drop what retention no longer holds.

        Blocks, remembered ids, outcomes, old stages, old letters, records whose time is over.
        """
        ...
