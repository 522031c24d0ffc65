"""Rows to blocks: record batches of Arrow, gathered in pages, checked, grouped by queue and cut.

Columns stay columns: nothing is done row by row, but for a page in which some row can't be a message.

Invariants: rows keep their order within a queue, and within a partition of an ordered one; a page, and so
what a task holds at a time, is bounded; a block is within its limits, and holds one partition where its
queue is ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.contract import Format
from forebay.log.values import Queue
from forebay.model import Block, Limits, Rejected, SystemClock, mint
from forebay.model.columns import Headers, refold
from forebay.spark.bad_rows import Faults, is_plain, row_faults
from forebay.spark.columns import column_name
from forebay.spark.headers import fold_maps, without_garbage
from forebay.spark.sink_options import MESSAGE_COLUMNS

PAGE_ROWS: Final = 100_000
PAGE_BYTES: Final = 32 << 20
"""A page takes record batches until it has so many rows or bytes: one batch more at most."""
BLOCK_BYTES: Final = 4 << 20
"""What a block is filled to, unless a single message is larger: readers take blocks whole."""

_ROW_BYTES: Final = 32
"""What a message takes in a block besides its texts: never less."""


class Page(msgspec.Struct, frozen=True):
    """Some rows of a task, as columns; those that are missing are None."""

    first: int
    """The number of the first row within its Spark partition."""
    columns: Mapping[str, pa.Array]
    headers: tuple[list[Headers], pa.Array] | None = None
    """The distinct headers, and which of them each row has."""

    def __len__(self) -> int:
        return len(self.columns["value"])

    def get(self, name: str) -> pa.Array | None:
        """One of the columns."""
        return self.columns.get(name)

    def take(self, rows: pa.Array) -> Page:
        """Some of the rows, in this order; their numbers are forgotten."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        headers = None if self.headers is None else (self.headers[0], self.headers[1].take(rows))
        return Page(self.first, columns, headers)

    def slice(self, start: int, stop: int) -> Page:
        """The rows from `start` to `stop`, without copying them."""
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        headers = (
            None if self.headers is None else (self.headers[0], self.headers[1].slice(start, stop - start))
        )
        return Page(self.first + start, columns, headers)

    def without(self, rows: Iterable[int]) -> Page:
        """The other rows."""
        keep = np.ones(len(self), dtype=bool)
        keep[list(rows)] = False
        return self.take(pa.array(np.flatnonzero(keep)))


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Record batches by the page, with the number of its first row."""
    held: list[pa.RecordBatch] = []
    first = rows = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PAGE_ROWS or size >= PAGE_BYTES:
            yield first, held
            first, held, rows, size = first + rows, [], 0, 0
    if held:
        yield first, held


def page_of(
    first: int, batches: Sequence[pa.RecordBatch], queue: str | None = None, typed: Format | None = None
) -> tuple[Page, Faults]:
    """Batches as one page, and what is wrong with rows that had to be encoded.

    A `queue` that takes all rows goes before the column.
    """
    left_out = {"queue"} if queue is not None else set()
    left_out.update(() if typed is None else _fields(typed))
    names = [name for name in MESSAGE_COLUMNS if name in batches[0].schema.names and name not in left_out]
    columns = {name: _column(batches, name) for name in names}
    faults: Faults = {}
    if typed is not None:
        columns["value"], faults = _encoded(batches, typed)
    elif not _is_binary(columns["value"].type):
        columns["value"] = columns["value"].cast(pa.large_binary())
    if "partition" in columns:
        columns["partition"] = pc.fill_null(columns["partition"], "")
    if "start_time" in columns:
        columns["start_time"] = columns["start_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return Page(first, columns), faults


def fold_page(
    page: Page, queues: Mapping[str, Queue], limits: Limits, typed: Format | None
) -> tuple[Page, Faults]:
    """The page with its headers folded, and what is wrong with which of its rows; {} is the common case."""
    extra = None if typed is None else typed.headers
    headers, garbled = _shared(extra, len(page)), list[int]()
    if (column := page.get("headers")) is not None:
        column, garbled = without_garbage(column)
        headers = fold_maps(column, extra)
    page = Page(page.first, {n: c for n, c in page.columns.items() if n != "headers"}, headers)
    faults = {} if is_plain(page, queues, limits) else row_faults(page, queues, limits)
    return page, faults | dict.fromkeys(garbled, "headers are not UTF-8")


def blocks_of(
    page: Page, queue: str | None, queues: Mapping[str, Queue], limits: Limits
) -> Iterator[tuple[Queue, Block]]:
    """The rows of a page as blocks, each with its queue; `queue` is where all of them go."""
    for group, target in _groups(page, queue, queues):
        for start, stop in _cuts(group, limits):
            yield target, _block(group.slice(start, stop))


def values(column: pa.Array) -> list[Any]:
    """A column as a list of Python values: many times faster than `to_pylist`."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _fields(typed: Format) -> list[str]:
    return [column_name(field.name) for field in typed.queue.fields]


