"""Parquet files of an archive: written under a name that nobody reads, safe on disk, then named.

Invariants: a file that has its name is whole; rows are by sequence number; what is checked later (rows,
bytes, checksum) is what was written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from forebay.model import mint
from forebay.spark.archive.folder import make_folder, sync_folder
from forebay.spark.archive.manifest import DataFile, Table, file_name, folder_of
from forebay.spark.columns import HEADERS, MESSAGE
from forebay.spark.tables import table_columns

LEVEL: Final = 3
SCHEMA_MESSAGES: Final = StructType([*MESSAGE.fields, HEADERS])


APPENDED_AT: Final = pa.field("appended_at", pa.timestamp("us", "UTC"))
"""When the log took a message, by which stretches of time are found: these times rise."""


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table's files."""
    if table == "outcomes":
        return to_arrow_schema(table_columns("outcomes"), timezone="UTC")
    return to_arrow_schema(SCHEMA_MESSAGES, timezone="UTC").append(APPENDED_AT)


class FileWriter:
    """One file on its way: batches in, an entry for the manifest out."""

    def __init__(self, root: Path, table: Table, queue: str, day: str) -> None:
        self._root = root
        self._table: Table = table
        self._queue = queue
        self._day = day
        self._folder = root / folder_of(table, queue, day)
        make_folder(self._folder)
        self._mark = mint().hex()[-12:]
        self._fresh = self._folder / f".{self._mark}.tmp"
        self._writer = pq.ParquetWriter(
            self._fresh, arrow_schema(table), compression="zstd", compression_level=LEVEL
        )
        self.rows = 0

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows."""
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        self._writer.write_table(rows)
        self.rows += rows.num_rows

    @property
    def size(self) -> int:
        """Bytes so far, about."""
        return self._fresh.stat().st_size

    def close(self, first: int, last: int, since: int, until: int) -> DataFile:
        """Make it safe and give it its name."""
        self._writer.close()
        with self._fresh.open("rb") as file:
            checksum = checksum_of(file)
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        path = self._folder / file_name(first, last, self._mark)
        self._fresh.rename(path)
        sync_folder(self._folder)
        return DataFile(
            path=path.relative_to(self._root).as_posix(), table=self._table, queue=self._queue, day=self._day,
            first=first, last=last, rows=self.rows, bytes=size, checksum=checksum, since=since, until=until,
        )  # fmt: skip

    def drop(self) -> None:
        """Forget it."""
        self._writer.close()
        self._fresh.unlink(missing_ok=True)


def checksum_of(file: Any) -> str:
    """What stands for the bytes of a file."""
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def merge(root: Path, files: Iterable[DataFile]) -> DataFile:
    """One file in place of several that follow each other."""
    parts = list(files)
    writer = FileWriter(root, parts[0].table, parts[0].queue, parts[0].day)
    try:
        for part in parts:
            opened = pq.ParquetFile(root / part.path)
            try:
                for group in range(opened.num_row_groups):
                    writer.write(_current(opened.read_row_group(group), part.table))
            finally:
                opened.close()
    except BaseException:
        writer.drop()
        raise
    return writer.close(parts[0].first, parts[-1].last, parts[0].since, parts[-1].until)


def _current(rows: pa.Table, table: Table) -> pa.Table:
    """Rows with the columns that files have now; older ones have `created_at` for when the log took them."""
    if table == "messages" and APPENDED_AT.name not in rows.schema.names:
        rows = rows.append_column(APPENDED_AT, rows["created_at"].cast(APPENDED_AT.type))
    return rows.cast(arrow_schema(table))
