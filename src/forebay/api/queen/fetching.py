"""Reading without consuming: messages of partitions by their offsets, and which partitions have changed.

No lease, no group, nothing is acknowledged: who asks the same gets the same. The offset of a message is its
sequence number in its queue, so the offsets of a partition rise and have gaps. Invariants: a call that has
anything to read brings at least one message; what a later `since` doesn't show was in an answer before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, UnsetType

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.hands import transaction_of
from forebay.api.queen.identity import partition_uuid
from forebay.api.queen.messages import SEALED, shown_data
from forebay.api.queen.names import partition_name, queue_name, shown_partition
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.api.queen.times import iso, parse_time
from forebay.log.values import Queue, Span, StoredBlock
from forebay.model import Corrupt, Message, Rejected, pack, sequence_of

ENTRIES_MAX: Final = 1_024
BYTES_MAX: Final = 8 << 20
MESSAGES_MAX: Final = 10_000
"""In one answer."""
CHANGED_ENTRIES_MAX: Final = 100
PAGE_MAX: Final = 1_000
OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"
UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PARTITION"
UNORDERED: Final = "UNORDERED_QUEUE"
"""A queue of our own format that keeps no order: it isn't read by partition."""
_CURSOR: Final = "past:"
"""What a page's cursor begins with: that of a partition without a name isn't empty then."""
_SETTLED_US: Final = 60_000_000
"""So old a time is before anything that may still be on its way into a queue that isn't there yet."""


class FetchEntry(Body):
    """A partition, and from where on."""

    queue: str
    partition: str | None = None
    offset: int = 0
    max_bytes: int = BYTES_MAX


class FetchForm(Body):
    """What is to be read."""

    entries: list[FetchEntry] | UnsetType = UNSET
    max_bytes: int = BYTES_MAX


@dataclass(slots=True)
class Budget:
    """What one answer may still bring."""

    bytes: int
    messages: int = MESSAGES_MAX

    def takes(self, size: int) -> bool:
        """Whether a message may come: as long as something is left, so that the first always does."""
        if self.bytes <= 0 or self.messages <= 0:
            return False
        self.bytes -= size
        self.messages -= 1
        return True


async def fetch(call: Call) -> Answer:
    """Messages of partitions from offsets on; costs by what is read."""
    form = await read(call, FetchForm)
    entries = _checked(form.entries, ENTRIES_MAX)
    budget = Budget(min(max(form.max_bytes, 1), BYTES_MAX))
    async with call.reading():
        return Answer({"entries": await _entries(call, entries, budget)})


async def _entries(call: Call, entries: list[FetchEntry], budget: Budget) -> list[dict[str, Any]]:
    queues = await _queues(call, entries)
    spans = {
        (queue.number, span.partition): span
        for queue, names in _named(queues, entries)
        for span in (await call.desk.store.log.spans(queue, names)).spans
    }
    answers = []
    for entry in entries:
        queue = queues[entry.queue]
        span = None if queue is None else spans.get((queue.number, partition_name(entry.partition)))
        answers.append(await _fetched(call, entry, queue, span, budget))
    return answers


def _checked(entries: list[Any] | UnsetType, most: int) -> list[Any]:
    if isinstance(entries, UnsetType):
        raise Rejected("entries array is required", hint='send {"entries": [{"queue": "q"}]}')
    if len(entries) > most:
        raise Rejected(f"{len(entries)} entries are too many", hint=f"send up to {most} at once")
    return entries


async def _queues(call: Call, entries: Iterable[FetchEntry | ChangedEntry]) -> dict[str, Queue | None]:
    names = {entry.queue for entry in entries}
    for name in names:
        call.allow(queue_name(name))
    return {name: await call.desk.queue(name) for name in names}


def _named(queues: dict[str, Queue | None], entries: Iterable[FetchEntry]) -> list[tuple[Queue, list[str]]]:
    """The partitions that are asked for, by queue."""
    wanted: dict[str, dict[str, None]] = {}
    for entry in entries:
        wanted.setdefault(entry.queue, {})[partition_name(entry.partition)] = None
    return [(queue, list(names)) for name, names in wanted.items() if (queue := queues[name]) is not None]


