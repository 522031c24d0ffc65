"""Analytics: time series of this server, of what went through it by queue, and of what retention dropped.

Invariants: every number was measured here, since the server was started; what has no counterpart here is an
empty list, or null. Who has a key for some queues sees only these, and nothing of the whole server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from socket import gethostname
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import added
from forebay.api.queen.names import shown_queue
from forebay.api.queen.reading import Query
from forebay.api.queen.readings import look
from forebay.api.queen.routes import queen_route
from forebay.api.queen.rows import queues_for
from forebay.api.queen.samples import Bucket, Gauge
from forebay.api.queen.spans import Span, span_of
from forebay.api.queen.statuses import activity_of, worker_row
from forebay.api.queen.tally import Activity
from forebay.api.queen.times import iso
from forebay.wire.port import split_listen

_ROWS_MAX: Final = 20_000
"""Rows of queues and times in one answer; the newest are shown."""
_NOTHING: Final = Gauge()


async def system_metrics(call: Call) -> Answer:
    """How this process is: processor and memory. `hostname` and `workerId` choose among servers."""
    call.key.check("read")
    query = Query(call)
    span = span_of(call, query)
    host, port = gethostname(), split_listen(call.context.settings.listen)[1]
    is_meant = query.text("hostname") in (None, host) and query.text("workerId") in (None, "0")
    points = [_system(bucket) for bucket in span.buckets(call)] if is_meant else []
    replica = {"hostname": host, "port": port, "workerId": "0", "timeSeries": points}
    replicas = [replica] if points else []
    return Answer(
        {
            **span.shown(),
            "replicas": replicas,
            "replicaCount": len(replicas),
            "pointCount": len(points),
        }
    )


def _system(bucket: Bucket) -> dict[str, Any]:
    pool = {"pool_size": _NOTHING.shown(), "queue_size": _NOTHING.shown()}
    metrics = {
        "cpu": {
            "user_us": bucket.gauge("cpu_user").shown(),
            "system_us": bucket.gauge("cpu_system").shown(),
        },
        "memory": {
            "rss_bytes": bucket.gauge("rss").shown(),
            "virtual_bytes": bucket.gauge("virtual").shown(),
        },
        "database": {name: _NOTHING.shown() for name in ("pool_size", "pool_idle", "pool_active")},
        "threadpool": {"db": pool, "system": pool},
        "registries": {"response": bucket.gauge("waiting").shown()},
        "shared_state": {"enabled": False},
    }
    return {"timestamp": iso(bucket.at), "sampleCount": bucket.samples, "metrics": metrics}


async def worker_metrics(call: Call) -> Answer:
    """What went through this server, and how fast it was."""
    call.key.check("read")
    span, found = span_of(call, Query(call)), await queues_for(call)
    buckets = span.buckets(call)
    names = {one.queue.number: shown_queue(one.queue.name) for one in found}
    worker = {**worker_row(call), "backoffSize": 0, "lastSeen": iso(call.context.clock.now())}
    return Answer(
        {
            **span.shown(),
            "pointCount": len(buckets),
            "timeSeries": [_worker(bucket) for bucket in reversed(buckets)],
            "workers": [worker],
            "queues": _queue_lags(buckets, names),
            "summary": {**_totals(call), "pendingMessages": added(found).pending},
        }
    )


def _worker(bucket: Bucket) -> dict[str, Any]:
    counts, seen = bucket.counts, activity_of(bucket, None)
    loop, waiting = bucket.gauge("loop_lag_ms"), bucket.gauge("waiting")
    settled = seen.done + seen.failed
    return {
        "timestamp": iso(bucket.at),
        "pushMessages": seen.pushed,
        "popMessages": counts["taken"],
        "ackMessages": settled,
        "pushRequests": counts["push_requests"],
        "popRequests": counts["pop_requests"],
        "ackRequests": counts["ack_requests"],
        "jobsDone": counts["requests"],
        "pushPerSecond": bucket.rate(seen.pushed),
        "popPerSecond": bucket.rate(counts["taken"]),
        "ackPerSecond": bucket.rate(settled),
        "avgEventLoopLagMs": round(loop.average, 3),
        "maxEventLoopLagMs": round(loop.most, 3),
        "avgFreeSlots": None,
        "minFreeSlots": None,
        "dbConnections": None,
        "avgJobQueueSize": round(waiting.average, 2),
        "maxJobQueueSize": round(waiting.most),
        "backoffSize": 0,
        "avgLagMs": seen.lag_ms,
        "maxLagMs": seen.lag_max / 1000,
        "lagCount": seen.popped,
        "dbErrors": counts["log_errors"],
        "ackSuccess": seen.done,
        "ackFailed": seen.failed,
        "dlqCount": seen.buried + seen.evicted,
    }


def _queue_lags(buckets: Sequence[Bucket], names: dict[int, str]) -> list[dict[str, Any]]:
    totals: dict[int, Activity] = {}
    for bucket in buckets:
        for number, activity in bucket.queues.items():
            totals.setdefault(number, Activity()).add(activity)
    rows = [
        {"queueName": names[number], "popCount": a.popped, "avgLagMs": a.lag_ms, "maxLagMs": a.lag_max / 1000}
        for number, a in totals.items()
        if number in names and a.popped
    ]
    return sorted(rows, key=lambda row: (-row["popCount"], row["queueName"]))


def _totals(call: Call) -> dict[str, int]:
    """Since the server was started."""
    counts = look(call.context).counts
    return {
        "totalPushMessages": counts["pushed"],
        "totalPopMessages": counts["taken"],
        "totalAckMessages": counts["done"] + counts["retried"] + counts["buried"],
        "totalPushRequests": counts["push_requests"],
        "totalPopRequests": counts["pop_requests"],
        "totalAckRequests": counts["ack_requests"],
        "totalDbErrors": counts["log_errors"],
        "totalAckFailed": counts["retried"] + counts["buried"],
        "totalDlq": counts["buried"],
    }


# By queue


async def _by_queue(call: Call) -> tuple[Span, list[tuple[Bucket, str, Activity]]]:
    """What happened to the queues that are asked for, by time and then by name; the newest, if it is much."""
    query = Query(call)
    span, found = span_of(call, query), await queues_for(call, query)
    names = {one.queue.number: shown_queue(one.queue.name) for one in found}
    rows = [
        (bucket, name, activity)
        for bucket in span.buckets(call)
        for name, activity in sorted(_named(bucket, names), key=lambda pair: pair[0])
    ]
    return span, rows[-_ROWS_MAX:]


def _named(bucket: Bucket, names: dict[int, str]) -> Iterator[tuple[str, Activity]]:
    for number, activity in bucket.queues.items():
        if number in names:
            yield names[number], activity


async def queue_lag(call: Call) -> Answer:
    """How long messages waited until they were popped, by queue, newest first."""
    _, rows = await _by_queue(call)
    return Answer(
        [
            {
                "queueName": name,
                "popCount": seen.popped,
                "avgLagMs": seen.lag_ms,
                "maxLagMs": seen.lag_max / 1000,
                "bucketTime": iso(bucket.at),
            }
            for bucket, name, seen in sorted(rows, key=lambda row: (-row[0].at, row[1]))
            if seen.popped
        ]
    )


async def queue_ops(call: Call) -> Answer:
    """Pushes, pops and acknowledgements in Queen's format, by queue."""
    span, rows = await _by_queue(call)
    names = sorted({name for _, name, _ in rows})
    return Answer({**span.shown(), "series": [_ops(*row) for row in rows], "queues": names})


