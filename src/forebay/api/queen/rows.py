"""Queues and partitions in lists: which of them are shown, and how they look.

Invariants: a key that is for some queues sees no others; lists are bounded; a partition is shown by one group
of its queue, since a log counts partitions by group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.api.calls import Call
from forebay.api.queen.census import Counts, books_of, counts_of, leading
from forebay.api.queen.desk import Desk
from forebay.api.queen.directory import PAGE, SPACE
from forebay.api.queen.identity import partition_uuid, queue_uuid
from forebay.api.queen.names import queue_name, shown_partition, shown_queue
from forebay.api.queen.options import facts_of
from forebay.api.queen.reading import Query
from forebay.api.queen.times import iso, iso_or_none
from forebay.log.values import GroupStats, LaneStats, Queue, QueueStats
from forebay.model import UnknownQueue

PARTITIONS_MAX: Final = 10_000
QUEUES_MAX: Final = 10_000


async def queues_for(call: Call, query: Query | None = None) -> list[QueueStats]:
    """The queues that a call may see and asks for, by name, `namespace`, `task` or `search`; newest first."""
    queues = {_made(queue): queue for queue in await call.desk.queues()}
    stats = await call.desk.census.stats()
    if queues.keys() != {_made(one.queue) for one in stats.queues}:  # one was made a moment ago
        stats = await call.desk.census.stats(fresh=True)
    found = [replace(one, queue=queues.get(_made(one.queue), one.queue)) for one in stats.queues]
    found = [one for one in found if call.key.covers(one.queue.name)]
    if query is not None:
        found = [one for one in found if _is_meant(one, query)]
    return sorted(found, key=lambda one: (-one.queue.created_at, -one.queue.number))


def _is_meant(one: QueueStats, query: Query) -> bool:
    facts, name = facts_of(one.queue), shown_queue(one.queue.name)
    wanted = query.text("queue") or query.text("name")
    return (
        wanted in (None, name)
        and (query.text("namespace") or query.text("ns")) in (None, facts.namespace)
        and query.text("task") in (None, facts.task)
        and (query.text("search") or "").lower() in name.lower()
    )


async def queue_for(call: Call) -> QueueStats:
    """The queue in the path of a call."""
    shown = call.params["queue"]
    call.allow(queue_name(shown))
    for found in await books_of(call.desk, queue_name(shown)):
        return found
    raise UnknownQueue("Queue not found", hint="push to it, or configure it, and it is there")


def _made(queue: Queue) -> tuple[int, int]:
    """Which queue it is: one that was deleted and made again has its old number."""
    return queue.number, queue.created_at


def head(found: QueueStats) -> dict[str, Any]:
    """What every list says of a queue first."""
    facts = facts_of(found.queue)
    return {
        "id": queue_uuid(found.queue.number),
        "name": shown_queue(found.queue.name),
        "namespace": facts.namespace,
        "task": facts.task,
        "createdAt": iso(found.queue.created_at),
    }


async def listed(desk: Desk, found: Sequence[QueueStats]) -> list[dict[str, Any]]:
    """Queues in a list."""
    partitions = await desk.census.partitions(*found)
    return [
        {
            **head(one),
            "priority": facts_of(one.queue).options.priority,
            "partitions": count,
            "messages": msgspec.to_builtins(counts_of(one)),
        }
        for one, count in zip(found, partitions, strict=True)
    ]


# Partitions


async def lanes(
    desk: Desk, group: GroupStats, *, after: str | None = None, limit: int = PARTITIONS_MAX
) -> list[LaneStats]:
    """The partitions of an ordered queue that have messages, by name, as a group sees them.

    Costs by the blocks of those that are listed.
    """
    seen: list[LaneStats] = []
    while missing := min(PAGE, limit - len(seen)):
        page = await desk.store.log.lanes(group.group, after=after, limit=missing)
        if not page:
            break
        seen += page
        after = page[-1].partition
    return seen


async def partitions(
    desk: Desk, found: QueueStats, *, after: str | None = None, limit: int = PARTITIONS_MAX
) -> list[dict[str, Any]]:
    """Partitions of a queue, by name, also those that have no messages any more.

    A queue that has no order of its own has one. Done is, of a partition, all that its group need not do:
    what was dead, or came before its group, too.
    """
    group = leading(found)
    if group is None or not found.queue.settings.ordered:
        await desk.directory.enter(found.queue, [""])
        return [_row(found, "", found.queue.created_at, counts_of(found))][:limit] if after is None else []
    seen = {lane.partition: lane for lane in await lanes(desk, group, after=after, limit=limit)}
    names = await _names(desk, found, after, limit)
    names = sorted(seen.keys() | names, key=str.encode)[:limit]
    await desk.directory.enter(found.queue, names)
    made = await _made_at(desk, found.queue.number, names)
    return [_partition(found, group, name, seen.get(name), made.get(name)) for name in names]


async def _names(desk: Desk, found: QueueStats, after: str | None, limit: int) -> list[str]:
    """The partitions that were used in Queen's format; where there are none, the default one."""
    names: list[str] = []
    async for name in desk.directory.names(found.queue.number, after=after):
        names.append(name)
        if len(names) >= limit:
            break
    return names or ([""] if after is None and found.next == 1 else [])


def _partition(
    found: QueueStats, group: GroupStats, name: str, lane: LaneStats | None, made_at: int | None
) -> dict[str, Any]:
    if lane is None:
        return _row(found, name, made_at, Counts())
    done = max(0, lane.messages - lane.waiting - lane.handed)
    row = _row(found, name, made_at, Counts(lane.messages, lane.waiting, lane.handed, done))
    row["oldestMessage"], row["newestMessage"] = iso_or_none(lane.oldest_waiting_at), iso(lane.newest_at)
    if group.dead:
        row["stats"]["deadLetter"] = None  # the log doesn't count them by partition
    return row


def _row(found: QueueStats, partition: str, made_at: int | None, counts: Counts) -> dict[str, Any]:
    return {
        "id": partition_uuid(found.queue.number, partition),
        "name": shown_partition(partition),
        "createdAt": iso_or_none(made_at),
        "stats": msgspec.to_builtins(counts),
        "oldestMessage": None,
        "newestMessage": None,
    }


async def _made_at(desk: Desk, queue: int, names: Sequence[str]) -> Mapping[str, int]:
    """When partitions were first seen, for those that were pushed to or popped in Queen's format."""
    ids = {partition_uuid(queue, name): name for name in names}
    keys, found = list(ids), dict[str, int]()
    for begin in range(0, len(keys), PAGE):
        kept = await desk.store.log.records(SPACE, keys[begin : begin + PAGE])
        found.update((ids[one.key], one.updated_at) for one in kept)
    return found
