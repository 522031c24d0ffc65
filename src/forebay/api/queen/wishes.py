"""What a pop asks for, out of its path and its query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forebay.api.calls import Call
from forebay.api.queen.conflating import wanted
from forebay.api.queen.names import group_name, partition_name
from forebay.api.queen.reading import Query
from forebay.api.queen.times import parse_time
from forebay.log.values import Start
from forebay.model import Rejected

AUTOPILOT_BATCH: Final = 200
AUTOPILOT_PARTITIONS: Final = 50
"""What a client gets that leaves it to the server."""
PARTITIONS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pop asks for."""

    queue: str | None
    """As the client calls it."""
    partition: str | None
    """As we keep it."""
    namespace: str | None
    task: str | None
    group: str
    """As we keep it."""
    start: Start
    batch: int
    partitions: int
    wait_seconds: float
    auto_ack: bool
    autopilot: bool
    conflation: bool


def wish_of(call: Call) -> Wish:
    """What is asked for; Rejected says what is missing."""
    query, limits = Query(call), call.context.settings.limits
    autopilot = query.flag("autopilot")
    named = call.params.get("partition")
    wait = query.number("timeout", 30_000) / 1000 if query.flag("wait") else 0.0
    if wait and call.context.draining.is_set():
        wait = 0.0
    queue = call.params.get("queue")
    namespace, task = query.text("namespace"), query.text("task")
    if queue is None and namespace is None and task is None:
        raise Rejected("queue, namespace or task is required", hint="name one of them")
    batch = query.number("batch", AUTOPILOT_BATCH if autopilot else 1, least=1, most=limits.take_count_max)
    widest = AUTOPILOT_PARTITIONS if autopilot else 1
    return Wish(
        queue,
        None if named is None else partition_name(named),
        namespace,
        task,
        group_name(query.text("consumerGroup")),
        _start(query.text("subscriptionMode"), query.text("subscriptionFrom"), call.context.clock.now()),
        batch,
        query.number("partitions", widest, least=1, most=PARTITIONS_MAX),
        min(wait, limits.wait_seconds_max),
        query.flag("autoAck"),
        autopilot,
        wanted(query),
    )


def _start(mode: str | None, since: str | None, now: int) -> Start:
    """Where a group begins that isn't there yet."""
    if since is not None and since.lower() not in ("now", "all", "beginning", "earliest"):
        return min(parse_time(since, "subscriptionFrom"), now)
    is_new = (mode or "").lower() in ("new", "new-only") or (since or "").lower() == "now"
    return "latest" if is_new else "earliest"
