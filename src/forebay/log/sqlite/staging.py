"""Stages: blocks that are kept unseen until they are published together.

A stage that is forgotten loses its name at once, and its blocks in transactions of bounded size.
"""

from collections.abc import Sequence

from forebay.log.claiming import nothing_staged
from forebay.log.intake import Answer
from forebay.log.sqlite.catalogue import SWEPT_ROWS
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.writing import known_answer
from forebay.log.values import Append
from forebay.model import decode

Piece = Append | Answer
"""A block that is staged, or the answer of the time when it was published."""


def stage(tx: Transaction, name: str, appends: Sequence[Append], now: int) -> None:
    """Keep blocks under a name; those that it holds already stay as they are."""
    known = tx.value("stage", name)
    fresh = [a for a in appends if known is None or tx.row("staged", known, a.block.id) is None]
    if not fresh:
        return
    number = tx.value("touch_stage", name, now)
    tx.many("add_staged", ((number, a.queue, a.block.id, a.body) for a in fresh))


def staged(tx: Transaction, name: str, ids: Sequence[bytes]) -> list[Piece]:
    """Return what there is under each id, or raise Conflict."""
    number = tx.value("stage", name)
    pieces = [_piece(tx, number, block_id) for block_id in ids]
    missing = sum(isinstance(piece, Answer) or piece is None for piece in pieces)
    found = [piece for piece in pieces if piece is not None]
    if len(found) < len(pieces):
        raise nothing_staged(name, missing)
    return found


def _piece(tx: Transaction, number: int | None, block_id: bytes) -> Piece | None:
    row = None if number is None else tx.row("staged", number, block_id)
    if row is not None:
        queue, body = row
        return Append(queue, decode(body), body)
    return known_answer(tx, block_id)


def forget(tx: Transaction, name: str) -> None:
    """Hide a stage, for its blocks to be swept away."""
    tx.run("forget_stage", name)


def sweep_stages(tx: Transaction, before: int = 0) -> bool:
    """Remove some of a stage that is hidden or old; tell whether there was one."""
    number = tx.value("old_stage", before)
    if number is None:
        return False
    if tx.run("sweep_staged", number, SWEPT_ROWS) == 0:
        tx.run("remove_stage", number)
    return True
