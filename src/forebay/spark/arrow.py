"""Blocks as Arrow record batches, column by column: no object is made for a message.

Invariants: a batch has the rows of its pieces in order; a column that isn't asked for isn't made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from forebay.contract import Contract, Format, Undecodable
from forebay.model import Block, Rejected
from forebay.spark.bodies import PlainBlock
from forebay.spark.columns import ERROR, HEADERS, MESSAGE, fields_of

BATCH_ROWS_MAX: Final = 10_000
"""Rows of one batch: Spark's own number."""
BATCH_BYTES_MAX: Final = 16 << 20
"""Payloads of one batch, but for the last piece of it."""


class Piece(msgspec.Struct, frozen=True):
    """Messages of one block, of which the first has sequence number `first`."""

    queue: str
    first: int
    at: int
    """When they were accepted."""
    block: Block | PlainBlock
    appended_at: int = 0
    """When the log took them; for the archive."""


class Shape:
    """What batches look like, and how they are made from pieces.

    With a `contract`, values become the columns of its fields; one that can't be is an error, if `strict`.
    """

    def __init__(self, schema: StructType, contract: Contract | None = None, *, strict: bool = False) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._strict = strict
        self._formats: dict[str, Format] = {}
        self._fields: Mapping[str, tuple[str, ...]] = {}
        ours = {*MESSAGE.names, HEADERS.name}
        self._typed = [name for name in self.schema.names if name not in ours]
        if contract is not None and self._typed:
            self._formats = {queue.name: Format(queue, contract.version) for queue in contract.queues}
            self._fields = fields_of(contract)

    @property
    def is_typed(self) -> bool:
        """Whether there are columns of a contract."""
        return bool(self._typed)

    def batches(
        self, pieces: Iterable[Piece], keep: Callable[[Sequence[Piece]], pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of bounded size; `keep` says which rows are wanted."""
        for group in gather(pieces):
            batch = self.batch(group)
            if keep is not None:
                batch = batch.filter(keep(group))
            if batch.num_rows:
                yield batch

    def batch(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """One batch of all these pieces."""
        typed = self._decode(pieces) if self._typed else {}
        columns = [
            pa.array(typed[field.name], field.type)
            if field.name in typed
            else COLUMNS[field.name](pieces, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _decode(self, pieces: Sequence[Piece]) -> dict[str, list[Any]]:
        """The columns of fields, and why they are null."""
        typed: dict[str, list[Any]] = {name: [] for name in self._typed}
        errors = typed.setdefault(ERROR, [])
        for piece in pieces:
            names = self._fields.get(piece.queue, ())
            rows = [self._row(piece, i, headers) for i, headers in enumerate(piece.block.headers())]
            found = dict(zip(names, zip(*(row for row, _ in rows), strict=True), strict=True)) if rows else {}
            for name, column in typed.items():
                if name != ERROR:
                    column.extend(found.get(name, repeat(None, len(rows))))
            errors.extend(error for _, error in rows)
        return typed

    def _row(
        self, piece: Piece, i: int, headers: dict[str, str] | None
    ) -> tuple[tuple[Any, ...], str | None]:
        form = self._formats.get(piece.queue)
        if form is None:
            return (), f"the contract has no queue {piece.queue!r}"
        try:
            return form.decode(piece.block.payloads[i], headers), None
        except Undecodable as error:
            if self._strict:
                text = (
                    f"message {piece.first + i} of queue {piece.queue!r} is not as the contract says: {error}"
                )
                raise Rejected(text, hint="`onUndecodable` = null reads on") from None
            return (None,) * len(self._fields[piece.queue]), str(error)


def gather(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in groups of bounded size; those that are too long are cut."""
    group: list[Piece] = []
    rows = size = 0
    for piece in chain.from_iterable(map(_cut, pieces)):
        if group and (rows + len(piece.block) > BATCH_ROWS_MAX or size > BATCH_BYTES_MAX):
            yield group
            group, rows, size = [], 0, 0
        group.append(piece)
        rows += len(piece.block)
        size += sum(map(len, piece.block.payloads))
    if group:
        yield group


def _cut(piece: Piece) -> Iterator[Piece]:
    count = len(piece.block)
    if count <= BATCH_ROWS_MAX:
        yield piece
        return
    for i in range(0, count, BATCH_ROWS_MAX):
        block = piece.block.slice(i, i + BATCH_ROWS_MAX)
        yield msgspec.structs.replace(piece, first=piece.first + i, block=block)


# The columns: from pieces, and the type that Spark expects, to an array


def _each(pieces: Sequence[Piece], values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A value for each piece, as often as it has messages."""
    if all(value == values[0] for value in values):
        return pa.repeat(pa.scalar(values[0], kind), sum(len(piece.block) for piece in pieces))
    counts = [len(piece.block) for piece in pieces]
    return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _queue(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    return _each(pieces, [piece.queue for piece in pieces], kind)


def partitions(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    """The partition of each message."""
    if all(piece.block.partition_index is None for piece in pieces):
        return _each(pieces, [piece.block.partition_table[0] for piece in pieces], kind)
    table: list[str] = []
    places = []
    for piece in pieces:
        index = piece.block.partition_index
        within = np.zeros(len(piece.block), np.int32) if index is None else np.asarray(index, np.int32)
        places.append(within + len(table))
        table += piece.block.partition_table
    return pa.array(table, kind).take(pa.array(np.concatenate(places)))


def _seq(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    ranges = [np.arange(piece.first, piece.first + len(piece.block), dtype=np.int64) for piece in pieces]
    return pa.array(np.concatenate(ranges), kind)


def _key(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    if all(piece.block.transaction_ids is None for piece in pieces):
        return pa.nulls(sum(len(piece.block) for piece in pieces), kind)
    return pa.concat_arrays([_ids(piece.block, kind) for piece in pieces])


def _ids(block: Block | PlainBlock, kind: pa.DataType) -> pa.Array:
    ids = block.transaction_ids
    if ids is None:
        return pa.nulls(len(block), kind)
    return pa.array(ids, kind) if isinstance(ids, list) else ids.cast(kind)


def _value(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    if len(pieces) == 1:
        return pa.array(pieces[0].block.payloads, kind)
    return pa.array(list(chain.from_iterable(piece.block.payloads for piece in pieces)), kind)


def _created_at(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    return _times(pieces, [piece.at for piece in pieces], kind)


def appended_at(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    """When the log took each message."""
    return _times(pieces, [piece.appended_at for piece in pieces], kind)


def _times(pieces: Sequence[Piece], at: Sequence[int], kind: pa.DataType) -> pa.Array:
    counts = [len(piece.block) for piece in pieces]
    return pa.array(np.repeat(np.array(at, dtype=np.int64), counts)).cast(kind)


def _headers(pieces: Sequence[Piece], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([_maps(piece, kind) for piece in pieces])


def _maps(piece: Piece, kind: pa.DataType) -> pa.Array:
    table = [list(headers.items()) or None for headers in piece.block.header_table or ({},)]
    if table == [None]:
        return pa.nulls(len(piece.block), kind)
    index = piece.block.header_index or [0] * len(piece.block)
    return pa.array(table, kind).take(pa.array(index, pa.int32()))


COLUMNS: Final[dict[str, Callable[[Sequence[Piece], pa.DataType], pa.Array]]] = {
    "queue": _queue,
    "partition": partitions,
    "seq": _seq,
    "key": _key,
    "value": _value,
    "created_at": _created_at,
    "headers": _headers,
}
