"""The forms of requests and answers. A form is what a body looks like; the values behind it are the store's.

Unknown fields are refused everywhere, so that a misspelt one is noticed. It is long because the forms of all
routes stand beside one another.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from forebay.log.values import Appended, DeadLetter, Durable, Queue, StoredBlock, Where
from forebay.model import TIME_MAX, format_id
from forebay.store.values import Peeked, Running, Task, Whereabouts
from forebay.warm.values import Lease
from forebay.wire.leases import lease_text

Id = Annotated[
    str, Meta(pattern="^[0-9]{1,19}$", description="A message id, as text", examples=["35184372088833"])
]
AnyId = Annotated[
    int | str, Meta(description="A message id, as text or as a number", examples=["35184372088833"])
]
Micros = Annotated[int, Meta(description="Microseconds since 1970, UTC", ge=0, le=TIME_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
LeaseSeconds = Annotated[float, Meta(gt=0, le=1e9)]


class Form(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every form has in common."""


class Payload(Form, kw_only=True):
    """A payload: JSON as it is, or any bytes as base64."""

    payload: Raw | UnsetType = UNSET
    """Any JSON."""
    payload_base64: str | UnsetType = UNSET
    """Any bytes, as base64; instead of `payload`."""


# Pushing


class Item(Payload, kw_only=True, gc=False):
    """A message to push. It has a `payload` (any JSON) or a `payload_base64`."""

    partition: str = ""
    """What it is ordered by, in an ordered queue."""
    transaction_id: str | None = None
    """Another push of it within the queue's dedupe window is a duplicate."""
    headers: dict[str, str] | None = None
    """Whatever goes with it: a flow, an action, a trace."""
    start_time: Micros | None = None
    """Not handed out before it."""
    delay_seconds: Seconds | None = None
    """The same, from now on; give one of the two."""


