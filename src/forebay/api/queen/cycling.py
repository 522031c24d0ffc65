"""The cycle of a stream: its state, what it pushes and what it acknowledges change together, or not at all.

Invariants: a cycle that is answered with `success` is durable as a whole, and happens once, also when its
answer is lost and it is sent again: what it acknowledges fences it, or else the state that it removes. State
is written only over what was read. A batch whose cycle failed for good goes back at once, unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.acking import LEASE_OVER
from forebay.api.queen.directory import Partition
from forebay.api.queen.hands import Place
from forebay.api.queen.identity import message_uuid, partition_uuid, uuid_time
from forebay.api.queen.messages import PushItem
from forebay.api.queen.names import group_name, shown_queue
from forebay.api.queen.pushing import Piece, count, pieces_of, room_for
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.state import SPACE as STATE
from forebay.api.queen.state import Shard, read_keys, record_key
from forebay.api.queen.streams import find_query
from forebay.log.seam import VersionConflict
from forebay.log.values import Appended, Queue, Record
from forebay.model import Conflict, Full, LeaseLost, Rejected, queue_of
from forebay.store.values import Task, Ticket

SPACE: Final = "queen.cycle"
"""The last cycle of each partition of a query: it may be sent again."""
REMEMBERED_SECONDS: Final = 3_600
OPERATIONS_MAX: Final = 19_000
CHANGED: Final = "the state has changed since it was read"
_DONE: Final = frozenset({"completed", "success"})
_BACK: Final = frozenset({"failed", "retry"})
_EMPTY: Final = Raw(b"{}")
_SECOND: Final = 1_000_000
_MILLISECOND: Final = 1_000


class CycleAck(Body):
    """What is acknowledged: a batch of one partition, by its last message."""

    transaction_id: str | None = None
    lease_id: str | None = None
    status: str = "completed"
    count: int | None = None


class StateOp(msgspec.Struct):
    """A change of state."""

    type: str
    key: str
    value: Raw | UnsetType = UNSET


class CycleForm(msgspec.Struct):
    """A cycle of a stream over one partition."""

    query_id: str | None = None
    partition_id: str | None = None
    consumer_group: str | None = None
    state_ops: list[StateOp] | None = None
    push_items: list[PushItem] | None = None
    ack: CycleAck | None = None
    release_lease: bool | None = True


Given = dict[Place, Task | Ticket]
"""What is out with a stream."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle, and what it is about."""

    form: CycleForm
    shard: Shard
    partition: Partition
    queue: Queue
    group: str
    digest: bytes

    @property
    def last_key(self) -> str:
        """Where it is remembered; cycles without an acknowledgement run beside the others."""
        kind = "flush" if self.form.ack is None else "ack"
        return f"{self.shard.query}/{self.shard.partition}/{kind}"


async def cycle(call: Call) -> Answer:
    """Change state, push and acknowledge, all or nothing."""
    form = await read(call, CycleForm)
    ops = _ops(form)
    found = await _find(call, form)
    if isinstance(found, str):
        return Answer(_failed(form, found), status=404)
    given, last = _given(call, found)
    if form.ack is not None and last is None:
        given, last = await _given_elsewhere(call, found)
    if form.ack is not None and last is None:
        return Answer(await _repeated(call, found) or _failed(form, LEASE_OVER))
    if form.ack is not None and form.ack.status.lower() in _BACK:
        call.desk.lapsing.give_back(given)
        return Answer(_shown(found, [], [], ops=0, acked=len(given), released=True))
    records = await _records(call, found, ops)
    if records is None:
        return Answer(await _repeated(call, found) or _failed(form, CHANGED))
    try:
        return await _commit(call, found, _acked(found, given, last), records, ops)
    except VersionConflict:
        call.desk.lapsing.give_back(given)
        return Answer(_failed(form, CHANGED))


