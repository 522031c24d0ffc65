"""Retention: what is no longer held is dropped, in transactions of bounded size.

Every function here is one such transaction: it removes a piece, and says whether to come again.
Invariants: blocks are dropped from the oldest on, without gaps; what a group had not claimed of
them is counted as skipped, and its cursors move past it; a lane is forgotten once all that it
tells apart is dropped.
"""

from typing import Final

import apsw
import msgspec

from forebay.log.intake import remembered_us
from forebay.log.sqlite import lanes
from forebay.log.sqlite.catalogue import (
    GroupRow,
    QueueRow,
    end_id,
    find_queue,
    groups_of,
    start_id,
    used_queues,
)
from forebay.log.sqlite.connection import Row, Transaction
from forebay.log.sqlite.handing import SECOND
from forebay.log.values import QueueSettings
from forebay.model import pack, sequence_of

TRIMMED_ROWS: Final = 1_000
TRIMMED_QUEUES: Final = 500
"""Queues that are looked at in one go: others may read in between."""
TRIMMED_BYTES: Final = 32 << 20
TRIMMED_DIGEST_BLOCKS: Final = 100
DIGEST_BYTES: Final = 16
FREE_PAGES_MIN: Final = 4_096
VACUUMED_PAGES: Final = 1_024


class Piece(msgspec.Struct, frozen=True):
    """What one transaction removed, and whether there may be more."""

    removed: int
    more: bool


class Trimmable(msgspec.Struct, frozen=True):
    """Some queues of which something may be dropped, and the number after which to go on; None at the end."""

    queues: list[QueueRow]
    next: int | None


def find_trimmable(
    tx: Transaction, after: int, now: int, *, remember_us: int, outcomes_before: int
) -> Trimmable:
    """Look which queues have anything to drop, so that the others cost no write. Changes nothing."""
    page = used_queues(tx, after, TRIMMED_QUEUES)
    found = [held for held in page if _is_trimmable(tx, held, now, remember_us, outcomes_before)]
    return Trimmable(found, page[-1].queue.number if len(page) == TRIMMED_QUEUES else None)


def _is_trimmable(tx: Transaction, held: QueueRow, now: int, remember_us: int, outcomes_before: int) -> bool:
    number, settings = held.queue.number, held.queue.settings
    block = tx.row("block_at", start_id(number))
    if block is not None and block[0] <= end_id(number):
        last, _, appended_at = block
        spans = [settings.keep_seconds, *([] if (s := settings.expire_seconds) is None else [s])]
        if last < held.floor_id or appended_at < now - int(min(spans) * SECOND):
            return True
    digests = tx.row("old_digest_blocks", start_id(number), end_id(number), 1)
    if digests is not None:
        last, at, _ = digests
        if last < held.born_id or at <= now - remembered_us(settings, remember_us):
            return True
    for state in groups_of(tx, number):
        outcome = tx.row("old_outcomes", state.group.number, 1)
        if outcome is not None and (outcome[0] < held.floor_id or outcome[2] < outcomes_before):
            return True
    return False


def trim_blocks(tx: Transaction, number: int, now: int) -> Piece:
    """Drop the oldest blocks of a queue that retention no longer holds."""
    held = find_queue(tx, number)
    if held is None:
        return Piece(0, more=False)
    groups = groups_of(tx, number)
    if held.queue.settings.ordered:
        for group in groups:
            before = group.position
            if lanes.first_ready(tx, group) is None and group.position != before:
                return Piece(0, more=True)
    needed = _needed(tx, held, groups)
    rows = list(tx.rows("old_blocks", held.floor_id, end_id(number), TRIMMED_ROWS))
    dropped = _droppable(rows, held.queue.settings, needed, now)
    if not dropped:
        return Piece(0, more=False)
    last = dropped[-1][0]
    for group in groups:
        if held.queue.settings.ordered:
            _skip_lanes(tx, group, dropped if last >= needed else [], last)
            tx.many("forget_lane", {(group.group.number, row[3], last + 1) for row in dropped})
        else:
            _skip(tx, group, last)
    tx.run("drop_blocks", start_id(number), last)
    tx.run("move_floor", number, sequence_of(last) + 1)
    return Piece(len(dropped), more=len(dropped) < len(rows) or len(rows) == TRIMMED_ROWS)


def _droppable(rows: list[Row], settings: QueueSettings, needed: int, now: int) -> list[Row]:
    kept_from = now - int(settings.keep_seconds * SECOND)
    expire = settings.expire_seconds
    expired_before = -1 if expire is None else now - int(expire * SECOND)
    dropped, size = list[Row](), 0
    for row in rows:
        last, appended_at = row[0], row[2]
        size += row[4]
        unneeded = last < needed and appended_at < kept_from
        if not (unneeded or appended_at < expired_before) or (dropped and size > TRIMMED_BYTES):
            break
        dropped.append(row)
    return dropped


