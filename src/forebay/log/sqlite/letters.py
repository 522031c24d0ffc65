"""Dead letters: handed out again, taken off the list, listed again.

Invariants: a letter is dead, purged or redriven; one that is redriven has at most one open claim,
which names it, and keeps its body for as long as that is open; the group's counters follow.
"""

from collections.abc import Sequence

from forebay.log.sqlite import lanes
from forebay.log.sqlite.catalogue import live_group
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.handing import take_tokens
from forebay.log.values import Group


def redrive(tx: Transaction, group: Group, ids: Sequence[int], now: int) -> list[int]:
    """Make claims that wait for anybody of letters that are dead; return which ones were."""
    live_group(tx, group)
    number, found = group.number, list[tuple[int, int, str | None]]()
    for message_id in ids:
        row = tx.row("change_letter", number, message_id, "dead", "redriven", now)
        if row is not None:
            found.append((message_id, *row))
    if not found:
        return []
    token = take_tokens(tx, len(found))
    tx.many(
        "add_letter_claim",
        (
            (token + i, number, message_id, block_last, now, partition)
            for i, (message_id, block_last, partition) in enumerate(found)
        ),
    )
    tx.many("hold_up_lane", {(number, partition) for _, _, partition in found if partition is not None})
    tx.run("count_letters", number, -len(found), 0)
    return [message_id for message_id, _, _ in found]


def purge(tx: Transaction, group: Group, ids: Sequence[int], now: int) -> list[int]:
    """Take letters off the list; return which ones were on it."""
    live_group(tx, group)
    number = group.number
    changed = [i for i in ids if tx.row("change_letter", number, i, "dead", "purged", now) is not None]
    if changed:
        tx.run("count_letters", number, -len(changed), len(changed))
    return changed


def restore(tx: Transaction, group: Group, ids: Sequence[int], now: int) -> list[int]:
    """List letters again that are purged, or redriven and with nobody; return which ones were."""
    state, number = live_group(tx, group), group.number
    purged, redriven, partitions = list[int](), list[int](), set[str]()
    for message_id in ids:
        if tx.row("change_letter", number, message_id, "purged", "dead", now) is not None:
            purged.append(message_id)
        elif (claim := tx.row("take_back", number, message_id)) is not None:
            changed = tx.row("change_letter", number, message_id, "redriven", "dead", now)
            assert changed is not None, "a claim on a letter that was not redriven"
            redriven.append(message_id)
            partitions |= {claim[0]} - {None}
    for partition in partitions:
        lanes.refresh(tx, state, partition)
    if purged or redriven:
        tx.run("count_letters", number, len(purged) + len(redriven), -len(purged))
    return sorted(purged + redriven)