async def _fetched(
    call: Call, entry: FetchEntry, queue: Queue | None, span: Span | None, budget: Budget
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "queue": entry.queue,
        "partition": shown_partition(partition_name(entry.partition)),
        "highWatermark": 0 if span is None else sequence_of(span.last) + 1,
        "logStartOffset": 0 if span is None else sequence_of(span.first),
        "records": [],
    }
    if queue is not None and not queue.settings.ordered:
        return {**answer, "error": UNORDERED}
    if queue is None or span is None:
        return {**answer, "error": UNKNOWN}
    if entry.offset < 0 or entry.offset > answer["highWatermark"]:
        return {**answer, "error": OUT_OF_RANGE}
    mine = Budget(min(max(entry.max_bytes, 1), budget.bytes), budget.messages)
    given = Budget(mine.bytes, mine.messages)
    offset = max(entry.offset, answer["logStartOffset"])
    while offset < answer["highWatermark"] and mine.bytes > 0 and mine.messages > 0:
        blocks = await call.desk.store.log.read(
            queue, offset, messages=mine.messages, bytes=mine.bytes, partition=span.partition
        )
        if not blocks:
            break
        answer["records"] += _records(call, queue, blocks, offset, mine)
        offset = sequence_of(blocks[-1].last) + 1
    budget.bytes -= given.bytes - mine.bytes
    budget.messages -= given.messages - mine.messages
    return answer


def _records(
    call: Call, queue: Queue, blocks: Sequence[StoredBlock], offset: int, budget: Budget
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for stored in blocks:
        first = sequence_of(stored.first)
        with suppress(Corrupt):  # it is in quarantine, and the others can be read
            block = stored.decode(queue.name)
            for index in range(max(offset - first, 0), len(block)):
                message = block.message(index)
                payload = _opened(call, message)
                if not budget.takes(len(payload)):
                    return records
                records.append(
                    {
                        "offset": first + index,
                        "transactionId": transaction_of(
                            pack(queue.number, first + index), message.transaction_id
                        ),
                        "payload": shown_data(payload),
                        "ts": iso(stored.appended_at),
                    }
                )
    return records


def _opened(call: Call, message: Message) -> bytes:
    is_sealed = message.headers is not None and SEALED in message.headers
    return call.desk.seal().open(message.payload) if is_sealed else message.payload


# Changes


class ChangedEntry(Body):
    """A queue, and since when."""

    queue: str
    since: str | None = None
    after: str | None = None
    limit: int = PAGE_MAX


class ChangedForm(Body):
    """Queues that are asked for changes."""

    entries: list[ChangedEntry] | UnsetType = UNSET


async def changed(call: Call) -> Answer:
    """Partitions that were written to at a time or later, by name, page by page.

    A page costs by the partitions that it looks at, and may show none of them; `next` leads on.
    """
    form = await read(call, ChangedForm)
    entries = _checked(form.entries, CHANGED_ENTRIES_MAX)
    since = [None if one.since is None else parse_time(one.since, "since") for one in entries]
    queues = await _queues(call, entries)
    safe, answers = call.context.clock.now(), []
    for entry, moment in zip(entries, since, strict=True):
        at, answer = await _changed(call, entry, queues[entry.queue], moment)
        safe = min(safe, at)
        answers.append(answer)
    return Answer({"safeTime": iso(safe), "entries": answers})


async def _changed(
    call: Call, entry: ChangedEntry, queue: Queue | None, since: int | None
) -> tuple[int, dict[str, Any]]:
    """A page, and the time from which on something may have been written that it doesn't show."""
    if queue is None:
        return call.context.clock.now() - _SETTLED_US, _nothing_of(entry, UNKNOWN)
    if not queue.settings.ordered:
        return call.context.clock.now(), _nothing_of(entry, UNORDERED)
    limit = min(max(entry.limit, 1), PAGE_MAX)
    after = None if not entry.after else entry.after.removeprefix(_CURSOR)
    found = await call.desk.store.log.spans(queue, after=after, limit=limit)
    shown = [span for span in found.spans if since is None or span.newest_at >= since]
    await call.desk.directory.enter(queue, [span.partition for span in shown])
    answer = {
        "queue": entry.queue,
        "partitions": [_change(queue, span) for span in shown],
        "next": _CURSOR + found.spans[-1].partition if len(found.spans) == limit else None,
    }
    return found.at, answer


def _nothing_of(entry: ChangedEntry, error: str) -> dict[str, Any]:
    return {"queue": entry.queue, "partitions": [], "next": None, "error": error}


def _change(queue: Queue, span: Span) -> dict[str, Any]:
    return {
        "name": shown_partition(span.partition),
        "id": partition_uuid(queue.number, span.partition),
        "lastOffset": sequence_of(span.last),
        "logStart": sequence_of(span.first),
        "lastWriteAt": iso(span.newest_at),
    }


ROUTES: Final = (
    queen_route("POST", "/api/v1/fetch", fetch, "Read messages by offset", scope="read"),
    queen_route("POST", "/api/v1/partitions/changed", changed, "Partitions that have changed", scope="read"),
)
