"""Compacting an archive, and verifying it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.parquet as pq

from forebay.model import SystemClock
from forebay.spark.archive.folder import ArchiveFolder
from forebay.spark.archive.job import Start, spread
from forebay.spark.archive.manifest import DataFile, Manifest, faults, replaced
from forebay.spark.archive.parquet import checksum_of, merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_MAX: Final = 1_000
"""How many files become one at most."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What compacting did."""

    before: int
    after: int
    bytes: int = 0


class _Merge(msgspec.Struct, frozen=True):
    root: str
    files: list[DataFile]


def compact(
    folder: ArchiveFolder,
    spark: Start | SparkSession | None = None,
    *,
    bytes_max: int = 128 << 20,
    fewer_min: int = 1,
) -> Compacted:
    """Make one file of those of a day that follow each other, up to a size. The old ones stay for a while.

    Nothing is done unless there are so many files fewer afterwards.
    """
    with folder.locked():
        manifest = folder.newest()
        runs = list(mergeable(manifest, bytes_max))
        if sum(len(run) - 1 for run in runs) < fewer_min:
            return Compacted(before=len(manifest.files), after=len(manifest.files))
        done = spread(spark, [_Merge(str(folder.path), run) for run in runs], _merged)
        now, before = SystemClock().now(), len(manifest.files)
        for run, merged in zip(runs, done, strict=True):
            manifest = replaced(manifest, {file.path for file in run}, [merged], now)
        manifest = folder.publish(manifest, now)
        return Compacted(before=before, after=len(manifest.files), bytes=sum(file.bytes for file in done))


def _merged(task: _Merge) -> DataFile:
    return merge(Path(task.root), task.files)


def mergeable(manifest: Manifest, bytes_max: int) -> Iterator[list[DataFile]]:
    """Files of a day that follow each other and are small enough together, two at least.

    Between files of messages there is no gap; outcomes are about messages, and have gaps by nature.
    """
    files = sorted(manifest.files, key=lambda file: (file.table, file.queue, file.day, file.first))
    for _, day in groupby(files, key=lambda file: (file.table, file.queue, file.day)):
        run: list[DataFile] = []
        size = 0
        for file in day:
            follows = not run or file.table == "outcomes" or file.first == run[-1].last + 1
            if run and (not follows or size + file.bytes > bytes_max or len(run) >= FILES_MAX):
                if len(run) > 1:
                    yield run
                run, size = [], 0
            run.append(file)
            size += file.bytes
        if len(run) > 1:
            yield run


def verify(folder: ArchiveFolder, spark: Start | SparkSession | None = None) -> list[str]:
    """What is wrong with an archive, in words: its manifest in itself, and against the files."""
    manifest = folder.require()
    tasks = [_Merge(str(folder.path), [file]) for file in manifest.files]
    return [*faults(manifest), *(text for found in spread(spark, tasks, _checked) for text in found)]


def _checked(task: _Merge) -> list[str]:
    return [text for file in task.files for text in check_file(Path(task.root), file)]


def check_file(root: Path, file: DataFile) -> Sequence[str]:
    """What is wrong with a file."""
    try:
        size = (root / file.path).stat().st_size
        if size != file.bytes:
            return [f"{file.path} has {size:,} bytes, and should have {file.bytes:,}"]
        with (root / file.path).open("rb") as opened:
            if checksum_of(opened) != file.checksum:
                return [f"{file.path} is damaged: its checksum is another one"]
        rows = pq.read_metadata(root / file.path).num_rows
    except FileNotFoundError:
        return [f"{file.path} is missing"]
    except OSError as error:
        return [f"{file.path} can't be read: {error}"]
    return [f"{file.path} has {rows:,} rows, and should have {file.rows:,}"] if rows != file.rows else []
