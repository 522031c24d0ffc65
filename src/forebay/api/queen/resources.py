"""Resources: queues, partitions, namespaces and tasks, with how many messages they have.

Invariants: nothing here changes anything. Numbers come from the books of the log, at most half a second old;
partitions are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any, Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import added, counts_of, in_use, leading
from forebay.api.queen.directory import PAGE
from forebay.api.queen.names import group_name, partition_name, shown_partition, shown_queue
from forebay.api.queen.options import facts_of
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.rows import (
    PARTITIONS_MAX,
    QUEUES_MAX,
    head,
    lanes,
    listed,
    partitions,
    queue_for,
    queues_for,
)
from forebay.api.queen.samples import Bucket, together
from forebay.api.queen.times import iso
from forebay.log.values import GroupStats, QueueStats
from forebay.model import UnknownGroup

_LAG_MINUTES: Final = 5
_RATE_MINUTES: Final = 2
_OFFSET_MAX: Final = 100_000


async def queues(call: Call) -> Answer:
    """Queues, newest first."""
    query = Query(call)
    limit = query.number("limit", PAGE, least=1, most=QUEUES_MAX)
    offset = query.number("offset", 0)
    found = await queues_for(call, query)
    shown = await listed(call.desk, found[offset : offset + limit])
    return Answer({"queues": shown, "total": len(found)})


async def queue(call: Call) -> Answer:
    """A queue and its partitions: up to 1,000, unless `limit` says otherwise; `after` goes on from a name."""
    query, found = Query(call), await queue_for(call)
    limit = query.number("limit", PAGE, least=1, most=PARTITIONS_MAX)
    begin = query.text("after")
    after = None if begin is None else partition_name(begin)
    rows = await partitions(call.desk, found, after=after, limit=limit)
    totals = msgspec.to_builtins(counts_of(found))
    return Answer(
        {
            **head(found),
            "partitions": rows,
            "partitionCount": max(len(rows), *await call.desk.census.partitions(found)),
            "totals": totals,
            "messages": totals,
        }
    )


async def all_partitions(call: Call) -> Answer:
    """Partitions of one queue, or of all; costs by those that are skipped, too."""
    query, desk = Query(call), call.desk
    limit = query.number("limit", 100, least=1, most=PARTITIONS_MAX)
    offset = query.number("offset", 0, most=_OFFSET_MAX)
    rows: list[dict[str, Any]] = []
    for found in await queues_for(call, query):
        missing = offset + limit - len(rows)
        if missing <= 0:
            break
        about = {"queue": shown_queue(found.queue.name), "queueName": shown_queue(found.queue.name)}
        rows += [{**row, **about} for row in await partitions(desk, found, limit=missing)]
    page = {"limit": limit, "offset": offset}
    return Answer({"partitions": rows[offset : offset + limit], "pagination": page})


async def depth(call: Call) -> Answer:
    """What is left to do, by partition: of one group, or of the one that is furthest behind.

    Up to 10,000 partitions are looked at; costs by their blocks.
    """
    query, found = Query(call), await queue_for(call)
    name = query.text("group") or query.text("consumerGroup")
    group = _group(found, name)
    rows: list[dict[str, Any]] = []
    if group is not None and found.queue.settings.ordered:
        rows = [
            {"partition": shown_partition(lane.partition), "pending": left}
            for lane in await lanes(call.desk, group)
            if (left := lane.waiting + lane.handed)
        ]
    pending = 0 if group is None else _left(group)
    if pending and not rows:
        rows = [{"partition": shown_partition(""), "pending": pending}]
    return Answer(
        {
            "queue": call.params["queue"],
            "group": name,
            "pending": pending,
            "partitionsPending": len(rows),
            "conflation": False,
            "effectivePending": pending,
            "partitions": rows,
        }
    )


def _group(found: QueueStats, name: str | None) -> GroupStats | None:
    if name is None:
        return max(in_use(found), key=_left, default=leading(found))
    wanted = group_name(name)
    group = next((one for one in found.groups if one.group.name == wanted), None)
    if group is None:
        raise UnknownGroup("Consumer group not found", hint="it is there once somebody has popped for it")
    return group


def _left(group: GroupStats) -> int:
    """What a group has not finished."""
    return group.unclaimed + group.held + group.deferred


async def namespaces(call: Call) -> Answer:
    """Namespaces, by name."""
    return Answer({"namespaces": await _by(call, "namespace", lambda one: facts_of(one.queue).namespace)})


async def tasks(call: Call) -> Answer:
    """Tasks, by name."""
    return Answer({"tasks": await _by(call, "task", lambda one: facts_of(one.queue).task)})


async def _by(call: Call, what: str, name_of: Callable[[QueueStats], str]) -> list[dict[str, Any]]:
    """What queues have in common; those without are left out."""
    found: dict[str, list[QueueStats]] = {}
    queues = await queues_for(call)
    await call.desk.census.partitions(*queues)  # all at once, where they are to be counted
    for one in queues:
        if name := name_of(one):
            found.setdefault(name, []).append(one)
    return [
        {
            what: name,
            "queues": len(members),
            "partitions": sum(await call.desk.census.partitions(*members)),
            "messages": msgspec.to_builtins(added(members)),
        }
        for name, members in sorted(found.items())
    ]


async def overview(call: Call) -> Answer:
    """All queues together: how many messages are where, how late they are, and how fast it goes.

    Lags are those of messages that were popped here in the last five minutes, in seconds, and rates those of
    the last one to two minutes on this server.
    """
    desk, found = call.desk, await queues_for(call)
    facts = [facts_of(one.queue) for one in found]
    counts = [counts_of(one) for one in found]
    return Answer(
        {
            "queues": len(found),
            "partitions": sum(await desk.census.partitions(*found)),
            "namespaces": len({one.namespace for one in facts} - {""}),
            "tasks": len({one.task for one in facts} - {""}),
            "messages": msgspec.to_builtins(added(found)),
            "lag": {
                "time": _time_lag(desk.samples.series.recent(_LAG_MINUTES), found),
                "offset": _spread([one.pending for one in counts]),
            },
            "throughput": _throughput(call, found),
            "statsAge": round(desk.census.age_seconds, 3),
            "timestamp": iso(call.context.clock.now()),
        }
    )


def _throughput(call: Call, found: Sequence[QueueStats]) -> dict[str, float]:
    """What went through this server; for a key that is for some queues, what went through these."""
    recent = call.desk.samples.series.recent(_RATE_MINUTES)
    pushed, done = recent.counts["pushed"], recent.counts["done"]
    if call.key.queues:
        activity = together([recent], [one.queue.number for one in found])
        pushed, done = activity.pushed, activity.done
    return {"ingestedPerSecond": recent.rate(pushed), "processedPerSecond": recent.rate(done)}


def _time_lag(recent: Bucket, found: Sequence[QueueStats]) -> dict[str, float]:
    """Seconds from push to pop: over all messages, and the middle and the best of the queues' means."""
    numbers = [one.queue.number for one in found]
    total = together([recent], numbers)
    means = [a.lag_ms / 1000 for n in numbers if (a := recent.queues.get(n)) is not None and a.popped]
    return {
        "avg": round(total.lag_ms / 1000, 3),
        "median": round(median(means), 3) if means else 0,
        "min": round(min(means), 3) if means else 0,
        "max": round(total.lag_max / 1_000_000, 3),
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    if not values:
        return {"avg": 0, "median": 0, "min": 0, "max": 0}
    return {
        "avg": round(fmean(values), 2),
        "median": median(values),
        "min": min(values),
        "max": max(values),
    }


_PATH: Final = "/api/v1/resources"

ROUTES: Final = (
    queen_route("GET", f"{_PATH}/queues", queues, "Queues", scope="read"),
    queen_route("GET", f"{_PATH}/queues/{{queue}}", queue, "A queue and its partitions", scope="read"),
    queen_route("GET", f"{_PATH}/queues/{{queue}}/depth", depth, "What is left to do", scope="read"),
    queen_route("GET", f"{_PATH}/partitions", all_partitions, "Partitions", scope="read"),
    queen_route("GET", f"{_PATH}/namespaces", namespaces, "Namespaces", scope="read"),
    queen_route("GET", f"{_PATH}/tasks", tasks, "Tasks", scope="read"),
    queen_route("GET", f"{_PATH}/overview", overview, "All queues together", scope="read"),
)
