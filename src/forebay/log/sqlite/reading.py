"""Reading: blocks, dead letters, outcomes, quarantine, partitions, and where everything is at one moment."""

from collections.abc import Collection, Sequence

import msgspec

from forebay.log import flow_stretches
from forebay.log.claiming import Space, decode_outcome
from forebay.log.delays import DelayedBlocks, count_delayed, delayed_flows
from forebay.log.flow_stretches import BlockFlows, FlowGap, FlowStretches
from forebay.log.flows import FlowGroup, FlowTally, Returned
from forebay.log.sqlite.catalogue import (
    GroupRow,
    QueueRow,
    end_id,
    live_group,
    live_queue,
    start_id,
)
from forebay.log.sqlite.connection import Row, Transaction
from forebay.log.sqlite.handing import stored
from forebay.log.values import (
    DeadLetter,
    FlowCount,
    Group,
    GroupStats,
    LaneStats,
    OpenRun,
    Outcome,
    Progress,
    Queue,
    QueueStats,
    Room,
    Span,
    Spans,
    Stats,
    StoredBlock,
)
from forebay.model import bitmap, pack, sequence_of


def read(
    tx: Transaction, queue: Queue, first: int, room: Room, partition: str | None = None
) -> list[StoredBlock]:
    """Return the blocks from the one that holds sequence number `first` on, as many as fit."""
    blocks: list[StoredBlock] = []
    space, held = Space(room), live_queue(tx, queue.number)
    start = max(pack(queue.number, first), held.floor_id)
    span = (start, end_id(queue.number))
    rows = tx.rows("blocks", *span) if partition is None else tx.rows("partition_blocks", *span, partition)
    for row in rows:
        block = stored(row)
        if not space.fits(block.count, len(block.body)):
            break
        blocks.append(block)
    return blocks


def dead_letters(tx: Transaction, group: Group, after: int, limit: int) -> list[DeadLetter]:
    """Return dead letters of a group by message id."""
    live_group(tx, group)
    return [DeadLetter(*row) for row in tx.rows("dead_letters", group.number, after, limit)]


def outcomes(tx: Transaction, group: Group, first: int, limit: int) -> list[Outcome]:
    """Return the outcome log's entries on one block."""
    held = live_queue(tx, group.queue)
    live_group(tx, group)
    found = tx.row("block_at", pack(group.queue, sequence_of(first)))
    if found is None:
        return []
    last, count, _ = found
    if not held.floor_id <= last <= end_id(group.queue) or first <= last - count:
        return []
    return [decode_outcome(*row) for row in tx.rows("outcomes", group.number, last, limit)]


