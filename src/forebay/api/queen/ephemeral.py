"""Queues in memory, by HTTP: fast, and gone with the server. What they were told is kept in the log.

Each server of a log has messages of its own; their clients go to one of them. Invariants: what all queues
hold together is bounded; who waits is answered in the moment in which something comes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, Raw, UnsetType

from forebay.api.answers import Answer
from forebay.api.bodies import Gone
from forebay.api.queen.identity import fresh_uuid
from forebay.api.queen.messages import shown_data
from forebay.api.queen.names import DEFAULT_PARTITION, QUEUE_MODE, queue_name
from forebay.api.queen.reading import Body, Query, read
from forebay.api.queen.rings import Ring, RingOptions, cost_of
from forebay.api.queen.routes import queen_route
from forebay.log.values import Record
from forebay.model import ForebayError, Full, Rejected
from forebay.model.limits import check_text

if TYPE_CHECKING:
    from forebay.api.calls import Call
    from forebay.api.context import Context

SPACE: Final = "queen.ephemeral"
QUEUES_MAX: Final = 10_000
TOTAL_BYTES_MAX: Final = 256 << 20
MESSAGES_MAX: Final = 10_000
"""In one request."""
LISTED_MAX: Final = 10_000
NOT_FOUND: Final = "ephemeral_queue_not_found"
_TEXT_BYTES_MAX: Final = 255
_LOOK_SECONDS: Final = 1.0
_KNOWN_US: Final = 5_000_000
"""So long it isn't looked whether another server told a queue something else."""
_SECOND: Final = 1_000_000
_encode: Final = msgspec.json.encode


class Rings:
    """The queues in memory of one server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rings: dict[str, Ring] = {}
        self._looked: dict[str, int] = {}
        self._events: dict[str, asyncio.Event] = {}

    @property
    def bytes(self) -> int:
        """The total of all of them."""
        return sum(ring.bytes for ring in self._rings.values())

    def known(self, name: str) -> Ring | None:
        """A queue that is there."""
        return self._rings.get(name)

    async def ring(self, name: str) -> Ring:
        """A queue, which is made when it isn't there."""
        now = self._context.clock.now()
        found = self._rings.get(name)
        if found is None or self._looked.get(name, 0) + _KNOWN_US < now:
            options = await self._declared(name)
            found = self._rings.get(name)  # another request may have made it meanwhile
            if found is None:
                self._make_room(now)
                found = self._rings[name] = Ring(fresh_uuid(), options or RingOptions(), now)
            elif options is not None:
                found.options = options
            self._looked[name] = now
        return found

    def _make_room(self, now: int) -> None:
        """Forget queues that nobody would miss; Full when there are too many others."""
        if len(self._rings) < QUEUES_MAX:
            return
        for name in [name for name, ring in self._rings.items() if ring.is_idle(now)]:
            self.forget(name)
        if len(self._rings) >= QUEUES_MAX:
            text = f"there are {QUEUES_MAX} queues in memory"
            raise Full(text, hint="delete some of them", retry_after_seconds=1.0)

    async def _declared(self, name: str) -> RingOptions | None:
        """What a queue was told; while the log is away nobody knows."""
        try:
            kept = await self._context.desk.store.log.records(SPACE, [_key(name)])
        except ForebayError:
            return None
        return msgspec.json.decode(kept[0].value, type=RingOptions) if kept else None

    async def declare(self, name: str, options: RingOptions) -> Ring:
        """Tell a queue its options, for as long as nobody deletes it."""
        record = Record(SPACE, _key(name), _encode(options))
        await self._context.desk.store.log.commit(records=[record])
        self._looked.pop(name, None)
        ring = await self.ring(name)
        ring.options = options
        return ring

    async def delete(self, name: str) -> bool:
        """Forget a queue and its options; whether there was one."""
        log = self._context.desk.store.log
        was_declared = bool(await log.records(SPACE, [_key(name)]))
        if was_declared:
            await log.commit(records=[Record(SPACE, _key(name))])
        return self.forget(name) or was_declared

    def forget(self, name: str) -> bool:
        """Forget what is in memory of a queue; whether there was something."""
        self._looked.pop(name, None)
        was_there = self._rings.pop(name, None) is not None
        self.stirred(name)
        return was_there

    def names(self) -> list[str]:
        """The queues that are there."""
        return sorted(self._rings)

    # Waiting

    def stirred(self, name: str) -> None:
        """Something may be taken from a queue."""
        event = self._events.pop(name, None)
        if event is not None:
            event.set()

    async def wait(self, name: str, seconds: float) -> None:
        """Wait until something may be taken from a queue, a while at most."""
        event = self._events.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return


