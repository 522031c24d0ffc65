"""What callers say of a task: checked before anything is done with it, since it may come from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.model import BLOCK_MESSAGES_CEILING, MESSAGE_ID_MAX, TIME_MAX, Rejected, check_partition
from forebay.store.values import Retry, Task, Ticket
from forebay.warm.values import Lease

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_EXACT_MAX: Final = 1 << 53
"""Past this a warm tier that counts in doubles can't tell numbers apart."""
_BOUNDS: Final = (
    ("group", 1, _INT32_MAX),
    ("number", 0, _EXACT_MAX),
    ("claim", 0, _INT64_MAX),
    ("first", 1, MESSAGE_ID_MAX),
    ("count", 1, BLOCK_MESSAGES_CEILING),
    ("attempts", 0, _INT32_MAX - 1),
    ("start_time", 0, TIME_MAX),
)
_KINDS: Final = {Task, Ticket}
_NUMBERS: Final = {int}
_EPOCH_MAX: Final = 100
REASON_BYTES_MAX: Final = 64 << 10
CODE_MAX: Final = (1 << 31) - 1
_HINT: Final = "settle tasks with what came with them, unchanged"


def leases_of(tasks: Sequence[Task | Ticket]) -> list[Lease]:
    """The leases of tasks or tickets; Rejected names what is neither."""
    if not set(map(type, tasks)) <= _KINDS:
        stray = next(task for task in tasks if type(task) not in _KINDS)
        hint = "pass the task itself: an id doesn't say under whose lease it is"
        raise Rejected(f"{stray!r} is no task", hint=hint)
    return [task.lease for task in tasks]


def check_lease(lease: Lease) -> None:
    """Raise Rejected unless a lease can be one that was given out."""
    if type(lease) is not Lease:
        raise Rejected(f"{lease!r} is no lease", hint=_HINT)
    for name, least, most in _BOUNDS:
        value = getattr(lease, name)
        if type(value) is not int or not least <= value <= most:
            raise Rejected(f"the {name} of a lease is {value!r}, not {least} to {most}", hint=_HINT)
    if lease.prev_start_time is not None:
        check_time(lease.prev_start_time, "the prev_start_time of a lease")
    if not lease.epoch.isascii() or len(lease.epoch) > _EPOCH_MAX:
        raise Rejected("the epoch of a lease is none that was given out", hint=_HINT)
    if lease.partition is not None:
        check_partition(lease.partition, what="the partition of a lease")


def offsets_of(lease: Lease, tasks: Sequence[Task | Ticket]) -> list[int]:
    """Tasks of a lease as offsets in its claim; Rejected names one that isn't in it."""
    first = lease.first
    ids = [task.id for task in tasks]
    if not set(map(type, ids)) <= _NUMBERS:
        raise Rejected("the id of a task is not a number", hint=_HINT)
    offsets = [i - first for i in ids]
    if min(offsets) < 0 or max(offsets) >= lease.count:
        stray = next(i for i in ids if not 0 <= i - first < lease.count)
        last = first + lease.count - 1
        raise Rejected(f"task {stray} is not among those of its lease, {first} to {last}", hint=_HINT)
    return offsets


def check_once(tasks: Sequence[Task | Ticket]) -> None:
    """Raise Rejected where a task comes twice; all of them are known to be tasks."""
    seen: set[tuple[int, int]] = set()
    for task in tasks:
        key = task.lease.group, task.id
        if key in seen:
            raise Rejected(f"task {task.id} is settled twice", hint="say once what became of it")
        seen.add(key)


def check_apart(*outcomes: Sequence[Task | Ticket]) -> None:
    """Raise Rejected where a task has two outcomes; all of them are known to be tasks."""
    kinds = [tasks for tasks in outcomes if tasks]
    if len(kinds) < 2:  # noqa: PLR2004 - by far the most frequent, and nothing to compare
        return
    seen: set[tuple[int, int]] = set()
    for tasks in kinds:
        said = {(task.lease.group, task.id) for task in tasks}
        if both := seen & said:
            raise Rejected(f"task {min(both)[1]} has two outcomes", hint="say once what became of it")
        seen |= said


def as_retry(
    task: Task | Ticket | Retry, start_time: int | None, delay_seconds: float | None, reason: str
) -> Retry:
    """A task that comes back at a time, or after a delay, for a reason, unless it brings its own."""
    if not isinstance(task, Retry):
        return Retry(task, start_time or 0, reason=reason, delay_seconds=delay_seconds)
    return msgspec.structs.replace(task, reason=reason) if reason and not task.reason else task


def check_time(moment: object, what: str) -> None:
    """Raise Rejected unless it is a time."""
    if type(moment) is not int or not 0 <= moment <= TIME_MAX:
        hint = "give whole microseconds since 1970, up to the year 9999"
        raise Rejected(f"{what} is {moment!r}", hint=hint)


def check_code(code: object) -> int:
    """A code as every log can keep it, or Rejected."""
    if type(code) is not int or not 0 <= code <= CODE_MAX:
        hint = f"give a whole number from 0 to {CODE_MAX}, such as an HTTP status"
        raise Rejected(f"the code is {code!r}", hint=hint)
    return code


def check_reason(reason: object) -> str:
    """A reason as every log can keep it, or Rejected."""
    if not isinstance(reason, str):
        raise Rejected(f"the reason is {type(reason).__name__}, not text", hint="give a string")
    try:
        size = len(reason.encode())
    except UnicodeEncodeError:
        raise Rejected("the reason can't be written as UTF-8", hint="remove the lone surrogates") from None
    if size > REASON_BYTES_MAX or "\0" in reason:
        text = f"the reason has {size} bytes, or a zero among them"
        raise Rejected(text, hint=f"give up to {REASON_BYTES_MAX} bytes of text, none of them zero")
    return reason
