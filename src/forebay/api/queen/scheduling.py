"""Timers by HTTP: schedule, cancel, look at one, list those of a queue.

Invariants: the operations of a request happen together, in their order, or not at all; a timer that was
cancelled never becomes a message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.identity import fresh_uuid
from forebay.api.queen.messages import PRODUCER, SEALED
from forebay.api.queen.names import partition_name, queue_name
from forebay.api.queen.reading import Body, Query, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.timers import (
    OPERATIONS_MAX,
    PAYLOAD,
    SPACE,
    Plan,
    Timer,
    TimerOp,
    check,
    deliver_at,
    fresh_entry,
    head_key,
    payload_of,
    result,
    row,
    timer_of,
)
from forebay.log.seam import VersionConflict
from forebay.log.values import Queue, Record
from forebay.model import Conflict, Rejected

_TRIES: Final = 20
"""So often a change is tried that others keep getting ahead of."""
LIMIT_MAX: Final = 1_000
Write = Callable[[Sequence[Record]], Awaitable[None]]


class TimersForm(Body):
    """Operations, one after the other."""

    operations: list[TimerOp] = msgspec.field(default_factory=list)


class Planned(msgspec.Struct, frozen=True):
    """What is to be written, and the results once it is."""

    records: list[Record]
    results: list[dict[str, Any]]


class Scheduling:
    """Timer operations of one request: checked, with their queues made, before anything is written."""

    def __init__(self, call: Call, ops: Sequence[TimerOp]) -> None:
        self._call = call
        self._ops = ops
        self._queues: dict[str, Queue | None] = {}
        self._payloads: list[tuple[bytes, dict[str, str] | None]] = []

    async def prepare(self) -> None:
        """Make sure that all of them can be done; Rejected, Forbidden or TooLarge when not."""
        if len(self._ops) > OPERATIONS_MAX:
            text = f"{len(self._ops)} timer operations are too many"
            raise Rejected(text, hint=f"send up to {OPERATIONS_MAX} at once")
        payloads, keys = [], set[tuple[str, str]]()
        for index, op in enumerate(self._ops):
            where = f"timers[{index}]"
            check(op, where)
            if (op.queue, op.timer_key) in keys:
                text = f"{where}: the key {op.timer_key!r} stands twice in one call"
                raise Rejected(text, hint="name each timer once")
            keys.add((op.queue, op.timer_key))
            partition_name(op.partition)
            self._call.key.check("push", queue_name(op.queue))
            payloads.append(b"" if op.op == "cancel" else payload_of(op, where))
        desk = self._call.desk
        for op in self._ops:
            if op.op == "cancel":
                self._queues.setdefault(op.queue, await desk.queue(op.queue))
            else:
                self._queues[op.queue] = await desk.require(op.queue)
        self._payloads = [self._sealed(op, data) for op, data in zip(self._ops, payloads, strict=True)]

    def _sealed(self, op: TimerOp, payload: bytes) -> tuple[bytes, dict[str, str] | None]:
        """A payload as it is kept, and what is kept beside it."""
        queue, desk, headers = self._queues[op.queue], self._call.desk, {}
        if (producer := self._call.key.subject) is not None:
            headers[PRODUCER] = producer
        if queue is not None and op.op != "cancel" and desk.facts(queue).options.encryption_enabled:
            payload, headers[SEALED] = desk.seal().seal(payload), "1"
        return payload, headers or None

    async def plan(self) -> Planned:
        """What they do to the timers as they are now."""
        keys = {head_key(queue.number, op.timer_key) for op, queue in self._known()}
        plan = Plan(await self._call.desk.store.log.records(SPACE, sorted(keys)) if keys else ())
        now = self._call.context.clock.now()
        results = [self._apply(plan, now, *one) for one in zip(self._ops, self._payloads, strict=True)]
        return Planned(plan.records(), results)

    def _known(self) -> list[tuple[TimerOp, Queue]]:
        return [(op, queue) for op in self._ops if (queue := self._queues[op.queue]) is not None]

    def _apply(
        self, plan: Plan, now: int, op: TimerOp, kept: tuple[bytes, dict[str, str] | None]
    ) -> dict[str, Any]:
        queue = self._queues[op.queue]
        if op.op == "cancel":
            timer = None if queue is None else plan.cancel(queue.number, op.timer_key)
            return result(op, "absent" if timer is None else "cancelled", timer)
        assert queue is not None, "it was made"
        payload, headers = kept
        moment = deliver_at(op, now)
        timer = Timer(
            queue=queue.number,
            key=op.timer_key,
            entry=fresh_entry(moment),
            deliver_at=moment,
            partition=partition_name(op.partition),
            txn=op.txn or fresh_uuid(),
            size=len(payload),
            created_at=now,
            headers=headers,
        )
        was_pending = plan.schedule(timer, payload)
        return result(op, "rescheduled" if was_pending else "scheduled", timer)

    async def run(self, write: Write) -> list[dict[str, Any]]:
        """Have what they do written; again where somebody else changed one of the timers meanwhile."""
        for _ in range(_TRIES):
            planned = await self.plan()
            try:
                await write(planned.records)
            except VersionConflict as conflict:
                if not conflict.space.startswith(SPACE):
                    raise
                continue
            if self._ops:
                self._call.desk.firing.hear()
            return planned.results
        raise Conflict("others change these timers all the time; nothing was changed", hint="try again")


async def _run(call: Call, ops: Sequence[TimerOp]) -> list[dict[str, Any]]:
    scheduling = Scheduling(call, ops)
    await scheduling.prepare()

    async def write(records: Sequence[Record]) -> None:
        if records:
            await call.desk.store.log.commit(records=records)

    return await scheduling.run(write)


async def schedule(call: Call) -> Answer:
    """Schedule, reschedule and cancel, together."""
    form = await read(call, TimersForm)
    if not form.operations:
        raise Rejected("operations array cannot be empty", hint="schedule or cancel something")
    results = await _run(call, form.operations)
    return Answer({"results": [{"index": index, **one} for index, one in enumerate(results)]})


async def cancel(call: Call) -> Answer:
    """Cancel one timer. `absent` says that there is none: it may be a message already."""
    queue, key = _named(call)
    op = TimerOp("cancel", queue, key, txn=Query(call).text("txn"))
    return Answer((await _run(call, [op]))[0])


async def peek(call: Call) -> Answer:
    """One timer, with its payload as it is kept."""
    shown, key = _named(call)
    call.allow(queue_name(shown))
    queue, log = await call.desk.queue(shown), call.desk.store.log
    heads = [] if queue is None else await log.records(SPACE, [head_key(queue.number, key)])
    timer = timer_of(heads[0].value) if heads else None
    payloads = [] if timer is None else await log.records(PAYLOAD, [timer.entry])
    if timer is None or not payloads:
        return Answer({"found": False, "queue": shown, "timerKey": key})
    payload = b64encode(payloads[0].value).decode()
    more = {"payload": payload, "payloadZstd": False, "encrypted": SEALED in (timer.headers or {})}
    return Answer({"found": True, **row(timer, shown), **more})


async def listing(call: Call) -> Answer:
    """The timers of a queue that are pending, by key."""
    shown, query = call.params["queue"], Query(call)
    call.allow(queue_name(shown))
    limit = query.number("limit", 100, least=1, most=LIMIT_MAX)
    queue, after = await call.desk.queue(shown), query.text("after")
    if queue is None:
        return Answer({"queue": shown, "rows": [], "truncated": False, "nextAfter": None})
    last = "" if after is None else head_key(queue.number, after)
    page = await call.desk.store.log.scan(SPACE, head_key(queue.number, ""), after=last, limit=limit + 1)
    timers = [timer_of(kept.value) for kept in page[:limit]]
    more = len(page) > limit
    return Answer(
        {
            "queue": shown,
            "rows": [row(timer, shown) for timer in timers],
            "truncated": more,
            "nextAfter": timers[-1].key if more else None,
        }
    )


def _named(call: Call) -> tuple[str, str]:
    """Queue and key of the path: a key may have slashes of its own, as clients write it."""
    rest = call.scope["raw_path"].partition(b"/timers/")[2]
    queue, _, key = rest.partition(b"/")
    try:
        return unquote_to_bytes(queue).decode(), unquote_to_bytes(key).decode()
    except UnicodeDecodeError:
        raise Rejected("the path is not UTF-8", hint="percent-encode names as UTF-8") from None


_ONE: Final = "/api/v1/timers/{queue}/{key}"
ROUTES: Final = (
    queen_route("POST", "/api/v1/timers", schedule, "Schedule messages for later", scope="push"),
    queen_route("GET", "/api/v1/timers/{queue}", listing, "Timers of a queue", scope="read"),
    queen_route("GET", _ONE, peek, "One timer", scope="read"),
    queen_route("DELETE", _ONE, cancel, "Cancel a timer", scope="push"),
)
