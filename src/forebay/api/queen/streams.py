"""Streams: queries that are known by name, and the state that they keep. Their cycles are in `cycling`.

Invariants: the id of a query follows from its name; one that is registered with another configuration is
refused, unless it is reset, which begins with no state at all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.identity import named_uuid
from forebay.api.queen.names import queue_name
from forebay.api.queen.reading import read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.state import Shard, read_all, read_keys, sweep
from forebay.api.queen.times import iso
from forebay.log.seam import VersionConflict
from forebay.log.values import Kept, Record
from forebay.model import Rejected, Unavailable
from forebay.model.limits import check_text

SPACE: Final = "queen.stream"
KEYS_MAX: Final = 20_000
_NAME_BYTES_MAX: Final = 255
_TRIES: Final = 5
_encode: Final = msgspec.json.encode


class QueryForm(msgspec.Struct):
    """A query to register."""

    name: str | None = None
    source_queue: str | None = None
    sink_queue: str | None = None
    config_hash: str | None = None
    reset: bool | None = False


class StateForm(msgspec.Struct):
    """Which state is wanted: no keys, all of it."""

    query_id: str | None = None
    partition_id: str | None = None
    keys: list[str] | None = None
    key_prefix: str | None = None
    ripe_at_or_before: float | None = None


class StreamQuery(msgspec.Struct, frozen=True):
    """A query as it is kept."""

    name: str
    source: str
    """The queue that it reads, as we keep it."""
    config_hash: str
    generation: int = 1
    sink: str | None = None


_decode: Final = msgspec.json.Decoder(StreamQuery).decode
_ripe: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def register(call: Call) -> Answer:
    """Make a query known, or find it again."""
    form = await read(call, QueryForm)
    wanted = _wanted(form)
    call.allow(wanted.source)
    if wanted.sink is not None:
        call.key.check("push", wanted.sink)
    id, log = named_uuid("stream", wanted.name), call.desk.store.log
    for _ in range(_TRIES):
        kept = next(iter(await log.records(SPACE, [id])), None)
        before = None if kept is None else _decode(kept.value)
        if before is not None:
            call.allow(before.source)
        if before is not None and before.config_hash != wanted.config_hash and not form.reset:
            return Answer(_mismatch(id, wanted.name), status=409)
        after = _after(before, wanted, reset=bool(form.reset))
        if after != before:
            try:
                await _write(call, id, after, kept)
            except VersionConflict:
                continue  # somebody else registers it at the same time
        await sweep(log, id, after.generation)
        shown = {"query_id": id, "name": wanted.name, "config_hash": wanted.config_hash}
        return Answer(
            {"success": True, **shown, "fresh": before is None, "reset": before is not None and form.reset}
        )
    raise Unavailable("the query is being registered by others", hint="try again", retry_after_seconds=1.0)


def _wanted(form: QueryForm) -> StreamQuery:
    if not form.name:
        raise Rejected("name is required", hint="name the query")
    if not form.source_queue:
        raise Rejected("source_queue is required", hint="name the queue that the query reads")
    if not form.config_hash:
        raise Rejected("config_hash is required", hint="send what tells this configuration from others")
    for what, text in (("name", form.name), ("config_hash", form.config_hash)):
        check_text(text, what, _NAME_BYTES_MAX)
    sink = queue_name(form.sink_queue) if form.sink_queue else None
    return StreamQuery(form.name, queue_name(form.source_queue), form.config_hash, sink=sink)


def _after(before: StreamQuery | None, wanted: StreamQuery, *, reset: bool) -> StreamQuery:
    """A query as it is to be kept."""
    if before is None:
        return wanted
    generation = before.generation + 1 if reset else before.generation
    return msgspec.structs.replace(wanted, generation=generation)


async def _write(call: Call, id: str, query: StreamQuery, kept: Kept | None) -> None:
    version = 0 if kept is None else kept.version
    await call.desk.store.log.commit(records=[Record(SPACE, id, _encode(query), version=version)])


def _mismatch(id: str, name: str) -> dict[str, Any]:
    error = f"config_hash mismatch: query {name!r} is registered with another configuration"
    return {"success": False, "query_id": id, "name": name, "error": error}


async def find_query(call: Call, id: str | None) -> StreamQuery | None:
    """A query by its id, if the key may see it."""
    if not id:
        raise Rejected("query_id is required", hint="register the query, and send its query_id")
    kept = await call.desk.store.log.records(SPACE, [id.lower()[:64]])
    if not kept:
        return None
    query = _decode(kept[0].value)
    call.allow(query.source)
    return query


async def get_state(call: Call) -> Answer:
    """State of one partition of a query."""
    form = await read(call, StateForm)
    query = await find_query(call, form.query_id)
    if not form.partition_id:
        raise Rejected("partition_id is required", hint="send that of the messages")
    if query is None:
        return Answer({"success": False, "error": "query not found", "rows": []}, status=404)
    keys = form.keys or []
    if len(keys) > KEYS_MAX:
        raise Rejected(f"{len(keys)} keys are too many", hint=f"ask for up to {KEYS_MAX}")
    shard = Shard((form.query_id or "").lower(), query.generation, form.partition_id.lower()[:64])
    found = await _read(call, shard, keys, form)
    begin = len(shard.prefix)
    rows = [
        {"key": kept.key[begin:], "value": msgspec.Raw(kept.value), "updated_at": iso(kept.updated_at)}
        for kept in found
    ]
    return Answer({"success": True, "rows": rows})


async def _read(call: Call, shard: Shard, keys: list[str], form: StateForm) -> list[Kept]:
    """What is asked for; the versions are remembered, for whoever writes it back."""
    log, prefix, ripe_at = call.desk.store.log, form.key_prefix or "", form.ripe_at_or_before
    if keys:
        found = await read_keys(log, shard, keys)
    else:
        found = [kept async for kept in read_all(log, shard, prefix)]
    reads, begin = call.desk.reads, len(shard.prefix)
    if not prefix and ripe_at is None:
        reads.note(shard, found, asked=keys or None)
        return found
    chosen = [
        kept
        for kept in found
        if kept.key[begin:].startswith(prefix) and (ripe_at is None or _is_ripe(kept.value, ripe_at))
    ]
    reads.note_some(shard, chosen)
    return chosen


def _is_ripe(value: bytes, moment: float) -> bool:
    """Whether a value is that of a window which ended by a moment (ms)."""
    try:
        end = _ripe(value).get("windowEnd")
        return end is not None and float(end) <= moment
    except (msgspec.DecodeError, TypeError, ValueError):
        return False


ROUTES: Final = (
    queen_route("POST", "/streams/v1/queries", register, "Register a query of a stream", scope="take"),
    queen_route("POST", "/streams/v1/state/get", get_state, "State of a stream", scope="take"),
)
