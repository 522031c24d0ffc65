"""Going on from another place: a group's cursor, its claims, its lanes and its books, in one transaction."""

from forebay.log.seeking import Reckoning, unfinished_from
from forebay.log.sqlite.catalogue import GroupRow, end_id, live_group, live_queue, start_position
from forebay.log.sqlite.connection import Transaction
from forebay.log.values import Group, Sought, Start
from forebay.model import pack


def seek(tx: Transaction, group: Group, start: Start, now: int, *, dry_run: bool) -> Sought:
    """Move a group; see the seam."""
    held, state = live_queue(tx, group.queue), live_group(tx, group)
    number, before = group.number, state.group
    place = start_position(tx, held, start)
    seen = tx.row("group_seen", number)
    assert seen is not None, "a group that was there a moment ago"
    earlier, claimed, skipped = seen
    returned, dropped = _left(tx, number, pack(group.queue, place))
    since = max(place, before.start)
    reckoning = Reckoning(
        start=before.start,
        place=place,
        upcoming=held.next,
        ready=earlier + held.next - before.start - claimed - skipped,
        claimed=_claimed(tx, state, since, ordered=held.queue.settings.ordered),
        returned=returned,
        dropped=dropped,
    )
    if not dry_run:
        dead = tx.run("bury_again", number, now)
        tx.run("end_claims", number)
        tx.run("forget_lanes", number)
        changes = (reckoning.earlier_change, reckoning.claimed_change, reckoning.skipped)
        tx.run("seek", number, place, *changes, dead)
    return reckoning.sought(before, dry_run=dry_run)


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
