"""Dead letters as Queen lists them: of one group or of all, the newest first."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import books_of
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import message_uuid, partition_uuid
from forebay.api.queen.inspecting import opened
from forebay.api.queen.messages import shown_headers
from forebay.api.queen.names import (
    group_name,
    partition_name,
    queue_name,
    shown_group,
    shown_partition,
    shown_queue,
)
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso, iso_or_none, parse_time
from forebay.log.values import DeadLetter, Group, Queue
from forebay.model import Corrupt, Message, Rejected

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 10_000
_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are wanted; names as we keep them."""

    queue: str | None
    group: str | None
    partition: str | None
    begin: int | None
    end: int | None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether a letter is wanted; it is read only where that depends on it."""
        if self.begin is not None and letter.died_at < self.begin:
            return False
        if self.end is not None and letter.died_at > self.end:
            return False
        if self.partition is None:
            return True
        message = _message(letter)
        return message is not None and message.partition == self.partition


async def dead_letters(call: Call) -> Answer:
    """Dead letters, the newest first, and how many there are.

    Costs by the dead letters of the groups that are meant, since the log has them by message; what is kept in
    memory of them is what is shown.
    """
    query = Query(call)
    limit = query.number("limit", 100, least=1, most=LIMIT_MAX)
    offset = query.number("offset", 0)
    if offset > OFFSET_MAX:
        raise Rejected(f"an offset of {offset} is too much", hint=f"up to {OFFSET_MAX}; narrow from and to")
    wanted = _filter(call, query)
    newest: list[tuple[int, int, int, DeadLetter, Queue, Group]] = []
    total = 0
    async for queue, group, letter in _letters(call, wanted):
        total += 1
        entry = (letter.died_at, letter.message_id, group.number, letter, queue, group)
        if len(newest) < limit + offset:
            heapq.heappush(newest, entry)
        elif entry[:3] > newest[0][:3]:
            heapq.heapreplace(newest, entry)
    page = sorted(newest, key=lambda entry: entry[:3], reverse=True)[offset:]
    shown = [await _shown(call, letter, queue, group) for *_, letter, queue, group in page]
    return Answer(
        {
            "messages": shown,
            "total": total,
            "pagination": {"limit": limit, "offset": offset, "total": total},
        }
    )


def _filter(call: Call, query: Query) -> Filter:
    queue, group, partition = query.text("queue"), query.text("consumerGroup"), query.text("partition")
    begin, end = query.text("from"), query.text("to")
    if queue is not None:
        call.allow(queue_name(queue))
    return Filter(
        None if queue is None else queue_name(queue),
        None if group is None else group_name(group),
        None if partition is None else partition_name(partition),
        None if begin is None else parse_time(begin, "from"),
        None if end is None else parse_time(end, "to"),
    )


async def _letters(call: Call, wanted: Filter) -> AsyncIterator[tuple[Queue, Group, DeadLetter]]:
    for found in await books_of(call.desk, wanted.queue):
        if not call.key.covers(found.queue.name):
            continue
        for stats in found.groups:
            if stats.dead and wanted.group in (None, stats.group.name):
                async for letter in _of_group(call, stats.group):
                    if wanted.takes(letter):
                        yield found.queue, stats.group, letter


async def _of_group(call: Call, group: Group) -> AsyncIterator[DeadLetter]:
    after = 0
    while page := await call.desk.store.log.dead_letters(group, after=after, limit=_PAGE):
        for letter in page:
            yield letter
        after = page[-1].message_id


def _message(letter: DeadLetter) -> Message | None:
    try:
        return letter.message()
    except Corrupt:
        return None


async def _shown(call: Call, letter: DeadLetter, queue: Queue, group: Group) -> dict[str, Any]:
    message = _message(letter)
    partition = "" if message is None else message.partition
    transaction = None if message is None else message.transaction_id
    await call.desk.directory.enter(queue, [partition])
    block = (await call.desk.store.log.find(letter.message_id)).block
    return {
        "id": message_uuid(letter.message_id),
        "transactionId": transaction_of(letter.message_id, transaction),
        "partitionId": partition_uuid(queue.number, partition),
        "queue": shown_queue(queue.name),
        "partition": shown_partition(partition),
        "consumerGroup": shown_group(group.name),
        "errorMessage": letter.reason,
        "retryCount": letter.attempts,
        "data": None if message is None else opened(call, message),
        **shown_headers(None if message is None else message.headers),
        "createdAt": iso_or_none(None if block is None else block.accepted_at),
        "failedAt": iso(letter.died_at),
    }


ROUTES: Final = (
    queen_route("GET", "/api/v1/dlq", dead_letters, "List dead letters", scope="read", bulk=True),
)
