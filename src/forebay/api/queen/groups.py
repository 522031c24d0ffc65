"""Consumer groups as Queen shows them: who they are, how far behind, partition by partition.

A group of several queues is shown once for each. The group of those who name none is shown where somebody
takes without a name. What is out is known of this server and of a tier that servers share. Lists cost by
the partitions that are looked at, and by their blocks, of groups that have something to do; beyond a bound
the rest is left out.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.census import is_used, waiting_of
from forebay.api.queen.identity import partition_uuid
from forebay.api.queen.names import group_name, shown_group, shown_partition, shown_queue
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso_or_none
from forebay.log.values import GroupStats, Queue
from forebay.store.values import DEFAULT_GROUP
from forebay.warm.values import Leased

LAGGING_SECONDS: Final = 300
"""A group whose oldest message waits for longer is lagging."""
PARTITIONS_MAX: Final = 10_000
"""Partitions of one group that are looked at."""
LOOKED_MAX: Final = 100_000
"""Partitions of all groups together."""
LISTED_MAX: Final = 1_000
_PAGE: Final = 1_000
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Lane:
    """A partition as one group sees it."""

    partition: str
    waiting: int
    handed: int
    messages: int
    oldest_at: int | None

    def lag_seconds(self, now: int) -> int:
        """For how long the oldest has waited."""
        return 0 if self.oldest_at is None else max(0, (now - self.oldest_at) // _SECOND)


async def list_groups(call: Call) -> Answer:
    """All groups, with how far they are behind."""
    known = [(queue, stats) async for queue, stats in groups_of(call)]
    kept = await call.desk.subscriptions.find((q.number, s.group.name) for q, s in known)
    now, left, shown = call.context.clock.now(), LOOKED_MAX, []
    for queue, stats in known:
        lanes = [lane async for lane in lanes_of(call, queue, stats, min(left, PARTITIONS_MAX))]
        left -= len(lanes)
        out = await call.desk.store.leased(queue.name, stats.group.name)
        behind = [lane for lane in lanes if lane.waiting]
        lag = max((lane.lag_seconds(now) for lane in behind), default=0)
        began = kept.get((queue.number, stats.group.name))
        shown.append(
            {
                "name": shown_group(stats.group.name),
                "topics": [shown_queue(queue.name)],
                "queueName": shown_queue(queue.name),
                "members": len({piece.worker for piece in out}),
                "partitionsWithLag": len(behind),
                "totalLag": waiting_of(stats),
                "maxTimeLag": lag,
                "state": _state(stats, lag),
                "subscriptionMode": "all" if began is None else began.mode,
                "subscriptionTimestamp": iso_or_none(None if began is None else began.timestamp),
                "subscriptionCreatedAt": iso_or_none(None if began is None else began.created_at),
            }
        )
    return Answer(sorted(shown, key=lambda group: (group["name"], group["queueName"])))


def _state(stats: GroupStats, lag: int) -> str:
    if lag > LAGGING_SECONDS:
        return "Lagging"
    return "Stable" if is_used(stats) else "Dead"


async def one_group(call: Call) -> Answer:
    """One group by queue and partition; or, by a name that Queen has reserved, those that lag."""
    if call.params["group"] == "lagging":
        return await lagging(call)
    name, now = group_name(call.params["group"]), call.context.clock.now()
    limit = Query(call).number("limit", LISTED_MAX, least=1, most=PARTITIONS_MAX)
    shown: dict[str, Any] = {}
    async for queue, stats in groups_of(call, name):
        workers = _workers(await call.desk.store.leased(queue.name, name))
        lanes = [lane async for lane in lanes_of(call, queue, stats, limit, idle=True)]
        await call.desk.directory.enter(queue, [lane.partition for lane in lanes])
        shown[shown_queue(queue.name)] = {
            "partitions": [
                {
                    "partition": shown_partition(lane.partition),
                    "partitionId": partition_uuid(queue.number, lane.partition),
                    "workerId": workers.get(lane.partition),
                    "lastConsumedAt": None,
                    "totalConsumed": lane.messages - lane.waiting - lane.handed,
                    "offsetLag": lane.waiting,
                    "timeLagSeconds": lane.lag_seconds(now),
                    "leaseActive": bool(lane.handed),
                }
                for lane in lanes
            ]
        }
    return Answer(shown)


async def lagging(call: Call) -> Answer:
    """Partitions whose oldest message waits for longer than asked, the longest first."""
    seconds = Query(call).number("minLagSeconds", 3600)
    now, left, found = call.context.clock.now(), LOOKED_MAX, list[tuple[int, Queue, Lane, dict[str, Any]]]()
    async for queue, stats in groups_of(call):
        workers = _workers(await call.desk.store.leased(queue.name, stats.group.name))
        async for lane in lanes_of(call, queue, stats, left):
            left -= 1
            if lane.waiting and lane.lag_seconds(now) > seconds:
                row = _lag(queue, stats, lane, workers.get(lane.partition), now)
                found.append((lane.lag_seconds(now), queue, lane, row))
    longest = heapq.nlargest(LISTED_MAX, found, key=itemgetter(0))
    for _, queue, lane, _ in longest:
        await call.desk.directory.enter(queue, [lane.partition])
    return Answer([row for *_, row in longest])


def _lag(queue: Queue, stats: GroupStats, lane: Lane, worker: str | None, now: int) -> dict[str, Any]:
    lag = lane.lag_seconds(now)
    return {
        "consumer_group": shown_group(stats.group.name),
        "queue_name": shown_queue(queue.name),
        "partition_name": shown_partition(lane.partition),
        "partition_id": partition_uuid(queue.number, lane.partition),
        "worker_id": worker,
        "offset_lag": lane.waiting,
        "time_lag_seconds": lag,
        "lag_hours": round(lag / 3600, 2),
        "oldest_unconsumed_at": iso_or_none(lane.oldest_at),
        "last_consumed_at": None,
    }


def _workers(out: Iterable[Leased]) -> dict[str, str]:
    """Who has a partition."""
    return {piece.parcel.partition or "": piece.worker for piece in out}


async def groups_of(call: Call, name: str | None = None) -> AsyncIterator[tuple[Queue, GroupStats]]:
    """The groups of all queues that the caller may see, or those of one name."""
    for found in (await call.desk.store.ledger()).queues:
        if call.key.covers(found.queue.name):
            for stats in found.groups:
                if name == stats.group.name or (name is None and is_shown(stats)):
                    yield found.queue, stats


def is_shown(stats: GroupStats) -> bool:
    """Whether it is a group of somebody's: every queue has one that perhaps nobody uses."""
    return stats.group.name != DEFAULT_GROUP or is_used(stats)


