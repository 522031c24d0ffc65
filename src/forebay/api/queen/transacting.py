"""Transactions: pushes and acknowledgements over any queues and partitions, all or nothing.

Invariants: a transaction that is answered with `success` is durable as a whole; of one that isn't, nothing
happened. It is fenced by the leases of what it acknowledges, also where its client names them only in
`requiredLeases`: a consumer whose lease is over changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.acking import LEASE_OVER, Verdicts, find, finished, verdicts_of, weigh
from forebay.api.queen.commits import AckItem, Found
from forebay.api.queen.framing import framed_transaction, is_framed
from forebay.api.queen.identity import fresh_uuid, message_uuid, partition_uuid
from forebay.api.queen.judging import Judged, KvOp
from forebay.api.queen.kv import Refused, apply, checked
from forebay.api.queen.messages import PushItem
from forebay.api.queen.pushing import ITEMS_MAX, Piece, count, enter, pieces_of, room_for
from forebay.api.queen.reading import Body, parse
from forebay.api.queen.routes import queen_route
from forebay.api.queen.scheduling import Scheduling
from forebay.api.queen.timers import TimerOp
from forebay.log.values import Appended, Record
from forebay.model import Conflict, ForebayError, Full, LeaseLost, Rejected, UnknownQueue

OPERATIONS_MAX: Final = 50_000


class Operation(AckItem):
    """A push of items, or an acknowledgement."""

    type: str = ""
    items: list[PushItem] | UnsetType = UNSET


class TransactionForm(Body):
    """What is to happen together."""

    operations: list[Operation] | UnsetType = UNSET
    kv: list[KvOp] = msgspec.field(default_factory=list)
    """What becomes of values along with it."""
    timers: list[TimerOp] = msgspec.field(default_factory=list)
    """What becomes of timers along with it."""
    required_leases: list[str] = msgspec.field(default_factory=list)


class _Aborted(Exception):  # noqa: N818 - what became of a transaction
    """Nothing happens, and why."""


async def transaction(call: Call) -> Answer:
    """Push and acknowledge, all or nothing."""
    form, counts = await _read(call)
    operations, id = _checked(form), fresh_uuid()
    try:
        if form.kv:
            call.key.check("take")
            checked(form.kv, in_transaction=True)
        answer = await _transact(call, form, operations)
        return Answer({"transactionId": id, **(_counted(answer) if counts else answer)})
    except Refused as refused:
        return Answer(refused.answer, status=refused.status)
    except _Aborted as aborted:
        return Answer(_failed(id, operations, str(aborted)))


async def _read(call: Call) -> tuple[TransactionForm, bool]:
    """What is to happen, and whether numbers are enough for an answer."""
    body = await call.body()
    if not is_framed(body):
        return parse(body, TransactionForm), False
    most = call.context.settings.limits.body_bytes_max
    framed = framed_transaction(body, bytes_max=most, items_max=ITEMS_MAX)
    call.reserve(framed.unpacked)
    form = parse(framed.head or b"{}", TransactionForm)
    before = [] if isinstance(form.operations, UnsetType) else form.operations
    form.operations = [*before, Operation(type="push", items=framed.items)] if framed.items else before
    return form, framed.counts


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    """Pushes and acknowledgements as numbers, the rest as it is."""
    results = answer["results"]
    pushed = [one for one in results if one["type"] == "push"]
    duplicate = sum(one["duplicate"] for one in pushed)
    acked = sum(one["type"] == "ack" for one in results)
    rest = [one for one in results if one["type"] not in ("push", "ack")]
    numbers = {"pushed": len(pushed) - duplicate, "duplicate": duplicate, "acked": acked}
    return {**answer, **numbers, "results": rest}


async def _transact(call: Call, form: TransactionForm, operations: Sequence[Operation]) -> dict[str, Any]:
    found = await _found(call, form, operations)
    scheduling = Scheduling(call, form.timers)
    await scheduling.prepare()
    pieces = await pieces_of(call, [item for op in operations for item in _items(op)])
    weigh(call.desk, found)
    # What isn't named isn't done along: a transaction of its own may be on its way.
    verdicts = verdicts_of(call.desk, found)
    if (why := next((one.error for one in found if one.error), None)) is not None:
        raise _Aborted(f"ACK operation failed: {why}")
    if verdicts.release:
        raise _Aborted("ACK operation failed: only completed, failed and dlq can be")
    try:
        await _make_way(call, pieces)
        await enter(call.desk, pieces)
        async with room_for(call.desk, pieces):
            judged, appended, timers = await _write(call, form.kv, verdicts, pieces, scheduling)
    except LeaseLost:
        raise _Aborted(f"ACK operation failed: {LEASE_OVER}") from None
    except (Full, Conflict) as error:
        raise _Aborted(error.message) from None
    before = sum(len(_items(op)) if op.type == "push" else 1 for op in operations)
    if judged.failed is not None:
        return _precondition(judged.failed, before)
    finished(call, found, verdicts)
    with suppress(ForebayError):  # the store has sent it back already, or does so when its lease is over
        await call.desk.store.release(verdicts.rest.values())
    for answer in appended:
        count(call, answer)
    results = await _results(call, operations, found, pieces, appended)
    results += [{**result, "index": before + result["index"], "type": "kv"} for result in judged.results]
    results += [
        {"index": len(results) + place, "type": "timer", "success": True, "error": None, **one}
        for place, one in enumerate(timers)
    ]
    return {"success": True, "results": results}


async def _found(call: Call, form: TransactionForm, operations: Sequence[Operation]) -> list[Found]:
    """What is acknowledged; none of it may be missing."""
    acks = [operation for operation in operations if operation.type == "ack"]
    found = await find(call, acks, leases=form.required_leases)
    _fence(call, found, form.required_leases)
    for one in found:
        if one.error is not None:
            raise _Aborted(f"ACK operation failed: {one.error}")
    return found


async def _write(
    call: Call,
    ops: Sequence[KvOp],
    verdicts: Verdicts,
    pieces: Sequence[Piece],
    scheduling: Scheduling,
) -> tuple[Judged, list[Appended], list[dict[str, Any]]]:
    """All of it in one write; again where somebody else wrote one of the values or timers meanwhile."""
    blocks = [(piece.queue, piece.block) for piece in pieces]
    appended: list[Appended] = []

    timers: list[dict[str, Any]] = []

    async def write(records: Sequence[Record]) -> None:
        async def commit(more: Sequence[Record]) -> None:
            transact = partial(
                call.desk.store.transact,
                blocks,
                done=verdicts.done,
                retry=verdicts.retry,
                bury=verdicts.bury,
                records=[*records, *more],
            )
            try:
                appended[:] = await transact()
            except UnknownQueue:  # another server deleted it a moment ago
                for piece in pieces:
                    await call.desk.renewed(piece.shown)
                appended[:] = await transact()

        timers[:] = await scheduling.run(commit)

    return await apply(call, ops, write, always=True), appended, timers


def _checked(form: TransactionForm) -> list[Operation]:
    if isinstance(form.operations, UnsetType):
        raise Rejected("operations array required", hint='send {"operations": [...]}')
    if not (form.operations or form.kv or form.timers):
        raise Rejected("operations array cannot be empty", hint="push or acknowledge something")
    if len(form.operations) > OPERATIONS_MAX:
        raise Rejected("too many operations", hint=f"send up to {OPERATIONS_MAX} at once")
    for index, operation in enumerate(form.operations):
        if operation.type not in ("push", "ack"):
            text = f"operations[{index}] has the type {operation.type[:32]!r}"
            raise Rejected(text, hint="use push or ack")
        if operation.type == "ack" and not (operation.transaction_id and operation.partition_id):
            text = f"operations[{index}] needs transactionId and partitionId"
            raise Rejected(text, hint="send what came with the message")
    return form.operations


def _precondition(failed: dict[str, Any], before: int) -> dict[str, Any]:
    """What is told when a value was not as it had to be; places count all results, values' last."""
    error = f"a precondition on a value was not met: {failed['kvReason']}"
    place = before + failed["failedIndex"]
    return {**failed, "failedIndex": place, "error": error, "results": []}


