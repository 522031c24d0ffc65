"""Rows as Parquet files in a folder, each batch once.

A job writes to a folder of its own, below `_forebay`, which readers of Parquet leave out. Then the files of
the batch are synced and moved to where they belong, under names that say the flow, the first row of the batch
and the program that made it (`Place.stem`); then the record is written that names them. A crash, or another
program that runs the flow, leaves files that no record names. They are removed by whoever made the record its
own, since then nobody can publish them any more; or by their maker, when it finds that it has lost. Readers
may see a batch that is still being moved.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from forebay.model import Misconfigured, mint
from forebay.spark.flows.batch import Made, Part, Write
from forebay.spark.flows.place import Place
from forebay.spark.flows.values import FlowSpec, ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ASIDE: Final = "_forebay"


class Folder:
    """The folder of one flow, for a program whose place it is."""

    def __init__(self, flow: FlowSpec, sink: ParquetSink, place: Place) -> None:
        self._flow = flow
        self._sink = sink
        self._root = Path(sink.folder).absolute()
        self._asides = self._root / ASIDE / flow.name
        self._aside = self._asides / f"{place.line}-{place.run}"
        self._moved: list[Path] = []

    def sweep(self, found: Place) -> None:
        """Remove what was left of batches that nobody publishes.

        `found` is the record that this program found, and replaced by its own.
        """
        for path in self._root.rglob(f"{self._flow.name}-*.parquet"):
            if found.is_left_over(path.name.removeprefix(f"{self._flow.name}-").rpartition("-")[0]):
                path.unlink(missing_ok=True)
        for aside in self._asides.glob(f"{found.line}-*") if found.line else ():
            if aside != self._aside:
                shutil.rmtree(aside, ignore_errors=True)

    def writing(self) -> Write:
        """What takes rows: files that nobody sees yet."""

        def write(frame: DataFrame) -> Part:
            self._check(frame)
            target = self._aside / mint().hex()
            frame.write.partitionBy(*self._sink.partition_by).parquet(str(target))
            return Part(files=(str(target),), rows=sum(map(_rows, _files(target))))

        return write

    def _check(self, frame: DataFrame) -> None:
        for name in self._sink.partition_by:
            if name not in frame.columns:
                text = f"flow {self._flow.name!r}: there is no column {name!r} to partition by"
                raise Misconfigured(text, hint=f"there are {', '.join(frame.columns)}")

    def show(self, made: Made, stem: str) -> None:
        """Move the files of a batch to where they belong."""
        self._moved = []
        touched = {self._root}
        for number, (base, path) in enumerate(_moves(made.parts)):
            target = (
                self._root / path.parent.relative_to(base) / f"{self._flow.name}-{stem}-{number:05d}.parquet"
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(path)
            path.rename(target)
            self._moved.append(target)
            touched |= {target.parent, *(each for each in target.parents if self._root in each.parents)}
        for folder in touched:
            _sync(folder)
        shutil.rmtree(self._aside, ignore_errors=True)
        with suppress(OSError):  # another program or flow is at work
            self._asides.rmdir()
            self._asides.parent.rmdir()

    def withdraw(self) -> None:
        """Remove the files of the last batch again: somebody else did it."""
        for path in self._moved:
            path.unlink(missing_ok=True)


def _moves(parts: Sequence[Part]) -> list[tuple[Path, Path]]:
    return [(Path(base), path) for part in parts for base in part.files for path in _files(Path(base))]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def _rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
