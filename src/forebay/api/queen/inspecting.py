"""Messages as Queen lists them, newest first, and one message with all that is known of it."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import books_of
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import message_uuid, partition_uuid
from forebay.api.queen.lookup import NoMessage, meant
from forebay.api.queen.messages import SEALED, shown_data, shown_headers
from forebay.api.queen.names import partition_name, queue_name, shown_group, shown_partition, shown_queue
from forebay.api.queen.options import Facts
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.standing import (
    COMPLETED,
    STATUSES,
    is_deleted,
    modes,
    shown_mode,
    shown_status,
    status_of,
)
from forebay.api.queen.times import iso, iso_or_none, parse_time
from forebay.log.values import Queue, QueueStats, StoredBlock
from forebay.model import Corrupt, Message, Rejected, Unavailable, sequence_of
from forebay.store.values import Whereabouts
from forebay.store.whereabouts import state_of

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 10_000
LOOKED_MAX: Final = 10_000
"""Messages of a queue that are looked up for one list."""
PASSED_MAX: Final = 1_000_000
"""Messages of a queue that are passed on the way to those of one partition."""
_STEP: Final = 1_000
_WRITTEN_US: Final = 60 * 1_000_000
"""So long after it was accepted a block is looked for; one that waited in a spool may be later."""
_HOUR: Final = 3600 * 1_000_000


@dataclass(slots=True)
class Search:
    """Which messages are wanted, names as we keep them; and whether some may have been left out."""

    partition: str | None
    status: str | None
    begin: int
    end: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was read, and its place."""

    id: int
    created_at: int
    queue: QueueStats
    message: Message


async def list_messages(call: Call) -> Answer:
    """Messages, newest first: of a queue or of several, by partition, status and time.

    Costs by what is looked at: with an offset, a status or a partition more than what is shown, up to a bound
    for each queue, beyond which the list says that it is `truncated`.
    """
    query = Query(call)
    limit = query.number("limit", 200, least=1, most=LIMIT_MAX)
    offset = query.number("offset", 0)
    if offset > OFFSET_MAX:
        raise Rejected(f"an offset of {offset} is too much", hint=f"up to {OFFSET_MAX}; narrow from and to")
    wanted = _search(call, query)
    queues = await _queues(call, query)
    found: list[tuple[Seen, dict[str, str]]] = []
    for queue in queues:
        found += [one async for one in _matching(call, queue, wanted, limit + offset)]
    newest = heapq.nlargest(limit + offset, found, key=lambda one: (one[0].created_at, one[0].id))
    for seen, _ in newest[offset:]:
        await call.desk.directory.enter(seen.queue.queue, [seen.message.partition])
    deadlines = await _deadlines(call, newest[offset:])
    pairs = [modes(queue.groups) for queue in queues]
    mode = (any(pair[0] for pair in pairs), max((pair[1] for pair in pairs), default=0))
    shown = [_shown(call, seen, states, deadlines.get(seen.id)) for seen, states in newest[offset:]]
    return Answer({"messages": shown, "mode": shown_mode(*mode), "truncated": wanted.truncated})


def _search(call: Call, query: Query) -> Search:
    now, status, partition = call.context.clock.now(), query.text("status"), query.text("partition")
    if status is not None and status not in STATUSES:
        raise Rejected(f"unknown status {status[:32]!r}", hint=f"use {', '.join(sorted(STATUSES))}")
    begin, end = query.text("from"), query.text("to")
    until = now if end is None else parse_time(end, "to")
    return Search(
        None if partition is None else partition_name(partition),
        status,
        until - _HOUR if begin is None else parse_time(begin, "from"),
        until,
    )


async def _queues(call: Call, query: Query) -> list[QueueStats]:
    """The queues that are meant, of those that the caller may see."""
    name, facts = query.text("queue"), call.desk.facts
    namespace, task = query.text("ns") or query.text("namespace"), query.text("task")
    if name is not None:
        call.allow(queue_name(name))
    return [
        found
        for found in await books_of(call.desk, None if name is None else queue_name(name))
        if namespace in (None, facts(found.queue).namespace)
        and task in (None, facts(found.queue).task)
        and call.key.covers(found.queue.name)
    ]


