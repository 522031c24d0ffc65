"""Traces: what consumers note about a message on its way, found again by the message or by a name.

A trace is a record of a week; for each of its names there is an entry that leads to it, in order of time.
Invariants: a trace that can't be kept is refused and changes nothing; a key that is for some queues sees the
traces of their messages only; lists are bounded, and cost by what is counted in them, up to `COUNTED_MAX`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, Raw, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.desk import Desk
from forebay.api.queen.directory import Partition
from forebay.api.queen.hands import Place
from forebay.api.queen.identity import fresh_uuid
from forebay.api.queen.names import group_name, shown_group, shown_partition, shown_queue
from forebay.api.queen.reading import Body, Query, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.seen import SEEN_SECONDS
from forebay.api.queen.times import iso, parse_time
from forebay.log.values import Queue, Record
from forebay.model import Rejected, TooLarge
from forebay.model.limits import check_text

SPACE: Final = "queen.trace"
_BY_NAME: Final = "queen.trace.by"
_NAMES: Final = "queen.trace.name"
KEEP_SECONDS: Final = 7 * 86_400
DATA_BYTES_MAX: Final = 64 << 10
NAMES_MAX: Final = 20
TEXT_BYTES_MAX: Final = 255
LIMIT_MAX: Final = 1_000
COUNTED_MAX: Final = 10_000
"""So many are counted for a total."""
_NAME_COUNTED_MAX: Final = 1_000
"""So many traces of a name are counted where names are listed."""
_SECOND: Final = 1_000_000


class TraceForm(Body):
    """What is to be noted."""

    transaction_id: str | None = None
    partition_id: str | None = None
    data: Raw | UnsetType = UNSET
    consumer_group: str | None = None
    event_type: str | None = None
    trace_names: str | list[str] | None = None
    worker_id: str | None = None


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trace as it is kept."""

    id: str
    at: int
    queue: int
    partition: str
    partition_id: str
    transaction_id: str
    group: str
    event_type: str
    data: Raw
    names: list[str]
    worker: str | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Where a name leads."""

    key: str
    queue: int


_encode: Final = msgspec.json.encode
_trace: Final = msgspec.json.Decoder(Trace).decode
_entry: Final = msgspec.json.Decoder(Entry).decode


async def record(call: Call) -> Answer:
    """Note something about a message."""
    form = await read(call, TraceForm)
    names, data = _checked(form)
    desk, now = call.desk, call.context.clock.now()
    assert form.partition_id and form.transaction_id, "it was checked"  # noqa: PT018 - one fact
    partition = await _partition(call, form.partition_id)
    if partition is None or not await _is_there(desk, partition, form):
        return Answer({"success": False, "error": "Message not found"}, status=404)
    trace = Trace(
        id=fresh_uuid(),
        at=now,
        queue=partition.queue,
        partition=partition.name,
        partition_id=form.partition_id.lower(),
        transaction_id=form.transaction_id,
        group=group_name(form.consumer_group),
        event_type=form.event_type or "info",
        data=Raw(data),
        names=names,
        worker=form.worker_id,
    )
    stale = desk.seen.stale(names, now)
    await desk.store.log.commit(records=_records(trace, stale))
    desk.seen.note(stale, now)
    return Answer({"success": True, "traceId": trace.id})


def _checked(form: TraceForm) -> tuple[list[str], bytes]:
    """The names and the data of a trace that can be kept."""
    if not form.transaction_id:
        raise Rejected("transactionId is required", hint="send what came with the message")
    if not form.partition_id:
        raise Rejected("partitionId is required", hint="send what came with the message")
    if isinstance(form.data, UnsetType):
        raise Rejected("data is required", hint='send {"data": {"text": "..."}}')
    if len(form.data) > DATA_BYTES_MAX:
        text = f"the data has {len(form.data)} bytes"
        raise TooLarge(text, hint=f"send up to {DATA_BYTES_MAX} bytes")
    given = [form.trace_names] if isinstance(form.trace_names, str) else form.trace_names or []
    names = sorted({name for name in given if name})
    if len(names) > NAMES_MAX:
        raise Rejected(f"{len(names)} traceNames are too many", hint=f"send up to {NAMES_MAX}")
    for name in names:
        check_text(name, "traceNames", TEXT_BYTES_MAX)
    for what, said in (("eventType", form.event_type), ("workerId", form.worker_id)):
        if said:
            check_text(said, what, TEXT_BYTES_MAX)
    return names, bytes(form.data)


async def _partition(call: Call, id: str) -> Partition | None:
    """The partition of an id, if the key may see it."""
    partition = (await call.desk.directory.find([id.lower()])).get(id.lower())
    if partition is None:
        return None
    queues = await call.desk.queues_by({partition.queue})
    for queue in queues:
        call.allow(queue.name)
    return partition if queues else None


async def _is_there(desk: Desk, partition: Partition, form: TraceForm) -> bool:
    """Whether the message is out here, or the log knows its transaction id."""
    transaction_id, group = form.transaction_id or "", group_name(form.consumer_group)
    if desk.hands.is_out(Place(partition.queue, group, partition.name, transaction_id)):
        return True
    (queue,) = await desk.queues_by({partition.queue})
    return (await desk.store.log.locate(queue, [(partition.name, transaction_id)]))[0] is not None


def _records(trace: Trace, stale: Sequence[str]) -> list[Record]:
    """A trace, where its names lead to it, and the names that are to be noted."""
    expires_at = trace.at + KEEP_SECONDS * _SECOND
    key = _prefix(trace.partition_id, trace.transaction_id) + trace.id
    entry = _encode(Entry(key, trace.queue))
    records = [Record(SPACE, key, _encode(trace), expires_at)]
    records += [
        Record(_BY_NAME, f"{_escaped(name)}/{trace.at:016x}/{trace.id}", entry, expires_at)
        for name in trace.names
    ]
    later = expires_at + SEEN_SECONDS * _SECOND
    return [*records, *(Record(_NAMES, _escaped(name), _encode(trace.at), later) for name in stale)]


def _prefix(partition_id: str, transaction_id: str) -> str:
    """What the keys of a message's traces begin with."""
    digest = blake2b(transaction_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{partition_id}/{digest}/"


def _escaped(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


async def of_message(call: Call) -> Answer:
    """The traces of a message, the oldest first."""
    id, transaction_id = call.params["partition"].lower(), call.params["transaction"]
    if await _partition(call, id) is None:
        return Answer({"traces": []})
    limit = Query(call).number("limit", LIMIT_MAX, least=1, most=LIMIT_MAX)
    kept = await call.desk.store.log.scan(SPACE, _prefix(id, transaction_id), limit=limit)
    return Answer({"traces": [_shown(_trace(one.value)) for one in kept]})


async def by_name(call: Call) -> Answer:
    """The traces of a name, the oldest first."""
    query, log = Query(call), call.desk.store.log
    limit = query.number("limit", 100, least=1, most=LIMIT_MAX)
    offset = query.number("offset", 0, most=COUNTED_MAX)
    begin, end = (None if (text := query.text(n)) is None else parse_time(text, n) for n in ("from", "to"))
    queues = await _visible(call)
    keys: list[str] = []
    async for entry in _entries(call.desk, call.params["name"], begin, end):
        if entry.queue in queues or not call.key.queues:
            keys.append(entry.key)
        if len(keys) >= COUNTED_MAX:
            break
    kept = await log.records(SPACE, keys[offset : offset + limit])
    traces = [_found(_trace(one.value), queues) for one in kept]
    return Answer({"traces": traces, "total": len(keys), "pagination": {"limit": limit, "offset": offset}})


async def _entries(
    desk: Desk, name: str, begin: int | None = None, end: int | None = None
) -> AsyncIterator[Entry]:
    """Where a name leads, in order of time, within a time."""
    prefix = _escaped(name) + "/"
    after = "" if begin is None else f"{prefix}{max(begin, 0):016x}"
    while page := await desk.store.log.scan(_BY_NAME, prefix, after=after):
        for kept in page:
            if end is not None and int(kept.key[len(prefix) :].partition("/")[0], 16) > end:
                return
            yield _entry(kept.value)
        after = page[-1].key


async def _visible(call: Call) -> Mapping[int, Queue]:
    """The queues that the key is for, by number."""
    return {queue.number: queue for queue in await call.desk.queues() if call.key.covers(queue.name)}


async def names(call: Call) -> Answer:
    """The names that there are, the latest first; their traces are counted up to a thousand."""
    query, desk = Query(call), call.desk
    limit = query.number("limit", 50, least=1, most=100)
    offset = query.number("offset", 0, most=COUNTED_MAX)
    queues, found, after = await _visible(call), list[tuple[int, str]](), ""
    while len(found) < COUNTED_MAX and (page := await desk.store.log.scan(_NAMES, after=after)):
        found += [(msgspec.json.decode(kept.value, type=int), unquote(kept.key)) for kept in page]
        after = page[-1].key
    shown, total = [], 0
    for at, name in sorted(found, reverse=True):
        wanted = offset <= total < offset + limit
        if not wanted and not call.key.queues:
            total += 1
            continue
        row = await _counted(call, name, at, queues)
        if row["traceCount"]:
            if wanted:
                shown.append(row)
            total += 1
    pagination = {"limit": limit, "offset": offset}
    return Answer({"trace_names": shown, "traceNames": shown, "total": total, "pagination": pagination})


async def _counted(call: Call, name: str, at: int, queues: Mapping[int, Queue]) -> dict[str, Any]:
    """A name with its numbers."""
    count, messages = 0, set[str]()
    async for entry in _entries(call.desk, name):
        if entry.queue in queues or not call.key.queues:
            count += 1
            messages.add(entry.key.rpartition("/")[0])
        if count >= _NAME_COUNTED_MAX:
            break
    numbers = {"traceCount": count, "messageCount": len(messages), "lastSeen": iso(at)}
    snake = {"trace_count": count, "message_count": len(messages), "last_seen": iso(at)}
    return {"traceName": name, "trace_name": name, **numbers, **snake}


def _shown(trace: Trace) -> dict[str, Any]:
    """A trace in both spellings that Queen's servers had."""
    group, at = shown_group(trace.group), iso(trace.at)
    return {
        "id": trace.id,
        "data": trace.data,
        "event_type": trace.event_type,
        "eventType": trace.event_type,
        "consumer_group": group,
        "consumerGroup": group,
        "worker_id": trace.worker,
        "workerId": trace.worker,
        "created_at": at,
        "createdAt": at,
        "trace_names": trace.names,
        "traceNames": trace.names,
    }


def _found(trace: Trace, queues: Mapping[int, Queue]) -> dict[str, Any]:
    """A trace with the message that it is about."""
    queue = queues.get(trace.queue)
    name = None if queue is None else shown_queue(queue.name)
    partition = shown_partition(trace.partition)
    return {
        **_shown(trace),
        "transaction_id": trace.transaction_id,
        "transactionId": trace.transaction_id,
        "partition_id": trace.partition_id,
        "partitionId": trace.partition_id,
        "queue_name": name,
        "queueName": name,
        "partition_name": partition,
        "partitionName": partition,
    }


ROUTES: Final = (
    queen_route("POST", "/api/v1/traces", record, "Note something about a message", scope="take"),
    queen_route("GET", "/api/v1/traces/names", names, "Names of traces", scope="read"),
    queen_route("GET", "/api/v1/traces/by-name/{name}", by_name, "Traces of a name", scope="read"),
    queen_route(
        "GET", "/api/v1/traces/{partition}/{transaction}", of_message, "Traces of a message", scope="read"
    ),
)
