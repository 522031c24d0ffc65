"""Finding messages: one with its block and where every group has it, at one moment; many by their digests."""

from collections.abc import Sequence

from forebay.log.claiming import decode_outcome
from forebay.log.finding import OUTCOMES_MAX, first_claim, has, is_about, soonest
from forebay.log.intake import dedupe_us
from forebay.log.sqlite.catalogue import GroupRow, QueueRow, groups_of, live_queue
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.handing import stored
from forebay.log.values import DeadLetter, Found, Letter, OpenClaim, Outcome, Queue, Standing, StoredBlock
from forebay.model import queue_of


def find(tx: Transaction, message_id: int, now: int) -> Found:
    """Return where a message is, for every group of its queue."""
    held = live_queue(tx, queue_of(message_id))
    block = _block(tx, held, message_id)
    standings = [_standing(tx, held, state, message_id, block) for state in groups_of(tx, held.queue.number)]
    return Found(at=now, queue=held.queue, next=held.next, block=block, standings=standings)


def locate(tx: Transaction, queue: Queue, digests: Sequence[bytes], now: int) -> list[int | None]:
    """Return the ids of the messages that digests stand for, as long as they are remembered."""
    held = live_queue(tx, queue.number)
    since, born = now - dedupe_us(held.queue.settings), held.born_id
    found = (tx.row("digest", digest) or (0, 0, 0) for digest in digests)
    return [message_id if at > since and message_id >= born else None for message_id, at, _ in found]


def _block(tx: Transaction, held: QueueRow, message_id: int) -> StoredBlock | None:
    row = None if message_id < held.floor_id else tx.row("block_of", message_id)
    if row is None:
        return None
    block = stored(row)
    return block if block.first <= message_id else None


def _standing(
    tx: Transaction, held: QueueRow, state: GroupRow, message_id: int, block: StoredBlock | None
) -> Standing:
    quarantined = tx.row("quarantined_at", message_id)
    return Standing(
        group=state.group,
        claimed=block is None or message_id < _position(tx, held, state, block),
        claim=_claim(tx, state, message_id, block),
        letter=_letter(tx, state, message_id),
        corrupt=quarantined is not None and message_id < quarantined[0] + quarantined[1],
        outcomes=_outcomes(tx, state, message_id),
    )


def _position(tx: Transaction, held: QueueRow, state: GroupRow, block: StoredBlock) -> int:
    """The id from which on the group has claimed nothing, in an ordered queue of the block's partition."""
    if not held.queue.settings.ordered:
        return state.position_id
    lane = tx.row("lane", state.group.number, block.partition)
    return state.start_id if lane is None else int(lane[0])


def _claim(tx: Transaction, state: GroupRow, message_id: int, block: StoredBlock | None) -> OpenClaim | None:
    rows = tx.rows("claims_at", state.group.number, first_claim(message_id, block), message_id)
    return soonest(
        OpenClaim(owner, due_at, attempts, has(handed or b"", message_id - first))
        for first, owner, due_at, attempts, done, handed in rows
        if not has(done or b"", message_id - first)
    )


def _letter(tx: Transaction, state: GroupRow, message_id: int) -> Letter | None:
    row = tx.row("letter_at", state.group.number, message_id)
    if row is None:
        return None
    died_at, reason, attempts, body, kept, changed_at = row
    return Letter(DeadLetter(message_id, died_at, reason, attempts, body), kept, changed_at)


def _outcomes(tx: Transaction, state: GroupRow, message_id: int) -> list[Outcome]:
    rows = tx.rows("outcomes_at", state.group.number, message_id, OUTCOMES_MAX)
    found = [outcome for row in rows if is_about(outcome := decode_outcome(*row), message_id)]
    return found[::-1]