def _needed(tx: Transaction, held: QueueRow, groups: list[GroupRow]) -> int:
    """Return the first message id that some group still needs, or one before it."""
    needed: int = pack(held.queue.number, held.next)
    for group in groups:
        ids = [needed, group.position_id]
        claimed = tx.value("first_claim", group.group.number)
        ready = tx.row("ready_lane", group.group.number)
        ids.extend(() if claimed is None else (claimed,))
        ids.extend(() if ready is None else (ready[2],))
        held_up = tx.value("first_held_up", group.group.number, group.start_id, end_id(held.queue.number))
        ids.extend(() if held_up is None else (held_up,))
        needed = min(ids)
    return needed


def _skip(tx: Transaction, group: GroupRow, last: int) -> None:
    floor = sequence_of(last) + 1
    if group.position < floor:
        tx.run("count_skipped", group.group.number, floor - group.position)
        tx.run("move_group", group.group.number, floor)


def _skip_lanes(tx: Transaction, group: GroupRow, dropped: list[Row], last: int) -> None:
    number, skipped, moved = group.group.number, 0, dict[str, int]()
    for block_last, count, _, partition, _ in dropped:
        position = moved.get(partition)
        if position is None:
            lane = tx.row("lane", number, partition)
            position = group.start_id if lane is None else lane[0]
        unclaimed = block_last - max(position, block_last - count + 1) + 1
        if unclaimed > 0:
            skipped += unclaimed
            moved[partition] = block_last + 1
    if skipped:
        tx.run("count_skipped", number, skipped)
        tx.many("move_lane", ((number, partition, at) for partition, at in moved.items()))
        for partition in moved:
            lanes.refresh(tx, group, partition)
    if group.position_id <= last:
        tx.run("move_group", number, sequence_of(last) + 1)


def trim_outcomes(tx: Transaction, number: int, before: int) -> bool:
    """Remove outcomes of blocks that were dropped, and those older than a time."""
    held = find_queue(tx, number)
    if held is None:
        return False
    more = [_trim_outcomes(tx, state.group.number, held.floor_id, before) for state in groups_of(tx, number)]
    return any(more)


def _trim_outcomes(tx: Transaction, group: int, floor_id: int, before: int) -> bool:
    count, end = 0, None
    for block_last, number, at in tx.rows("old_outcomes", group, TRIMMED_ROWS):
        if block_last >= floor_id and at >= before:
            break
        count, end = count + 1, (block_last, number)
    if end is not None:
        tx.run("remove_outcomes", group, *end)
    return count == TRIMMED_ROWS


def trim_receipts(tx: Transaction, before: int) -> Piece:
    """Forget ids that were written before a time."""
    removed = tx.run("trim_receipts", before, TRIMMED_ROWS)
    settled = tx.run("trim_settled", before, TRIMMED_ROWS)
    return Piece(removed + settled, more=max(removed, settled) == TRIMMED_ROWS)


def trim_delayed(tx: Transaction, now: int) -> bool:
    """Forget start times that are over."""
    return tx.run("trim_delayed", now, TRIMMED_ROWS) == TRIMMED_ROWS


def trim_letters(tx: Transaction, before: int) -> bool:
    """Forget letters that were purged, or redriven and finished, before a time."""
    return tx.run("trim_letters", before, TRIMMED_ROWS) == TRIMMED_ROWS


def trim_digests(tx: Transaction, queue: QueueRow, now: int, remember_us: int) -> bool:
    """Forget transaction ids that are no longer looked for."""
    before = now - remembered_us(queue.queue.settings, remember_us)
    number = queue.queue.number
    rows = tx.rows("old_digest_blocks", start_id(number), end_id(number), TRIMMED_DIGEST_BLOCKS)
    old = [(last, d) for last, at, d in rows if at <= before or last < queue.born_id]
    for _, digests in old:
        each = (digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES))
        tx.many("remove_digest", ((digest, before, queue.born_id) for digest in each))
    tx.many("remove_digest_block", ((last,) for last, _ in old))
    return len(old) == TRIMMED_DIGEST_BLOCKS


def shrink(connection: apsw.Connection) -> bool:
    """Give back free pages when they are many; tell whether there may be more."""
    free, pages = (_pragma(connection, name) for name in ("freelist_count", "page_count"))
    if free < max(FREE_PAGES_MIN, pages // 4):
        return False
    connection.execute(f"PRAGMA incremental_vacuum({VACUUMED_PAGES})").fetchall()
    return _pragma(connection, "freelist_count") < free


def checkpoint(connection: apsw.Connection) -> None:
    """Copy the write-ahead log into the file, as far as readers allow."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _pragma(connection: apsw.Connection, name: str) -> int:
    row = connection.execute(f"PRAGMA {name}").fetchone()
    assert row is not None
    return int(row[0])
