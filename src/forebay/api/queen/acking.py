"""Acknowledgements and leases: one message, several with a status each, and more time for a lease.

Invariants: what is answered with `success` is durable; a message that was acknowledged under a lease that is
over stays as it is. What fails comes back after the queue's delay, and is a dead letter with its last error
when it has come back as often as the queue allows.

What an acknowledgement commits is in `commits`. What is committed already stays so: to acknowledge it again
changes nothing, and says so (`noop`); to say that it failed is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.commits import DONE, AckItem, Found, gaps, hold_up, judge, rest
from forebay.api.queen.desk import Desk
from forebay.api.queen.hands import Place, message_of
from forebay.api.queen.identity import uuid_time
from forebay.api.queen.names import group_name, shown_partition, shown_queue
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso
from forebay.log.values import Durable
from forebay.model import ForebayError, LeaseLost, Rejected
from forebay.store.tickets import REASON_BYTES_MAX
from forebay.store.values import Burial, Retry, Task, Ticket

ITEMS_MAX: Final = 50_000
NOT_FOUND: Final = "Message not found"
LEASE_OVER: Final = "Invalid or expired lease"
COMMITTED: Final = "Message already committed"
_COMMITTED_MAX: Final = 1_000
"""Messages of one call of which it is looked up whether they were committed before."""
STATUSES: Final = frozenset({*DONE, "failed", "dlq", "retry"})
_MILLISECOND: Final = 1_000
_SECOND: Final = 1_000_000
_EXTEND_MAX: Final = 86_400


class AckBatch(Body):
    """What became of several messages of one group."""

    acknowledgments: list[AckItem] | UnsetType = UNSET
    consumer_group: str | None = None


@dataclass(slots=True)
class Verdicts:
    """What the store is told."""

    done: list[Task | Ticket] = field(default_factory=list)
    retry: list[Retry] = field(default_factory=list)
    release: list[Task | Ticket] = field(default_factory=list)
    bury: list[Burial] = field(default_factory=list)
    gaps: list[Found] = field(default_factory=list)
    """What is done along, though nobody mentioned it."""
    rest: dict[Place, Task] = field(default_factory=dict)
    """What goes back along, unused: it comes after what comes back."""


async def ack(call: Call) -> Answer:
    """One message."""
    item = await read(call, AckItem)
    if not item.transaction_id:
        raise Rejected("transactionId is required", hint="send what came with the message")
    if not item.partition_id:
        text = "partitionId is required to ensure message uniqueness"
        raise Rejected(text, hint="send what came with the message")
    return Answer(await _settle(call, [item], item.consumer_group))


async def ack_batch(call: Call) -> Answer:
    """Several messages, each with a status of its own."""
    form = await read(call, AckBatch)
    if isinstance(form.acknowledgments, UnsetType):
        hint = 'send {"acknowledgments": [...]}'
        raise Rejected("acknowledgments array is required", hint=hint)
    if len(form.acknowledgments) > ITEMS_MAX:
        text = f"{len(form.acknowledgments)} acknowledgments are too many"
        raise Rejected(text, hint=f"send up to {ITEMS_MAX} at once")
    for index, item in enumerate(form.acknowledgments):
        if not item.transaction_id or not item.partition_id:
            missing = "partitionId" if item.transaction_id else "transactionId"
            text = f"Each acknowledgment must have a valid {missing} string (index {index})"
            raise Rejected(text, hint="send what came with the messages")
    return Answer(await _settle(call, form.acknowledgments, form.consumer_group))


async def _settle(call: Call, items: Sequence[AckItem], group: str | None) -> list[dict[str, Any]]:
    desk = call.desk
    found = await find(call, items, group)
    await _find_committed(desk, found)
    weigh(desk, found)
    verdicts = verdicts_of(desk, found, gaps(desk.hands, found))
    lost: set[int] = set()
    try:
        durable = await desk.store.settle(
            done=verdicts.done,
            retry=verdicts.retry,
            release=[*verdicts.release, *verdicts.rest.values()],
            bury=verdicts.bury,
        )
    except LeaseLost as error:
        lost, durable = set(error.ids), "spool" if error.is_spooled else "log"
    for one in [*verdicts.gaps, *found]:
        if one.task is not None and one.task.id in lost:
            one.error = LEASE_OVER
    finished(call, found, verdicts)
    return [_shown(index, one, durable) for index, one in enumerate(found)]


async def find(
    call: Call, items: Sequence[AckItem], group: str | None = None, *, leases: Sequence[str] = ()
) -> list[Found]:
    """What items are about; those that are about nothing have an error.

    Under which leases they are out is said by each, or of all of them together.
    """
    desk = call.desk
    partitions = await desk.directory.find(item.partition_id for item in items if item.partition_id)
    queues = {queue.number: queue for queue in await desk.queues_by({p.queue for p in partitions.values()})}
    found = []
    for item in items:
        one = Found(item, partitions.get((item.partition_id or "").lower()))
        found.append(one)
        if one.partition is None or one.partition.queue not in queues:
            one.error = NOT_FOUND
            continue
        one.queue = queues[one.partition.queue]
        call.allow(one.queue.name)
        name = group_name(item.consumer_group if group is None else group)
        one.place = Place(one.queue.number, name, one.partition.name, item.transaction_id or "")
        one.task = desk.hands.find(one.place, item.lease_id)
    _refuse_twice(found)
    await _find_elsewhere(desk, [one for one in found if one.task is None and one.error is None], leases)
    return found


def _refuse_twice(found: Sequence[Found]) -> None:
    """One message has one outcome: the first that is named."""
    seen: set[Place] = set()
    for one in found:
        if one.place is not None and one.place in seen:
            one.task, one.error = None, "Message acknowledged twice in one request"
        elif one.place is not None:
            seen.add(one.place)


async def _find_elsewhere(desk: Desk, found: Sequence[Found], leases: Sequence[str]) -> None:
    """Look in the log for what another server handed out, or this one before it was started anew."""
    together: dict[tuple[int, str], list[Found]] = {}
    for one in found:
        assert one.place is not None, "it was looked for here"
        together.setdefault((one.place.queue, one.place.group), []).append(one)
    for members in together.values():
        await _find_in_log(desk, members, leases)


async def _find_in_log(desk: Desk, found: Sequence[Found], leases: Sequence[str]) -> None:
    queue, group = found[0].queue, found[0].place.group if found[0].place else ""
    assert queue is not None, "it was looked for here"
    keys = [(one.place.partition, one.place.transaction_id) for one in found if one.place]
    located = await desk.store.log.locate(queue, keys)
    ids = [message_of(queue, key[1]) if id is None else id for key, id in zip(keys, located, strict=True)]
    for one, id in zip(found, ids, strict=True):
        one.id, one.error = id, NOT_FOUND if id is None else LEASE_OVER
    since: dict[int, list[tuple[int, Found]]] = {}
    now = desk.context.clock.now()
    fenced_at = await desk.subscriptions.fenced_at(queue.number, group)
    for one, id in zip(found, ids, strict=True):
        if id is not None:
            named = [one.item.lease_id] if one.item.lease_id else leases
            given = max((time for lease in named if (time := uuid_time(lease)) is not None), default=0)
            if named and given <= fenced_at:
                continue  # it is no lease of ours, or the group was sent elsewhere since
            since.setdefault(given + _MILLISECOND if named else now, []).append((id, one))
    for moment, members in since.items():
        try:
            tickets = await desk.store.tickets(queue.name, group, [id for id, _ in members], since=moment)
        except Rejected:  # there is no such group
            continue
        for id, one in members:
            if (ticket := tickets.get(id)) is not None and not _is_known_otherwise(desk, one):
                one.task, one.error = ticket, None


def _is_known_otherwise(desk: Desk, one: Found) -> bool:
    """Whether this server handed the message out itself, under another lease than the one that is named."""
    return one.place is not None and bool(one.item.lease_id) and desk.hands.is_out(one.place)


async def _find_committed(desk: Desk, found: Sequence[Found]) -> None:
    """Tell what was committed before from what is somebody else's by now."""
    late = [one for one in found if one.error == LEASE_OVER and one.id is not None and one.place is not None]
    for one in late[:_COMMITTED_MAX]:
        assert one.id is not None, "it was located"
        assert one.place is not None, "likewise"
        groups = {place.group: place.state for place in (await desk.store.where(one.id)).groups}
        if groups.get(one.place.group) != "done":
            continue
        one.noop = one.status in DONE
        one.error = None if one.noop else COMMITTED


