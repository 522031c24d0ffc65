"""Lanes: the partitions of an ordered queue as a group sees them, found without scanning a backlog.

A group's cursor discovers blocks once, in order, and marks their lanes as ready. Invariants: a
lane is ready only while none of its claims is open, and `ready` then names its first block that was
not claimed whole; behind the cursor, a lane without open claims that has such a block is ready. A lane
that is asked for by its name need not be ready: it goes on behind claims of whoever asks.
"""

from typing import Final

from forebay.log.claiming import Space
from forebay.log.sqlite.catalogue import GroupRow, end_id
from forebay.log.sqlite.connection import Transaction
from forebay.log.values import Room, StoredBlock
from forebay.model import sequence_of

DISCOVERED_BLOCKS: Final = 1_000
"""How many blocks the cursor passes at a time."""
DISCOVERIES_MAX: Final = 10
"""How many times it moves in one transaction."""

Run = tuple[StoredBlock, int, int]
"""A block, the first message id that is taken of it, and how many."""


def discover(tx: Transaction, group: GroupRow) -> bool:
    """Move the cursor past the next blocks; tell whether there were any."""
    found = tx.rows("discovered", group.position_id, end_id(group.group.queue), DISCOVERED_BLOCKS)
    blocks = [(last, partition) for last, partition in found]
    if not blocks:
        return False
    firsts = {partition: last for last, partition in reversed(blocks)}
    for partition, first in firsts.items():
        refresh(tx, group, partition, first)
    group.position = sequence_of(blocks[-1][0]) + 1
    tx.run("move_group", group.group.number, group.position)
    return True


def refresh(tx: Transaction, group: GroupRow, partition: str, first: int | None = None) -> None:
    """Mark a lane as ready if it has something to claim and no open claim.

    `first` is the `last` of a block before which nothing of the lane is left.
    """
    number = group.group.number
    lane = tx.row("lane", number, partition)
    position, ready = lane or (group.start_id, None)
    if ready is not None or tx.row("busy_lane", number, partition) is not None:
        return
    if first is None or first < position:
        first = tx.value("lane_next", partition, position, end_id(group.group.queue))
    if first is not None:
        tx.run("mark_ready", number, partition, position, first)


def first_ready(tx: Transaction, group: GroupRow) -> tuple[str, int] | None:
    """Return the partition and the position of the lane whose turn it is, discovered or not.

    The cursor moves on until that is certain; at most so far as one transaction may.
    """
    for _ in range(DISCOVERIES_MAX):
        row = tx.row("ready_lane", group.group.number)
        if row is not None and row[2] < group.position_id:
            return row[0], row[1]
        if not discover(tx, group):
            return None if row is None else (row[0], row[1])
    return None


def next_runs(tx: Transaction, group: GroupRow, room: Room, known: int | None) -> list[Run]:
    """Take from the lanes in the order of what they have ready, as much as fits."""
    space, runs, full = Space(room), list[Run](), False
    while not full and (lane := first_ready(tx, group)) is not None:
        before = len(runs)
        full = _take(tx, group, *lane, space, runs, known)
        assert full or len(runs) > before, "a lane was ready and had nothing"
    return runs


def partition_runs(  # noqa: PLR0917 - what a lane is, and who fills what
    tx: Transaction, group: GroupRow, partition: str, owner: str, room: Room, known: int | None
) -> list[Run]:
    """Take from one lane, whether it was discovered or not; what is out of it must be the owner's."""
    runs: list[Run] = []
    number = group.group.number
    space = Space(room)
    if tx.row("lane_elsewhere", number, partition, owner) is None:
        lane = tx.row("lane", number, partition)
        position = group.start_id if lane is None else lane[0]
        _take(tx, group, partition, position, space, runs, known)
    return runs


def _take(  # noqa: PLR0917 - what a lane is, and what it fills
    tx: Transaction,
    group: GroupRow,
    partition: str,
    position: int,
    space: Space,
    runs: list[Run],
    known: int | None,
) -> bool:
    """Take consecutive blocks of a lane; tell whether the room is full."""
    taken, full = len(runs), False
    rows = tx.rows("lane_blocks", partition, position, end_id(group.group.queue), known)
    for last, count, appended_at, size, id_, body in rows:
        first = max(position, last - count + 1)
        fitting = space.take(last - first + 1, size)
        if fitting:
            block = StoredBlock(last - count + 1, count, id_, appended_at, partition, body)
            runs.append((block, first, fitting))
            position = first + fitting
        if position <= last:
            full = True
            break
    if len(runs) > taken:
        tx.run("move_lane", group.group.number, partition, position)
    return full
