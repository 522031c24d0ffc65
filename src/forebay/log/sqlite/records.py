"""Records as rows: written after all else of their commit, read by key or in order, trimmed when expired."""

from collections.abc import Sequence

from forebay.log.records import current, prefix_end, written
from forebay.log.sqlite.connection import Transaction
from forebay.log.sqlite.upkeep import TRIMMED_ROWS, Piece
from forebay.log.values import Kept, Record


def write(tx: Transaction, records: Sequence[Record], now: int) -> None:
    """Write all of them; VersionConflict, for the transaction to be rolled back, if one may not be."""
    for record in records:
        row = tx.row("record_state", record.space, record.key)
        kept = written(record, None if row is None else Kept(*row), now)
        if kept is not None:
            tx.run(
                "put_record", record.space, kept.key, kept.value, kept.version, kept.updated_at,
                kept.expires_at,
            )  # fmt: skip
        elif row is not None:
            tx.run("remove_record", record.space, record.key)


def read(tx: Transaction, space: str, keys: Sequence[str], now: int) -> list[Kept]:
    """Return the records that are there, in the order of the keys."""
    rows = (tx.row("record", space, key) for key in keys)
    found = (current(Kept(*row), now) for row in rows if row is not None)
    return [kept for kept in found if kept is not None]


def scan(tx: Transaction, space: str, prefix: str, after: str, *, limit: int, now: int) -> list[Kept]:
    """Return records by key."""
    bounds = (max(prefix, after), prefix_end(prefix), after)
    return [Kept(*row) for row in tx.rows("scan_records", space, *bounds, now, limit)]


def trim(tx: Transaction, now: int) -> Piece:
    """Remove some records that have expired."""
    removed = tx.run("trim_records", now, TRIMMED_ROWS)
    return Piece(removed, more=removed == TRIMMED_ROWS)
