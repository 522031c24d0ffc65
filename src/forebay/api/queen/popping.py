"""Pop: messages of a queue, of one of its partitions, or of all queues of a namespace or a task.

Invariants: one pop has one lease for all that it brings; of at most `partitions` partitions; a partition is
out to one consumer of a group at a time; what is answered under `autoAck` is settled before. Who waits is
answered in the moment in which something comes, also when its queue isn't there yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.bodies import Gone
from forebay.api.calls import Call
from forebay.api.queen.conflating import AT_ONCE, Conflating, echo
from forebay.api.queen.desk import Desk
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import fresh_uuid, message_uuid, partition_uuid
from forebay.api.queen.messages import SEALED, shown_data, shown_headers
from forebay.api.queen.names import (
    queue_name,
    shown_group,
    shown_partition,
    shown_queue,
)
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso
from forebay.api.queen.wishes import Wish, wish_of
from forebay.api.waiting import waited
from forebay.log.values import Queue
from forebay.model import Corrupt, ForebayError, LeaseLost, Rejected, UnknownGroup, UnknownQueue, queue_of
from forebay.store.values import Burial, Task

QUEUES_MAX: Final = 100
"""For so many queues of a namespace one waits; of others one hears when it is looked again."""
_SLICE_SECONDS: Final = 2.0
"""So long somebody waits for queues of a namespace before looking whether there are more of them."""
_STALE_BATCH: Final = 1_000
"""So many are taken at once where nobody wants what comes first any more."""
_SECOND: Final = 1_000_000


async def pop(call: Call) -> Answer:
    """Pop from a queue, or by namespace and task."""
    wish = wish_of(call)
    call.check_room()
    tasks, payloads, queues = await _pop(call, wish)
    if not tasks:
        call.desk.tally.empty(queues)
        nothing = _nothing(wish, found=bool(queues), paused=call.desk.maintenance.pop)
        return Answer({**nothing, **_echo(call, wish, queues)})
    answer = await _answer(call, wish, tasks, payloads, queues)
    return Answer({**answer, **_echo(call, wish, queues)})


def _echo(call: Call, wish: Wish, queues: dict[int, Queue]) -> dict[str, Any]:
    """What is said of conflation."""
    return echo(wish.conflation, [call.desk.conflates(queue, wish.group) for queue in queues.values()])


async def _pop(call: Call, wish: Wish) -> tuple[list[Task], list[bytes], dict[int, Queue]]:
    """Take tasks, waiting for the first, with their payloads; the queues that were asked, by number."""
    desk, clock = call.desk, asyncio.get_running_loop().time
    deadline, most = clock() + wish.wait_seconds, wish.batch
    call.wait_longer(wish.wait_seconds)
    list_queues = desk.listed
    while True:
        left = deadline - clock()
        paused = desk.maintenance.pop
        queues = [] if paused else await _queues(call, wish, list_queues)
        if paused:
            await _patiently(call, desk.maintenance.pause(left))
            if not desk.maintenance.pop:
                continue
        elif not queues and left > 0:
            await _patiently(call, desk.wait_for_queues(left))
        elif queues:
            tasks = await _take_twice(call, replace(wish, batch=most), queues, left)
            kept, payloads = await _usable(call, wish, queues, tasks)
            if kept:
                return kept, payloads, {queue.number: queue for queue in queues}
            if tasks:  # all that came was buried: there may be more, and much more
                most = min(4 * most, max(most, _STALE_BATCH))
                continue
        if deadline <= clock() or call.context.draining.is_set():
            if wish.queue is not None or list_queues == desk.queues or paused:
                return [], [], {queue.number: queue for queue in queues}
            list_queues = desk.queues  # another server may have made one that is meant a moment ago


async def _patiently(call: Call, waiting: Any) -> None:
    """Wait for something that isn't a task, unless the client leaves."""
    watching = asyncio.create_task(call.watch())
    job = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([watching, job], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            raise Gone
    finally:
        watching.cancel()
        job.cancel()


async def _queues(
    call: Call, wish: Wish, list_queues: Callable[[], Awaitable[Sequence[Queue]]]
) -> list[Queue]:
    """The queues that are meant, the most important first."""
    desk = call.desk
    if wish.queue is not None:
        call.allow(queue_name(wish.queue))
        found = await desk.recent(wish.queue)
        return [] if found is None else [found]
    chosen = []
    for queue in await list_queues():
        facts = desk.facts(queue)
        is_meant = wish.namespace in (None, facts.namespace) and wish.task in (None, facts.task)
        if is_meant and call.key.covers(queue.name):
            chosen.append((-facts.options.priority, queue.number, queue))
    return [queue for *_, queue in sorted(chosen)]


async def _take_twice(call: Call, wish: Wish, queues: Sequence[Queue], left: float) -> list[Task]:
    """Take tasks, also when queue or group was deleted, here or by another server, and is made again."""
    for _ in range(2):
        try:
            return await _take(call, wish, queues, left)
        except (UnknownGroup, UnknownQueue):
            for queue in queues:
                call.desk.forget_group(queue, wish.group)
    if left > 0:  # until it is known here that it is gone
        await _patiently(call, call.desk.wait_for_queues(left))
    return []


async def _take(call: Call, wish: Wish, queues: Sequence[Queue], left: float) -> list[Task]:
    for queue in queues:
        conflation = wish.conflation and _is_in_order(queue, wish)
        await call.desk.join(queue, wish.group, wish.start, conflation=conflation)
    for queue in queues if len(queues) > QUEUES_MAX else queues[:-1]:
        if tasks := await _get(call, wish, [queue], 0.0):
            return tasks
    seconds = max(0.0, left if len(queues) == 1 else min(left, _SLICE_SECONDS))
    return await _get(call, wish, queues[:QUEUES_MAX], seconds)


async def _get(call: Call, wish: Wish, queues: Sequence[Queue], seconds: float) -> list[Task]:
    one = queues[0] if len(queues) == 1 else None
    is_ordered = all(queue.settings.ordered for queue in queues)
    if wish.partition is not None and not is_ordered:
        text = f"queue {wish.queue!r} has no order of its own, so it isn't taken by partition"
        raise Rejected(text, hint="take from the whole queue")
    conflating = {queue.number: queue for queue in queues if call.desk.conflates(queue, wish.group)}
    newest = len(conflating) == len(queues)
    partitions = min(wish.partitions, wish.batch) if newest else wish.partitions
    taking = call.desk.store.get_task(
        [queue.name for queue in queues] if one is None else one.name,
        AT_ONCE if newest else wish.batch,
        group=wish.group,
        worker=_worker(call),
        wait_seconds=seconds,
        partition=wish.partition,
        partitions_max=partitions if is_ordered else None,
    )
    tasks = await (taking if seconds <= 0 else _patient(call, taking, queues, seconds))
    if not conflating:
        return tasks
    return await Conflating(call, wish.group, _worker(call), conflating).newest(tasks)


async def _patient(call: Call, taking: Any, queues: Sequence[Queue], seconds: float) -> list[Task]:
    """Wait for tasks, unless pops are paused meanwhile."""
    job = asyncio.create_task(taking)
    call.desk.maintenance.interrupts(job)
    with call.desk.tally.parked([queue.number for queue in queues]):
        return await waited(call, job, seconds)


def _is_in_order(queue: Queue, wish: Wish) -> bool:
    """Whether a queue has partitions that can have a newest message."""
    if not queue.settings.ordered and wish.queue is not None:
        text = f"queue {wish.queue!r} has no order of its own, so it has no newest messages"
        raise Rejected(text, hint="take from it without conflation")
    return queue.settings.ordered


def _worker(call: Call) -> str:
    client = call.scope.get("client")
    return call.key.subject or (f"{client[0]}:{client[1]}" if client else "unknown")


async def _usable(
    call: Call, wish: Wish, queues: Sequence[Queue], tasks: Sequence[Task]
) -> tuple[list[Task], list[bytes]]:
    """Tasks that somebody still wants, with their payloads; what can't be had otherwise goes back."""
    desk = call.desk
    try:
        wanted = await _without_stale(desk, queues, tasks)
        if len(wanted) > wish.batch:
            with suppress(LeaseLost):
                await desk.store.release(wanted[wish.batch :])
        kept, payloads = await _opened(desk, wanted[: wish.batch])
        for queue in queues:
            await desk.directory.enter(queue, {t.partition for t in kept if t.queue_num == queue.number})
        call.claim_room(sum(map(len, payloads)))
        return await _acked(desk, kept, payloads) if wish.auto_ack and kept else (kept, payloads)
    except BaseException:
        with suppress(ForebayError):
            await desk.store.release(tasks)
        raise


async def _acked(desk: Desk, tasks: list[Task], payloads: list[bytes]) -> tuple[list[Task], list[bytes]]:
    """Settle tasks; those that were, which nobody else will get: of others, somebody took the lease away."""
    try:
        await desk.store.done_task(tasks)
    except LeaseLost as error:
        lost = set(error.ids)
        kept = [pair for pair in zip(tasks, payloads, strict=True) if pair[0].id not in lost]
        return [task for task, _ in kept], [payload for _, payload in kept]
    return tasks, payloads


async def _without_stale(desk: Desk, queues: Sequence[Queue], tasks: Sequence[Task]) -> list[Task]:
    """Bury what nobody wants any more; the rest."""
    limits = {q.number: most for q in queues if (most := desk.facts(q).options.waits_at_most)}
    if not limits or not tasks:
        return list(tasks)
    now = desk.context.clock.now()
    stale = [
        Burial(task, f"nobody took it within {limits[task.queue_num]} seconds (ttl)")
        for task in tasks
        if not task.attempts
        and task.queue_num in limits
        and now - task.start_time > limits[task.queue_num] * _SECOND  # nobody can take what is in a spool
    ]
    if stale:
        await desk.store.settle(bury=stale)
        desk.tally.evicted(queue_of(burial.task.id) for burial in stale)
    gone = {burial.task.id for burial in stale}
    return [task for task in tasks if task.id not in gone]


def _nothing(wish: Wish, *, found: bool, paused: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "success": found and wish.wait_seconds > 0,
        "queue": wish.queue,
        "partition": "" if wish.partition is None else shown_partition(wish.partition),
        "partitionId": None,
        "leaseId": None,
        "consumerGroup": shown_group(wish.group),
        "messages": [],
    }
    if paused:
        answer.update(success=True, paused=True)
    elif not answer["success"]:
        answer["error"] = "no_available_partition" if wish.partition is None else "lease_held"
    if wish.autopilot:
        answer["autopilot"] = {"partitions": wish.partitions, "batch": wish.batch}
    return answer


async def _lent(desk: Desk, lease: str, tasks: Sequence[Task]) -> None:
    """Tell other servers what a stream was given, or give it back."""
    try:
        await desk.lending.note(lease, tasks)
    except BaseException:
        with suppress(ForebayError):
            await desk.store.release(tasks)
        raise


async def _answer(
    call: Call, wish: Wish, tasks: Sequence[Task], payloads: Sequence[bytes], queues: dict[int, Queue]
) -> dict[str, Any]:
    desk = call.desk
    by_queue: dict[int, set[str]] = {}
    for task in tasks:
        by_queue.setdefault(task.queue_num, set()).add(task.partition)
    lease = "" if wish.auto_ack else fresh_uuid()
    if lease and desk.lapsing.is_stream(wish.group):
        await _lent(desk, lease, tasks)
    if lease:
        desk.hands.prune(call.context.clock.now())
        desk.hands.give(lease, wish.group, tasks)
        desk.lapsing.given(lease, wish.group)
    call.context.counters.messages["taken"] += len(tasks)
    desk.tally.popped(tasks, call.context.clock.now())
    if wish.auto_ack:
        call.context.counters.messages["done"] += len(tasks)
        desk.tally.settled([(task.queue_num, "done") for task in tasks])
    first, group = tasks[0], shown_group(wish.group)
    answer: dict[str, Any] = {
        "success": True,
        "queue": shown_queue(queues[first.queue_num].name),
        "partition": shown_partition(first.partition),
        "partitionId": partition_uuid(first.queue_num, first.partition),
        "leaseId": lease,
        "consumerGroup": group,
        "partitionsClaimed": sum(map(len, by_queue.values())),
        "messages": [
            {
                "id": message_uuid(task.id),
                "transactionId": transaction_of(task.id, task.transaction_id),
                **shown_headers(task.headers),
                "data": shown_data(payload),
                "createdAt": iso(task.created_at),
                "queue": shown_queue(queues[task.queue_num].name),
                "partitionId": partition_uuid(task.queue_num, task.partition),
                "partition": shown_partition(task.partition),
                "leaseId": lease,
                "consumerGroup": group,
                "retryCount": task.attempts,
            }
            for task, payload in zip(tasks, payloads, strict=True)
        ],
    }
    if wish.autopilot:
        answer["autopilot"] = {"partitions": wish.partitions, "batch": wish.batch}
    return answer


async def _opened(desk: Desk, tasks: Sequence[Task]) -> tuple[list[Task], list[bytes]]:
    """Tasks with their payloads, unsealed; one that is no longer what was sealed becomes a dead letter."""
    if not any(task.headers and SEALED in task.headers for task in tasks):
        return list(tasks), [task.data for task in tasks]
    seal, kept, payloads, broken = desk.seal(), list[Task](), list[bytes](), list[Burial]()
    for task in tasks:
        is_sealed = task.headers is not None and SEALED in task.headers
        try:
            payloads.append(seal.open(task.data) if is_sealed else task.data)
            kept.append(task)
        except Corrupt as error:
            broken.append(Burial(task, error.message))
    if broken:
        await desk.store.settle(bury=broken)
    return kept, payloads


ROUTES: Final = tuple(
    queen_route("GET", path, pop, summary, scope="take", waits=True)
    for path, summary in (
        ("/api/v1/pop/queue/{queue}", "Pop from a queue"),
        ("/api/v1/pop/queue/{queue}/partition/{partition}", "Pop from one partition"),
        ("/api/v1/pop", "Pop by namespace and task"),
    )
)
