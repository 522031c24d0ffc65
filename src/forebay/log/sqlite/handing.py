"""Handing out: claims on new blocks, on what is due, and on what a lost owner held.

Invariants: a claim that leaves this module has a block whose checksum holds, unless the caller knows
its body; a block that can't be read goes to quarantine, its messages are counted as corrupt and its
claim is gone.
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from forebay.log.claiming import Space, corrupt_block, handed_after, recalled
from forebay.log.finding import has
from forebay.log.sqlite import lanes
from forebay.log.sqlite.catalogue import GroupRow, QueueRow, end_id, live_group, live_queue
from forebay.log.sqlite.connection import Row, Transaction
from forebay.log.values import Claim, Claimed, Group, Mark, Outlook, Room, StoredBlock, letter_block
from forebay.model import Corrupt, bitmap, sequence_of

SECOND: Final = 1_000_000


class ClaimRow(msgspec.Struct, frozen=True):
    """A claim as it is stored; one that changes hands with the size of its block, if that is still kept.

    `letter` is the message id of the dead letter that was redriven: its body is the block then.
    """

    token: int
    first: int
    count: int
    remaining: int
    block_last: int
    start_time: int
    prev_start_time: int | None
    attempts: int
    partition: str | None
    done: bytes | None
    handed: bytes | None
    size: int | None = None
    letter: int | None = None


class Elsewhere:
    """The runs of partitions that are not with an owner: deferred, or with somebody else.

    A run waits for the earlier ones of its partition, so that it is not handed out before them.
    """

    def __init__(self, tx: Transaction, group: int, owner: str) -> None:
        self._tx = tx
        self._group = group
        self._owner = owner
        self._runs: dict[str, deque[tuple[int, int, int]]] = {}
        self._left_out: set[int] = set()

    def holds_up(self, row: ClaimRow) -> bool:
        """Tell whether an earlier run of the same partition is elsewhere."""
        if row.partition is None:
            return False
        runs = self._runs.get(row.partition)
        if runs is None:
            found = self._tx.rows("runs_elsewhere", self._group, row.partition, self._owner)
            runs = self._runs[row.partition] = deque(found)
        while runs and runs[0][2] in self._left_out:
            runs.popleft()
        return bool(runs) and runs[0][:2] < (row.first, row.count)

    def leave_out(self, row: ClaimRow) -> None:
        """Count a run as no longer elsewhere."""
        self._left_out.add(row.token)


def claim(
    tx: Transaction,
    group: Group,
    owner: str,
    room: Room,
    *,
    partition: str | None,
    known: int | None,
    now: int,
) -> Claimed | None:
    """Claim the next messages; None says that the cursor moved, and is to be called again."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    tx.run("add_owner", owner, now)
    position = state.position
    if not held.queue.settings.ordered:
        runs = _next_runs(tx, state, room, known)
    elif partition is None:
        runs = lanes.next_runs(tx, state, room, known)
    else:
        runs = lanes.partition_runs(tx, state, partition, owner, room, known)
    if not runs:
        return None if state.position != position else Claimed()
    tx.run("count_claimed", group.number, sum(count for _, _, count in runs))
    token = take_tokens(tx, len(runs))
    rows, blocks = [], {}
    for number, (block, first, count) in enumerate(runs, token):
        blocks[block.last] = block
        rows.append(
            ClaimRow(
                number, first, count, count, block.last, block.appended_at, None, 0,
                block.partition, None, None,
            )
        )  # fmt: skip
    tx.many("add_claim", (_new_claim(row, group.number, owner) for row in rows))
    return _hand(tx, held, state, rows, blocks, known=known)


def due(tx: Transaction, group: Group, owner: str, room: Room, *, partition: str | None, now: int) -> Claimed:
    """Claim deferred messages whose time has come, and say when the next of them comes."""
    state = live_group(tx, group)
    tx.run("add_owner", owner, now)
    if partition is None:
        waiting = map(_claim_row, tx.rows("due_claims", group.number, now))
        claimed = _take_over(tx, state, waiting, owner, room)
        return msgspec.structs.replace(claimed, next_due_at=tx.value("next_due", group.number))
    waiting = map(_claim_row, tx.rows("partition_due_claims", group.number, partition, now))
    claimed = _take_over(tx, state, waiting, owner, room)
    next_due_at = tx.value("partition_next_due", group.number, partition)
    return msgspec.structs.replace(claimed, next_due_at=next_due_at)


def mark(tx: Transaction, marks: Sequence[Mark]) -> list[int]:
    """Note what is out with workers; return the indexes of marks that are refused."""
    said = {mark.token: mark for mark in marks}
    rows = [tx.row("held_marks", mark.token, mark.group, mark.count) for mark in marks]
    late = [i for i, mark in enumerate(marks) if _is_refused(tx, mark, rows[i], said)]
    for i, (mark, row) in enumerate(zip(marks, rows, strict=True)):
        if i not in late and row is not None:
            handed = row[0] or bitmap.empty(mark.count)
            tx.run("mark_handed", mark.token, handed_after(handed, mark, mark.count))
    return late


