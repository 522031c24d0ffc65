"""Status: what a dashboard shows of all queues, of one of them, and of what waits for the log.

Invariants: nothing here changes anything, but for how old the numbers are. Time series are this server's own,
from its start on: see `samples`. What isn't known here is null, never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import gethostname
from typing import Any, Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import added, counts_of
from forebay.api.queen.directory import PAGE
from forebay.api.queen.names import partition_name
from forebay.api.queen.options import facts_of
from forebay.api.queen.reading import Query
from forebay.api.queen.readings import look
from forebay.api.queen.routes import queen_route
from forebay.api.queen.rows import (
    PARTITIONS_MAX,
    QUEUES_MAX,
    head,
    listed,
    partitions,
    queue_for,
    queues_for,
)
from forebay.api.queen.samples import MINUTE, Bucket, together
from forebay.api.queen.spans import DAY, HOUR, span_of
from forebay.api.queen.tally import Activity
from forebay.api.queen.times import iso
from forebay.log.values import QueueStats
from forebay.model import Rejected

_INTERVALS: Final = {"minute": MINUTE, "hour": HOUR, "day": DAY}
_WORKERS_MINUTES: Final = 2


async def status(call: Call) -> Answer:
    """The queues that are asked for by `queue`, `namespace` and `task`, and how it went since `from`."""
    query = Query(call)
    span, found = span_of(call, query), await queues_for(call, query)
    narrowed = bool(call.key.queues) or any(query.text(name) for name in ("queue", "namespace", "task"))
    numbers = [one.queue.number for one in found] if narrowed else None
    buckets, counts = span.buckets(call), added(found)
    return Answer(
        {
            **span.shown(),
            "pointCount": len(buckets),
            "throughput": [_point(bucket, numbers) for bucket in reversed(buckets)],
            "queues": await _active(call, [one for one in found if one.next > 1][:PAGE]),
            "messages": {**msgspec.to_builtins(counts), **_requests(call, numbers)},
            "leases": _leases(call, found),
            "deadLetterQueue": {
                "totalMessages": counts.dead_letter,
                "affectedPartitions": None,
                "topErrors": [],
            },
            "workers": [] if call.key.queues else [worker_row(call)],
            "errors": {
                "dbErrors": call.context.counters.errors["unavailable"],
                "ackFailed": _failed(call, numbers),
                "dlqMessages": counts.dead_letter,
            },
            "statsAge": round(call.desk.census.age_seconds, 3),
        }
    )


def activity_of(bucket: Bucket, numbers: Sequence[int] | None) -> Activity:
    """What happened in a stretch: to some queues, or to all, those of our own format included.

    Lags, and pops that waited or brought nothing, are known of Queen's format only.
    """
    if numbers is not None:
        return together([bucket], numbers)
    counts, found = bucket.counts, together([bucket], list(bucket.queues))
    found.pushes, found.pushed = counts["push_requests"], counts["pushed"]
    found.acks, found.done = counts["ack_requests"], counts["done"]
    found.failed, found.buried = counts["retried"] + counts["buried"], counts["buried"]
    return found


def _point(bucket: Bucket, numbers: Sequence[int] | None) -> dict[str, Any]:
    """A point of the throughput; what concerns the process is the same whatever queues are asked for."""
    seen, loop = activity_of(bucket, numbers), bucket.gauge("loop_lag_ms")
    settled = seen.done + seen.failed
    popped = seen.popped if numbers is not None else bucket.counts["taken"]
    return {
        "timestamp": iso(bucket.at),
        "ingested": seen.pushed,
        "processed": settled,
        "popMessages": popped,
        "ingestedPerSecond": bucket.rate(seen.pushed),
        "processedPerSecond": bucket.rate(settled),
        "popPerSecond": bucket.rate(popped),
        "avgLagMs": seen.lag_ms,
        "maxLagMs": seen.lag_max / 1000,
        "avgEventLoopLagMs": round(loop.average, 3),
        "maxEventLoopLagMs": round(loop.most, 3),
        "minFreeSlots": None,
        "dbErrors": bucket.counts["log_errors"],
        "ackFailed": seen.failed,
        "dlqCount": seen.buried + seen.evicted,
        "queenCpuUserPct": round(bucket.gauge("cpu_user").average / 100, 2),
        "queenCpuSysPct": round(bucket.gauge("cpu_system").average / 100, 2),
        "queenRssMb": round(bucket.gauge("rss").average / (1 << 20), 1),
        "dbPoolActive": None,
        "dbPoolIdle": None,
        "dbPoolSize": None,
    }


async def _active(call: Call, found: Sequence[QueueStats]) -> list[dict[str, Any]]:
    partitions = await call.desk.census.partitions(*found)
    return [
        {**head(one), "partitions": count, "totalConsumed": counts_of(one).completed}
        for one, count in zip(found, partitions, strict=True)
    ]


def _requests(call: Call, numbers: Sequence[int] | None) -> dict[str, Any]:
    """Requests since the server started, and messages by request; of single queues they aren't counted."""
    if numbers is not None:
        return {"requests": {}, "batchEfficiency": {}}
    counts = look(call.context).counts
    requests = {"push": "push_requests", "pop": "pop_requests", "ack": "ack_requests"}
    messages = {"push": counts["pushed"], "pop": counts["taken"]}
    messages["ack"] = counts["done"] + counts["retried"] + counts["buried"]
    return {
        "requests": {what: counts[name] for what, name in requests.items()},
        "batchEfficiency": {
            what: round(messages[what] / counts[name], 2) if counts[name] else 0
            for what, name in requests.items()
        },
    }