def _ops(bucket: Bucket, name: str, seen: Activity) -> dict[str, Any]:
    return {
        "bucket": iso(bucket.at),
        "queueName": name,
        "pushRequests": seen.pushes,
        "pushMessages": seen.pushed,
        "popMessages": seen.popped,
        "popEmpty": seen.empty,
        "ackRequests": seen.acks,
        "ackSuccess": seen.done,
        "ackFailed": seen.failed,
        "transactions": None,
        "partitionsCreated": None,
        "partitionsDeleted": None,
        "partitionCount": None,
        "avgLagMs": seen.lag_ms,
        "maxLagMs": seen.lag_max / 1000,
        "pushPerSecond": bucket.rate(seen.pushed),
        "popPerSecond": bucket.rate(seen.popped),
        "ackPerSecond": bucket.rate(seen.done + seen.failed),
        "emptyPerSecond": bucket.rate(seen.empty),
        "parkedCount": _parked(bucket, seen),
    }


def _parked(bucket: Bucket, seen: Activity) -> float:
    """How many pops waited, on average over the samples of that time."""
    return round(seen.parked / bucket.samples, 2) if bucket.samples else 0.0


async def parked(call: Call) -> Answer:
    """How many pops waited for messages of a queue; this server is the only replica that it knows."""
    span, rows = await _by_queue(call)
    host = gethostname()
    series = [
        {
            "bucket": iso(bucket.at),
            "queueName": name,
            "hostname": host,
            "workerId": 0,
            "parkedCount": _parked(bucket, seen),
        }
        for bucket, name, seen in rows
        if seen.parked
    ]
    replicas = [{"hostname": host, "workerId": 0}] if series else []
    return Answer({**span.shown(), "series": series, "replicas": replicas})


