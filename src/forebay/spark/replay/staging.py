"""A task of a bulk replay: reads spool files by the spool's own rules, and stages their blocks.

Invariants: every block keeps the id that plain replay would write it under, so that whatever went in before
is recognised; a second attempt stages the same blocks under the same ids; memory is bounded by a page of a
file, and by the ids of a group.

Lines of the original server are blocks of one message each. So that a million of them isn't a million blocks,
those of a file are gathered by queue, under an id made of theirs; unless plain replay began on the file
before: then they go one by one, as it does.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from forebay.disk import RealDisk
from forebay.failover.sinks import Addressed, LogSink, Refused, Sink
from forebay.log.values import Append, Appended, Receipt
from forebay.model import Block, Conflict, ForebayError, SystemClock, Unavailable
from forebay.spark.logs import Face
from forebay.spark.replay.aside import Aside
from forebay.spark.replay.naming import NamedQueues
from forebay.spark.replay.planning import Source
from forebay.spark.replay.values import Failure, FileDone, Stage, Staged, Task, Tools
from forebay.spool.lines import SpooledBlock, SpooledSettlement, derive_id
from forebay.spool.scanning import Assembler, Fault, Found, Stretch, walk

PAGE_EVENTS: Final = 10_000
PAGE_BYTES: Final = 8 << 20
GATHERED_MESSAGES: Final = 1_000
GATHERED_BYTES: Final = 1 << 20
STAGE_BLOCKS: Final = 10_000
"""How many blocks go in by one transaction."""
PAUSE_SECONDS: Final = 0.5
_VERSION_8: Final = 8

Placed = tuple[SpooledBlock, Stretch]


class StagingLog(NamedQueues):
    """What `LogSink` asks of a log; what is committed is staged, and remembered in order."""

    def __init__(self, opened: Face, name: str) -> None:
        super().__init__(opened.log)
        self._name = name
        self._seen: set[bytes] = set()
        self.stages: list[Stage] = []

    async def commit(self, appends: Sequence[Append]) -> Receipt:
        """Stage blocks."""
        fresh = [append for append in appends if append.block.id not in self._seen]
        while fresh:
            stage = self._stage()
            some, fresh = fresh[: STAGE_BLOCKS - len(stage.ids)], fresh[STAGE_BLOCKS - len(stage.ids) :]
            await self._log.stage(stage.name, some)
            for append in some:
                self._seen.add(append.block.id)
                stage.ids.append(append.block.id)
                stage.queues.append(self._names[append.queue])
                stage.counts.append(len(append.block))
        return Receipt([Appended(0, len(append.block)) for append in appends])

    def _stage(self) -> Stage:
        if not self.stages or len(self.stages[-1].ids) >= STAGE_BLOCKS:
            self.stages.append(Stage(f"{self._name}/{len(self.stages)}", [], [], []))
        return self.stages[-1]


def stage_files(task: Task, tools: Tools) -> Staged:
    """Stage all blocks of some files; an error of ours is returned, for the driver to raise."""
    deadline = time.monotonic() + task.retry_seconds
    while True:
        try:
            opened = tools.face()
            staging = StagingLog(opened, f"replay/{task.run}/{task.number}")
            sink = LogSink(staging, create_queues=task.create_queues, creation=tools.creation)
            files = [Filing(source, task, opened, sink).run() for source in task.sources]
            return Staged(task.number, staging.stages, files)
        except Unavailable as error:
            if time.monotonic() + PAUSE_SECONDS > deadline:
                return Staged(task.number, [], [], _failure(error))
            time.sleep(PAUSE_SECONDS)
        except ForebayError as error:
            return Staged(task.number, [], [], _failure(error))


def _failure(error: ForebayError) -> Failure:
    return Failure(type(error).__name__, error.message, error.hint)


class Filing:
    """One file on its way into a stage."""

    def __init__(self, source: Source, task: Task, opened: Face, sink: Sink) -> None:
        self._source = source
        self._task = task
        self._face = opened
        self._sink = sink
        self._aside = Aside(task.aside, source)
        self._events = self._refused = 0

    def run(self) -> FileDone:
        """Send all blocks of the file to the sink, and set aside what isn't any."""
        digest = digest_of(self._source)
        if self._task.replayed.get(self._source.key) == digest:
            return FileDone(source=self._source, digest=digest, known=True)
        entries = Entries(self._source, self._task.repeated.get(self._source.shown, ()))
        for page in pages(entries, lambda block: self._is_known(block.id)):
            self._events += sum(len(entry.block) for entry, _ in page)
            self._write(page)
        for fault in entries.faults:
            self._aside.add(fault.kind, fault.reason, fault.stretch)
        return FileDone(
            source=self._source, digest=digest, events=self._events, faults=len(entries.faults),
            refused=self._refused, settlements=entries.settlements, cut=self._aside.close(),
        )  # fmt: skip

    def _write(self, page: Sequence[Placed]) -> None:
        blocks: list[Addressed] = [(entry.queue, entry.block) for entry, _ in page]
        for refused in self._face(self._sink.write(blocks)):
            entry, stretch = page[refused.place]
            # If the log knows a block otherwise that lacks something here, it has it whole, from before.
            if not (entry.damaged and isinstance(refused.error, Conflict)):
                self._refuse(refused, stretch)

    def _refuse(self, refused: Refused, stretch: Stretch) -> None:
        self._refused += len(refused.block)
        self._aside.add("refused", str(refused.error), stretch)

    def _is_known(self, block_id: bytes) -> bool:
        """Whether a block is in the log: what is known needn't be staged to be published."""
        try:
            self._face(self._face.log.publish(f"replay/{self._task.run}/ask", [block_id]))
        except Conflict:
            return False
        return True