def _items(operation: Operation) -> Sequence[PushItem]:
    if operation.type != "push" or isinstance(operation.items, UnsetType):
        return ()
    return operation.items


def _fence(call: Call, found: Sequence[Found], leases: Sequence[str]) -> None:
    """Where leases are named for the whole, each message must be out under one of them."""
    if not leases:
        return
    named = {lease.lower() for lease in leases}
    hands = [hand for lease in named if (hand := call.desk.hands.hand(lease)) is not None]
    known = {place for hand in hands for place in hand.tasks}
    for one in found:
        is_ours = one.place is not None and call.desk.hands.is_out(one.place)
        if one.error is None and is_ours and one.place not in known:
            one.error = LEASE_OVER


async def _make_way(call: Call, pieces: Sequence[Piece]) -> None:
    """Wait for what is spooled of these partitions: a transaction goes to the log alone."""
    partitions: dict[str, list[str]] = {}
    for piece in pieces:
        partitions.setdefault(piece.queue, []).append(piece.partition)
    for queue, mine in partitions.items():
        await call.context.make_way(queue, mine)


def _failed(id: str, operations: Sequence[Operation], error: str) -> dict[str, Any]:
    results = [
        {
            "index": index,
            "type": op.type,
            "success": False,
            "transactionId": op.transaction_id,
            "error": error,
        }
        for index, op in enumerate(operations)
    ]
    return {"transactionId": id, "success": False, "error": error, "results": results}


async def _results(
    call: Call,
    operations: Sequence[Operation],
    found: Sequence[Found],
    pieces: Sequence[Piece],
    appended: Sequence[Appended],
) -> list[dict[str, Any]]:
    """One result for each item that was pushed and each message that was acknowledged, in their order."""
    pushed: dict[int, dict[str, Any]] = {}
    for piece, answer in zip(pieces, appended, strict=True):
        queue = await call.desk.store.known_queue(piece.queue)
        rows = zip(piece.indexes, piece.messages, answer.ids(), strict=True)
        for place, (index, message, id) in enumerate(rows):
            pushed[index] = {
                "type": "push",
                "success": True,
                "transactionId": message.transaction_id,
                "messageId": message_uuid(id),
                "partitionId": partition_uuid(queue.number, piece.partition),
                "queueName": piece.shown,
                "duplicate": answer.known or place in answer.duplicates,
            }
    acked = iter(found)
    item, results = 0, list[dict[str, Any]]()
    for operation in operations:
        if operation.type == "ack":
            one = next(acked)
            results.append(
                {
                    "type": "ack",
                    "success": True,
                    "transactionId": one.item.transaction_id,
                    "error": None,
                    "dlq": one.buried,
                }
            )
            continue
        for _ in _items(operation):
            results.append(pushed[item])
            item += 1
    return [{"index": index, **result} for index, result in enumerate(results)]


ROUTES: Final = (
    queen_route(
        "POST", "/api/v1/transaction", transaction, "Push and acknowledge, all or nothing", scope="take"
    ),
)