def has_taken(stats: GroupStats) -> bool:
    """Whether somebody has had messages of a group."""
    return stats.accepted > stats.unclaimed + stats.held - stats.handed


async def lanes_of(
    call: Call, queue: Queue, stats: GroupStats, limit: int, *, idle: bool = False
) -> AsyncIterator[Lane]:
    """Partitions by name, up to a limit; none of a group that has nothing to do, unless `idle` wants them.

    An unordered queue looks like one partition.
    """
    if limit <= 0 or not (idle or waiting_of(stats) or stats.handed):
        return
    log, after = call.desk.store.log, None
    if not queue.settings.ordered:
        oldest = min((flow.oldest_at for flow in await log.flows(stats.group)), default=None)
        kept = stats.accepted - stats.expired - stats.purged - stats.dead
        yield Lane("", waiting_of(stats), stats.handed, kept, oldest)
        return
    while page := await log.lanes(stats.group, after=after, limit=min(limit, _PAGE)):
        for one in page:
            yield Lane(one.partition, one.waiting, one.handed, one.messages, one.oldest_waiting_at)
        limit, after = limit - len(page), page[-1].partition
        if limit <= 0:
            return


ROUTES: Final = (
    queen_route("GET", "/api/v1/consumer-groups", list_groups, "List consumer groups", scope="read"),
    queen_route(
        "GET", "/api/v1/consumer-groups/{group}", one_group, "Look at a consumer group", scope="read"
    ),
)
