"""Stages: blocks that are kept unseen until they are published together.

What is published is one transaction, but only one block at a time is in memory. A stage that is forgotten
loses its name at once, and its blocks in transactions of bounded size.
"""

from collections.abc import Sequence

from forebay.log.claiming import nothing_staged
from forebay.log.intake import resolve
from forebay.log.sqlite.catalogue import SWEPT_ROWS, live_queue
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.records import write as write_records
from forebay.log.sqlite.writing import Flush, Offer, known_answer
from forebay.log.values import Append, Appended, Record
from forebay.model import Limits, decode


def stage(tx: Transaction, name: str, appends: Sequence[Append], now: int) -> None:
    """Keep blocks under a name; those that it holds already stay as they are."""
    known = tx.value("stage", name)
    fresh = [a for a in appends if not _is_staged(tx, known, a.block.id)]
    if not fresh:
        return
    number = tx.value("touch_stage", name, now)
    tx.many("add_staged", ((number, a.queue, a.block.id, a.body) for a in fresh))


def publish(
    tx: Transaction,
    name: str,
    ids: Sequence[bytes],
    records: Sequence[Record],
    *,
    limits: Limits,
    now: int,
    replayed: bool,
) -> list[Appended]:
    """Append blocks of a stage, one after the other, write records, and forget the stage."""
    number = tx.value("stage", name)
    missing = [i for i in ids if not _is_staged(tx, number, i) and known_answer(tx, i) is None]
    if missing:
        raise nothing_staged(name, len(missing))
    flush = Flush(tx, now)
    appended = [_append(tx, flush, number, block_id, limits, replayed=replayed) for block_id in ids]
    flush.finish()
    write_records(tx, records, now)
    tx.run("forget_stage", name)
    return appended


def _append(
    tx: Transaction, flush: Flush, number: int | None, block_id: bytes, limits: Limits, *, replayed: bool
) -> Appended:
    row = None if number is None else tx.row("staged", number, block_id)
    if row is None:
        known = known_answer(tx, block_id)
        assert known is not None, "a block that was there a moment ago"
        return resolve(known)
    queue, body = row
    held = live_queue(tx, queue)
    offer = Offer(Append(queue, decode(body), body, replayed=replayed), held.queue, limits)
    while (answer := flush.append(offer)).found:
        offer.drop(answer.found)
    return offer.appended(answer)


def _is_staged(tx: Transaction, number: int | None, block_id: bytes) -> bool:
    return number is not None and tx.row("is_staged", number, block_id) is not None


def sweep_stages(tx: Transaction, before: int = 0) -> bool:
    """Remove some of a stage that is hidden or old; tell whether there was one."""
    number = tx.value("old_stage", before)
    if number is None:
        return False
    if tx.run("sweep_staged", number, SWEPT_ROWS) == 0:
        tx.run("remove_stage", number)
    return True