def digest_of(source: Source) -> str:
    """What stands for the bytes of a file."""
    with (Path(source.folder) / source.path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


class Entries:
    """The blocks of a file, in order, without the messages that are `repeated`; and what is wrong with it."""

    def __init__(self, source: Source, repeated: Sequence[tuple[int, int]]) -> None:
        self._source = source
        self._repeated: dict[int, set[int]] = {}
        for entry, message in repeated:
            self._repeated.setdefault(entry, set()).add(message)
        self.faults: list[Fault] = []
        self.settlements = 0

    @property
    def is_mergeable(self) -> bool:
        """Whether messages may be gathered; what was refused before goes as it was."""
        return not self._source.failed

    def __iter__(self) -> Iterator[Placed]:
        """Read the file."""
        file = RealDisk(Path(self._source.folder)).open(self._source.path)
        try:
            number = 0
            for item in walk(file, Assembler(self._source.name, SystemClock().now())):
                if isinstance(item, Fault):
                    self.faults.append(item)
                elif isinstance(item.entry, SpooledSettlement):
                    self.settlements += 1
                else:
                    yield from self._without(item, number)
                    number += 1
        finally:
            file.close()

    def _without(self, found: Found, number: int) -> Iterator[Placed]:
        assert isinstance(found.entry, SpooledBlock)
        gone = self._repeated.get(number)
        if gone is None:
            yield found.entry, found.stretch
        else:
            reduced = found.entry.block.without(gone)
            yield SpooledBlock(found.entry.queue, reduced, found.entry.damaged + len(gone)), found.stretch


def is_original(block: Block) -> bool:
    """Whether a block of a finished file is a line of the original server: its id is a digest."""
    return len(block) <= 1 and block.id[6] >> 4 == _VERSION_8


def pages(entries: Entries, is_known: Callable[[Block], bool]) -> Iterator[list[Placed]]:
    """Blocks, a bounded number of messages and bytes at a time; lines of the original server are gathered."""
    gathering: Gathering | None = None
    page: list[Placed] = []
    events = size = 0
    for entry, stretch in entries:
        ready: list[Placed] = [(entry, stretch)]
        if is_original(entry.block) and entries.is_mergeable:
            if gathering is None:
                gathering = Gathering(plain=is_known(entry.block))
            ready = gathering.add(entry, stretch)
        ready = [each for each in ready if len(each[0].block)]
        page += ready
        events += sum(len(each.block) for each, _ in ready)
        size += sum(each.size for _, each in ready)
        if events >= PAGE_EVENTS or size >= PAGE_BYTES:
            yield page
            page, events, size = [], 0, 0
    if gathering is not None:
        page += [each for each in gathering.rest() if len(each[0].block)]
    if page:
        yield page


class Gathering:
    """Messages of a file by queue. With `plain` nothing is gathered."""

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain
        self._held: dict[str, list[Placed]] = {}
        self._bytes: dict[str, int] = {}

    def add(self, entry: SpooledBlock, stretch: Stretch) -> list[Placed]:
        """Take a message; what is large enough to go."""
        if self._plain:
            return [(entry, stretch)]
        queue = entry.queue
        self._held.setdefault(queue, []).append((entry, stretch))
        self._bytes[queue] = self._bytes.get(queue, 0) + stretch.size
        full = len(self._held[queue]) >= GATHERED_MESSAGES or self._bytes[queue] >= GATHERED_BYTES
        return [self._take(queue)] if full else []

    def rest(self) -> list[Placed]:
        """All that is left."""
        return [self._take(queue) for queue in list(self._held)]

    def _take(self, queue: str) -> Placed:
        held = self._held.pop(queue)
        del self._bytes[queue]
        if len(held) == 1:
            return held[0]
        blocks = [entry.block for entry, _ in held]
        id = derive_id(b"".join(block.id for block in blocks), len(blocks))
        # Those that are left out count for the id: it is the same, whatever else is replayed with the file.
        messages = [message for block in blocks for message in block]
        first, last = held[0][1], held[-1][1]
        size, lines = last.offset + last.size - first.offset, last.line + last.lines - first.line
        stretch = Stretch(first.offset, size, first.line, lines)
        block = Block.of(messages, id=id, created_at=blocks[0].created_at)
        return SpooledBlock(queue, block, len(blocks) - len(messages)), stretch
