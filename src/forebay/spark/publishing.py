"""Publishing what the tasks of a write staged: each version of each application once, whatever is repeated.

The record of an application says which version was published last, and is written in the transaction that
publishes. Whoever comes with this version or an earlier one finds it there, and publishes nothing: a batch
that Spark repeats, a driver that was paused while another went on, an answer that was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeVar, cast

import msgspec

from forebay.log.seam import Log, VersionConflict
from forebay.log.values import Record
from forebay.model import ID_BYTES, Clock, Conflict, Rejected, SystemClock, Unavailable

SPACE: Final = "spark-sink"
"""Where the records are, by application."""
NAMED_MAX: Final = 5
"""How many bad rows an error names; it counts the others."""
JOB_RECORD_SECONDS: Final = 86_400
"""How long the record of a job stays that nobody can repeat, since its application is its own."""

_PAUSES: Final = (0.1, 0.5, 2.0, 5.0)
"""Before a call is repeated that a log could not answer; then the error is Spark's to deal with."""

Result = TypeVar("Result")


class BadRows(Rejected):
    """Rows of a write can't be messages, and nothing was published."""

    @classmethod
    def of(cls, count: int, named: Sequence[str]) -> Self:
        """The error that names the first few of so many."""
        more = count - len(named[:NAMED_MAX])
        listed = "; ".join(named[:NAMED_MAX]) + (f"; and {more} more" if more else "")
        text = f"{'1 row' if count == 1 else f'{count} rows'} can't be messages ({listed})"
        return cls(text, hint="filter them out, or set the option badRows to a queue that takes them")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of the last version that was published."""

    batch: int
    rows: int
    bad: int
    blocks: int
    published_at: int
    query: str | None
    """The stream that it belongs to; None for batch writes."""


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What one task staged, as it tells the driver."""

    app: str
    version: int
    query: str | None
    stage: str
    place: int
    """The number of the Spark partition."""
    ids: bytes
    """Of the blocks, in their order, one after the other."""
    keeps: bool
    """Whether the record stays for good: its application comes again."""
    rows: int = 0
    bad: int = 0
    named: Sequence[str] = ()
    """The first of the bad rows, each with its place and what is wrong."""
    refusal: Rejected | None = None
    """Why nothing of this write may be published."""


async def publish_once(log: Log, tasks: Sequence[Staged], clock: Clock | None = None) -> bool:
    """Publish the blocks of all tasks, in the order of their Spark partitions; False: it was done before.

    What a task was refused is raised here, and not by the task: Spark would only repeat it.
    """
    if not tasks:
        return False
    tasks = sorted(tasks, key=lambda task: task.place)
    check_refusals(tasks)
    first = tasks[0]
    ids = [task.ids[at : at + ID_BYTES] for task in tasks for at in range(0, len(task.ids), ID_BYTES)]
    while True:
        kept = await patiently(lambda: log.records(SPACE, [first.app]))
        last = msgspec.json.decode(kept[0].value, type=Progress) if kept else None
        if is_published(first, last):
            await forget(log, [first.stage])
            return False
        now = (clock or SystemClock()).now()
        record = _record(tasks, len(ids), now, kept[0].version if kept else 0)
        try:
            await patiently(lambda: log.publish(first.stage, ids, records=[record]))  # noqa: B023 - awaited here
        except VersionConflict:
            continue  # somebody else published meanwhile, or this very call did and its answer was lost
        return True


def check_refusals(tasks: Sequence[Staged]) -> None:
    """Raise what keeps a write from being published, of all tasks together."""
    refused = [task for task in tasks if task.refusal is not None]
    for task in refused:
        if not isinstance(task.refusal, BadRows):
            raise cast("Rejected", task.refusal)
    if refused:
        raise BadRows.of(sum(task.bad for task in refused), [name for task in refused for name in task.named])


async def forget(log: Log, stages: Sequence[str]) -> None:
    """Drop what is staged and will not be published."""
    for stage in dict.fromkeys(stages):
        await log.publish(stage, [])


def is_published(task: Staged, last: Progress | None) -> bool:
    """Whether the version of a task is in the log; Conflict where two streams use one application."""
    if last is None:
        return False
    if last.query != task.query:
        theirs, ours = _whose(last.query), _whose(task.query)
        text = f"txnAppId {task.app!r} is in use: {theirs} published version {last.batch}, this is {ours}"
        raise Conflict(
            text, hint="take another txnAppId for another query or checkpoint; nothing was published"
        )
    return task.version <= last.batch


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Make a call that may be repeated, until the log can answer it or it has taken too long."""
    for pause in _PAUSES:
        try:
            return await call()
        except Unavailable as error:
            await asyncio.sleep(max(pause, min(error.retry_after_seconds or 0, _PAUSES[-1])))
    return await call()


def _record(tasks: Sequence[Staged], blocks: int, now: int, version: int) -> Record:
    first = tasks[0]
    progress = Progress(
        batch=first.version,
        rows=sum(task.rows for task in tasks),
        bad=sum(task.bad for task in tasks),
        blocks=blocks,
        published_at=now,
        query=first.query,
    )
    expires_at = None if first.keeps else now + JOB_RECORD_SECONDS * 1_000_000
    return Record(SPACE, first.app, msgspec.json.encode(progress), expires_at, version)


def _whose(query: str | None) -> str:
    return "a batch write" if query is None else f"the stream {query}"