def _ops(form: CycleForm) -> dict[str, StateOp]:
    """What becomes of keys; of several changes of one, the last counts."""
    ops = form.state_ops or []
    if len(ops) > OPERATIONS_MAX:
        raise Rejected(f"{len(ops)} state_ops are too many", hint=f"send up to {OPERATIONS_MAX} at once")
    for op in ops:
        if op.type not in ("upsert", "delete"):
            raise Rejected(f"Unknown state_op type: {op.type[:32]}", hint="use upsert or delete")
    if form.ack is not None and form.ack.status.lower() not in _DONE | _BACK:
        raise Rejected(f"unknown status {form.ack.status[:32]!r}", hint="use completed, or failed")
    return {op.key: op for op in ops}


async def _find(call: Call, form: CycleForm) -> Cycle | str:
    """What a cycle is about, or what of it isn't there."""
    query, desk = await find_query(call, form.query_id), call.desk
    if not form.partition_id:
        raise Rejected("partition_id is required", hint="send that of the messages")
    if query is None:
        return "query not found"
    id = form.partition_id.lower()
    partition = (await desk.directory.find([id])).get(id)
    queues = [] if partition is None else await desk.queues_by({partition.queue})
    if partition is None or not queues:
        return "partition not found"
    call.allow(queues[0].name)
    shard = Shard((form.query_id or "").lower(), query.generation, id)
    group = group_name(form.consumer_group)
    desk.lapsing.note(group)
    digest = blake2b(msgspec.json.encode(form), digest_size=16).digest()
    return Cycle(form, shard, partition, queues[0], group, digest)


def _given(call: Call, cycle: Cycle) -> tuple[Given, Task | Ticket | None]:
    """What is out of the cycle's partition under its lease, and the last of what it acknowledges."""
    ack, hands = cycle.form.ack, call.desk.hands
    if ack is None or not ack.transaction_id:
        return {}, None
    number, name = cycle.partition
    last = Place(number, cycle.group, name, ack.transaction_id)
    lease = ack.lease_id or hands.lease(last)
    task, hand = hands.find(last, lease), hands.hand(lease or "")
    if task is None or hand is None:
        return {}, None
    mine: Given = {
        place: one for place, one in hand.tasks.items() if (place.queue, place.partition) == (number, name)
    }
    return mine, task


async def _given_elsewhere(call: Call, cycle: Cycle) -> tuple[Given, Task | Ticket | None]:
    """The same, of what another server gave out."""
    ack, store = cycle.form.ack, call.desk.store
    lease = "" if ack is None else (ack.lease_id or "").lower()
    since = uuid_time(lease)
    if ack is None or since is None or call.desk.hands.hand(lease) is not None:
        return {}, None
    number, name = cycle.partition
    ids = await call.desk.lending.find(lease, number, name)
    (last,) = await store.log.locate(cycle.queue, [(name, ack.transaction_id or "")])
    if last is None or last not in ids:
        return {}, None
    tickets = await store.tickets(cycle.queue.name, cycle.group, ids, since=since + _MILLISECOND)
    given: Given = {Place(number, cycle.group, name, f"#{id}"): one for id, one in tickets.items()}
    return given, tickets.get(last)


def _acked(cycle: Cycle, given: Given, last: Task | Ticket | None) -> Given:
    """What a cycle acknowledges: all that it was given, or, where it keeps the lease, up to one of it.

    Clients sort a batch by time and id before they work on it, and what they have worked on is a beginning of
    that.
    """
    if last is None or cycle.form.release_lease is not False:
        return given
    return {place: one for place, one in given.items() if _order(one) <= _order(last)}


def _order(task: Task | Ticket) -> tuple[int, int]:
    return task.created_at // _MILLISECOND if isinstance(task, Task) else 0, task.id


async def _records(call: Call, cycle: Cycle, ops: dict[str, StateOp]) -> list[Record] | None:
    """What is written of the state, over what was read; None where that is known to be outdated."""
    reads, shard = call.desk.reads, cycle.shard
    versions = {key: reads.expected(shard, key) for key in ops}
    if cycle.form.ack is None:
        removed = [key for key, op in ops.items() if op.type == "delete"]
        begin = len(shard.prefix)
        kept = {one.key[begin:]: one.version for one in await read_keys(call.desk.store.log, shard, removed)}
        if any(key not in kept or reads.is_outdated(shard, key) for key in removed):
            return None
        versions.update({key: versions[key] or kept[key] for key in removed})
    return [
        Record(STATE, record_key(shard, key), _value(op), version=versions[key]) for key, op in ops.items()
    ]


