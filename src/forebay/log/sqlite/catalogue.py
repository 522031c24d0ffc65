"""Queues and groups as rows: made, changed, found, deleted, and swept away piece by piece.

Invariants: a deleted queue keeps its row, so its number and its sequence numbers are not used
again; a deleted group loses its name at once, and its rows in transactions of bounded size.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from forebay.log.claiming import unknown_group
from forebay.log.registry import (
    NEAR_NAMES,
    change_settings,
    check_number,
    merge_settings,
    next_number,
    number_taken,
    unknown_queue,
)
from forebay.log.seeking import check_start, kept_position
from forebay.log.sqlite.connection import Row, Transaction
from forebay.log.values import Group, Position, Queue, QueueSettings, Start
from forebay.model import SEQUENCE_BITS, check_group_name, check_queue_name, pack, sequence_of

SWEPT_ROWS: Final = 1_000
"""How many rows of a table one transaction sweeps away."""


class QueueRow(msgspec.Struct):
    """A queue and its counters, inside one transaction."""

    queue: Queue
    next: int
    floor: int
    born: int
    appended_at: int
    deleted: bool

    @property
    def floor_id(self) -> int:
        """The id of the oldest message that is kept."""
        return self.queue.number << SEQUENCE_BITS | self.floor

    @property
    def born_id(self) -> int:
        """The id of the first message since the queue was last made."""
        return self.queue.number << SEQUENCE_BITS | self.born


class GroupRow(msgspec.Struct):
    """A group and its cursor, inside one transaction."""

    group: Group
    position: int

    @property
    def start_id(self) -> int:
        """The id of the first message that the group sees."""
        return self.group.queue << SEQUENCE_BITS | self.group.start

    @property
    def position_id(self) -> int:
        """The id of the message at the cursor."""
        return self.group.queue << SEQUENCE_BITS | self.position


def end_id(queue: int) -> int:
    """Return the last id that a message of a queue can have."""
    return (queue + 1 << SEQUENCE_BITS) - 1


def start_id(queue: int) -> int:
    """Return an id that is less than those of all messages of a queue."""
    return queue << SEQUENCE_BITS


@lru_cache(maxsize=1024)
def _settings(text: str) -> QueueSettings:
    return msgspec.json.decode(text, type=QueueSettings)


def _text(settings: QueueSettings) -> str:
    return msgspec.json.encode(settings).decode()


def _queue_row(row: Row) -> QueueRow:
    number, name, settings, created_at, next_, floor, born, appended_at, deleted = row
    queue = Queue(number, name, _settings(settings), created_at)
    return QueueRow(queue, next_, floor, born, appended_at, bool(deleted))


def find_queue(tx: Transaction, number: int) -> QueueRow | None:
    """Return the queue of that number, unless it is deleted."""
    row = tx.row("queue", number)
    return None if row is None or row[-1] else _queue_row(row)


def live_queue(tx: Transaction, number: int) -> QueueRow:
    """Return the queue of that number, or raise UnknownQueue."""
    found = find_queue(tx, number)
    if found is None:
        raise unknown_queue(f"number {number}", ())
    return found


def named_queue(tx: Transaction, name: str) -> QueueRow:
    """Return the queue of that name, or raise UnknownQueue with the nearest one."""
    row = tx.row("queue_by_name", name)
    if row is None or row[-1]:
        raise unknown_queue(name, [found for (found,) in tx.rows("near_names", name, NEAR_NAMES)])
    return _queue_row(row)


def all_queues(tx: Transaction) -> list[QueueRow]:
    """Return all queues by number, deleted ones as well."""
    return [_queue_row(row) for row in tx.rows("queues")]


def used_queues(tx: Transaction, after: int, limit: int) -> list[QueueRow]:
    """Return some queues that ever had a message, by number, deleted ones as well."""
    return [_queue_row(row) for row in tx.rows("used_queues", after, limit)]


def chosen_queues(
    tx: Transaction, numbers: Sequence[int] | None, after: int, limit: int | None
) -> list[QueueRow]:
    """Return queues by number: those named, or a page of all."""
    if numbers is None:
        return [_queue_row(row) for row in tx.rows("queue_page", after, -1 if limit is None else limit)]
    wanted = sorted({number for number in numbers if number > after})
    return [found for number in wanted if (found := find_queue(tx, number)) is not None][:limit]


def create_queue(
    tx: Transaction, name: str, settings: dict[str, Any] | None, number: int | None, now: int
) -> Queue:
    """Make a queue, or return the one of that name."""
    check_queue_name(name)
    merged = merge_settings(QueueSettings(), settings)
    row = tx.row("queue_by_name", name)
    if row is not None:
        held = _queue_row(row)
        if not held.deleted:
            return held.queue
        tx.run("revive_queue", held.queue.number, _text(merged), now)
        return Queue(held.queue.number, name, merged, now)
    if number is None:
        number = next_number(tx.value("queue_number_max"))
    elif (taken := tx.row("queue", check_number(number))) is not None:
        raise number_taken(number, taken[1])
    tx.run("add_queue", number, name, _text(merged), now)
    return Queue(number, name, merged, now)


def configure_queue(tx: Transaction, name: str, settings: dict[str, Any]) -> Queue:
    """Merge settings into those of a queue."""
    queue = named_queue(tx, name).queue
    changed = change_settings(queue.settings, settings)
    tx.run("configure_queue", queue.number, _text(changed))
    return Queue(queue.number, queue.name, changed, queue.created_at)


def delete_queue(tx: Transaction, name: str) -> QueueRow | None:
    """Hide a queue and its groups, for its rows to be swept away; return what is left of it."""
    row = tx.row("queue_by_name", name)
    if row is None or row[-1]:
        return None
    tx.run("delete_queue", row[0])
    tx.run("delete_groups", row[0])
    left = tx.row("queue", row[0])
    assert left is not None
    return _queue_row(left)


def group_row(row: Row) -> GroupRow:
    """Make a group of its row."""
    *columns, position = row
    return GroupRow(Group(*columns), position)


def groups_of(tx: Transaction, queue: int) -> list[GroupRow]:
    """Return the groups of a queue by number."""
    return [group_row(row) for row in tx.rows("groups", queue)]


def live_group(tx: Transaction, group: Group) -> GroupRow:
    """Return the group as it is now, or raise UnknownGroup."""
    row = tx.row("group", group.number)
    if row is None:
        raise unknown_group(group)
    return group_row(row)


def create_group(tx: Transaction, queue: Queue, name: str, start: Start) -> Group:
    """Make a group, or return the one of that name."""
    check_group_name(name)
    check_start(start)
    held = live_queue(tx, queue.number)
    row = tx.row("group_by_name", queue.number, name)
    if row is not None:
        return group_row(row).group
    position = start_position(tx, held, start)
    number = tx.value("add_group", queue.number, name, position)
    return Group(number, queue.number, name, position)


def start_position(tx: Transaction, held: QueueRow, start: Start) -> int:
    """Return the sequence number at which a group begins."""
    if start == "latest":
        return held.next
    if start == "earliest":
        return held.floor
    if isinstance(start, Position):
        return kept_position(start, held.floor, held.next)
    low, high = held.floor, held.next
    while low < high:  # times do not decrease along a queue
        row = tx.row("block_at", pack(held.queue.number, (low + high) // 2))
        assert row is not None, "a sequence number without a block"
        last, count, appended_at = row
        if appended_at >= int(start):
            high = sequence_of(last) - count + 1
        else:
            low = sequence_of(last) + 1
    return low


def delete_group(tx: Transaction, group: Group) -> bool:
    """Hide a group, for its rows to be swept away."""
    return tx.run("delete_group", group.number) > 0


def sweep_groups(tx: Transaction) -> bool:
    """Remove some rows of deleted groups; tell whether there may be more."""
    number = tx.value("deleted_group")
    if number is None:
        return False
    tables = ("sweep_claims", "sweep_lanes", "sweep_dead_letters", "sweep_outcomes")
    if sum(tx.run(sweep, number, SWEPT_ROWS) for sweep in tables) == 0:
        tx.run("remove_group", number)
    return True


def sweep_blocks(tx: Transaction, held: QueueRow) -> bool:
    """Remove some blocks that a deleted queue left behind; tell whether there may be more."""
    return tx.run("sweep_blocks", start_id(held.queue.number), held.floor_id, SWEPT_ROWS) > 0