def _key(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


class ConfigureForm(Body):
    """A queue and its options."""

    queue: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class NamedForm(Body):
    """A queue."""

    queue: str


class NewMessage(Body):
    """A message."""

    payload: Raw | UnsetType = UNSET


class PushForm(Body):
    """Messages for a queue."""

    queue: str
    partition: str | None = None
    messages: list[NewMessage] = msgspec.field(default_factory=list)


class AckEntry(Body):
    """What became of a message."""

    id: str = ""
    status: str = "completed"


class AckForm(Body):
    """What became of messages."""

    queue: str
    group: str | None = None
    acks: list[AckEntry] = msgspec.field(default_factory=list)


async def configure(call: Call) -> Answer:
    """Tell a queue its options; those that are not named are the usual ones."""
    form = await read(call, ConfigureForm)
    name = _named(call, form.queue)
    try:
        options = msgspec.convert(form.options, RingOptions, strict=False)
    except msgspec.ValidationError as error:
        raise Rejected(f"bad option: {error}", hint="see docs/how-to/move-from-queen.md") from None
    if not (options.drops or options.policy.lower() == "reject"):
        raise Rejected(f"unknown policy {options.policy[:32]!r}", hint="use reject or drop_oldest")
    await call.desk.rings.declare(name, options)
    return Answer({"configured": True, "queue": form.queue, "options": msgspec.to_builtins(options)})


async def reset(call: Call) -> Answer:
    """Drop all messages of a queue; what it was told stays."""
    form = await read(call, NamedForm)
    name, rings = _named(call, form.queue), call.desk.rings
    ring = rings.known(name)
    dropped = 0 if ring is None else ring.length
    rings.forget(name)
    return Answer({"queue": form.queue, "dropped": dropped})


async def delete(call: Call) -> Answer:
    """Delete a queue with all that it has."""
    queue = call.params["queue"]
    return Answer({"queue": queue, "deleted": await call.desk.rings.delete(_named(call, queue))})


async def push(call: Call) -> Answer:
    """Push messages, all or none."""
    form = await read(call, PushForm)
    name, partition = _named(call, form.queue), form.partition or DEFAULT_PARTITION
    check_text(partition, "partition", _TEXT_BYTES_MAX)
    if len(form.messages) > MESSAGES_MAX:
        text = f"{len(form.messages)} messages are too many"
        raise Rejected(text, hint=f"push up to {MESSAGES_MAX} at once")
    payloads = [b"null" if isinstance(m.payload, UnsetType) else bytes(m.payload) for m in form.messages]
    rings = call.desk.rings
    ring = await rings.ring(name)
    if rings.bytes + sum(map(cost_of, payloads)) > TOTAL_BYTES_MAX:
        text = f"the queues in memory hold {rings.bytes} bytes of {TOTAL_BYTES_MAX}"
        raise Full(text, hint="take from them first", retry_after_seconds=1.0)
    ring.push(partition, payloads, call.context.clock.now())
    rings.stirred(name)
    return Answer({"queue": form.queue, "pushed": len(payloads)})


async def pop(call: Call) -> Answer:
    """Take messages, waiting for the first."""
    query = Query(call)
    queue = query.text("queue")
    if queue is None:
        raise Rejected("queue is required", hint="name it with queue=")
    name, partition, limits = _named(call, queue), query.text("partition"), call.context.settings.limits
    group = check_text(query.text("group") or QUEUE_MODE, "group", _TEXT_BYTES_MAX)
    count = query.number("batch", 1, least=1, most=min(MESSAGES_MAX, limits.take_count_max))
    leased = not query.flag("autoAck")
    wait = query.number("timeout", 30_000) / 1000 if query.flag("wait") else 0.0
    wait = min(wait, limits.wait_seconds_max)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    call.wait_longer(wait)
    while True:
        ring = await call.desk.rings.ring(name)
        call.check_room()
        now = call.context.clock.now()
        handed = ring.take(group, partition, count, now, leased=leased)
        left = deadline - loop.time()
        if handed or left <= 0 or call.context.draining.is_set():
            break
        due = ring.next_deadline()
        ahead = _LOOK_SECONDS if due is None else max((due - now) / _SECOND, 0.0)
        await _patiently(call, name, min(left, ahead, _LOOK_SECONDS))
    messages = [
        {
            "id": one.id,
            "partition": one.partition,
            "payload": shown_data(one.payload),
            "attempts": one.attempts,
        }
        for one in handed
    ]
    return Answer({"queue": queue, "messages": messages})


async def _patiently(call: Call, name: str, seconds: float) -> None:
    """Wait for something to take, unless the client leaves."""
    watching = asyncio.create_task(call.watch())
    waiting = asyncio.create_task(call.desk.rings.wait(name, seconds))
    try:
        await asyncio.wait([watching, waiting], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            raise Gone
    finally:
        watching.cancel()
        waiting.cancel()


async def ack(call: Call) -> Answer:
    """Say what became of messages; each stands for itself."""
    form = await read(call, AckForm)
    name, group = _named(call, form.queue), form.group or QUEUE_MODE
    if len(form.acks) > MESSAGES_MAX:
        raise Rejected(f"{len(form.acks)} acks are too many", hint=f"send up to {MESSAGES_MAX} at once")
    for entry in form.acks:
        if entry.status not in ("completed", "success", "failed", "retry"):
            raise Rejected(f"unknown status {entry.status[:32]!r}", hint="use completed, failed or retry")
    ring, now = call.desk.rings.known(name), call.context.clock.now()
    results = []
    for entry in form.acks:
        done = entry.status in ("completed", "success")
        outcome = "stale" if ring is None else ring.settle(group, entry.id, now, done=done)
        results.append({"id": entry.id, "outcome": outcome})
    if any(result["outcome"] == "redelivered" for result in results):
        call.desk.rings.stirred(name)
    return Answer({"results": results})


async def queues(call: Call) -> Answer:
    """The queues in memory of this server, and those that were told something."""
    rings, now, shown = call.desk.rings, call.context.clock.now(), []
    kept = await call.desk.store.log.scan(SPACE, limit=LISTED_MAX)
    declared = {kept.key: msgspec.json.decode(kept.value, type=RingOptions) for kept in kept}
    here = {_key(name): name for name in rings.names()}
    for key in sorted({*declared, *here}):
        name = here.get(key)
        ring = rings.known(name) if name is not None else Ring("", declared[key], now)
        text = _shown(key)
        if ring is not None and call.key.covers(queue_name(text)):
            ring.expire(now)
            shown.append({"queue": text, "declared": key in declared, **ring.shown()})
    return Answer({"queues": shown})


async def depth(call: Call) -> Answer:
    """Numbers of one queue."""
    queue = call.params["queue"]
    name = _named(call, queue)
    ring = call.desk.rings.known(name)
    if ring is None and await call.desk.store.log.records(SPACE, [_key(name)]):
        ring = await call.desk.rings.ring(name)
    if ring is None:
        return Answer({"error": f"there is no queue {queue!r} in memory", "code": NOT_FOUND}, status=404)
    ring.expire(call.context.clock.now())
    return Answer({"queue": queue, **ring.shown(), "options": msgspec.to_builtins(ring.options)})


def _named(call: Call, text: str) -> str:
    """The name of a queue in memory, if the key is for it."""
    if not text:
        raise Rejected("queue is required", hint="name a queue")
    check_text(text, "queue", _TEXT_BYTES_MAX)
    call.allow(queue_name(text))
    return text


def _shown(key: str) -> str:
    return unquote(key, errors="surrogatepass")


_ROOT: Final = "/api/v1/ephemeral"
ROUTES: Final = (
    queen_route("POST", f"{_ROOT}/configure", configure, "Tell a queue in memory its options", scope="push"),
    queen_route("POST", f"{_ROOT}/reset", reset, "Empty a queue in memory", scope="take"),
    queen_route("DELETE", f"{_ROOT}/queue/{{queue}}", delete, "Delete a queue in memory", scope="admin"),
    queen_route("POST", f"{_ROOT}/push", push, "Push to a queue in memory", scope="push"),
    queen_route("GET", f"{_ROOT}/pop", pop, "Pop from a queue in memory", scope="take", waits=True),
    queen_route("POST", f"{_ROOT}/ack", ack, "Acknowledge what came from memory", scope="take"),
    queen_route("GET", f"{_ROOT}/queues", queues, "Queues in memory", scope="read"),
    queen_route("GET", f"{_ROOT}/queues/{{queue}}/depth", depth, "One queue in memory", scope="read"),
)