def weigh(desk: Desk, found: Sequence[Found]) -> None:
    """Say of messages whether they come back, and of those after them that they don't count."""
    judge(found, lambda queue: desk.facts(queue).options.retry_limit)
    hold_up(found)


def verdicts_of(desk: Desk, found: Sequence[Found], along: Iterable[Found] = ()) -> Verdicts:
    """What the store is told of what was found, and of what is done along with it."""
    verdicts, now = Verdicts(gaps=list(along), rest=rest(desk.hands, found)), desk.context.clock.now()
    for one in [*verdicts.gaps, *found]:
        if one.task is None or one.queue is None:
            continue
        if one.status in DONE:
            verdicts.done.append(one.task)
        elif one.status == "retry":
            verdicts.release.append(one.task)
        elif one.buried:
            reason = _reason(one.item.error or "failed, and no reason was given")
            verdicts.bury.append(Burial(one.task, reason))
        elif one.comes_back:
            delay = desk.facts(one.queue).options.retry_delay
            reason = _reason(one.item.error or "")
            verdicts.retry.append(Retry(one.task, now + delay * _MILLISECOND, reason=reason))
        else:
            one.task, one.error = None, f"unknown status {one.item.status[:32]!r}"
    return verdicts


def _reason(text: str) -> str:
    """A reason that every log can keep."""
    return text.replace("\0", "").encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