async def _matching(
    call: Call, queue: QueueStats, wanted: Search, most: int
) -> AsyncIterator[tuple[Seen, dict[str, str]]]:
    """The newest messages of a queue that are wanted, each with its state for every group."""
    has_queue_mode, _ = modes(queue.groups)
    looked = 0
    async for seen in _newest(call, queue, wanted):
        looked += 1
        states = await _states(call, seen)
        if not is_deleted(states):
            status = shown_status(states, has_queue_mode)["status"]
            if wanted.status in (None, status):
                most -= 1
                yield seen, states
        if looked >= LOOKED_MAX:
            wanted.truncated = True
        if most <= 0 or looked >= LOOKED_MAX:
            return


async def _newest(call: Call, queue: QueueStats, wanted: Search) -> AsyncIterator[Seen]:
    """Messages of a queue and a partition from the end of a time to its beginning."""
    # A block is shown by when it was accepted, and lies where it was written, which is a little later.
    end, passed = await _end(call, queue, wanted.end + _WRITTEN_US), 0
    while end > queue.floor:
        if passed >= PASSED_MAX:
            wanted.truncated = True
            return
        begin = max(queue.floor, end - _STEP)
        blocks = await _blocks(call, queue.queue, begin, end)
        for block in reversed(blocks):
            if block.appended_at < wanted.begin:
                return
            if wanted.partition is None or block.partition in (None, wanted.partition):
                for seen in reversed(_messages(queue, block)):
                    is_there = sequence_of(seen.id) < end and seen.created_at <= wanted.end
                    if is_there and wanted.partition in (None, seen.message.partition):
                        yield seen
        first = sequence_of(blocks[0].first) if blocks else begin
        passed, end = passed + end - min(first, begin), min(first, begin)


async def _blocks(call: Call, queue: Queue, begin: int, end: int) -> list[StoredBlock]:
    """The blocks from one sequence number to before another."""
    blocks: list[StoredBlock] = []
    while begin < end and (page := await call.desk.store.log.read(queue, begin, messages=end - begin)):
        blocks += [block for block in page if sequence_of(block.first) < end]
        begin = sequence_of(page[-1].last) + 1
    return blocks


