"""Consumer groups that are sent elsewhere, begin elsewhere, or are deleted.

Invariants: leases of a group that is sent elsewhere or deleted are over, on every server; a group of the
same name begins where its next pop says, or where it had begun if that was to be kept. The group of those who
name none can't be deleted: it begins anew.
"""

from __future__ import annotations

from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.groups import groups_of, has_taken
from forebay.api.queen.names import group_name, partition_name, queue_name
from forebay.api.queen.reading import Body, Query, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.subscriptions import Subscription
from forebay.api.queen.times import parse_time
from forebay.log.values import Group, Queue, Start
from forebay.model import Rejected, UnknownGroup, UnknownQueue
from forebay.store.values import DEFAULT_GROUP


class SeekForm(Body):
    """Where to."""

    timestamp: str | None = None
    to_end: bool = False


class SubscriptionForm(Body):
    """Since when."""

    subscription_timestamp: str | None = None


async def delete(call: Call) -> Answer:
    """Delete a group, in all queues that the caller may touch."""
    name, keep = group_name(call.params["group"]), not Query(call).flag("deleteMetadata", default=True)
    deleted = 0
    async for queue, stats in groups_of(call, name):
        call.key.check("admin", queue.name)
        deleted += await _delete(call, queue, stats.group, keep=keep)
    if not keep:
        numbers = [queue.number for queue in await call.desk.queues() if call.key.covers(queue.name)]
        for number, _ in await call.desk.subscriptions.find((number, name) for number in numbers):
            await call.desk.subscriptions.forget(number, name)
    return Answer(_deleted(call, deleted, keep=keep))


async def delete_for_queue(call: Call) -> Answer:
    """Delete a group of one queue."""
    queue, name = await _queue(call), group_name(call.params["group"])
    keep = not Query(call).flag("deleteMetadata", default=True)
    group = await call.desk.group(queue, name)
    deleted = 0 if group is None else await _delete(call, queue, group, keep=keep)
    if not keep:
        await call.desk.subscriptions.forget(queue.number, name)
    return Answer({**_deleted(call, deleted, keep=keep), "queueName": call.params["queue"]})


def _deleted(call: Call, partitions: int, *, keep: bool) -> dict[str, Any]:
    return {
        "success": True,
        "consumerGroup": call.params["group"],
        "deletedPartitions": partitions,
        "metadataDeleted": not keep,
    }


async def _delete(call: Call, queue: Queue, group: Group, *, keep: bool) -> int:
    """Delete a group; how many partitions it had."""
    desk, now = call.desk, call.context.clock.now()
    kept = await desk.subscriptions.find([(queue.number, group.name)])
    if keep and not kept:
        began = Subscription("all", None, now, group.start)
        await desk.subscriptions.keep(queue.number, group.name, began)
    await desk.subscriptions.fence(queue.number, group.name, now)
    if group.name == DEFAULT_GROUP:
        await desk.store.seek(queue.name, group.name, "earliest")
    else:
        await desk.store.delete_group(queue.name, group.name)
    desk.forget_group(queue, group.name)
    return await desk.store.log.lane_count(queue)


async def subscribe(call: Call) -> Answer:
    """Change since when a group wants messages: where it has taken none yet, and where it begins again."""
    form, desk, now = await read(call, SubscriptionForm), call.desk, call.context.clock.now()
    if not form.subscription_timestamp:
        hint = 'send {"subscriptionTimestamp": "2026-11-15T20:32:18Z"}'
        raise Rejected("subscriptionTimestamp is required", hint=hint)
    since = _clamped(parse_time(form.subscription_timestamp, "subscriptionTimestamp"), now)
    name, updated = group_name(call.params["group"]), 0
    there = {queue.number: (queue, stats) async for queue, stats in groups_of(call, name)}
    queues = [queue for queue in await desk.queues() if call.key.covers(queue.name)]
    kept = await desk.subscriptions.find((queue.number, name) for queue in queues)
    for queue in queues:
        found = there.get(queue.number)
        before = kept.get((queue.number, name))
        if found is None and before is None:
            continue
        created = now if before is None else before.created_at
        conflation = before is not None and before.conflation
        began = Subscription("timestamp", since, created, conflation=conflation)
        await desk.subscriptions.keep(queue.number, name, began)
        updated += 1
        if found is not None and not has_taken(found[1]):
            await _seek(call, queue, found[1].group.name, since)
    return Answer(
        {
            "success": True,
            "consumerGroup": call.params["group"],
            "newTimestamp": form.subscription_timestamp,
            "rowsUpdated": updated,
        }
    )


