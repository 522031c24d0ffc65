"""Claims that are given to another owner, whoever has them, to do by hand what workers don't."""

from collections.abc import Iterator, Sequence

from forebay.log.finding import has
from forebay.log.sqlite.catalogue import live_group
from forebay.log.sqlite.connection import Transaction
from forebay.log.values import Group


def seize(
    tx: Transaction,
    group: Group,
    owner: str,
    ids: Sequence[int],
    partition: str | None,
    *,
    held: bool,
    now: int,
) -> int:
    """Give claims to an owner; see the seam."""
    live_group(tx, group)
    tx.run("add_owner", owner, now)
    count = 0 if partition is None else tx.run("seize_partition", group.number, partition, owner, held)
    tokens = {token for message_id in ids for token in _holding(tx, group, message_id)}
    return count + sum(tx.run("seize", token, owner, held) for token in sorted(tokens))


def _holding(tx: Transaction, group: Group, message_id: int) -> Iterator[int]:
    """The open claims in which a message is not finished."""
    block = tx.row("block_at", message_id)
    first = message_id if block is None else min(message_id, block[0] - block[1] + 1)
    for token, begins, done in tx.rows("claim_bits_at", group.number, first, message_id):
        if not has(done or b"", message_id - begins):
            yield token
