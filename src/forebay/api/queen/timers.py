"""What a timer is, how it is kept, and what operations do to timers: pure functions.

A timer is three records that come and go together: its head by queue and key, an entry by the time when it is
due, and its payload. The entry's key is used once only. Invariants: who changes a timer, or makes a message
of it, takes its entry away in the same write, and that fails when somebody else did so before; so a timer
becomes one message or none, whatever happens at the same time, and none after it was cancelled.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import cramjam
import msgspec

from forebay.api.queen.identity import fresh_uuid
from forebay.api.queen.names import shown_partition
from forebay.api.queen.reading import Body
from forebay.api.queen.times import iso
from forebay.log.values import Kept, Record
from forebay.model import TIME_MAX, Rejected, TooLarge
from forebay.model.limits import check_text

SPACE: Final = "queen.timer"
DUE: Final = "queen.timer.due"
PAYLOAD: Final = "queen.timer.payload"
KEY_BYTES_MAX: Final = 512
TXN_BYTES_MAX: Final = 255
PAYLOAD_BYTES_MAX: Final = (1 << 20) - 1_024
"""A record holds it, also when it is sealed."""
OPERATIONS_MAX: Final = 1_000
_DELAY_MS_MAX: Final = 100 * 365 * 86_400 * 1_000
_MILLISECOND: Final = 1_000
_FIRST: Final = 1
"""The version of an entry: it is written once."""


class TimerOp(Body):
    """Schedule a message, or cancel it."""

    op: str = ""
    queue: str = ""
    timer_key: str = ""
    payload: str | None = None
    """Base64."""
    delay_ms: int | None = None
    txn: str | None = None
    partition: str | None = None
    payload_zstd: bool = False


class Timer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The head of a timer; names as we keep them, times in µs."""

    queue: int
    key: str
    entry: str
    """The key of its entry, and of its payload."""
    deliver_at: int
    partition: str
    txn: str
    size: int
    created_at: int
    headers: dict[str, str] | None = None
    attempts: int = 0
    """How often it could not become a message."""
    last_error: str | None = None


class Due(msgspec.Struct, frozen=True, array_like=True):
    """Which timer an entry is of, and how large it is."""

    queue: int
    key: str
    size: int


_encode: Final = msgspec.msgpack.encode
timer_of: Final = msgspec.msgpack.Decoder(Timer).decode
due_of: Final = msgspec.msgpack.Decoder(Due).decode


def head_key(queue: int, key: str) -> str:
    """Where the head of a timer is."""
    return f"{queue:06d}/{key}"


def fresh_entry(moment: int) -> str:
    """The key of an entry that nobody had: in order of time."""
    return f"{moment:016x}/{fresh_uuid()}"


def moment_of(entry: str) -> int:
    """When an entry is due (µs)."""
    return int(entry.partition("/")[0], 16)


# Operations


def check(op: TimerOp, where: str) -> None:
    """Raise Rejected or TooLarge unless an operation can be done."""
    if op.op not in ("schedule", "reschedule", "cancel"):
        raise Rejected(f"{where} has the op {op.op[:32]!r}", hint="use schedule, reschedule or cancel")
    if not op.queue:
        raise Rejected(f"{where} needs a queue", hint="name the queue that the message goes to")
    if not op.timer_key:
        raise Rejected(f"{where} needs a timerKey", hint="give the timer a name of its own")
    check_text(op.timer_key, f"{where}.timerKey", KEY_BYTES_MAX)
    if op.txn is not None:
        check_text(op.txn, f"{where}.txn", TXN_BYTES_MAX)
    if op.op == "cancel":
        return
    if op.delay_ms is None:
        raise Rejected(f"{where} needs delayMs", hint="say in how many milliseconds it is due")
    if abs(op.delay_ms) > _DELAY_MS_MAX:
        raise Rejected(f"{where}.delayMs is {op.delay_ms}", hint="up to a hundred years")