async def seek(call: Call) -> Answer:
    """Send a group to a time, or to the end."""
    form, queue = await read(call, SeekForm, optional=True), await _queue(call)
    if not form.to_end and not form.timestamp:
        raise Rejected("timestamp or toEnd is required", hint='send {"toEnd": true}')
    start: Start = "latest"
    if not form.to_end and form.timestamp:
        start = _clamped(parse_time(form.timestamp, "timestamp"), call.context.clock.now())
    name = group_name(call.params["group"])
    if await call.desk.group(queue, name) is None:
        await call.desk.join(queue, name, start)
    else:
        await _seek(call, queue, name, start)
    return Answer(
        {
            "success": True,
            "consumerGroup": call.params["group"],
            "queueName": call.params["queue"],
            "partitionsUpdated": await call.desk.store.log.lane_count(queue),
            "seekToEnd": form.to_end,
            "targetTimestamp": None if form.to_end else form.timestamp,
        }
    )


async def _seek(call: Call, queue: Queue, name: str, start: Start) -> None:
    desk = call.desk
    await desk.subscriptions.fence(queue.number, name, call.context.clock.now())
    await desk.store.seek(queue.name, name, start)
    desk.hands.forget(queue.number, name)


async def seek_partition(call: Call) -> Answer:
    """Skip what waits in one partition, up to its end."""
    await read(call, SeekForm, optional=True)
    queue, name = await _queue(call), group_name(call.params["group"])
    partition = partition_name(call.params["partition"])
    if await call.desk.group(queue, name) is None:
        text = f"queue {call.params['queue']!r} has no consumer group {call.params['group']!r}"
        raise UnknownGroup(text, hint="it is made by the first pop that names it")
    skipped = await call.desk.store.skip_partition(queue.name, partition, group=name)
    call.desk.hands.forget(queue.number, name, partition)
    return Answer(
        {
            "success": True,
            "consumerGroup": call.params["group"],
            "queueName": call.params["queue"],
            "partitionName": call.params["partition"],
            "updated": bool(skipped),
            "messagesSkipped": skipped,
            "cursorMovedTo": "end" if skipped else None,
        }
    )


async def _queue(call: Call) -> Queue:
    """The queue of the path, which the caller may touch."""
    call.allow(queue_name(call.params["queue"]))
    queue = await call.desk.queue(call.params["queue"])
    if queue is None:
        raise UnknownQueue("Queue not found", hint="a queue is made by configure, or by the first push")
    return queue


def _clamped(moment: int, now: int) -> int:
    return min(max(0, moment), now)


_GROUP: Final = "/api/v1/consumer-groups/{group}"
ROUTES: Final = (
    queen_route("DELETE", _GROUP, delete, "Delete a consumer group", scope="admin"),
    queen_route(
        "DELETE", f"{_GROUP}/queues/{{queue}}", delete_for_queue, "Delete a group of one queue", scope="admin"
    ),
    queen_route("POST", f"{_GROUP}/subscription", subscribe, "Change where a group begins", scope="take"),
    queen_route("POST", f"{_GROUP}/queues/{{queue}}/seek", seek, "Send a group elsewhere", scope="take"),
    queen_route(
        "POST",
        f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek",
        seek_partition,
        "Skip what waits in one partition",
        scope="take",
    ),
)