def progress(tx: Transaction, group: Group, now: int) -> Progress:
    """Return how far a group has come."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    ordered, number = held.queue.settings.ordered, group.number
    counts = tx.row("progress_counts", number)
    assert counts is not None, "a group that was there a moment ago"
    lanes = tx.rows("progress_lanes", number) if ordered else ()
    return Progress(
        at=now,
        group=state.group,
        earlier=counts[0],
        purged=counts[1],
        next=held.next,
        floor=held.floor,
        position=state.group.start if ordered else state.position,
        lanes={name: sequence_of(position) for name, position in lanes},
        open=[_open_run(row) for row in tx.rows("progress_claims", number)],
        dead=[(message_id, died_at) for message_id, died_at in tx.rows("progress_dead", number)],
    )


def _open_run(row: Row) -> OpenRun:
    token, first, count, done, handed, is_held, *rest = row
    nothing = bitmap.empty(count)
    return OpenRun(token, first, count, done or nothing, handed or nothing, bool(is_held), *rest)


def quarantined(tx: Transaction, queue: Queue) -> list[StoredBlock]:
    """Return the blocks of a queue that were set aside."""
    rows = tx.rows("quarantined", start_id(queue.number), end_id(queue.number))
    return [StoredBlock(*row) for row in rows]


def flows(
    tx: Transaction, group: Group, now: int, known: FlowStretches, besides: Collection[str] | None = None
) -> tuple[FlowStretches, list[FlowCount] | None]:
    """Count what a group has not claimed, or what came back, by flow; read what it has claimed in part.

    Nothing is counted while there is more to read first.
    """
    state, held = live_group(tx, group), live_queue(tx, group.queue)
    if held.queue.settings.ordered:
        tally = _lane_flows(tx, state)
    else:
        plan = known.plan(state.position_id, 0, end_id(group.queue))
        read = plan.fold([_block_flows(tx, gap) for gap in plan.gaps])
        known = read.known
        if read.tally is None:
            return known, None
        tally = read.tally
        if read.cut is not None:
            _add_cut(tx, tally, read.cut)
    tally.hold_back(delayed_flows(_delayed(tx, held, state, now, every=True), now))
    for column, count, since, alone in list(tx.rows("returned_flows", group.number, now)):
        if alone is None:
            tally.add_alike(column, count, since)
        else:
            _add_returned(tx, group, tally, alone)
    return known, tally.counts() + ([] if besides is None else _held_flows(tx, group, besides))


def _held_flows(tx: Transaction, group: Group, besides: Collection[str]) -> list[FlowCount]:
    """What other owners have claimed and not handed out."""
    tally = FlowTally()
    for owner, flows, blocks, count, since, alone, done, handed in list(tx.rows("held_flows", group.number)):
        if owner in besides:
            continue
        out = bitmap.union(done or b"", handed or b"")
        if alone is None:
            tally.add_held(flows, blocks, count - bitmap.count(out), since)
        else:
            _add_returned(tx, group, tally, alone, out)
    return tally.counts(is_held=True)


def _block_flows(tx: Transaction, gap: FlowGap) -> list[BlockFlows]:
    return [
        BlockFlows(*row) for row in tx.rows("block_flows", gap.first, gap.last, flow_stretches.PAGE_BLOCKS)
    ]


def _lane_flows(tx: Transaction, state: GroupRow) -> FlowTally:
    tally, end = FlowTally(), end_id(state.group.queue)
    rows = tx.rows("lane_flows", state.group.number, state.start_id, state.position_id, end)
    for found in [FlowGroup(*row) for row in rows]:
        if not tally.add_group(found):
            _add_cut(tx, tally, found)
    return tally


def _add_cut(tx: Transaction, tally: FlowTally, found: FlowGroup) -> None:
    block = tx.row("block", found.cut)
    assert block is not None, "a block that was there a moment ago"
    tally.add_body(block[-1], found.unclaimed, found.oldest_at)


def _add_returned(
    tx: Transaction, group: Group, tally: FlowTally, token: int, out: bytes | None = None
) -> None:
    row = tx.row("returned_claim", token)
    assert row is not None, "a claim that was there a moment ago"
    key, is_letter, *rest = row
    claim, body = Returned((key, bool(is_letter)), *rest), None
    if out is not None:
        claim = msgspec.structs.replace(claim, done=out)
    if not tally.knows(claim):
        body = tx.row("letter_body", group.number, key) if is_letter else tx.row("block", key)
    tally.add_returned(claim, body[-1] if body is not None else b"")


def lanes(tx: Transaction, group: Group, after: str | None, limit: int) -> list[LaneStats]:
    """Return the partitions of an ordered queue by name, as a group sees them."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    if not held.queue.settings.ordered:
        return []
    end = end_id(group.queue)
    names = [row[0] for row in tx.rows("partitions", after or "", after, held.floor_id, end, limit)]
    return [_lane_stats(tx, held, state, name) for name in names]


def spans(
    tx: Transaction, queue: Queue, partitions: Sequence[str] | None, after: str | None, limit: int
) -> Spans:
    """Return from where to where partitions are kept: the named ones, or all of them by name."""
    held = live_queue(tx, queue.number)
    if not held.queue.settings.ordered:
        return Spans(held.appended_at, [])
    span = (held.floor_id, end_id(queue.number))
    if partitions is None:
        partitions = [row[0] for row in tx.rows("partitions", after or "", after, *span, limit)]
    found = [(name, row) for name in partitions if (row := tx.row("span", name, *span)) is not None]
    return Spans(held.appended_at, [Span(name, *row) for name, row in found])


