"""Rules on queues and groups that hold for every log: settings, numbers, names, nearest names."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from forebay.log.values import QueueSettings
from forebay.model import QUEUE_NUMBER_MAX, Conflict, Rejected, UnknownQueue, format_bytes

SECONDS_MAX: Final = 100 * 365 * 86_400
"""A hundred years: in microseconds, and counted back from now, it is still a number that databases know."""
_BOUNDS: Final = {
    "dedupe_seconds": (0, SECONDS_MAX, "a number of seconds"),
    "keep_seconds": (0, SECONDS_MAX, "a number of seconds"),
    "expire_seconds": (0, SECONDS_MAX, "a number of seconds"),
    "visibility_seconds": (0.001, SECONDS_MAX, "a number of seconds"),
    "retries_max": (0, (1 << 31) - 2, "a number"),
    "in_memory_queue_size": (1, 1 << 40, "a number of messages"),
    "in_memory_queue_bytes": (1 << 20, 1 << 50, "a number of bytes"),
}
"""From what to what each setting may be that is a number, and what it is. A message may have 1 MiB."""


NEAR_NAMES: Final = 32
"""Names on either side of an unknown one that are compared with it. With fewer queues, all are."""
NUMBERS_MAX: Final = 10_000
"""Queues that one call may name, and owners."""

LABELS_BYTES_MAX: Final = 16 << 10
"""What all labels of a queue may take as JSON."""
_LABELS_HINT: Final = "give texts, numbers, true, false, null, lists and dicts by text, without NUL"


def merge_settings(current: QueueSettings, changes: dict[str, Any] | None) -> QueueSettings:
    """`current` with `changes`; Rejected names the bad key and the nearest good one."""
    if not changes:
        return current
    for key in changes:
        if key not in QueueSettings.__struct_fields__:
            raise Rejected(f"unknown queue setting {key!r}", hint=_settings_hint(key))
    try:
        settings = msgspec.convert({**msgspec.to_builtins(current), **changes}, QueueSettings)
    except msgspec.ValidationError as error:
        raise Rejected(f"bad queue setting: {error}", hint="see the reference on queues") from error
    for name, (least, most, what) in _BOUNDS.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise Rejected(f"{name} is {value}", hint=f"give {what}, {least} to {most}")
    if "labels" in changes:
        _check_labels(settings.labels)
    return settings


def change_settings(current: QueueSettings, changes: dict[str, Any]) -> QueueSettings:
    """`merge_settings` for a queue that exists: what is fixed at creation stays."""
    settings = merge_settings(current, changes)
    if settings.ordered != current.ordered:
        raise Conflict("`ordered` is fixed when a queue is created", hint="make another queue")
    return settings


def _check_labels(labels: dict[str, Any]) -> None:
    """Raise Rejected unless labels are JSON that comes back from every log as it was."""
    try:
        text = msgspec.json.encode(labels)
        same = msgspec.json.decode(text) == labels and not _holds_nul(labels)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Rejected(f"labels are not JSON: {error}", hint=_LABELS_HINT) from error
    if not same:
        raise Rejected("labels are not JSON that can be kept as it is", hint=_LABELS_HINT)
    if len(text) > LABELS_BYTES_MAX:
        reason = f"labels are {len(text)} bytes of JSON, over {format_bytes(LABELS_BYTES_MAX)}"
        raise Rejected(reason, hint="keep less with the queue")


def _holds_nul(value: object) -> bool:
    """Whether some text holds a NUL, which PostgreSQL can't store."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_holds_nul, [*value, *value.values()]))
    return isinstance(value, list) and any(map(_holds_nul, value))


def check_number(number: int) -> int:
    """A queue number that was asked for."""
    if not 1 <= number <= QUEUE_NUMBER_MAX:
        raise Rejected(f"queue number {number} is out of range", hint=f"use 1..{QUEUE_NUMBER_MAX}")
    return number


def check_queues(numbers: Sequence[int] | None, after: int, limit: int | None) -> None:
    """Raise Rejected for a choice of queues that no log answers."""
    if numbers is not None and len(numbers) > NUMBERS_MAX:
        raise Rejected(f"{len(numbers)} queues are named at once", hint=f"name up to {NUMBERS_MAX}")
    if after < 0 or (limit is not None and limit < 1):
        raise Rejected(f"a page of {limit} queues after {after}", hint="give a limit of 1 or more")


def check_owners(owner: str | Sequence[str]) -> list[str]:
    """The owners that are said to be alive."""
    owners = [owner] if isinstance(owner, str) else list(dict.fromkeys(owner))
    if len(owners) > NUMBERS_MAX:
        raise Rejected(f"{len(owners)} owners are named at once", hint=f"name up to {NUMBERS_MAX}")
    return owners


def next_number(taken_max: int) -> int:
    """The number of a new queue."""
    if taken_max >= QUEUE_NUMBER_MAX:
        raise Rejected("all queue numbers are used", hint="open another log")
    return taken_max + 1


def number_taken(number: int, name: str) -> Conflict:
    """The error for a queue number that belongs to another queue."""
    text = f"queue number {number} belongs or belonged to {name!r}"
    return Conflict(text, hint="ask for another number, or none")


def unknown_queue(name: str, names: Iterable[str]) -> UnknownQueue:
    """The error for a queue that isn't there, with the nearest name of those given.

    Comparing names is slow: a log gives up to `NEAR_NAMES` of those before it and after it, by their order.
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "create it first"
    return UnknownQueue(f"there is no queue {name!r}", hint=hint)


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names around an unknown one, for logs that have no index to find them by."""
    listed = sorted(names)
    at = bisect_left(listed, name)
    return listed[max(0, at - NEAR_NAMES) : at + NEAR_NAMES]


def _settings_hint(key: str) -> str:
    fields = QueueSettings.__struct_fields__
    near = difflib.get_close_matches(key, fields, n=1)
    return f"did you mean {near[0]!r}?" if near else "known settings: " + ", ".join(fields)