def _failed(call: Call, numbers: Sequence[int] | None) -> int:
    """Acknowledgements that said that it failed: since the start, or of single queues for a day."""
    counts = call.context.counters.messages
    if numbers is None:
        return counts["retried"] + counts["buried"]
    now = call.context.clock.now()
    return together(call.desk.samples.series.between(now - DAY, now), numbers).failed


def _leases(call: Call, found: Sequence[QueueStats]) -> dict[str, Any]:
    """What is out with consumers: leases and partitions of this server, messages of all servers."""
    leases, parts = call.desk.hands.counted({one.queue.number for one in found})
    return {
        "active": leases,
        "partitionsWithLeases": parts,
        "totalBatchSize": sum(group.handed for one in found for group in one.groups),
        "totalAcked": None,
    }


def worker_row(call: Call) -> dict[str, Any]:
    """This server, as a worker in Queen's sense, over the last minutes."""
    recent = call.desk.samples.series.recent(_WORKERS_MINUTES)
    loop, counts = recent.gauge("loop_lag_ms"), recent.counts
    return {
        "hostname": gethostname(),
        "workerId": 0,
        "avgEventLoopLagMs": round(loop.average, 3),
        "maxEventLoopLagMs": round(loop.most, 3),
        "freeSlots": None,
        "dbConnections": None,
        "jobQueueSize": round(recent.gauge("waiting").last),
        "messagesProcessed": counts["pushed"] + counts["done"] + counts["retried"] + counts["buried"],
    }


async def queues(call: Call) -> Answer:
    """Queues, newest first."""
    query = Query(call)
    limit, offset = query.number("limit", 100, least=1, most=QUEUES_MAX), query.number("offset", 0)
    found = await queues_for(call, query)
    shown = await listed(call.desk, found[offset : offset + limit])
    page = {"limit": limit, "offset": offset, "total": len(found)}
    return Answer({"queues": shown, "pagination": page})


async def queue(call: Call) -> Answer:
    """A queue with its options and its partitions: see `resources.queue`."""
    query, found = Query(call), await queue_for(call)
    options = facts_of(found.queue).options
    limit = query.number("limit", PAGE, least=1, most=PARTITIONS_MAX)
    begin = query.text("after")
    after = None if begin is None else partition_name(begin)
    rows = await partitions(call.desk, found, after=after, limit=limit)
    totals = msgspec.to_builtins(counts_of(found))
    config = {**msgspec.to_builtins(options), "maxQueueSize": options.max_size}
    return Answer(
        {
            "queue": {**head(found), "priority": options.priority, "config": config},
            "totals": {"messages": totals, **totals},
            "partitions": [_detail(row) for row in rows],
            "partitionCount": max(len(rows), *await call.desk.census.partitions(found)),
        }
    )


def _detail(row: dict[str, Any]) -> dict[str, Any]:
    """A partition with a cursor; batches aren't counted, nor is it known when one was last acknowledged."""
    cursor = {"totalConsumed": row["stats"]["completed"], "batchesConsumed": None}
    return {**row, "messages": row["stats"], "cursor": cursor, "lastActivity": None}


async def analytics(call: Call) -> Answer:
    """How many messages were pushed, by `interval`: minute, hour or day; since this server was started."""
    query = Query(call)
    interval = query.text("interval") or "hour"
    if interval not in _INTERVALS:
        raise Rejected(f"interval {interval[:32]!r} is unknown", hint="use minute, hour or day")
    span = span_of(call, query, default=DAY, minutes=_INTERVALS[interval] // MINUTE)
    narrowed = bool(call.key.queues) or any(query.text(name) for name in ("queue", "namespace", "task"))
    found = await queues_for(call, query) if narrowed else []
    numbers = [one.queue.number for one in found] if narrowed else None
    points = [
        {"timestamp": iso(bucket.at), "messages": activity_of(bucket, numbers).pushed}
        for bucket in span.buckets(call)
    ]
    return Answer({"dataPoints": points, "interval": interval, "from": iso(span.begin), "to": iso(span.end)})


async def buffers(call: Call) -> Answer:
    """What waits on this server's disk for the log: of all queues, so for nobody whose key is for some."""
    call.key.check("read")
    failover = call.context.failover
    state = None if failover is None else failover.status()
    return Answer(
        {
            "pending": 0 if state is None else state.pending,
            "failed": 0 if state is None else state.failed,
            "dbHealthy": call.context.is_healthy,
            "worker": 0,
        }
    )


async def refresh(call: Call) -> Answer:
    """Read the books now; what every queue has, together."""
    await call.body()  # whatever it says; unread, it would cost the client its connection
    await call.desk.census.stats(fresh=True)
    found = await queues_for(call)
    return Answer(
        {
            "success": True,
            "queues": len(found),
            "partitions": sum(await call.desk.census.partitions(*found)),
            "messages": msgspec.to_builtins(added(found)),
            "refreshedAt": iso(call.context.clock.now()),
        }
    )


_PATH: Final = "/api/v1/status"

ROUTES: Final = (
    queen_route("GET", _PATH, status, "All queues together, and how it went", scope="read"),
    queen_route("GET", f"{_PATH}/queues", queues, "Queues", scope="read"),
    queen_route("GET", f"{_PATH}/queues/{{queue}}", queue, "A queue and its partitions", scope="read"),
    queen_route("GET", f"{_PATH}/analytics", analytics, "Messages pushed over time", scope="read"),
    queen_route("GET", f"{_PATH}/buffers", buffers, "What waits for the log", scope="read"),
    queen_route("POST", "/api/v1/stats/refresh", refresh, "Count again now", scope="admin"),
)
