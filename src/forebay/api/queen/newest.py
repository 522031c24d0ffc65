"""The newest messages of a queue, without their payloads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import message_uuid, partition_uuid
from forebay.api.queen.names import shown_partition, shown_queue
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.rows import queue_for
from forebay.api.queen.standing import modes, shown_status
from forebay.api.queen.times import iso
from forebay.log.values import QueueStats
from forebay.model import Corrupt, Message, pack, sequence_of
from forebay.store.whereabouts import state_of

_LIMIT_MAX: Final = 200


async def newest(call: Call) -> Answer:
    """Messages, the newest first, and how each stands.

    Each of them is looked up by itself, so there are few.
    """
    query, found = Query(call), await queue_for(call)
    limit, offset = query.number("limit", 50, least=1, most=_LIMIT_MAX), query.number("offset", 0)
    end = found.next - offset
    begin = max(found.floor, end - limit)
    seen = await _read(call, found, begin, end)
    await call.desk.directory.enter(found.queue, {message.partition for _, message, _ in seen})
    rows = [await _row(call, found, *one) for one in seen]
    return Answer(rows[::-1])


async def _read(call: Call, found: QueueStats, begin: int, end: int) -> list[tuple[int, Message, int]]:
    """Messages from one sequence number to another, each with its own and with when it came."""
    seen: list[tuple[int, Message, int]] = []
    position, queue = begin, found.queue
    while position < end:
        blocks = await call.desk.store.read(queue.name, position, messages_max=end - position)
        for stored in blocks:
            first, position = sequence_of(stored.first), sequence_of(stored.last) + 1
            with suppress(Corrupt):  # it is in quarantine, and the others can be seen
                block = stored.decode(queue.name)
                wanted = range(max(begin, first), min(end, position))
                seen += [(at, block.message(at - first), stored.accepted_at) for at in wanted]
        if not blocks:
            break
    return seen


async def _row(
    call: Call, found: QueueStats, sequence: int, message: Message, created_at: int
) -> dict[str, Any]:
    id, queue = pack(found.queue.number, sequence), shown_queue(found.queue.name)
    where = await call.desk.store.log.find(id)
    states = {one.group.name: state_of(id, one, where, message) for one in where.standings}
    has_queue_mode, _ = modes(found.groups)
    partition = shown_partition(message.partition)
    return {
        "id": message_uuid(id),
        "transactionId": transaction_of(id, message.transaction_id),
        "partitionId": partition_uuid(found.queue.number, message.partition),
        "queuePath": f"{queue}/{partition}",
        "queue": queue,
        "partition": partition,
        "status": shown_status(states, has_queue_mode)["status"],
        "createdAt": iso(created_at),
    }


ROUTES: Final = (
    queen_route(
        "GET",
        "/api/v1/status/queues/{queue}/messages",
        newest,
        "Its newest messages",
        scope="read",
    ),
)