class PlainItem(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message to push that has nothing but a payload: what most are, and quicker to read."""

    payload: Raw


class Pushed(Form, kw_only=True):
    """What became of one message."""

    id: Id | None
    """Null as long as it isn't in the log."""
    status: Literal["accepted", "duplicate", "spooled", "buffered"]
    """Spooled: on the server's disk, on its way to the log. Buffered: in its memory, soon on its disk."""


class PushReceipt(Form, kw_only=True):
    """What became of a push."""

    block: str | None
    """The id of the block that the messages are in; null while they are buffered, and in none yet."""
    durable: Where
    """Where it is: on disk in the log or in the spool, or in memory and nowhere else (`buffered`)."""
    repeated: bool = False
    """This push, by its id, was there before; the answer is that of the first time."""
    results: Sequence[Pushed]


class Push(msgspec.Struct, frozen=True):
    """What became of a push, for programs."""

    block: bytes | None
    durable: Where
    appended: Appended


class StreamBlock(Form, kw_only=True):
    """Some messages of a stream, written together."""

    block: str
    first: Id | None
    """Null as long as they aren't in the log."""
    count: int
    duplicates: int = 0


class StreamReceipt(Form, kw_only=True):
    """What became of a stream of messages."""

    durable: Where
    """Where its blocks are: in the log only if all of them are."""
    accepted: int
    duplicates: int
    blocks: Sequence[StreamBlock]


# Taking and settling


class TakeForm(Form, kw_only=True):
    """What to take."""

    queues: Annotated[list[str], Meta(min_length=1, max_length=100)]
    """They take turns in being asked first."""
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """How many tasks at most."""
    group: str = "workers"
    worker: Annotated[str, Meta(max_length=255)] | None = None
    """Who takes them, for people; else your address."""
    wait_seconds: Seconds = 0.0
    """How long to wait for the first task; the server has a limit of its own."""
    visibility_seconds: LeaseSeconds | None = None
    """How long the tasks are yours; else what the queue says."""
    partitions_max: Annotated[int, Meta(ge=1)] | None = None
    """Of ordered queues: from how many partitions at most."""


class TaskForm(Payload, kw_only=True, gc=False):
    """A task, with the lease under which it is settled."""

    id: Id
    queue: str
    attempts: int
    created_at: Micros
    start_time: Micros
    prev_start_time: Micros | None = None
    deadline: Micros
    """Until when it is yours."""
    partition: str = ""
    transaction_id: str | None = None
    headers: dict[str, str] | None = None
    lease: str
    """Give it back with the id when you settle the task."""


class Tasks(Form, kw_only=True):
    """Tasks that were taken: none, when there was nothing."""

    tasks: Sequence[TaskForm]


class TicketForm(Form, kw_only=True, gc=False):
    """A task to settle: its id and its lease, as they came."""

    id: AnyId
    lease: str | Lease


class RetryForm(TicketForm, kw_only=True):
    """A task that comes back at a time, after a delay, or else at once."""

    start_time: Micros | None = None
    delay_seconds: Seconds | None = None
    counts: bool = True
    """Whether that is an attempt."""
    reason: Annotated[str, Meta(max_length=4_096)] = ""


Tickets = Annotated[list[TicketForm], Meta(max_length=100_000)]


class DoneForm(Form, kw_only=True):
    """Tasks that are done."""

    tasks: Tickets


class ReleaseForm(Form, kw_only=True):
    """Tasks that go back unused."""

    tasks: Tickets


class RetriesForm(Form, kw_only=True):
    """Tasks that come back; a task's own time and reason go before those of the whole."""

    tasks: Annotated[list[RetryForm], Meta(max_length=100_000)]
    start_time: Micros | None = None
    delay_seconds: Seconds | None = None
    reason: Annotated[str, Meta(max_length=4_096)] = ""


class BuryForm(Form, kw_only=True):
    """Tasks that become dead letters."""

    tasks: Tickets
    reason: Annotated[str, Meta(max_length=4_096)]


class ExtendForm(Form, kw_only=True):
    """Tasks to keep for longer."""

    tasks: Tickets
    seconds: LeaseSeconds | None = None


class SettleForm(Form, kw_only=True):
    """Several outcomes in one write."""

    done: Tickets = []
    retry: Annotated[list[RetryForm], Meta(max_length=100_000)] = []
    bury: Tickets = []
    release: Tickets = []
    reason: Annotated[str, Meta(max_length=4_096)] = ""
    code: Annotated[int, Meta(ge=0, le=2_147_483_647)] = 0
    """Kept with the outcomes: the status of an HTTP answer, for instance."""


class Settled(Form, kw_only=True):
    """How many tasks were settled."""

    settled: int
    durable: Durable
    """Where their outcomes are: in the log, and final, or in the spool, while the log is away."""


class Extended(Form, kw_only=True):
    """How many tasks are kept for longer."""

    settled: int


# Queues and groups


class QueueForm(Form, kw_only=True):
    """A queue to create."""

    settings: dict[str, Any] = {}
    number: Annotated[int, Meta(ge=1, lt=1 << 18)] | None = None


class Queues(Form, kw_only=True):
    """Queues by number; `next` is where the next page begins."""

    queues: Sequence[Queue]
    next: int | None = None


class GroupForm(Form, kw_only=True):
    """A group to create, or the place to go on from."""

    start: Literal["earliest", "latest"] | Micros = "earliest"
    sequence: Annotated[int, Meta(ge=1, lt=1 << 45)] | None = None
    """A place in the queue, by sequence number, instead of `start`."""


class PurgeForm(Form, kw_only=True):
    """What to skip: what waits in one group, or in all."""

    group: str | None = None
    dry_run: bool = False


class Deleted(Form, kw_only=True):
    """Whether there was something to delete."""

    deleted: bool


# Dead letters


class LetterForm(Payload, kw_only=True):
    """A dead letter."""

    id: Id
    died_at: Micros
    reason: str
    attempts: int
    partition: str = ""
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


class LettersPage(Form, kw_only=True):
    """Dead letters by id; `next` is the `after` of the next page."""

    letters: Sequence[LetterForm]
    next: Id | None = None


class LettersForm(Form, kw_only=True):
    """Which dead letters: those named, or all; of these, those whose reason contains a text."""

    ids: Annotated[list[AnyId], Meta(max_length=100_000)] | None = None
    group: str = "workers"
    reason: str | None = None
    dry_run: bool = False


class ChangedLetters(Form, kw_only=True):
    """The dead letters that were changed, or would be. `undo` takes them."""

    ids: Sequence[Id]
    dry_run: bool = False


# Looking


class PeekedForm(Payload, kw_only=True):
    """A message that is ready."""

    id: Id
    attempts: int
    created_at: Micros
    start_time: Micros
    prev_start_time: Micros | None = None
    partition: str = ""
    transaction_id: str | None = None
    headers: dict[str, str] | None = None


class PeekedPage(Form, kw_only=True):
    """Messages that are handed out next."""

    messages: Sequence[PeekedForm]


class Version(Form, kw_only=True):
    """Who answers."""

    name: str
    version: str


_raw: Final = msgspec.json.Decoder(Raw)
_STATUSES: Final[Mapping[Where, str]] = {"spool": "spooled", "buffered": "buffered"}
_BETWEEN: Final = '","status":"accepted"},{"id":"'
_LAST_DIGITS: Final = [f"{number:03}" for number in range(1_000)]


def is_json(data: bytes) -> bool:
    """Whether a payload can stand in JSON as it is."""
    try:
        _raw.decode(data)
        return data.isascii() or bool(data.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def payload_fields(data: bytes) -> dict[str, Any]:
    """A payload as JSON where it is JSON, else as base64."""
    return {"payload": Raw(data)} if is_json(data) else {"payload_base64": b64encode(data).decode()}


def task_forms(tasks: Iterable[Task], names: Mapping[int, str]) -> Sequence[TaskForm]:
    """Tasks as JSON; `names` are those of the queues by number, but for one that was deleted meanwhile.

    What is the same for tasks that follow each other is written once.
    """
    forms, like, tail = list[Raw](), None, b""
    for task in tasks:
        if like is None or not _is_alike(task, like):
            like, tail = task, _tail(task, names.get(task.queue_num, ""))
        forms.append(Raw(b'{%b,"id":"%d",%b' % (_payload_text(task.data), task.id, tail)))
    return cast("Sequence[TaskForm]", forms)


def _is_alike(task: Task, other: Task) -> bool:
    """Whether all but id and payload is the same."""
    return (
        task.lease is other.lease
        and task.transaction_id == other.transaction_id
        and task.headers is other.headers
        and task.partition == other.partition
        and task.deadline == other.deadline
    )


def _tail(task: Task, queue: str) -> bytes:
    """What comes after payload and id."""
    form = TaskForm(
        id="",
        queue=queue,
        attempts=task.attempts,
        created_at=task.created_at,
        start_time=task.start_time,
        prev_start_time=task.prev_start_time,
        deadline=task.deadline,
        partition=task.partition,
        transaction_id=task.transaction_id,
        headers=task.headers,
        lease=lease_text(task.lease),
    )
    return msgspec.json.encode(form).removeprefix(b'{"id":"",')


def _payload_text(data: bytes) -> bytes:
    if is_json(data):
        return b'"payload":' + data
    return b'"payload_base64":"%b"' % b64encode(data)


def pushed_forms(appended: Appended) -> Sequence[Pushed]:
    """What became of each message of a block; written at once where nothing was a duplicate."""
    if appended.where != "log":
        each = f'{{"id":null,"status":"{_STATUSES[appended.where]}"}}'
        return cast("Sequence[Pushed]", Raw(f"[{','.join([each] * appended.count)}]"))
    duplicates = appended.duplicates
    if not duplicates:
        ids = _joined_ids(appended.first, appended.count, _BETWEEN)
        written = Raw(f'[{{"id":"{ids}","status":"accepted"}}]')
        return cast("Sequence[Pushed]", written)
    return [
        Pushed(id=str(id), status="duplicate" if i in duplicates else "accepted")
        for i, id in enumerate(appended.ids())
    ]


def _joined_ids(first: int, count: int, between: str) -> str:
    """The texts of ids that follow each other: a thousand of them have all but the last digits in common."""
    if first < len(_LAST_DIGITS):
        return between.join(map(str, range(first, first + count)))
    pieces = []
    while count:
        high, low = divmod(first, len(_LAST_DIGITS))
        some = _LAST_DIGITS[low : low + count]
        pieces.append(f"{high}{f'{between}{high}'.join(some)}")
        first, count = first + len(some), count - len(some)
    return between.join(pieces)


def letter_form(letter: DeadLetter) -> LetterForm:
    """A dead letter as JSON."""
    message = letter.message()
    return LetterForm(
        id=str(letter.message_id),
        died_at=letter.died_at,
        reason=letter.reason,
        attempts=letter.attempts,
        partition=message.partition,
        transaction_id=message.transaction_id,
        headers=message.headers,
        **payload_fields(message.payload),
    )


def peeked_form(peeked: Peeked) -> PeekedForm:
    """A message that is ready as JSON."""
    return PeekedForm(
        id=str(peeked.id),
        attempts=peeked.attempts,
        created_at=peeked.created_at,
        start_time=peeked.start_time,
        prev_start_time=peeked.prev_start_time,
        partition=peeked.partition,
        transaction_id=peeked.transaction_id,
        headers=peeked.headers,
        **payload_fields(peeked.data),
    )


class RunningForm(Form, kw_only=True):
    """Tasks that one worker took together and still has."""

    queue: str
    group: str
    flow: dict[str, str | None]
    first: Id
    count: int
    attempts: int
    worker: str
    since: Micros
    deadline: Micros


class RunningPage(Form, kw_only=True):
    """Tasks that are out with workers, longest first."""

    running: Sequence[RunningForm]


def running_form(running: Running) -> RunningForm:
    """Running tasks as JSON."""
    fields = msgspec.structs.asdict(running)
    del fields["ids"]  # there may be many: queue metrics have them
    return RunningForm(
        **{**fields, "first": str(running.first), "flow": msgspec.structs.asdict(running.flow)}
    )


class WhereForm(Form, kw_only=True):
    """The whole path of one message."""

    id: Id
    queue: str
    sequence: int
    block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    groups: Sequence[dict[str, Any]]


def where_form(where: Whereabouts) -> WhereForm:
    """The path of a message as JSON."""
    block = None if where.block is None else msgspec.structs.asdict(where.block)
    if block is not None:
        block["first"] = str(block["first"])
    message = None
    if where.message is not None:
        message = msgspec.structs.asdict(where.message)
        message |= payload_fields(message.pop("payload"))
    groups = [msgspec.to_builtins(group) for group in where.groups]
    return WhereForm(
        id=str(where.id),
        queue=where.queue,
        sequence=where.sequence,
        block=block,
        message=message,
        groups=groups,
    )


class BlockForm(Form, kw_only=True):
    """A block as it is stored."""

    first: Id
    count: int
    id: str
    appended_at: Micros
    partition: str | None = None
    body_base64: str


class BlocksPage(Form, kw_only=True):
    """Stored blocks; the next page begins at sequence number `next`."""

    blocks: Sequence[BlockForm]
    next: int | None = None


def block_form(block: StoredBlock) -> BlockForm:
    """A stored block as JSON."""
    return BlockForm(
        first=str(block.first),
        count=block.count,
        id=format_id(block.id),
        appended_at=block.appended_at,
        partition=block.partition,
        body_base64=b64encode(block.body).decode(),
    )


class StagedBlock(Form, kw_only=True):
    """A block to keep until it is published: its queue, and its body as it is encoded."""

    queue: str
    body_base64: str | UnsetType = UNSET
    body: bytes | UnsetType = UNSET
    """The same as bytes, in MessagePack."""


class StageForm(Form, kw_only=True):
    """Blocks to keep under a name."""

    blocks: Annotated[list[StagedBlock], Meta(min_length=1, max_length=10_000)]


class Staged(Form, kw_only=True):
    """The ids of the blocks that are kept now."""

    ids: Sequence[str]


class PublishForm(Form, kw_only=True):
    """Which blocks of a stage to append, in which order."""

    ids: Annotated[list[str], Meta(max_length=10_000)]


class AppendedForm(Form, kw_only=True):
    """Where the messages of a block are."""

    first: Id
    count: int
    duplicates: dict[str, Id] = {}
    known: bool = False


class Published(Form, kw_only=True):
    """Where the blocks are."""

    appended: Sequence[AppendedForm]


def appended_form(appended: Appended) -> AppendedForm:
    """An answer to an append as JSON."""
    duplicates = {str(index): str(id) for index, id in appended.duplicates.items()}
    return AppendedForm(
        first=str(appended.first), count=appended.count, duplicates=duplicates, known=appended.known
    )
