"""What operations on keys and values come to, given what is there: pure.

Invariants: an operation sees those before it in its call; one that is refused writes nothing; a version is
never used twice for a key, also when it was removed or has expired in between, so it can fence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from forebay.api.queen.times import iso, iso_or_none

Reason = Literal["exists", "absent", "version", "type", "limit"]
_SECOND: Final = 1_000_000
_NULL: Final = Raw(b"null")
_NUMERIC: Final = frozenset(bytes([byte]) for byte in b"-0123456789")
_DIGITS_MAX: Final = 300
"""Numbers that are longer than this are none that are counted with."""
READS: Final = frozenset({"get", "getMany", "getPrefix"})
LATER: Final = frozenset({"getMany", "getPrefix"})
"""Reads of several keys are answered after the others, and see what they wrote."""


class KvOp(msgspec.Struct, rename="camel"):
    """An operation; which of the fields it has depends on what it is."""

    op: str = ""
    ns: str = ""
    key: str = ""
    keys: list[str] = msgspec.field(default_factory=list)
    value: Raw | UnsetType = UNSET
    ttl_seconds: int | UnsetType = UNSET
    forever: bool | UnsetType = UNSET
    expect: int | UnsetType | None = UNSET
    required: bool = False
    delta: int | float | UnsetType = UNSET
    min: int | float | None = None
    max: int | float | None = None
    prefix: str = ""
    after: str | None = None
    limit: int | None = None
    keys_only: bool = False

    @property
    def expected(self) -> int | None:
        """The version that must be there; 0 for none, None for any."""
        if self.op == "putIfAbsent":
            return 0
        return self.expect if isinstance(self.expect, int) else None

    def expires_at(self, now: int) -> int | None:
        """Until when what it writes is there."""
        return None if isinstance(self.ttl_seconds, UnsetType) else now + self.ttl_seconds * _SECOND


class Row(msgspec.Struct, frozen=True):
    """A value as it is kept."""

    version: int
    updated_at: int
    value: Raw = _NULL
    expires_at: int | None = None
    gone: bool = False
    """It was removed, or never there: only its version counts."""

    def is_there(self, now: int) -> bool:
        """Whether somebody who reads finds it."""
        return not self.gone and (self.expires_at is None or self.expires_at > now)


@dataclass(slots=True)
class Judged:
    """What operations come to."""

    results: list[dict[str, Any]] = field(default_factory=list)
    written: dict[str, Row] = field(default_factory=dict)
    """What is to be kept, by where."""
    guarded: set[str] = field(default_factory=set)
    """What must not change until that is written."""
    failed: dict[str, Any] | None = None
    """Why nothing is written, where something that was required is not so."""


def judge(ops: Sequence[KvOp], places: Sequence[str], rows: Mapping[str, Row], now: int) -> Judged:
    """Carry out operations on rows; `places` says where the row of each operation is kept."""
    judged, seen = Judged(), dict(rows)
    for index, (op, place) in enumerate(zip(ops, places, strict=True)):
        if op.op in LATER:
            judged.results.append({"index": index, "op": op.op})
            continue
        kept = seen.get(place)
        row = kept if kept is not None and kept.is_there(now) else None
        if op.op == "get":
            judged.results.append(
                {"index": index, "op": op.op, "found": row is not None, **shown(op.key, row)}
            )
            continue
        after, reason = _verdict(op, row, kept, now)
        if reason is not None and op.required:
            failed = _failure(index, reason, op, row)
            return Judged(failed=failed)
        if reason is None and op.op == "check":
            judged.guarded.add(place)
        elif after is not None:
            seen[place] = judged.written[place] = after
        judged.results.append(_result(index, op, reason, row if after is None else after))
    return judged


def _verdict(op: KvOp, row: Row | None, kept: Row | None, now: int) -> tuple[Row | None, Reason | None]:
    """What is kept after an operation, or why it is refused."""
    if op.op == "incr":
        return _incremented(op, row, kept, now)
    reason = _objection(op, row)
    if reason is not None or op.op == "check":
        return None, reason
    if op.op == "delete":
        return Row(_next(kept, now), now, gone=True), None
    value = _NULL if isinstance(op.value, UnsetType) else Raw(bytes(op.value))
    return Row(_next(kept, now), now, value, op.expires_at(now)), None


def _objection(op: KvOp, row: Row | None) -> Reason | None:
    """Why an operation that has a condition is refused, if it is."""
    expected = op.expected
    if row is None:
        return "absent" if expected or op.op == "delete" else None
    if expected == 0:
        return "exists"
    return "version" if expected is not None and row.version != expected else None


def _incremented(op: KvOp, row: Row | None, kept: Row | None, now: int) -> tuple[Row | None, Reason | None]:
    """A number that is somewhat more; it lives as long as it was to when it was made."""
    number = Decimal(0) if row is None else _number(row.value)
    if number is None:
        return None, "type"
    number += Decimal(str(0 if isinstance(op.delta, UnsetType) else op.delta))
    if abs(number.adjusted()) > _DIGITS_MAX:
        return None, "limit"
    if (op.min is not None and number < Decimal(str(op.min))) or (
        op.max is not None and number > Decimal(str(op.max))
    ):
        return None, "limit"
    whole = number.to_integral_value()
    text = str(int(number)) if whole == number else format(number.normalize(), "f")
    expires_at = op.expires_at(now) if row is None else row.expires_at
    return Row(_next(kept, now), now, Raw(text.encode()), expires_at), None


def _number(value: Raw) -> Decimal | None:
    text = bytes(value)
    if len(text) > _DIGITS_MAX or text[:1] not in _NUMERIC:
        return None
    try:
        number = Decimal(text.decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return number if abs(number.adjusted()) <= _DIGITS_MAX else None


def _next(kept: Row | None, now: int) -> int:
    """The version of what is written: past all that there were, since these were times that have passed."""
    return max(now, kept.version + 1 if kept is not None else 0)


def shown(key: str, row: Row | None, *, keys_only: bool = False) -> dict[str, Any]:
    """A row as whoever reads it sees it."""
    if row is None:
        return {"key": key, "value": None, "version": 0, "expiresAt": None, "updatedAt": None}
    answer: dict[str, Any] = {"key": key, "version": row.version, "updatedAt": iso(row.updated_at)}
    answer["expiresAt"] = iso_or_none(row.expires_at)
    return answer if keys_only else {**answer, "value": row.value}


def _result(index: int, op: KvOp, reason: Reason | None, row: Row | None) -> dict[str, Any]:
    """What became of a write: what is there now, also for who lost."""
    answer: dict[str, Any] = {"index": index, "op": op.op, "applied": reason is None, "key": op.key}
    if reason is not None:
        answer["reason"] = reason
    value = Raw(b"0") if row is None and op.op == "incr" else None if row is None else row.value
    return {**answer, "value": value, "version": 0 if row is None else row.version}


def _failure(index: int, reason: Reason, op: KvOp, row: Row | None) -> dict[str, Any]:
    return {
        "success": False,
        "ok": False,
        "reason": "kv_precondition",
        "failedIndex": index,
        "kvReason": reason,
        "op": op.op,
        "version": 0 if row is None else row.version,
        "value": None if row is None else row.value,
    }