def finished(call: Call, found: Sequence[Found], verdicts: Verdicts) -> None:
    """Forget what was settled, and count it."""
    desk = call.desk
    good = [one for one in [*verdicts.gaps, *found] if one.task is not None and one.error is None]
    tasks = {one.place: one.task for one in good if one.place is not None} | verdicts.rest
    # What comes back may be out again by now, under another lease.
    freed = desk.hands.settled(place for place in tasks if desk.hands.find(place, None) is tasks[place])
    last = {one.partition: one for one in good}
    for partition, one in last.items():
        one.released = partition is not None and (partition.queue, partition.name) in freed
    counts = call.context.counters.messages
    outcomes = list[tuple[int, str]]()
    for one in good:
        outcome = "done" if one.status in DONE else "buried" if one.buried else "retried"
        counts[outcome] += 1
        if one.queue is not None:
            outcomes.append((one.queue.number, outcome))
    desk.tally.settled(outcomes)


def _shown(index: int, one: Found, durable: Durable) -> dict[str, Any]:
    """What Queen answers; and that the log has yet to hear of it, where that is so."""
    is_spooled = durable == "spool" and one.error is None and not one.noop
    return {
        "index": index,
        "transactionId": one.item.transaction_id,
        "success": one.error is None,
        "error": one.error,
        "queueName": None if one.queue is None else shown_queue(one.queue.name),
        "partitionName": None if one.partition is None else shown_partition(one.partition.name),
        "leaseReleased": one.released,
        "dlq": one.buried and one.error is None,
        **({"noop": True} if one.noop else {}),
        **({"durable": durable} if is_spooled else {}),
    }


# Leases


class ExtendForm(Body):
    """For how long."""

    seconds: float | None = None


async def extend(call: Call) -> Answer:
    """More time for all that is out under a lease; it never becomes less."""
    form = await read(call, ExtendForm, optional=True)
    lease, desk = call.params["lease"], call.desk
    hand = desk.hands.hand(lease.lower())
    if hand is None:
        return Answer(_renewal(lease, error="Lease not found"))
    tasks = list(hand.tasks.values())
    queues = {queue.number: queue for queue in await desk.queues_by({task.queue_num for task in tasks})}
    for queue in queues.values():
        call.allow(queue.name)
    default = min((q.settings.visibility_seconds for q in queues.values()), default=300.0)
    seconds = min(max(1.0, form.seconds or default), _EXTEND_MAX)
    now = call.context.clock.now()
    deadline = max(now + round(seconds * _SECOND), hand.deadline)
    try:
        await desk.store.extend(tasks, (deadline - now) / _SECOND)
    except LeaseLost as error:
        if len(set(error.ids)) == len(tasks):
            return Answer(_renewal(lease, error="Lease already expired"))
    except ForebayError as error:
        return Answer(_renewal(lease, error=error.message))
    desk.hands.extended(lease.lower(), deadline)
    return Answer(_renewal(lease, deadline=deadline, renewed=len(hand.by_partition)))


def _renewal(
    lease: str, *, deadline: int | None = None, renewed: int = 0, error: str | None = None
) -> dict[str, Any]:
    until = None if deadline is None else iso(deadline)
    return {
        "index": 0,
        "leaseId": lease,
        "success": error is None,
        "error": error,
        "renewed": renewed,
        "expiresAt": until,
        "newExpiresAt": until,
        "lease_expires_at": until,
    }


ROUTES: Final = (
    queen_route("POST", "/api/v1/ack", ack, "Acknowledge a message", scope="take"),
    queen_route("POST", "/api/v1/ack/batch", ack_batch, "Acknowledge several messages", scope="take"),
    queen_route("POST", "/api/v1/lease/{lease}/extend", extend, "Extend a lease", scope="take"),
)
