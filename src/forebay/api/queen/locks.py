"""Locks and semaphores: a permit is a value with an owner and an end; its version is the token that fences.

Invariants: no more permits are held than the limit; a token only rises; who sends an acquire again, its
answer being lost, gets the permit that the first one took. Operations of one call stand for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.judging import Judged, KvOp
from forebay.api.queen.kv import OPS_MAX, TTL_MAX, apply
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso
from forebay.log.values import Record
from forebay.model import Rejected
from forebay.model.limits import check_text

NAMESPACE: Final = "queen-locks"
NAME_BYTES_MAX: Final = 256
LIMIT_MAX: Final = 1_024
_TRIES: Final = 16


class LockOp(Body):
    """An operation on a lock."""

    op: str = ""
    name: str = ""
    owner: str | None = None
    ttl_seconds: int | None = None
    token: int | None = None
    slot: int | None = None
    limit: int | None = None


class LockForm(msgspec.Struct):
    """Operations, each on a lock of its own."""

    operations: list[LockOp] = msgspec.field(default_factory=list)


class Permit(msgspec.Struct, frozen=True):
    """What is kept of a permit."""

    owner: str
    since: str


_permit: Final = msgspec.json.Decoder(Permit).decode


async def batch(call: Call) -> Answer:
    """Acquire, renew, release or look at locks."""
    call.key.check("take")
    form = await read(call, LockForm)
    if len(form.operations) > OPS_MAX:
        raise Rejected(f"{len(form.operations)} operations are too many", hint=f"send up to {OPS_MAX}")
    names = set[str]()
    for index, op in enumerate(form.operations):
        _check(op, f"op at index {index}")
        if op.name in names:
            text = f"op at index {index}: the lock {op.name!r} stands twice in one call"
            raise Rejected(text, hint="name each lock once")
        names.add(op.name)
    results = []
    for index, op in enumerate(form.operations):
        answer = await _VERBS[op.op](call, op)
        results.append({"index": index, "op": op.op, "name": op.name, **answer})
    return Answer({"ok": True, "results": results})


def _check(op: LockOp, where: str) -> None:
    if op.op not in _VERBS:
        raise Rejected(f"{where}: there is no operation {op.op[:32]!r}", hint=f"use {', '.join(_VERBS)}")
    check_text(op.name, f"{where}: name", NAME_BYTES_MAX)
    if not op.name or "#" in op.name:
        raise Rejected(f"{where}: a lock has a name without #", hint="name it")
    if op.owner is not None:
        check_text(op.owner, f"{where}: owner", NAME_BYTES_MAX)
    if op.op in ("acquire", "renew") and not 0 < (op.ttl_seconds or 0) <= TTL_MAX:
        raise Rejected(f"{where}: ttlSeconds must be above zero", hint="a lock has an end; renew it")
    if op.op in ("renew", "release") and not op.token:
        raise Rejected(f"{where}: token is required", hint="send what the last acquire or renew answered")
    if not 1 <= (1 if op.limit is None else op.limit) <= LIMIT_MAX:
        raise Rejected(f"{where}: limit must be from 1 to {LIMIT_MAX}", hint="1 is a lock")
    if not 0 <= (op.slot or 0) < LIMIT_MAX:
        raise Rejected(f"{where}: there is no slot {op.slot}", hint="send what acquire answered")


async def _acquire(call: Call, op: LockOp) -> dict[str, Any]:
    """Take a permit; the one that this owner has, as it is, if it has one."""
    owner, limit = op.owner or call.id, 1 if op.limit is None else op.limit
    for _ in range(_TRIES):
        holders = await _holders(call, op.name)
        mine = next((holder for holder in holders if holder["owner"] == owner), None)
        if mine is not None:
            return _held(op.name, mine)
        taken = {holder["slot"] for holder in holders}
        free = next((slot for slot in range(limit) if slot not in taken), None)
        if free is None:
            return {"acquired": False, "reason": "held", "holders": holders}
        value = Raw(msgspec.json.encode(Permit(owner, iso(call.context.clock.now()))))
        put = KvOp(op="putIfAbsent", value=value, ttl_seconds=op.ttl_seconds or 1)
        result = await _apply(call, op.name, free, put)
        if result["applied"]:
            return await _only(call, op.name, owner, _granted(op.name, free, result["version"]))
    return {"acquired": False, "reason": "contended", "holders": await _holders(call, op.name)}


def _held(name: str, mine: Mapping[str, Any]) -> dict[str, Any]:
    """The permit that an owner has: the answer to a call that is sent again, whose first answer was lost."""
    granted = _granted(name, mine["slot"], mine["token"])
    return {"acquired": True, "already": True, "owner": mine["owner"], **granted}


async def _only(call: Call, name: str, owner: str, granted: dict[str, Any]) -> dict[str, Any]:
    """A permit that was just taken, unless a call of the same owner took a lower one at the same time."""
    holders = await _holders(call, name) if granted["slot"] else []
    lower = next((one for one in holders if one["owner"] == owner and one["slot"] < granted["slot"]), None)
    if lower is None:
        return {"acquired": True, "owner": owner, **granted}
    await _apply(call, name, granted["slot"], KvOp(op="delete", expect=granted["token"]))
    return _held(name, lower)


async def _renew(call: Call, op: LockOp) -> dict[str, Any]:
    """More time for a permit, under a new token."""
    slot, holders = op.slot or 0, await _holders(call, op.name)
    mine = next((holder for holder in holders if holder["slot"] == slot), None)
    if mine is not None and mine["token"] == op.token:
        value = Raw(msgspec.json.encode(Permit(mine["owner"], mine["since"])))
        put = KvOp(op="put", value=value, ttl_seconds=op.ttl_seconds or 1, expect=op.token or 0)
        result = await _apply(call, op.name, slot, put)
        if result["applied"]:
            return {"renewed": True, **_granted(op.name, slot, result["version"])}
    return {"renewed": False, "reason": "lost", "holders": await _holders(call, op.name)}


async def _release(call: Call, op: LockOp) -> dict[str, Any]:
    """Give a permit back."""
    result = await _apply(call, op.name, op.slot or 0, KvOp(op="delete", expect=op.token or 0))
    return {"released": True} if result["applied"] else {"released": False, "reason": "lost"}


async def _get(call: Call, op: LockOp) -> dict[str, Any]:
    """Who holds it."""
    holders = await _holders(call, op.name)
    return {"held": bool(holders), "holders": holders}


def _granted(name: str, slot: int, token: int) -> dict[str, Any]:
    guard = {"op": "check", "ns": NAMESPACE, "key": _key(name, slot), "expect": token, "required": True}
    return {"slot": slot, "token": token, "guard": guard}


def _key(name: str, slot: int) -> str:
    return f"{name}#{slot:04d}"


async def _holders(call: Call, name: str) -> list[dict[str, Any]]:
    """Who holds permits of a lock."""
    judged = await _carry_out(call, KvOp(op="getPrefix", ns=NAMESPACE, prefix=f"{name}#", limit=LIMIT_MAX))
    holders = []
    for row in judged.results[0]["rows"]:
        permit = _permit(row["value"])
        times = {"since": permit.since, "expiresAt": row["expiresAt"], "renewedAt": row["updatedAt"]}
        slot = int(row["key"].rpartition("#")[2])
        holders.append({"slot": slot, "owner": permit.owner, "token": row["version"], **times})
    return holders


async def _apply(call: Call, name: str, slot: int, op: KvOp) -> dict[str, Any]:
    op = msgspec.structs.replace(op, ns=NAMESPACE, key=_key(name, slot))
    return (await _carry_out(call, op)).results[0]


async def _carry_out(call: Call, op: KvOp) -> Judged:
    async def write(records: Sequence[Record]) -> None:
        await call.desk.store.log.commit(records=records)

    return await apply(call, [op], write)


_VERBS: Final = {"acquire": _acquire, "renew": _renew, "release": _release, "get": _get}
ROUTES: Final = (queen_route("POST", "/api/v1/locks", batch, "Locks and semaphores", scope="take"),)