async def _end(call: Call, queue: QueueStats, until: int) -> int:
    """The first sequence number that came after a time: times rise with them."""
    low, high = queue.floor, queue.next
    while low < high:
        (block, *_) = await call.desk.store.log.read(queue.queue, (low + high) // 2, messages=1) or (None,)
        if block is None:
            return high
        if block.appended_at <= until:
            low = sequence_of(block.last) + 1
        else:
            high = min((low + high) // 2, sequence_of(block.first))
    return low


def _messages(queue: QueueStats, block: StoredBlock) -> list[Seen]:
    try:
        decoded = block.decode(queue.queue.name)
    except Corrupt:
        return []  # it is reported when it is handed out
    at = block.accepted_at
    return [Seen(block.first + i, at, queue, decoded.message(i)) for i in range(block.count)]


async def _states(call: Call, seen: Seen) -> dict[str, str]:
    found = await call.desk.store.log.find(seen.id)
    return {one.group.name: state_of(seen.id, one, found, seen.message) for one in found.standings}


async def _deadlines(call: Call, shown: Sequence[tuple[Seen, dict[str, str]]]) -> dict[int, int]:
    """Until when messages are out, as far as this server knows."""
    out = {seen.id: seen.queue.queue.name for seen, states in shown if "leased" in states.values()}
    deadlines: dict[int, int] = {}
    for queue in set(out.values()):
        for group in await call.desk.store.groups(queue):
            for piece in await call.desk.store.leased(queue, group.name):
                ids = (piece.parcel.first + offset for offset in piece.span())
                deadlines.update((id, piece.deadline) for id in ids if id in out)
    return deadlines


def _shown(call: Call, seen: Seen, states: dict[str, str], deadline: int | None) -> dict[str, Any]:
    queue, facts = seen.queue.queue, call.desk.facts(seen.queue.queue)
    has_queue_mode, _ = modes(seen.queue.groups)
    return {
        **_named(queue, facts, seen.id, seen.message),
        **shown_status(states, has_queue_mode),
        "createdAt": iso(seen.created_at),
        "leaseExpiresAt": iso_or_none(deadline),
    }


def _named(queue: Queue, facts: Facts, id: int, message: Message) -> dict[str, Any]:
    partition = shown_partition(message.partition)
    return {
        "id": message_uuid(id),
        "transactionId": transaction_of(id, message.transaction_id),
        "partitionId": partition_uuid(queue.number, message.partition),
        "queuePath": f"{shown_queue(queue.name)}/{partition}",
        "queue": shown_queue(queue.name),
        "partition": partition,
        "namespace": facts.namespace,
        "task": facts.task,
        **shown_headers(message.headers),
        "queuePriority": facts.options.priority,
    }


async def get_message(call: Call) -> Answer:
    """One message with its payload and where every group has it."""
    queue, _, id = await meant(call)
    found = await call.desk.store.where(id)
    states = {place.group: place.state for place in found.groups}
    if found.message is None or is_deleted(states):
        raise NoMessage("Message not found", hint="it was deleted, or is no longer kept")
    (stats,) = (await call.desk.store.ledger(queue=queue.name)).queues
    has_queue_mode, named = modes(stats.groups)
    options = call.desk.facts(queue).options
    consumed = [place.group for place in found.groups if status_of(place.state) == COMPLETED]
    return Answer(
        {
            **_named(queue, call.desk.facts(queue), id, found.message),
            **shown_status(states, has_queue_mode),
            **_story(found),
            "payload": opened(call, found.message),
            "isEncrypted": is_sealed(found.message),
            "queueConfig": {
                "leaseTime": options.lease_time,
                "retryLimit": options.retry_limit,
                "retryDelay": options.retry_delay,
                "ttl": options.ttl,
                "priority": options.priority,
            },
            "mode": {
                **shown_mode(has_queue_mode, named),
                "consumedByGroups": [shown_group(name) for name in consumed],
            },
            "consumerGroups": [
                {
                    "name": shown_group(place.group),
                    "consumed": status_of(place.state) == COMPLETED,
                    "status": status_of(place.state),
                    "leaseExpiresAt": iso_or_none(place.deadline),
                }
                for place in found.groups
            ],
        }
    )


def _story(found: Whereabouts) -> dict[str, Any]:
    """When a message came, how often it came back, and why it was given up."""
    deaths = [one for place in found.groups if place.state == "dead" for one in place.history if one.reason]
    newest = max(deaths, key=attrgetter("at"), default=None)
    deadlines = [place.deadline for place in found.groups if place.deadline is not None]
    return {
        "createdAt": iso_or_none(None if found.block is None else found.block.created_at),
        "errorMessage": None if newest is None else newest.reason,
        "retryCount": max((place.attempts for place in found.groups), default=0),
        "leaseExpiresAt": iso_or_none(max(deadlines, default=None)),
    }


def is_sealed(message: Message) -> bool:
    """Whether the payload is kept encrypted."""
    return message.headers is not None and SEALED in message.headers


def opened(call: Call, message: Message) -> Any:
    """The payload as it is shown: None when it is sealed and can't be opened."""
    if not is_sealed(message):
        return shown_data(message.payload)
    try:
        return shown_data(call.desk.seal().open(message.payload))
    except (Corrupt, Unavailable):
        return None


ROUTES: Final = (
    queen_route("GET", "/api/v1/messages", list_messages, "List messages", scope="read", bulk=True),
    queen_route(
        "GET", "/api/v1/messages/{partition}/{transaction}", get_message, "Look at a message", scope="read"
    ),
)
