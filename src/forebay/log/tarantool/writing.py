"""The write: items of a flush on their way to the procedure, and its answers on their way back.

An item whose blocks leave messages to each other is tried first, and undone: what it notes of them must hold
when it is written. What can make it differ by then is said to the procedure, which refuses it if so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from forebay.log.claiming import encode_outcome
from forebay.log.groupcommit import Item, Result, is_whole
from forebay.log.intake import Answer, Intake
from forebay.log.records import version_conflict
from forebay.log.registry import unknown_queue
from forebay.log.tarantool.rows import Row, message_id, raw
from forebay.log.tarantool.server import Refused, Server, maybe_out, no_room, text_out
from forebay.log.values import Append, Queue, QueueSettings, Record, Settlement, dead_letter_body
from forebay.model import Limits, Rejected, bitmap, sequence_of

_NO_DIGEST: Final = bytes(16)
"""Of a message without a transaction id."""


class Offer(Intake):
    """A block on its way in, and the settings by which it was looked at."""

    __slots__ = ("settings",)

    def __init__(self, append: Append, queue: Queue, limits: Limits) -> None:
        super().__init__(append, queue, limits)
        self.settings: QueueSettings = queue.settings


class StagedOffer(Offer):
    """A staged block on its way in: its body is there already, unless messages were left out of it."""

    __slots__ = ("_staged", "stage")

    def __init__(self, append: Append, queue: Queue, limits: Limits, stage: int) -> None:
        super().__init__(append, queue, limits)
        self._staged = append.body
        self.stage = stage

    @property
    def is_whole(self) -> bool:
        """Whether what is staged is what is to be written."""
        return self.body is self._staged


class Outdated(Exception):  # noqa: N818 - a signal between the flush and the commit, not an error
    """Somebody changed a queue since its block was looked at: look again."""


class NotStaged(Exception):  # noqa: N818 - a signal between the flush and the publish, not an error
    """Somebody else has published the stage meanwhile: look again."""


async def write(server: Server, items: Sequence[Item], now: int | None) -> list[Result | Exception]:
    """Write items that are not atomic, in one transaction."""
    try:
        rows = await server.call("write", [_item(item) for item in items], now)
    except Refused as refused:
        raise _refusal(refused) from None
    return [_result(row) for row in rows]


async def write_whole(server: Server, item: Item, now: int | None) -> Result | Exception:
    """Write an atomic item, or nothing of it; records last."""
    encoded = _item(item)
    while True:
        if any(intake.leaves_some for intake in item.appends):
            tried, _ = await _write_one(server, item, {**encoded, "probe": True}, now)
            if isinstance(tried, Exception) or not is_whole(item, tried):
                return tried
            encoded["expected"] = [sequence_of(a.first) if a.known else 0 for a in tried.answers]
        result, is_written = await _write_one(server, item, encoded, now)
        if is_written or isinstance(result, Exception) or not is_whole(item, result):
            return result
        # A block of it was written by somebody else meanwhile: what was noted may no longer hold.


async def _write_one(
    server: Server, item: Item, encoded: dict[str, Any], now: int | None
) -> tuple[Result | Exception, bool]:
    """What became of an item, and whether it was written."""
    try:
        (row,) = await server.call("write", [encoded], now)
    except Refused as refused:
        if refused.kind == "version":
            place, found = refused.detail
            return version_conflict(item.records[place], found), False
        if refused.kind != "not_whole":
            raise _refusal(refused) from None
        return _result(refused.detail), False
    return _result(row), True


def _refusal(refused: Refused) -> Exception:
    if refused.kind == "not_staged":
        return NotStaged()
    assert refused.kind == "no_numbers", refused
    text = f"queue number {refused.detail} is out of sequence numbers"
    return Rejected(text, hint="make another queue")


def _item(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "atomic": item.atomic,
        "appends": [_append(intake) for intake in item.appends],
        "settlements": [_settlement(settlement) for settlement in item.settlements],
        "records": [_record(record) for record in item.records],
    }


def _append(intake: Intake) -> dict[str, Any]:
    assert isinstance(intake, Offer)
    is_there = isinstance(intake, StagedOffer) and intake.is_whole
    return {
        "queue": intake.queue,
        "id": intake.id,
        "count": len(intake.block),
        "total": intake.total,
        "partition": maybe_out(intake.partition),
        "body": None if is_there else intake.body,
        "stage": intake.stage if isinstance(intake, StagedOffer) and is_there else None,
        "dropped": intake.dropped,
        "digests": None if intake.digests is None else b"".join(d or _NO_DIGEST for d in intake.digests),
        "accepted_at": intake.accepted_at,
        "flows": intake.flows,
        "delays": None if (d := intake.delays) is None else [d.earliest, d.latest, d.count, d.starts],
        "ordered": intake.settings.ordered,
        "dedupes": intake.settings.dedupe_seconds > 0,
    }


def _settlement(settlement: Settlement) -> dict[str, Any]:
    return {
        "group": settlement.group,
        "token": settlement.token,
        "count": settlement.count,
        "finished": settlement.finished(),
        "done": bitmap.count(settlement.done),
        "expired": bitmap.count(settlement.expired),
        "outcome": encode_outcome(settlement),
        "deferred": [
            [d.offset, d.due_at, d.attempts, d.prev_start_time, d.count] for d in settlement.deferred
        ],
        "dead": [[d.offset, text_out(d.reason), d.attempts, dead_letter_body(d)] for d in settlement.dead],
    }


def _record(record: Record) -> list[Any]:
    return [text_out(record.space), text_out(record.key), record.value, record.expires_at, record.version]


def _result(row: Row) -> Result | Exception:
    kind, *rest = row
    if kind == "unknown_queue":
        return unknown_queue(f"number {rest[0]}", ())
    if kind == "outdated":
        return Outdated()
    if kind == "full":
        return no_room()
    answers, conflicts = rest
    return Result([_answer(answer) for answer in answers], tuple(conflicts))


def _answer(row: Row) -> Answer:
    queue, first, count, known, dropped, found = row
    if found:
        return Answer(found=tuple((index, message_id(queue, sequence)) for index, sequence in found))
    return Answer(
        message_id(queue, first), count, known=known, dropped=None if dropped is None else raw(dropped)
    )