def _value(op: StateOp) -> bytes | None:
    if op.type == "delete":
        return None
    return bytes(_EMPTY if isinstance(op.value, UnsetType) else op.value)


async def _repeated(call: Call, cycle: Cycle) -> dict[str, Any] | None:
    """The answer to a cycle that was carried out before, if this is one."""
    kept = await call.desk.store.log.records(SPACE, [cycle.last_key])
    if not kept or kept[0].value != cycle.digest:
        return None
    acked = 0 if cycle.form.ack is None else cycle.form.ack.count or 0
    ops = len(cycle.form.state_ops or ())
    return {**_shown(cycle, [], [], ops=ops, acked=acked, released=True), "repeated": True}


async def _commit(
    call: Call, cycle: Cycle, batch: Given, records: Sequence[Record], ops: dict[str, StateOp]
) -> Answer:
    desk, now = call.desk, call.context.clock.now()
    pieces = await pieces_of(call, cycle.form.push_items or [])
    for piece in pieces:
        await call.context.make_way(piece.queue, [piece.partition])
        queue = await desk.store.known_queue(piece.queue)
        await desk.directory.enter(queue, [piece.partition])
    last = Record(SPACE, cycle.last_key, cycle.digest, now + REMEMBERED_SECONDS * _SECOND)
    blocks = [(piece.queue, piece.block) for piece in pieces]
    try:
        async with room_for(desk, pieces):
            appended = await desk.store.transact(blocks, done=batch.values(), records=[*records, last])
    except Full as error:
        return Answer(_failed(cycle.form, error.message))
    except LeaseLost:
        return Answer(await _repeated(call, cycle) or _failed(cycle.form, LEASE_OVER))
    except VersionConflict:
        raise
    except Conflict as error:
        return Answer(_failed(cycle.form, error.message))
    desk.hands.settled(batch)
    if cycle.form.ack is not None:
        desk.reads.written(cycle.shard, ops)
    call.context.counters.messages["done"] += len(batch)
    for answer in appended:
        count(call, answer)
    released = cycle.form.release_lease is not False
    return Answer(_shown(cycle, pieces, appended, ops=len(ops), acked=len(batch), released=released))


def _shown(
    cycle: Cycle,
    pieces: Sequence[Piece],
    appended: Sequence[Appended],
    *,
    ops: int,
    acked: int,
    released: bool,
) -> dict[str, Any]:
    ack = {"success": True, "lease_released": released, "dlq": False, "count": acked}
    return {
        "success": True,
        "query_id": cycle.form.query_id,
        "partition_id": cycle.form.partition_id,
        "queueName": shown_queue(cycle.queue.name),
        "state_ops_applied": ops,
        "push_results": _push_results(pieces, appended),
        "ack_result": None if cycle.form.ack is None else ack,
    }


def _push_results(pieces: Sequence[Piece], appended: Sequence[Appended]) -> list[dict[str, Any]]:
    results = [
        {
            "index": index,
            "status": "duplicate" if answer.known or place in answer.duplicates else "queued",
            "transaction_id": message.transaction_id,
            "message_id": message_uuid(id),
            "partition_id": partition_uuid(queue_of(id), piece.partition),
            "queueName": piece.shown,
        }
        for piece, answer in zip(pieces, appended, strict=True)
        for place, (index, message, id) in enumerate(
            zip(piece.indexes, piece.messages, answer.ids(), strict=True)
        )
    ]
    return sorted(results, key=lambda result: result["index"])


def _failed(form: CycleForm, error: str) -> dict[str, Any]:
    return {
        "success": False,
        "query_id": form.query_id,
        "partition_id": form.partition_id,
        "error": error,
        "push_results": [],
        "ack_result": None,
    }


ROUTES: Final = (
    queen_route("POST", "/streams/v1/cycle", cycle, "Change state, push and acknowledge", scope="take"),
)
