"""Store: the verbs of a queue, wherever it is. The seam that programs work with.

`LogStore` works a log and a warm tier in this process; `forebay.client.Client` works a server over HTTP. What
both promise: what is put is durable before the call returns; what is settled is durable before the call
returns; a task has one live lease; settling with a lease that is lost is a conflict, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from forebay.log.values import (
    Append,
    Appended,
    DeadLetter,
    Durable,
    Group,
    Queue,
    Receipt,
    RejectedRow,
    Start,
    Stats,
    StoredBlock,
)
from forebay.model import Block, Message
from forebay.store.letters import Letters
from forebay.store.values import (
    DEFAULT_GROUP,
    Burial,
    FlowStats,
    Peeked,
    Purged,
    Retry,
    Running,
    StoreStats,
    Task,
    Ticket,
    Whereabouts,
)


class Store(Protocol):
    """The verbs. Open it with `async with`."""

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
        """Make a queue with its group `workers`, or return the one of that name as it is."""
        ...

    async def configure_queue(self, name: str, settings: dict[str, Any]) -> Queue:
        """Change settings of a queue; what isn't named keeps its value."""
        ...

    async def pause(self, name: str) -> Queue:
        """Hand out nothing more of a queue until it is resumed; pushes and settling go on."""
        ...

    async def resume(self, name: str) -> Queue:
        """Hand out again."""
        ...

    async def queue(self, name: str) -> Queue:
        """The queue of that name, as the log has it now."""
        ...

    async def queues(
        self, *, numbers: Sequence[int] | None = None, after: int = 0, limit: int | None = None
    ) -> list[Queue]:
        """Queues by number: all, those of `numbers`, or up to `limit` from the first past `after` on."""
        ...

    async def purge_queue(self, name: str, *, group: str | None = None, dry_run: bool = False) -> Purged:
        """Skip all that waits, is delayed or is out with a worker, in one group or in all; pushes go on.

        Its dead letters stay. With `dry_run` nothing is changed. It can't be undone, but `seek` brings back
        what the log still keeps.
        """
        ...

    async def delete_queue(self, name: str) -> bool:
        """Remove a queue with all that is in it."""
        ...

    async def create_group(self, queue: str, name: str, start: Start = "earliest") -> Group:
        """Make a group with its own view of a queue, or return the one of that name."""
        ...

    async def groups(self, queue: str) -> list[Group]:
        """The groups of a queue."""
        ...

    async def seek(self, queue: str, group: str, start: Start) -> Purged:
        """Go on from another place: what comes after it is handed out (again), what is before it is skipped.

        Leases of the group are lost; its dead letters stay.
        """
        ...

    async def delete_group(self, queue: str, name: str) -> bool:
        """Remove a group."""
        ...

    # The five verbs, and those beside them

    async def put_task(
        self,
        queue: str,
        *tasks: bytes | Message,
        partition: str = "",
        headers: dict[str, str] | None = None,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        id: bytes | None = None,
    ) -> list[int]:
        """Put tasks in a queue, all or none; their ids, in order. Durable when it returns.

        They become available at once, at `start_time` (µs, or aware), or after `delay` (seconds). What is
        said here holds for tasks given as bytes; a `Message` says it itself. `id` (16 bytes, see `mint`)
        makes the call repeatable.
        """
        ...

    async def append(
        self, queue: str, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> Appended:
        """Put a whole block; where its messages are, and which of them were there before.

        Whoever has the block encoded and checked gives it as `body`. One that is `replayed` was accepted at
        its `created_at` and waited since then: its transaction ids are compared with those of that time.
        """
        ...

    async def get_task(
        self,
        queue: str | Sequence[str],
        count: int = 1,
        *,
        group: str = DEFAULT_GROUP,
        worker: str | None = None,
        wait_seconds: float = 0.0,
        visibility_seconds: float | None = None,
        partition: str | None = None,
        partitions_max: int | None = None,
    ) -> list[Task]:
        """Take up to `count` tasks; nobody else gets them until the visibility timeout.

        Waits up to `wait_seconds` for the first one. The timeout is the queue's unless it is given here. Of
        several queues, those that are named take turns in being asked first.

        Ordered queues: `partition` names the only one to take from; while it is out with another worker of
        the group there is nothing. `partitions_max` is from how many they come at most; of those, as many as
        there are.
        """
        ...

    async def done_task(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks are done. LeaseLost names those that were no longer yours; the others are done.

        Returns where that is known: see `settle`.
        """
        ...

    async def retry_task(
        self,
        tasks: Iterable[Task | Ticket | Retry],
        *,
        start_time: int | datetime | None = None,
        delay: float | timedelta | None = None,
        reason: str = "",
    ) -> Durable:
        """Tasks come back: at the time of a `Retry`, at `start_time`, after `delay`, or else at once.

        `reason` says why, where a `Retry` doesn't. In an ordered queue that ends the leases of what comes
        after them in their partitions: it comes back with them, and counts no attempt.
        """
        ...

    async def bury(self, tasks: Iterable[Task | Ticket], reason: str) -> Durable:
        """Tasks become dead letters."""
        ...

    async def release(self, tasks: Iterable[Task | Ticket]) -> Durable:
        """Tasks go back unused, and count no attempt; in an ordered queue see `retry_task`."""
        ...

    async def extend(self, tasks: Iterable[Task | Ticket], seconds: float | None = None) -> None:
        """Keep tasks for so many seconds from now (else for the visibility timeout).

        Tasks that were taken together share a lease where they come from one block, and are extended
        together. LeaseLost names those that are no longer yours.
        """
        ...

    async def settle(
        self,
        *,
        done: Iterable[Task | Ticket] = (),
        retry: Iterable[Retry] = (),
        bury: Iterable[Task | Ticket | Burial] = (),
        release: Iterable[Task | Ticket] = (),
        reason: str = "",
        code: int = 0,
    ) -> Durable:
        """Several outcomes in one write. LeaseLost names the tasks that came too late; the others stand.

        What is buried has the reason given here, unless it is a `Burial` with one of its own. In an ordered
        queue what comes back ends the leases of what comes after it in its partition; so a task that is done
        or buried past one that comes back by the same call is too late. `code` is kept with the outcomes: the
        status of an HTTP answer, for instance.

        Returns where the outcomes are: in the log, and final; or, while the log is away, in the spool of the
        server. From there they come to the log before their tasks are given to others, unless that server is
        cut off, or down, for 30 seconds.
        """
        ...

    # Dead letters

    async def dead_letters(
        self, queue: str, *, group: str = DEFAULT_GROUP, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """What was given up, by message id, from the first id past `after` on."""
        ...

    async def redrive(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Hand dead letters out again, as on their first day: those named, or all of the group.

        `reason` leaves only those whose reason contains it. With `dry_run` nothing is changed.
        """
        ...

    async def purge(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Letters:
        """Do away with dead letters: those named, or all of the group; see `redrive`."""
        ...

    async def undo(self, queue: str, letters: Letters, *, group: str = DEFAULT_GROUP) -> Letters:
        """Undo a redrive or a purge; returns the letters that are dead letters again.

        What was redriven and is no longer in the log alone, but ready or with a worker, stays as it is.
        """
        ...

    # Looking

    async def get_stat(
        self, *, queue: str | None = None, after: int = 0, limit: int | None = None
    ) -> StoreStats:
        """Where the tasks of queues are.

        A task whose start time is to come is delayed. In an ordered queue those behind it in its partition
        count as ready until their turn comes, and then as delayed.
        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        ...

    async def ledger(self, *, queue: str | None = None, after: int = 0, limit: int | None = None) -> Stats:
        """The books of queues and their groups: each must add up to what was accepted.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page.
        """
        ...

    async def peek(self, queue: str, count: int = 10, *, group: str = DEFAULT_GROUP) -> list[Peeked]:
        """Look at what would be handed out next, without taking it."""
        ...

    async def where(self, id: int) -> Whereabouts:
        """The whole path of one message: its block, and for every group where it is and what happened."""
        ...

    async def flow_stats(
        self,
        *,
        queue: str | None = None,
        after: int = 0,
        limit: int | None = None,
        books: Stats | None = None,
    ) -> FlowStats:
        """What waits, warm and cold, by queue, group and flow. Costs by blocks, never by messages.

        Of one queue where it is named; else up to `limit` from the first number past `after` on (`next` says
        how to go on), or all of them, page by page. `books` are those of the same queues, where the caller
        has just read them.
        """
        ...

    async def running(self, limit: int = 100) -> list[Running]:
        """Tasks that are out with workers, longest first."""
        ...

    async def inbox_rejected(self, after: int = 0, limit: int = 100) -> list[RejectedRow]:
        """Rows of the SQL inbox that no block can hold, in the order of their ids, from beyond `after` on."""
        ...

    # Whole blocks, for programs that move many at once

    async def read(
        self, queue: str, first: int = 1, *, messages_max: int = 10_000, bytes_max: int = 64 << 20
    ) -> list[StoredBlock]:
        """Blocks as they are stored, from the one that holds sequence number `first` on."""
        ...

    async def stage(self, stage: str, appends: Sequence[Append]) -> None:
        """Keep blocks under a name, unseen, until `publish`. Idempotent by block id."""
        ...

    async def publish(self, stage: str, ids: Sequence[bytes]) -> Receipt:
        """Append the staged blocks of these ids, in this order, at once, and forget the rest of the stage."""
        ...
