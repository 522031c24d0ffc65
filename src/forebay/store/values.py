"""What the store gives and takes: tasks, retries, and where everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from forebay.model import Flow, Message
from forebay.store.hysteresis import Mode
from forebay.warm.values import Lease

DEFAULT_GROUP = "workers"
"""The group that every queue has."""


class Task(msgspec.Struct, frozen=True, gc=False):
    """A message that was handed to a worker, with the lease under which it is settled. Times in µs."""

    id: int
    queue_num: int
    data: bytes
    attempts: int
    """How often it came back; 0 for the first time."""
    created_at: int
    start_time: int
    """When it became available this time."""
    prev_start_time: int | None
    """When it became available the time before; None the first time."""
    lease: Lease
    deadline: int
    """Until when the lease holds, unless it is extended."""
    partition: str = ""
    transaction_id: str | None = None
    headers: dict[str, str] | None = None

    def message(self) -> Message:
        """The message that it is about."""
        return Message(self.data, self.partition, self.transaction_id, self.headers)


class Ticket(msgspec.Struct, frozen=True, gc=False):
    """What it takes to settle a task: its id and its lease."""

    id: int
    lease: Lease


class Peeked(msgspec.Struct, frozen=True):
    """A message that is ready, looked at without being taken; fields as those of a task."""

    id: int
    queue_num: int
    data: bytes
    attempts: int
    created_at: int
    start_time: int
    prev_start_time: int | None
    partition: str
    transaction_id: str | None
    headers: dict[str, str] | None


class Retry(msgspec.Struct, frozen=True):
    """A task that comes back at a time (µs), or after a delay."""

    task: Task | Ticket
    next_start_time: int = 0
    counts: bool = True
    """Whether that is an attempt. One that isn't leaves the task as it was, but for its time."""
    reason: str = ""
    """Why, for whoever looks at the task later."""
    delay_seconds: float | None = None
    """How long from now by the store's clock, in place of a time. A step of that clock makes it no longer."""


class Burial(msgspec.Struct, frozen=True):
    """A task that becomes a dead letter for a reason of its own."""

    task: Task | Ticket
    reason: str


class QueueStat(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tasks of one queue are; a queue with several groups has a task per message and group."""

    queue_num: int
    total_tasks: int
    ready_tasks: int
    taken_tasks: int
    delayed_tasks: int


class StoreStats(msgspec.Struct, frozen=True):
    """Queues at one moment."""

    at: int
    queue_stats: Mapping[int, QueueStat]
    next: int | None = None
    """Of a page: the number after which the next one begins; None when there is none."""


class FlowStat(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for one action of one flow in one queue and group."""

    queue: str
    group: str
    flow: Flow
    warm: int
    cold: int
    taken: int
    oldest_at: int | None
    """Since when the oldest that waits has been ready."""
    oldest_cold_at: int | None = None
    """Likewise, of those that nobody has claimed: in the log alone."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """How full the warm tier of a group is."""

    queue: str
    group: str
    mode: Mode
    messages: int
    """Those included that are out with workers, and that other servers have in tiers of their own; all else
    is about this server's tier, or the shared one."""
    messages_max: int
    bytes: int
    bytes_max: int


class FlowStats(msgspec.Struct, frozen=True):
    """Flows and groups as they were at `at`."""

    at: int
    flows: Sequence[FlowStat]
    groups: Sequence[GroupState]
    next: int | None = None
    """Of a page: the number of the queue after which the next one begins; None when there is none."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that one worker took together and still has."""

    queue: str
    group: str
    flow: Flow
    first: int
    """The id of the first of them."""
    count: int
    attempts: int
    worker: str
    since: int
    deadline: int
    ids: Sequence[int] = ()
    """The ids of all of them, where the store that was asked knows them."""


class Purged(msgspec.Struct, frozen=True):
    """What skipping did to each group: messages that it will not hand out, and those that it does again."""

    skipped: Mapping[str, int]
    again: Mapping[str, int] = msgspec.field(default_factory=dict)
    dry_run: bool = False


class BlockPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The block that a message was written in; times in µs."""

    id: str
    """In hexadecimal digits."""
    first: int
    """The id of its first message."""
    count: int
    created_at: int | None
    """None when it can't be read."""
    appended_at: int
    bytes: int
    """The size of its body, as it is stored."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker, or the store, said of a message at a time (µs)."""

    at: int
    outcome: str
    """done; retried (it came back, and that counted); released (it didn't count); delayed (until its start
    time); dead, redriven, purged; expired."""
    worker: str
    """Empty when it was the store."""
    attempts: int
    """How often it had come back by then."""
    due_at: int | None = None
    """When it was to come back."""
    reason: str | None = None
    """Why it was given up, or came back."""
    code: int = 0
    """The status of an HTTP answer, or what else who settled gave; 0 is none."""


class GroupPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is for one group, and how it came there."""

    group: str
    state: str
    """cold (in the log alone), warm (claimed for a warm tier), leased, delayed; done, dead, purged, expired,
    corrupt; skipped (the group never gets it); dropped (it is finished, and nothing more is kept of it)."""
    attempts: int = 0
    owner: str | None = None
    """The process or the shared tier that holds it, when it is warm or leased."""
    worker: str | None = None
    """Who has it, when it is leased; None when only another server knows."""
    since: int | None = None
    deadline: int | None = None
    due_at: int | None = None
    """When it comes back, when it is delayed."""
    history: Sequence[Attempt] = ()
    """Oldest first, for as long as the log keeps outcomes."""


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """The whole path of one message."""

    id: int
    queue: str
    sequence: int
    block: BlockPlace | None
    """None when retention has dropped it."""
    message: Message | None
    """From its block, or from a dead letter; None when neither is kept, or can be read."""
    groups: Sequence[GroupPlace]