def _is_refused(tx: Transaction, mark: Mark, row: Row | None, said: Mapping[int, Mark]) -> bool:
    if row is None:
        return True
    handed, partition, done = bitmap.minus(mark.handed, mark.returned), row[2], row[4]
    if partition is None or not any(handed):
        return False
    has_gone_back = done is not None and any(bitmap.overlap(done, handed))
    return has_gone_back or _is_overtaking(tx, mark, row, said)


def _is_overtaking(tx: Transaction, mark: Mark, row: Row, said: Mapping[int, Mark]) -> bool:
    """Tell whether something earlier of the partition will not be out after what is `said`, by token."""
    _, first, partition, owner, _ = row
    for count, token, with_, done, handed in tx.rows(
        "earlier_runs", mark.group, partition, first, mark.count
    ):
        nothing = bitmap.empty(count)
        out = handed_after(handed or nothing, said.get(token), count)
        if with_ != owner or bitmap.count(bitmap.union(done or nothing, out)) < count:
            return True
    return False


def reclaim(
    tx: Transaction,
    group: Group,
    owner: str,
    room: Room,
    *,
    of: Sequence[str],
    besides: Collection[int],
    silent_at: int,
    now: int,
) -> Claimed:
    """Take over the claims of owners that are named, or were silent since `silent_at`."""
    state = live_group(tx, group)
    tx.run("add_owner", owner, now)
    owners = {*of, *({row[0] for row in tx.rows("silent_owners", silent_at)} - {owner})}
    each = [map(_claim_row, tx.rows("owner_claims", name, group.number)) for name in sorted(owners)]
    lost = heapq.merge(*each, key=lambda row: (row.first, row.count, row.letter is not None))
    mine = {row[0] for row in tx.rows("owner_claims", owner, group.number)} if owner in of else ()
    claims = (row for row in lost if row.token not in besides)
    return _take_over(tx, state, claims, owner, room, mine=mine)


def retire(tx: Transaction, owner: str, now: int) -> int:
    """Give back all claims of an owner."""
    tx.run("remove_owner", owner)
    return tx.run("give_back", owner, now)


def recall(tx: Transaction, group: Group, tokens: Sequence[int]) -> list[Claim]:
    """Return the claims that are held under these tokens, with their blocks."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    found = (tx.row("recalled", token, group.number) for token in tokens)
    kept = [row for row in map(_claim_row, filter(None, found)) if _is_kept(row, held)]
    rows, blocks = _with_blocks(tx, state, kept)
    return recalled((_claim(group.number, row, blocks[row.block_last]) for row in rows), held.queue.name)


def holding(tx: Transaction, group: Group, ids: Sequence[int]) -> list[Claim]:
    """Return the claims, held by anybody, in which these messages are not finished, with their blocks."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    found: dict[int, ClaimRow] = {}
    for message_id in ids:
        block = tx.row("block_at", message_id)
        first = message_id if block is None else min(message_id, block[0] - block[1] + 1)
        for row in map(_claim_row, tx.rows("held_at", group.number, first, message_id)):
            if not has(row.done or b"", message_id - row.first) and _is_kept(row, held):
                found[row.token] = row
    rows, blocks = _with_blocks(tx, state, list(found.values()))
    return recalled((_claim(group.number, row, blocks[row.block_last]) for row in rows), held.queue.name)


def outlook(tx: Transaction, groups: Sequence[Group]) -> list[Outlook]:
    """Return what is ready and what comes due of groups that are there."""
    rows = (tx.row("outlook", group.number) for group in groups)
    return [Outlook.of(row) for row in rows if row is not None]


def take_tokens(tx: Transaction, count: int) -> int:
    """Return the first of `count` tokens that nobody had before."""
    last: int = tx.value("take_tokens", count)
    return last - count + 1


def _next_runs(tx: Transaction, group: GroupRow, room: Room, known: int | None) -> list[lanes.Run]:
    space, runs = Space(room), list[lanes.Run]()
    position = group.position_id
    for row in tx.rows("next_blocks", position, end_id(group.group.queue), known):
        block, size = stored(row[:-1]), row[-1]
        first = max(position, block.first)
        fitting = space.take(block.last - first + 1, size)
        if fitting:
            runs.append((block, first, fitting))
            position = first + fitting
        if position <= block.last:
            break
    if runs:
        group.position = sequence_of(position)
        tx.run("move_group", group.group.number, group.position)
    return runs


