"""The newest messages of a queue, without their payloads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import leading
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import message_uuid, partition_uuid
from forebay.api.queen.names import shown_partition, shown_queue
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.rows import queue_for
from forebay.api.queen.times import iso
from forebay.log.values import QueueStats, Standing
from forebay.model import Corrupt, Message, pack, sequence_of

_LIMIT_MAX: Final = 200


async def newest(call: Call) -> Answer:
    """Messages, the newest first, and where each is for the group by which its queue is shown.

    Each of them is looked up by itself, so there are few.
    """
    query, found = Query(call), await queue_for(call)
    limit, offset = query.number("limit", 50, least=1, most=_LIMIT_MAX), query.number("offset", 0)
    end = found.next - offset
    begin = max(found.floor, end - limit)
    rows = [await _row(call, found, *one) for one in await _read(call, found, begin, end)]
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
                seen += [(at, block.message(at - first), block.created_at) for at in wanted]
        if not blocks:
            break
    return seen


async def _row(
    call: Call, found: QueueStats, sequence: int, message: Message, created_at: int
) -> dict[str, Any]:
    id, queue = pack(found.queue.number, sequence), shown_queue(found.queue.name)
    where = await call.desk.store.log.find(id)
    group = leading(found)
    number = None if group is None else group.group.number
    standing = next((one for one in where.standings if one.group.number == number), None)
    partition = shown_partition(message.partition)
    return {
        "id": message_uuid(id),
        "transactionId": transaction_of(id, message.transaction_id),
        "partitionId": partition_uuid(found.queue.number, message.partition),
        "queuePath": f"{queue}/{partition}",
        "queue": queue,
        "partition": partition,
        "status": status_of(standing),
        "createdAt": iso(created_at),
    }


def status_of(standing: Standing | None) -> str:
    """Where a message is for a group, in Queen's words."""
    if standing is None:
        return "pending"
    if standing.letter is not None and standing.letter.state == "dead":
        return "dead_letter"
    if standing.claim is not None:
        return "processing" if standing.claim.handed else "pending"
    return "completed" if standing.claimed else "pending"


ROUTES: Final = (
    queen_route(
        "GET",
        "/api/v1/status/queues/{queue}/messages",
        newest,
        "Its newest messages",
        scope="read",
    ),
)
