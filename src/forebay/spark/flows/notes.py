"""Spark's checkpoint of a flow, as far as a flow looks into it: where batches begin and end.

A checkpoint has a file for each batch that was planned (`offsets`), and one for each that is done
(`commits`); the offset of the source is the last line of the former.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Final

import msgspec

from forebay.model import Corrupt
from forebay.spark.offsets import Offset

_logger: Final = logging.getLogger("forebay.spark")


class Notes:
    """The checkpoint in a folder, which may not be there yet."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder = folder
        self._queue = queue

    def end(self, batch: int) -> int:
        """The sequence number after the last row of a batch that was planned."""
        path = self.folder / "offsets" / str(batch)
        try:
            lines = path.read_text().splitlines()
            return Offset.of(json.loads(lines[-1])).queues[self._queue]
        except (OSError, LookupError, ValueError, msgspec.ValidationError) as error:
            raise Corrupt(f"{path} doesn't say where batch {batch} ends: {error}") from error

    def are_at(self, place: int) -> bool:
        """Whether Spark holds what is before this place to be done, and no more; or has noted nothing yet.

        Not where they are damaged: Spark never syncs them, and a power failure leaves empty files.
        """
        try:
            return self._done() == place if self._batches("offsets") else True
        except (Corrupt, OSError) as error:
            _logger.warning("a checkpoint is damaged, and another one is begun: %s", error)
            return False

    def drop_others(self) -> None:
        """Remove older notes of the same flow; call it once the record names these."""
        for other in self.folder.parent.glob("*"):
            if other.name != self.folder.name and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)

    def _done(self) -> int | None:
        """The sequence number after the last row of what Spark holds to be done; None if that is nothing."""
        planned, done = self._batches("offsets"), self._batches("commits")
        self.end(max(planned))
        for path in (self.folder / "metadata", *(self.folder / "commits" / str(each) for each in done)):
            if path.exists() and not path.stat().st_size:
                raise Corrupt(f"{path} is empty")
        return self.end(max(done)) if done else None

    def _batches(self, kind: str) -> list[int]:
        return [int(path.name) for path in (self.folder / kind).glob("[0-9]*") if path.name.isdigit()]