def _take_over(
    tx: Transaction,
    group: GroupRow,
    claims: Iterable[ClaimRow],
    owner: str,
    room: Room,
    *,
    mine: Collection[int] = (),
) -> Claimed:
    """Have claims change hands; those that are the owner's already (`mine`) need not wait for others."""
    held = live_queue(tx, group.group.queue)
    space, taken, gone = Space(room), list[ClaimRow](), list[ClaimRow]()
    elsewhere = Elsewhere(tx, group.group.number, owner)
    for row in claims:
        if not _is_kept(row, held):
            gone.append(row)
        elif row.token not in mine and elsewhere.holds_up(row):
            continue
        elif space.fits(row.count, row.size or 0):
            taken.append(row)
        else:
            break
        elsewhere.leave_out(row)
    if gone:
        tx.run("count_expired", group.group.number, sum(row.remaining for row in gone))
        _remove(tx, group, gone)
    if not taken:
        return Claimed()
    token = take_tokens(tx, len(taken))
    tx.many("take_over", ((row.token, number, owner) for number, row in enumerate(taken, token)))
    rows = [msgspec.structs.replace(row, token=number) for number, row in enumerate(taken, token)]
    return _hand(tx, held, group, *_with_blocks(tx, group, rows))


def _is_kept(row: ClaimRow, held: QueueRow) -> bool:
    """Tell whether there is something to hand out: a block that has not expired, or a letter."""
    return row.letter is not None or row.block_last >= held.floor_id


def _with_blocks(
    tx: Transaction, group: GroupRow, rows: Sequence[ClaimRow]
) -> tuple[list[ClaimRow], dict[int, StoredBlock]]:
    """Find the blocks of claims, by the last message; those on dead letters have blocks of their own.

    These come under negative keys, apart from the others.
    """
    found, blocks = list[ClaimRow](), dict[int, StoredBlock]()
    for row in rows:
        if row.letter is None:
            found.append(row)
            continue
        letter = tx.row("letter", group.group.number, row.letter)
        assert letter is not None, "a claim on a letter that was forgotten"
        died_at, body = letter
        blocks[-row.letter] = letter_block(row.letter, died_at, row.partition, body)
        found.append(msgspec.structs.replace(row, block_last=-row.letter))
    for last in {row.block_last: None for row in found if row.letter is None}:
        block = tx.row("block", last)
        assert block is not None, "a claim on a block that is neither kept nor dropped"
        blocks[last] = stored(block)
    return found, blocks


def _hand(
    tx: Transaction,
    held: QueueRow,
    group: GroupRow,
    rows: Sequence[ClaimRow],
    blocks: dict[int, StoredBlock],
    *,
    known: int | None = None,
) -> Claimed:
    """Check the blocks of claims, but for known ones; set aside those that can't be read."""
    errors: dict[int, Corrupt] = {}
    for last, block in blocks.items():
        if known is not None and block.first >= known:
            continue
        try:
            block.check()
        except Corrupt as error:
            errors[last] = error
            tx.run(
                "add_quarantine", block.first, block.count, block.appended_at, block.id,
                block.partition, block.body,
            )  # fmt: skip
    if not errors:
        return Claimed([_claim(group.group.number, row, blocks[row.block_last]) for row in rows])
    bad = [row for row in rows if row.block_last in errors]
    tx.run("count_corrupt", group.group.number, sum(row.remaining for row in bad))
    _remove(tx, group, bad)
    good = [row for row in rows if row.block_last not in errors]
    return Claimed(
        [_claim(group.group.number, row, blocks[row.block_last]) for row in good],
        [corrupt_block(held.queue.name, blocks[row.block_last], errors[row.block_last]) for row in bad],
    )


def _remove(tx: Transaction, group: GroupRow, rows: Sequence[ClaimRow]) -> None:
    tx.many("remove_claim", ((row.token,) for row in rows))
    for partition in {row.partition for row in rows} - {None}:
        assert partition is not None
        lanes.refresh(tx, group, partition)


def stored(row: Row) -> StoredBlock:
    """Make a block of its row."""
    last, count, appended_at, id_, partition, body = row
    return StoredBlock(last - count + 1, count, id_, appended_at, partition, body)


def _claim_row(row: Row) -> ClaimRow:
    return ClaimRow(*row)


def _new_claim(row: ClaimRow, group: int, owner: str | None) -> Row:
    return (
        row.token, group, row.first, row.count, row.remaining, row.block_last, row.start_time,
        row.start_time, row.prev_start_time, row.attempts, owner, row.partition,
    )  # fmt: skip


def _claim(group: int, row: ClaimRow, block: StoredBlock) -> Claim:
    nothing = bitmap.empty(row.count)
    return Claim(
        row.token, group, row.first, row.count, row.done or nothing, row.handed or nothing,
        row.attempts, row.start_time, row.prev_start_time, block,
    )  # fmt: skip