def lane_count(tx: Transaction, queue: Queue) -> int:
    """Count the partitions that have messages."""
    held = live_queue(tx, queue.number)
    if not held.queue.settings.ordered:
        return 0
    count: int = tx.value("partition_count", held.floor_id, end_id(queue.number))
    return count


def _lane_stats(tx: Transaction, held: QueueRow, state: GroupRow, partition: str) -> LaneStats:
    lane = tx.row("lane", state.group.number, partition)
    position = state.start_id if lane is None else lane[0]
    totals = tx.row("lane_totals", partition, held.floor_id, end_id(held.queue.number), position)
    assert totals is not None
    *kept, waiting, waiting_at = totals
    handed, times = 0, [] if waiting_at is None else [waiting_at]
    for remaining, is_held, done, bits, at in tx.rows(
        "lane_claims", state.group.number, partition, held.floor_id
    ):
        out = bitmap.count(bitmap.minus(bits, done or b"")) if is_held and bits else 0
        handed, waiting = handed + out, waiting + remaining - out
        times.extend([at] if remaining > out else ())
    first, last, oldest_at, newest_at, messages = kept
    return LaneStats(
        partition=partition,
        first=first,
        last=last,
        oldest_at=oldest_at,
        newest_at=newest_at,
        messages=messages,
        waiting=waiting,
        handed=handed,
        oldest_waiting_at=min(times, default=None),
    )


def stats(tx: Transaction, queues: Sequence[QueueRow], now: int, *, every: bool) -> Stats:
    """Count where everything is, from the counters and the open claims.

    `every` says that the queues follow each other, as a page of all does: they are read in one go.
    """
    numbers = [held.queue.number for held in queues]
    spans = [(numbers[0], numbers[-1])] if every and numbers else [(number, number) for number in numbers]
    groups: dict[int, list[GroupStats]] = {number: [] for number in numbers}
    by_number = {held.queue.number: held for held in queues}
    for span in spans:
        open_claims = {
            (row[0], bool(row[1])): (row[2], row[3] or 0) for row in tx.rows("open_claims", *span, now)
        }
        handed: dict[int, int] = {}
        for number, done_bits, handed_bits in tx.rows("handed_claims", *span):
            out = bitmap.count(bitmap.minus(handed_bits, done_bits or b""))
            handed[number] = handed.get(number, 0) + out
        for number, queue, name, start, sought, position, *counts in list(tx.rows("group_counts", *span)):
            if (held := by_number.get(queue)) is not None:
                group = Group(number, queue, name, start, sought)
                delayed = count_delayed(_delayed(tx, held, GroupRow(group, position), now), now)
                groups[queue].append(_group_stats(held, group, counts, open_claims, handed, delayed=delayed))
    return Stats(
        now,
        [
            QueueStats(queue=held.queue, next=held.next, floor=held.floor, groups=groups[held.queue.number])
            for held in queues
        ],
    )


def _group_stats(
    held: QueueRow,
    group: Group,
    counts: Sequence[int],
    open_claims: dict[tuple[int, bool], tuple[int, int]],
    handed: dict[int, int],
    *,
    delayed: int,
) -> GroupStats:
    earlier, claimed, skipped, done, dead, purged, expired, corrupt = counts
    accepted = earlier + held.next - group.start
    deferred, due = open_claims.get((group.number, False), (0, 0))
    return GroupStats(
        group=group,
        accepted=accepted,
        ready=accepted - claimed - skipped - delayed,
        held=open_claims.get((group.number, True), (0, 0))[0],
        deferred=deferred,
        done=done,
        dead=dead,
        purged=purged,
        expired=expired + skipped,
        corrupt=corrupt,
        handed=handed.get(group.number, 0),
        due=due,
        delayed=delayed,
    )


def _delayed(
    tx: Transaction, held: QueueRow, state: GroupRow, now: int, *, every: bool = False
) -> list[DelayedBlocks]:
    """Return what is known of blocks of which a group has something that is delayed."""
    ordered = held.queue.settings.ordered
    position = state.start_id if ordered else state.position_id
    rows = tx.rows(
        "delayed", state.group.number, held.queue.number, now, position, held.floor_id, ordered, every
    )
    return [DelayedBlocks(*row) for row in rows]
