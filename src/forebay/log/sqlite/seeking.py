"""Going on from another place: a group's cursor, its claims, its lanes and its books, in one transaction."""

from collections.abc import Sequence

from forebay.log.seeking import Reckoning, no_reader, unfinished_from
from forebay.log.sqlite.catalogue import GroupRow, end_id, live_group, live_queue, start_position
from forebay.log.sqlite.connection import Transaction
from forebay.log.values import DeadLetter, Group, Position, Sought, Start
from forebay.model import pack


def seek(tx: Transaction, group: Group, start: Start, now: int, *, dry_run: bool) -> Sought:
    """Move a group; see the seam."""
    before, reckoning = _reckon(tx, group, start)
    if not dry_run:
        dead = tx.run("bury_again", group.number, now)
        tx.run("end_claims", group.number)
        _go_on(tx, group, reckoning, dead=dead, purged=reckoning.skipped, done=0)
    return reckoning.sought(before, dry_run=dry_run)


def has_passed(tx: Transaction, group: Group, to: int) -> bool:
    """Tell whether a group began at a place or behind it: it has left nothing before that."""
    return to <= live_group(tx, group).group.start


def advance(tx: Transaction, group: Group, to: int, dead: Sequence[DeadLetter], now: int) -> int:
    """Book what lies before a place as done, or as dead; see the seam."""
    _, reckoning = _reckon(tx, group, Position(to))
    if reckoning.skipped:
        if dead and tx.row("worker_claim", group.number) is not None:
            raise no_reader(group)
        fresh, again = _bury(tx, group, dead, now)
        tx.run("end_worker_claims", group.number)
        done = reckoning.skipped - fresh - again
        _go_on(tx, group, reckoning, dead=fresh, purged=again, done=done)
    return reckoning.skipped


def _bury(tx: Transaction, group: Group, dead: Sequence[DeadLetter], now: int) -> tuple[int, int]:
    """Keep letters of messages that the group has not come to; how many are new, and how many are not."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    ordered, number = held.queue.settings.ordered, group.number
    fresh = again = 0
    for letter in dead:
        partition = letter.message().partition if ordered else None
        if letter.message_id < _position(tx, state, partition):
            continue
        is_out = tx.row("letter_is_out", number, letter.message_id, 0) is not None
        is_known = is_out or tx.value("letter_state", number, letter.message_id) == "dead"
        fresh, again = fresh + (not is_known), again + is_known
        if not is_out:
            tx.run(
                "add_dead_letter", number, letter.message_id, now, letter.attempts, letter.reason,
                letter.body, None, partition,
            )  # fmt: skip
    return fresh, again


def _position(tx: Transaction, state: GroupRow, lane: str | None) -> int:
    """The id from which on the group has claimed nothing; a lane is an ordered queue's."""
    if lane is None:
        return state.position_id
    row = tx.row("lane", state.group.number, lane)
    return state.start_id if row is None else int(row[0])


def _reckon(tx: Transaction, group: Group, start: Start) -> tuple[Group, Reckoning]:
    """Return the group as it is, and what it means for it to go on from another place."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    number, before = group.number, state.group
    place = start_position(tx, held, start)
    seen = tx.row("group_seen", number)
    assert seen is not None, "a group that was there a moment ago"
    earlier, claimed, skipped = seen
    returned, dropped = _left(tx, number, pack(group.queue, place))
    since = max(place, before.start)
    return before, Reckoning(
        start=before.start,
        place=place,
        upcoming=held.next,
        ready=earlier + held.next - before.start - claimed - skipped,
        claimed=_claimed(tx, state, since, ordered=held.queue.settings.ordered),
        returned=returned,
        dropped=dropped,
    )


def _go_on(tx: Transaction, group: Group, reckoning: Reckoning, *, dead: int, purged: int, done: int) -> None:
    """Move the cursor of a group without claims, and book what became of the messages before it."""
    tx.run("forget_lanes", group.number)
    changes = (reckoning.earlier_change, reckoning.claimed_change)
    tx.run("seek", group.number, reckoning.place, *changes, dead, purged, done)


def _left(tx: Transaction, group: int, place: int) -> tuple[int, int]:
    """Return how many messages are held or deferred, from a place on and before it."""
    row = tx.row("left_by_claims", group, place)
    assert row is not None
    returned, dropped = row
    for first, count, remaining, done in list(tx.rows("cut_claims", group, place)):
        behind = unfinished_from(done or b"", count, place - first)
        returned, dropped = returned + behind, dropped + remaining - behind
    return returned, dropped


def _claimed(tx: Transaction, state: GroupRow, since: int, *, ordered: bool) -> int:
    """Return how many messages from a sequence number on were claimed."""
    if not ordered:
        return max(0, state.position - since)
    queue = state.group.queue
    count: int = tx.value("claimed_since", state.group.number, pack(queue, since), end_id(queue))
    return count
