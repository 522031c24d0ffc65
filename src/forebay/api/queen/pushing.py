"""Push: items of any queues and partitions; the answer has their order.

Invariants: what is answered `queued` is durable; a transaction id that its partition knows is answered with
the first message's id, and nothing is written; nothing is written when any item is bad; items of a partition
are written in the order of the request, however many blocks they take.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from msgspec import UNSET, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.desk import Desk
from forebay.api.queen.framing import framed_push, is_framed
from forebay.api.queen.identity import fresh_uuid, message_uuid, partition_uuid
from forebay.api.queen.messages import PushItem, headers_of
from forebay.api.queen.names import partition_name, queue_name
from forebay.api.queen.options import Facts, Options
from forebay.api.queen.reading import Body, parse
from forebay.api.queen.routes import queen_route
from forebay.log.values import Appended
from forebay.model import Block, Full, Message, Rejected, Unavailable, UnknownQueue, check_block, queue_of
from forebay.model.limits import check_text
from forebay.spool.original import TRACE

ITEMS_MAX: Final = 50_000
_TRACE_BYTES_MAX: Final = 255
_PIECE_MESSAGES: Final = 5_000
_PIECE_BYTES: Final = 8 << 20
_AT_ONCE: Final = 250
"""Blocks of one push that are written side by side: few writes of the log, each of them soon over."""


class PushForm(Body):
    """Items to push."""

    items: list[PushItem] | UnsetType = UNSET


@dataclass(slots=True)
class Piece:
    """Messages of one partition of one queue, and where they are in the request."""

    queue: str
    """As we keep it."""
    shown: str
    partition: str
    indexes: list[int]
    messages: list[Message]
    block: Block
    """The same as it is written."""


async def push(call: Call) -> Answer:
    """Push items."""
    items, counts = await _read(call)
    desk = call.desk
    pieces = await pieces_of(call, items)
    await enter(desk, pieces)
    few = asyncio.Semaphore(_AT_ONCE)
    lanes: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        lanes.setdefault((piece.queue, piece.partition), []).append(piece)
    appends = (_append_lane(desk, lane, few, alone=len(pieces) == 1) for lane in lanes.values())
    answers = chain.from_iterable(await asyncio.gather(*appends))
    results: list[Any] = [None] * len(items)
    for piece, answer in zip(chain.from_iterable(lanes.values()), answers, strict=True):
        if isinstance(answer, Full):
            _refuse(results, piece, answer.message)
            continue
        if isinstance(answer, Exception):
            raise answer
        _fill(results, piece, answer)
        count(call, answer)
    return Answer(_counts(results) if counts else results, status=201)


async def _read(call: Call) -> tuple[list[PushItem], bool]:
    """What is pushed, and whether numbers are enough for an answer."""
    body = await call.body()
    if is_framed(body):
        most = call.context.settings.limits.body_bytes_max
        framed = framed_push(body, bytes_max=most, items_max=ITEMS_MAX)
        call.reserve(framed.unpacked)
        return framed.items, framed.counts
    form = parse(body, PushForm)
    if isinstance(form.items, UnsetType):
        raise Rejected("items array is required", hint='send {"items": [{"queue": "q", "payload": 1}]}')
    return form.items, False


def _counts(results: Sequence[Any]) -> dict[str, int]:
    """How many items went which way; what is buffered is as good as queued."""
    found = Counter(result["status"] for result in results)
    return {
        "count": len(results),
        "queued": found["queued"] + found["buffered"],
        "duplicate": found["duplicate"],
        "error": found["failed"],
    }


async def pieces_of(call: Call, items: Sequence[PushItem]) -> list[Piece]:
    """Items by queue and partition, checked, with their queues made; nothing is written before all are."""
    if len(items) > ITEMS_MAX:
        raise Rejected(f"{len(items)} items are too many", hint=f"push up to {ITEMS_MAX} at once")
    found: dict[tuple[str, str], list[int]] = {}
    for index, item in enumerate(items):
        if item.trace_id:
            check_text(item.trace_id, f"items[{index}].traceId", _TRACE_BYTES_MAX)
        found.setdefault((item.queue, partition_name(item.partition)), []).append(index)
    for shown in {shown for shown, _ in found}:
        call.key.check("push", queue_name(shown))
    pieces: list[Piece] = []
    for (shown, partition), indexes in found.items():
        messages = await _messages(call, shown, partition, [items[i] for i in indexes])
        for begin, end in _cuts(messages):
            part = messages[begin:end]
            block = Block.of(part, created_at=call.context.clock.now())
            pieces.append(Piece(queue_name(shown), shown, partition, indexes[begin:end], part, block))
    for piece in pieces if len(pieces) > 1 else ():
        check_block(piece.block, call.context.limits)
    return pieces


async def _messages(call: Call, shown: str, partition: str, items: Sequence[PushItem]) -> list[Message]:
    desk, producer = call.desk, call.key.subject
    facts = await desk.target(shown)
    options = Options() if facts is None else facts.options
    payloads = [item.data() for item in items]
    # Where nobody can say whether a queue is encrypted, it is taken to be: who pops opens what is sealed.
    sealed = options.encryption_enabled if facts is not None else desk.context.seal is not None
    if sealed:
        payloads = desk.seal().seal_batch(payloads)
    begins = desk.windows.begin(queue_name(shown), partition, options)
    spooled = (facts or Facts()) if desk.context.is_spooling else None
    return [
        Message(
            payload,
            partition,
            item.transaction_id or fresh_uuid(),
            headers_of(item, producer, sealed=sealed, spooled=spooled),
            begins,
        )
        for item, payload in zip(items, payloads, strict=True)
    ]


def _cuts(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """From where to where messages fit in one block."""
    cuts, begin, size = [], 0, 0
    for index, message in enumerate(messages):
        size += len(message.payload)
        if index > begin and (index - begin >= _PIECE_MESSAGES or size > _PIECE_BYTES):
            cuts.append((begin, index))
            begin, size = index, len(message.payload)
    return [*cuts, (begin, len(messages))]


@asynccontextmanager
async def room_for(desk: Desk, pieces: Sequence[Piece]) -> AsyncIterator[None]:
    """Have room for pieces while they are written, in queues with a `maxSize`; Full when there is none."""
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.queue] = counts.get(piece.queue, 0) + len(piece.messages)
    async with AsyncExitStack() as stack:
        for name, count in counts.items():
            try:
                queue = await desk.store.known_queue(name)
            except (UnknownQueue, Unavailable):
                continue  # the log is away: the spool has bounds of its own
            if limit := desk.facts(queue).options.max_size:
                await stack.enter_async_context(desk.room.take(queue, limit, count))
        yield


async def _append_lane(
    desk: Desk, lane: Sequence[Piece], few: asyncio.Semaphore, *, alone: bool
) -> list[Appended | Exception]:
    """Write the pieces of one partition, one after the other; what comes after a failure fails with it."""
    answers: list[Appended | Exception] = []
    for piece in lane:
        try:
            answers.append(await _append(desk, piece, few, alone=alone))
        except Exception as error:  # noqa: BLE001 - other partitions go on; then it is raised
            return answers + [error] * (len(lane) - len(answers))
    return answers


async def _append(desk: Desk, piece: Piece, few: asyncio.Semaphore, *, alone: bool) -> Appended:
    """Write a piece, or spool it; one that is alone and small may meet others."""
    context, merger = desk.context, desk.context.merger
    async with room_for(desk, [piece]):
        if alone and merger.takes(piece.messages):
            merger.part(piece.queue)
            _, appended = await merger.put(piece.queue, piece.messages)
            return appended
        async with few:
            return await context.append(piece.queue, piece.block)


async def enter(desk: Desk, pieces: Sequence[Piece]) -> None:
    """Have all partitions in the directory, of queues that are known."""
    partitions: dict[str, list[str]] = {}
    for piece in pieces:
        partitions.setdefault(piece.queue, []).append(piece.partition)
    for name, mine in partitions.items():
        # While the log is away the push is spooled; who pops it enters it.
        with suppress(UnknownQueue, Unavailable):
            queue = await desk.store.known_queue(name)
            await desk.directory.enter(queue, mine)


def _refuse(results: list[Any], piece: Piece, error: str) -> None:
    for index, message in zip(piece.indexes, piece.messages, strict=True):
        results[index] = {
            "index": index,
            "transaction_id": message.transaction_id,
            "status": "failed",
            "error": error,
            "queueName": piece.shown,
        }


def _fill(results: list[Any], piece: Piece, appended: Appended) -> None:
    if appended.where != "log":
        for index, message in zip(piece.indexes, piece.messages, strict=True):
            results[index] = {
                "index": index,
                "status": "buffered",
                "queue": piece.shown,
                "queueName": piece.shown,
                "partition": piece.partition or "Default",
                "transactionId": message.transaction_id,
                "transaction_id": message.transaction_id,
            }
        return
    rows = zip(piece.indexes, piece.messages, appended.ids(), strict=True)
    for place, (index, message, id) in enumerate(rows):
        is_duplicate = appended.known or place in appended.duplicates
        results[index] = {
            "index": index,
            "transaction_id": message.transaction_id,
            "status": "duplicate" if is_duplicate else "queued",
            "message_id": message_uuid(id),
            "partition_id": partition_uuid(queue_of(id), piece.partition),
            "trace_id": (message.headers or {}).get(TRACE),
            "queueName": piece.shown,
        }


def count(call: Call, appended: Appended) -> None:
    """Count what was pushed, by queue as well."""
    call.context.counters.pushed(appended)
    if appended.count and appended.where == "log":
        call.desk.tally.pushed(queue_of(appended.first), appended.count)


ROUTES: Final = (queen_route("POST", "/api/v1/push", push, "Push items", scope="push"),)
