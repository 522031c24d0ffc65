"""Keys and values: small ones, by namespace, with versions and an end; several operations are one write.

Kept as records. One that has ended, or was removed, stays for a while as a mark, so that its versions go on.
Invariants: of several who write on the same condition one wins; a call is carried out as a whole, or not at
all where something in it that is required is not so.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.judging import LATER, READS, Judged, KvOp, Row, judge, shown
from forebay.api.queen.reading import read
from forebay.api.queen.routes import queen_route
from forebay.log.seam import Log, VersionConflict
from forebay.log.values import Kept, Record
from forebay.model import Unavailable

SPACE: Final = "queen.kv"
OPS_MAX: Final = 256
KEYS_MAX: Final = 4_096
KEY_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 64 << 10
PREFIX_LIMIT: Final = 100
PREFIX_LIMIT_MAX: Final = 1_024
READ_BYTES_MAX: Final = 4 << 20
TTL_MAX: Final = 100 * 365 * 86_400
_MARK_SECONDS: Final = 3_600
"""How long the mark of what has ended stays: much longer than a call may take."""
_TRIES: Final = 100
_SECOND: Final = 1_000_000
_NAMESPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NAMES: Final = frozenset({*READS, "put", "putIfAbsent", "delete", "incr", "check"})
_EXPIRING: Final = frozenset({"put", "putIfAbsent", "incr"})
_encode: Final = msgspec.json.encode
_row: Final = msgspec.json.Decoder(Row).decode


class Refused(Exception):  # noqa: N818 - an answer, not a fault of ours
    """A call that can't be carried out, for a reason that programs know."""

    def __init__(self, reason: str, detail: str, status: int = 400) -> None:
        super().__init__(detail)
        self.answer = {"error": "kv_bad_request", "reason": reason, "detail": detail}
        self.status = status


class KvForm(msgspec.Struct):
    """Operations that are one write."""

    operations: list[KvOp] = msgspec.field(default_factory=list)


# What is asked


def checked(ops: Sequence[KvOp], *, in_transaction: bool = False) -> Sequence[KvOp]:
    """Operations that can be carried out; Refused says which can't."""
    if len(ops) > OPS_MAX:
        raise Refused("kv_too_many_ops", f"{len(ops)} operations are too many: send up to {OPS_MAX}")
    written: set[tuple[str, str]] = set()
    for index, op in enumerate(ops):
        where = f"op at index {index}"
        _check_names(op, where, in_transaction=in_transaction)
        _check_write(op, where)
        if op.op not in READS and op.op != "check":
            if (op.ns, op.key) in written:
                raise Refused("kv_duplicate_key_in_call", f"{where}: its key is written twice in this call")
            written.add((op.ns, op.key))
    keys = sum(len(op.keys) if op.op == "getMany" else 1 for op in ops)
    if keys > KEYS_MAX:
        raise Refused("kv_too_many_keys", f"{keys} keys are too many: name up to {KEYS_MAX}")
    return ops


def _check_names(op: KvOp, where: str, *, in_transaction: bool) -> None:
    if op.op not in _NAMES:
        raise Refused("kv_unknown_op", f"{where}: there is no operation {op.op[:32]!r}")
    if not _NAMESPACE.fullmatch(op.ns):
        raise Refused("kv_bad_namespace", f"{where}: ns must match {_NAMESPACE.pattern}")
    if op.op == "getPrefix" and in_transaction:
        text = f"{where}: getPrefix is for POST /api/v1/kv only"
        raise Refused("kv_get_prefix_not_allowed_in_transaction", text)
    if op.op == "getPrefix" and not op.prefix:
        raise Refused("kv_prefix_required", f"{where}: name a prefix")
    names = op.keys if op.op == "getMany" else [op.prefix if op.op == "getPrefix" else op.key]
    for name in (*names, *([op.after] if op.after else [])):
        if not name or "\0" in name:
            raise Refused("kv_bad_key", f"{where}: a key has 1 to {KEY_BYTES_MAX} bytes, and no NUL")
        if len(name.encode(errors="surrogatepass")) > KEY_BYTES_MAX:
            raise Refused("kv_key_too_large", f"{where}: a key has up to {KEY_BYTES_MAX} bytes", 413)


def _check_write(op: KvOp, where: str) -> None:
    if op.op in _EXPIRING:
        ttl = None if isinstance(op.ttl_seconds, UnsetType) else op.ttl_seconds
        if ttl is not None and not 0 < ttl <= TTL_MAX:
            raise Refused("kv_bad_ttl", f"{where}: ttlSeconds must be from 1 to {TTL_MAX}")
        if (ttl is not None) + (op.forever is True) != 1:
            text = f"{where}: exactly one of ttlSeconds and forever:true is required"
            raise Refused("kv_expiry_not_specified", text)
    if op.op in ("put", "putIfAbsent"):
        if isinstance(op.value, UnsetType):
            raise Refused("kv_bad_request", f"{where}: {op.op} needs a value; null is one")
        if len(op.value) > VALUE_BYTES_MAX:
            raise Refused("kv_value_too_large", f"{where}: a value has up to {VALUE_BYTES_MAX} bytes", 413)
    if op.op == "incr" and isinstance(op.delta, UnsetType):
        raise Refused("kv_bad_request", f"{where}: incr needs a delta")
    bad = op.expect is None or (isinstance(op.expect, int) and op.expect < 0)
    if bad or (op.op == "putIfAbsent" and op.expect not in (0, msgspec.UNSET)):
        raise Refused("kv_bad_expect", f"{where}: expect must be a version, or 0 for what isn't there")
    if op.op == "check" and isinstance(op.expect, UnsetType):
        raise Refused("kv_bad_expect", f"{where}: check needs expect")


