"""Queues and partitions in lists: which of them are shown, and how they look.

Invariants: a key that is for some queues sees no others; lists are bounded; a partition is shown by one group
of its queue, since a log counts partitions by group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from forebay.api.calls import Call
from forebay.api.queen.census import Counts, counts_of, leading
from forebay.api.queen.desk import Desk
from forebay.api.queen.directory import SPACE
from forebay.api.queen.identity import partition_uuid, queue_uuid
from forebay.api.queen.names import queue_name, shown_partition, shown_queue
from forebay.api.queen.options import facts_of
from forebay.api.queen.reading import Query
from forebay.api.queen.times import iso, iso_or_none
from forebay.log.values import GroupStats, LaneStats, QueueStats
from forebay.model import UnknownQueue

PAGE: Final = 1_000
PARTITIONS_MAX: Final = 10_000
QUEUES_MAX: Final = 10_000


async def queues_for(call: Call, query: Query | None = None) -> list[QueueStats]:
    """The queues that a call may see and asks for, by name, `namespace`, `task` or `search`; newest first."""
    found = [one for one in (await call.desk.census.stats()).queues if call.key.covers(one.queue.name)]
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
    queue = await call.desk.queue(shown)
    for fresh in (False, True) if queue is not None else ():  # it may have been made a moment ago
        stats = await call.desk.census.stats(fresh=fresh)
        if found := next((one for one in stats.queues if queue and one.queue.number == queue.number), None):
            return found
    raise UnknownQueue("Queue not found", hint="push to it, or configure it, and it is there")


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


async def listed(desk: Desk, found: QueueStats) -> dict[str, Any]:
    """A queue in a list."""
    counts, facts = counts_of(found), facts_of(found.queue)
    return {
        **head(found),
        "priority": facts.options.priority,
        "partitions": await desk.census.partitions(found),
        "messages": msgspec.to_builtins(counts),
    }


# Partitions


async def lanes(desk: Desk, group: GroupStats, *, after: str | None = None) -> AsyncIterator[LaneStats]:
    """The partitions of a queue that have messages, by name, as a group sees them.

    Costs by the blocks of those that are taken from it.
    """
    log = desk.store.log
    while page := await log.lanes(group.group, after=after, limit=PAGE):
        for lane in page:
            yield lane
        after = page[-1].partition


async def partitions(
    desk: Desk, found: QueueStats, *, after: str | None = None, limit: int = PARTITIONS_MAX
) -> list[dict[str, Any]]:
    """Partitions of a queue, by name; one that has no order of its own, and an empty one, has just one."""
    group, seen = leading(found), list[LaneStats]()
    if group is not None and found.queue.settings.ordered and limit:
        async for lane in lanes(desk, group, after=after):
            seen.append(lane)
            if len(seen) == limit:
                break
    if not seen and after is None:
        return [await _whole(desk, found)] if limit else []
    made = await _made_at(desk, found.queue.number, [lane.partition for lane in seen])
    has_letters = bool(group and group.dead)
    return [_partition(found, lane, made.get(lane.partition), has_letters=has_letters) for lane in seen]


async def _whole(desk: Desk, found: QueueStats) -> dict[str, Any]:
    """A queue as its only partition."""
    made = await _made_at(desk, found.queue.number, [""])
    return _row(found, "", made.get("", found.queue.created_at), counts_of(found))


def _partition(
    found: QueueStats, lane: LaneStats, made_at: int | None, *, has_letters: bool
) -> dict[str, Any]:
    done = max(0, lane.messages - lane.waiting - lane.handed)
    counts = Counts(lane.messages, lane.waiting, lane.handed, done)
    row = _row(found, lane.partition, made_at, counts)
    row["oldestMessage"], row["newestMessage"] = iso_or_none(lane.oldest_waiting_at), iso(lane.newest_at)
    if has_letters:
        # The log doesn't count dead letters by partition; they are among those that are finished.
        row["stats"]["deadLetter"] = None
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