def _shared(headers: Headers | None, count: int) -> tuple[list[Headers], pa.Array] | None:
    return None if headers is None else ([headers], pa.array(np.zeros(count, dtype=np.int32)))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _column(batches: Sequence[pa.RecordBatch], name: str) -> pa.Array:
    columns = [batch.column(name) for batch in batches]
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _encoded(batches: Sequence[pa.RecordBatch], typed: Format) -> tuple[pa.Array, Faults]:
    """The bytes of each row by the contract, and what is wrong with those that have none."""
    fields = [_column(batches, name).to_pylist() for name in _fields(typed)]
    bodies: list[bytes] = []
    faults: Faults = {}
    for row, given in enumerate(zip(*fields, strict=True)):
        try:
            bodies.append(typed.encode(given))
        except Rejected as error:
            faults[row] = error.message
            bodies.append(b"")
    return pa.array(bodies, pa.large_binary()), faults


def _groups(page: Page, queue: str | None, queues: Mapping[str, Queue]) -> Iterator[tuple[Page, Queue]]:
    """The page by queue, and by partition where that is ordered, in the order of their first rows."""
    names, queue_codes = _codes(page.get("queue") if queue is None else None, queue or "")
    targets = [queues[name] for name in names]
    codes = _zeros(len(page)) if queue_codes is None else queue_codes
    if any(target.settings.ordered for target in targets):
        partitions, partition_codes = _codes(page.get("partition"), "")
        if partition_codes is not None:
            ordered = np.array([target.settings.ordered for target in targets])
            codes = codes * len(partitions) + np.where(ordered[codes], partition_codes, 0)
            targets = [target for target in targets for _ in partitions]
    if not (codes != codes[:1]).any():
        if len(page):
            yield page, targets[int(codes[0])]
        return
    order = np.argsort(codes, kind="stable")
    sorted_page, codes = page.take(pa.array(order)), codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield sorted_page.slice(int(start), int(stop)), targets[int(codes[start])]


def _codes(column: pa.Array | None, only: str) -> tuple[list[str], Any]:
    """The distinct values of a column by their first use, and which each row has; None if all have one."""
    if column is None:
        return [only], None
    encoded = column.dictionary_encode()
    table = encoded.dictionary.to_pylist()
    return table, None if len(table) == 1 else encoded.indices.to_numpy().astype(np.int64)


def _zeros(count: int) -> Any:
    return np.zeros(count, dtype=np.int64)


def _cuts(group: Page, limits: Limits) -> Iterator[tuple[int, int]]:
    """Where to cut a group, so that every block is within its limits."""
    ends = np.cumsum(_sizes(group))
    start, done = 0, 0
    while start < len(group):
        full = int(np.searchsorted(ends, done + min(BLOCK_BYTES, limits.block_bytes_max), side="right"))
        stop = min(max(full, start + 1), start + limits.block_messages_max, len(group))
        yield start, stop
        start, done = stop, int(ends[stop - 1])


def _sizes(group: Page) -> Any:
    """How many bytes each row takes in a block, or slightly more."""
    sizes = np.full(len(group), _ROW_BYTES, dtype=np.int64)
    for name in ("value", "partition", "key"):
        column = group.get(name)
        if column is not None:
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    if group.headers is not None:
        table, index = group.headers
        sizes += np.array([_header_bytes(entry) for entry in table])[index.to_numpy()]
    return sizes


def _header_bytes(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value.encode()) + _ROW_BYTES for name, value in headers.items())


def _block(rows: Page) -> Block:
    partitions, codes = _codes(rows.get("partition"), "")
    return Block(
        mint(),
        SystemClock().now(),
        values(rows.columns["value"]),
        partitions,
        None if codes is None else codes.tolist(),
        _some(rows.get("key")),
        *_folded(rows),
        _some(rows.get("start_time")),
    )


def _some(column: pa.Array | None) -> list[Any] | None:
    """A column whose values may be missing; None where all are."""
    if column is None or column.null_count == len(column):
        return None
    # numpy has no whole numbers that are missing
    return column.to_pylist() if column.null_count and pa.types.is_integer(column.type) else values(column)


def _folded(rows: Page) -> tuple[list[Headers] | None, list[int] | None]:
    if rows.headers is None:
        return None, None
    table, index = refold(rows.headers[0], rows.headers[1].to_numpy().tolist())
    return (None, None) if table == [{}] else (table, index)