def payload_of(op: TimerOp, where: str) -> bytes:
    """The payload of a timer, unpacked; what is left out is null."""
    if op.payload is None:
        return b"null"
    try:
        data = b64decode(op.payload, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(f"{where}.payload isn't base64", hint="encode it") from None
    if op.payload_zstd:
        data = _unpacked(data, where)
    if len(data) > PAYLOAD_BYTES_MAX:
        text = f"{where}.payload has {len(data)} bytes"
        raise TooLarge(text, hint=f"send up to {PAYLOAD_BYTES_MAX} bytes")
    return data


def _unpacked(data: bytes, where: str) -> bytes:
    """What zstd made smaller: into room for the largest payload, and not more."""
    room = bytearray(PAYLOAD_BYTES_MAX + 1)
    try:
        size = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError:
        text = f"{where}.payload isn't zstd, or has over {PAYLOAD_BYTES_MAX} bytes"
        raise Rejected(text, hint="leave payloadZstd out for a payload that isn't packed") from None
    return bytes(room[:size])


def deliver_at(op: TimerOp, now: int) -> int:
    """When a timer is due; what lies in the past is due now."""
    return min(now + max(op.delay_ms or 0, 0) * _MILLISECOND, TIME_MAX)


# What they do


class Standing(msgspec.Struct, frozen=True):
    """A timer as it was found, with the version of its head."""

    timer: Timer
    version: int


class Plan:
    """What operations do, one after the other, to timers that were found; nothing is written here."""

    def __init__(self, kept: Iterable[Kept]) -> None:
        self._found = {one.key: Standing(timer_of(one.value), one.version) for one in kept}
        self._wanted: dict[str, tuple[Timer, bytes] | None] = {}

    def schedule(self, timer: Timer, payload: bytes) -> bool:
        """Have a timer; whether one of its key was pending."""
        key = head_key(timer.queue, timer.key)
        was_pending = self._pending(key) is not None
        self._wanted[key] = (timer, payload)
        return was_pending

    def cancel(self, queue: int, key: str) -> Timer | None:
        """Have no timer of a key; the one that was pending."""
        place = head_key(queue, key)
        found = self._pending(place)
        self._wanted[place] = None
        return found

    def _pending(self, key: str) -> Timer | None:
        if key in self._wanted:
            wanted = self._wanted[key]
            return None if wanted is None else wanted[0]
        found = self._found.get(key)
        return None if found is None else found.timer

    def records(self) -> list[Record]:
        """What is to be written; VersionConflict says that something changed since it was found."""
        records: list[Record] = []
        for key, wanted in self._wanted.items():
            found = self._found.get(key)
            if found is not None:
                records += _let_go(found.timer)
            if wanted is not None:
                version = 0 if found is None else found.version
                records += _written(*wanted, version)
            elif found is not None:
                records.append(Record(SPACE, key, version=found.version))
        return records


def fired(found: Standing) -> list[Record]:
    """A timer's end; only once, since only once its entry is there."""
    timer = found.timer
    return [
        Record(SPACE, head_key(timer.queue, timer.key), version=found.version),
        *_let_go(timer),
    ]


def _let_go(timer: Timer) -> list[Record]:
    """Without its entry nobody makes a message of it."""
    return [Record(DUE, timer.entry, version=_FIRST), Record(PAYLOAD, timer.entry)]


def orphaned(entry: str) -> list[Record]:
    """The end of an entry that leads nowhere."""
    return [Record(DUE, entry), Record(PAYLOAD, entry)]


def deferred(found: Standing, payload: bytes, moment: int, error: str) -> list[Record]:
    """A timer that can't become a message now, and is tried again at a moment."""
    timer = msgspec.structs.replace(
        found.timer, entry=fresh_entry(moment), attempts=found.timer.attempts + 1, last_error=error[:1_000]
    )
    return [*_let_go(found.timer), *_written(timer, payload, found.version)]


def _written(timer: Timer, payload: bytes, version: int) -> list[Record]:
    due = Due(timer.queue, timer.key, timer.size)
    return [
        Record(SPACE, head_key(timer.queue, timer.key), _encode(timer), version=version),
        Record(DUE, timer.entry, _encode(due), version=0),
        Record(PAYLOAD, timer.entry, payload),
    ]


# What is shown


def result(op: TimerOp, status: str, timer: Timer | None = None) -> dict[str, Any]:
    """What became of an operation. The message has no id yet: it is found by its transaction id."""
    return {
        "ok": status != "absent",
        "status": status,
        "queue": op.queue,
        "timerKey": op.timer_key,
        "txn": op.txn if timer is None else timer.txn,
        "messageId": None,
        "deliverAt": None if timer is None else iso(timer.deliver_at),
    }


def row(timer: Timer, queue: str) -> dict[str, Any]:
    """A timer in a list."""
    return {
        "queue": queue,
        "timerKey": timer.key,
        "partition": shown_partition(timer.partition),
        "txn": timer.txn,
        "messageId": None,
        "deliverAt": iso(timer.deliver_at),
        "createdAt": iso(timer.created_at),
        "payloadBytes": timer.size,
        "attempts": timer.attempts,
        "lastError": timer.last_error,
    }


def chosen(entries: Sequence[Kept], now: int, bytes_max: int) -> list[tuple[str, Due]]:
    """The entries that are due, as many as fit; at least one, if one is due."""
    found: list[tuple[str, Due]] = []
    size = 0
    for kept in entries:
        due = due_of(kept.value)
        size += due.size
        if moment_of(kept.key) > now or (found and size > bytes_max):
            break
        found.append((kept.key, due))
    return found


def standings(kept: Iterable[Kept]) -> Mapping[str, Standing]:
    """Timers by the keys of their entries."""
    found = (Standing(timer_of(one.value), one.version) for one in kept)
    return {standing.timer.entry: standing for standing in found}