# What comes of it


def place_of(op: KvOp) -> str:
    """Where the row of an operation is kept."""
    return f"{op.ns}/{op.key}"


async def _look(log: Log, ops: Sequence[KvOp], now: int, *, always: bool) -> tuple[Judged, list[Record]]:
    """Judge operations by what is there, and what has to be written for it.

    Where nothing is written, nothing needs a guard, unless something else is written along (`always`).
    """
    places = [place_of(op) for op in ops]
    wanted = list(dict.fromkeys(p for op, p in zip(ops, places, strict=True) if op.op not in LATER))
    kept = {one.key: one for one in await log.records(SPACE, wanted)} if wanted else {}
    judged = judge(ops, places, {key: _row(one.value) for key, one in kept.items()}, now)
    if judged.failed is not None or not (judged.written or always):
        return judged, []
    records = [_record(place, row, kept.get(place)) for place, row in judged.written.items()]
    return judged, records + [_guard(p, kept.get(p), now) for p in judged.guarded - judged.written.keys()]


def _record(place: str, row: Row, kept: Kept | None) -> Record:
    ends_at = row.updated_at if row.gone else row.expires_at
    expires_at = None if ends_at is None else ends_at + _MARK_SECONDS * _SECOND
    return Record(SPACE, place, _encode(row), expires_at, 0 if kept is None else kept.version)


def _guard(place: str, kept: Kept | None, now: int) -> Record:
    """A write that changes nothing, and fails if somebody else changed it."""
    if kept is None:
        return _record(place, Row(0, now, gone=True), None)
    return Record(SPACE, place, kept.value, kept.expires_at, kept.version)


Write = Callable[[Sequence[Record]], Awaitable[None]]


async def apply(call: Call, ops: Sequence[KvOp], write: Write, *, always: bool = False) -> Judged:
    """Carry out operations; `write` writes what it takes, and is called even for nothing with `always`.

    It is called again when somebody else was quicker, which VersionConflict says.
    """
    desk, log = call.desk, call.desk.store.log
    async with AsyncExitStack() as stack:
        await desk.stripes.hold(stack, [place_of(op) for op in ops if op.op not in READS])
        for _ in range(_TRIES):
            judged, records = await _look(log, ops, call.context.clock.now(), always=always)
            if judged.failed is not None:
                return judged
            if records or always:
                try:
                    await write(records)
                except VersionConflict as conflict:
                    if conflict.space != SPACE:
                        raise
                    continue
            break
        else:
            text = "others write the same keys all the time"
            raise Unavailable(text, hint="try again", retry_after_seconds=1.0)
    await _read_later(log, ops, judged, call.context.clock.now())
    return judged


async def _read_later(log: Log, ops: Sequence[KvOp], judged: Judged, now: int) -> None:
    """Answer reads of several keys; what is beyond the bytes of an answer is left out, and said to be."""
    left = READ_BYTES_MAX
    for op, result in zip(ops, judged.results, strict=True):
        if op.op == "getMany":
            left = await _get_many(log, op, result, now, left)
        elif op.op == "getPrefix":
            left = await _get_prefix(log, op, result, now, left)


async def _get_many(log: Log, op: KvOp, result: dict[str, Any], now: int, left: int) -> int:
    begin = len(op.ns) + 1
    keys = list(dict.fromkeys(op.keys))
    found = {one.key[begin:]: one for one in await log.records(SPACE, [f"{op.ns}/{key}" for key in keys])}
    rows, missing, truncated = list[Any](), list[str](), False
    for key in keys:
        row = _row(found[key].value) if key in found else None
        if row is None or not row.is_there(now):
            missing.append(key)
        elif (left := left - len(found[key].value)) < 0:
            truncated = True
        else:
            rows.append(shown(key, row))
    result.update(rows=rows, missing=missing, truncated=truncated)
    return left


async def _get_prefix(log: Log, op: KvOp, result: dict[str, Any], now: int, left: int) -> int:
    limit = min(max(PREFIX_LIMIT if op.limit is None else op.limit, 1), PREFIX_LIMIT_MAX)
    begin, prefix = len(op.ns) + 1, f"{op.ns}/{op.prefix}"
    after = f"{op.ns}/{op.after}" if op.after else ""
    rows: list[Any] = []
    truncated = False
    while not truncated and (page := await log.scan(SPACE, prefix, after=after, limit=limit + 1)):
        for one in page:
            row = _row(one.value)
            if not row.is_there(now):
                continue
            left -= len(one.value)
            if len(rows) >= limit or (left < 0 and rows):
                truncated = True
                break
            rows.append(shown(one.key[begin:], row, keys_only=op.keys_only))
        after = page[-1].key
    following = rows[-1]["key"] if truncated and rows else None
    result.update(rows=rows, truncated=truncated, nextAfter=following)
    return left


async def batch(call: Call) -> Answer:
    """Carry out operations, as one write."""
    call.key.check("take")  # values belong to no queue, so a key for some queues doesn't do
    form: KvForm | list[KvOp] = await read(call, KvForm | list[KvOp])  # type: ignore[arg-type]
    log = call.desk.store.log

    async def write(records: Sequence[Record]) -> None:
        await log.commit(records=records)

    try:
        ops = checked(form.operations if isinstance(form, KvForm) else form)
    except Refused as refused:
        return Answer(refused.answer, status=refused.status)
    judged = await apply(call, ops, write)
    return Answer(judged.failed if judged.failed is not None else {"ok": True, "results": judged.results})


ROUTES: Final = (queen_route("POST", "/api/v1/kv", batch, "Read and write values by key", scope="take"),)
