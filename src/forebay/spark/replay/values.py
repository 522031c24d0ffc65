"""What crosses between the driver of a bulk replay and its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forebay.log.values import Appended
from forebay.model import Block
from forebay.spark.logs import Face, Opener, face
from forebay.spark.replay.planning import Source

Creation = Callable[[str, Block], dict[str, Any] | None]
"""The settings of a queue that isn't there; a function of a module, since it is pickled by its name."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Files to be staged together."""

    number: int
    run: str
    sources: list[Source]
    replayed: dict[str, str]
    """Digests of files that went in before, by their keys."""
    repeated: dict[str, list[tuple[int, int]]]
    create_queues: bool
    aside: str | None
    """The folder for what can't be replayed."""
    retry_seconds: float


class Tools(msgspec.Struct, frozen=True):
    """How a task gets at the log."""

    opener: Opener
    url: str
    creation: Creation
    credentials: dict[str, str] = {}

    def face(self) -> Face:
        """The log, open in this process."""
        return face(self.opener, self.url, **self.credentials)


class Stage(msgspec.Struct, frozen=True):
    """Blocks that are staged and go in together, in order."""

    name: str
    ids: list[bytes]
    queues: list[str]
    """The queue of each block."""
    counts: list[int]


class FileDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a file held."""

    source: Source
    digest: str
    events: int = 0
    faults: int = 0
    refused: int = 0
    settlements: int = 0
    known: bool = False
    """It went in before, as it is: nothing of it was staged."""
    cut: bool = False
    """Some of what can't be replayed is too long to be set aside whole."""

    @property
    def is_whole(self) -> bool:
        """Whether all that it holds could be staged."""
        return not (self.faults or self.refused or self.settlements)


class Failure(msgspec.Struct, frozen=True):
    """An error of ours on its way to the driver: Spark would make a text of it."""

    kind: str
    message: str
    hint: str | None


class Staged(msgspec.Struct, frozen=True):
    """What a task did."""

    number: int
    stages: list[Stage]
    files: list[FileDone]
    failure: Failure | None = None


class Summary(msgspec.Struct, kw_only=True):
    """What a bulk replay did so far."""

    files: int = 0
    files_known: int = 0
    """Files that had been replayed before, as they are."""
    events: int = 0
    """Messages that were found in the files."""
    written: dict[str, int] = {}
    """Messages that went in by this, by queue."""
    known: int = 0
    """Messages of blocks that were in already."""
    repeated: int = 0
    """Messages whose transaction id an earlier one has."""
    damaged: int = 0
    refused: int = 0
    left: dict[str, str] = {}
    """Files that were not replayed, or not wholly, and why."""
    seconds: float = 0.0
    removed: int = 0

    def add(self, queue: str, appended: Appended) -> None:
        """Count what became of a block."""
        if appended.known:
            self.known += appended.count + len(appended.duplicates)
            return
        self.repeated += len(appended.duplicates)
        self.written[queue] = self.written.get(queue, 0) + appended.count

    @property
    def messages(self) -> int:
        """How many went in."""
        return sum(self.written.values())

    @property
    def is_complete(self) -> bool:
        """Whether all that the files hold is in."""
        return not (self.damaged or self.refused or self.left)