# The whole log


async def retention(call: Call) -> Answer:
    """Messages that were dropped: unfinished ones by age, finished ones, and what nobody took in time.

    The first two are read from the log's books once a minute, over all queues.
    """
    call.key.check("read")
    span = span_of(call, Query(call))
    series = [row for bucket in span.buckets(call) if (row := _dropped(bucket))["totalMsgs"]]
    names = ("retentionMsgs", "completedRetentionMsgs", "evictionMsgs", "totalMsgs", "eventCount")
    totals = {name: sum(row[name] for row in series) for name in names}
    return Answer({**span.shown(), "series": series, "totals": totals})


def _dropped(bucket: Bucket) -> dict[str, Any]:
    expired = bucket.counts["expired"]
    finished = max(0, bucket.counts["dropped"] - expired)
    evicted = activity_of(bucket, None).evicted
    return {
        "bucket": iso(bucket.at),
        "retentionMsgs": expired,
        "completedRetentionMsgs": finished,
        "evictionMsgs": evicted,
        "totalMsgs": expired + finished + evicted,
        "eventCount": sum(1 for count in (expired, finished, evicted) if count),
    }


async def postgres_stats(call: Call) -> Answer:
    """Nothing: what PostgreSQL knows of itself is asked of PostgreSQL, whose tables here are other ones."""
    call.key.check("read")
    lists = (
        "tableCache", "indexCache", "deadTuples", "hotUpdates", "activeQueries", "autovacuumStatus",
        "bufferUsage", "tableSizes",
    )  # fmt: skip
    return Answer(
        {
            "timestamp": iso(call.context.clock.now()),
            "database": None,
            "databaseCache": {},
            "cacheSummary": {},
            "bufferConfig": {},
            **{name: [] for name in lists},
        }
    )


_PATH: Final = "/api/v1/analytics"

ROUTES: Final = (
    queen_route("GET", f"{_PATH}/system-metrics", system_metrics, "How the process is", scope="read"),
    queen_route("GET", f"{_PATH}/worker-metrics", worker_metrics, "What went through", scope="read"),
    queen_route("GET", f"{_PATH}/queue-lag", queue_lag, "How late messages are", scope="read"),
    queen_route("GET", f"{_PATH}/queue-ops", queue_ops, "What happened to queues", scope="read"),
    queen_route("GET", f"{_PATH}/queue-parked-replicas", parked, "Who waits for messages", scope="read"),
    queen_route("GET", f"{_PATH}/retention", retention, "What was dropped", scope="read"),
    queen_route("GET", f"{_PATH}/postgres-stats", postgres_stats, "Empty lists", scope="read"),
)
