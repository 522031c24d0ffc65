"""The driver of a bulk replay: spool folders of many dead servers into one log, oldest file first.

Tasks read files and stage their blocks; the driver publishes what is staged, in the order of the files, while
the next tasks stage. So messages of a partition go in by the time of their file, then by their place in it.

Exactly once, whatever is repeated: a block keeps its id, and a log publishes an id once; the log remembers
what a file's bytes were (a record of the space `spool-replay`), in the transaction that publishes its last
block, so that the next run leaves the file alone. A run that is interrupted leaves stages that nobody sees,
which upkeep removes.

Invariants: files stay as they are, unless they are to be removed, and then until all of them is in; nothing
is published before everything that is older.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from forebay import model
from forebay.disk import Lock, RealDisk
from forebay.failover.sinks import LogSink
from forebay.log.values import QueueSettings, Receipt, Record
from forebay.model import Conflict, ForebayError, Rejected, SystemClock, Unavailable, format_id, mint
from forebay.spark.logs import Face
from forebay.spark.replay.careful import CountingLog, OneByOne
from forebay.spark.replay.planning import Source, deduping, grouped, in_order
from forebay.spark.replay.repeating import find_repeated
from forebay.spark.replay.staging import Filing, stage_files
from forebay.spark.replay.values import Creation, Failure, FileDone, Stage, Staged, Summary, Task, Tools
from forebay.spark.spreading import spread
from forebay.spool.names import FAILED, sort_names
from forebay.spool.recovering import recover

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
SPACE: Final = "spool-replay"
REMEMBER_US: Final = 90 * 86_400 * 1_000_000
"""How long the log remembers that a file went in."""
RECORDS_MAX: Final = 10_000
WAVE_TASKS: Final = 8
"""Tasks of a wave for each core: a wave costs a Spark job, and what it has staged waits for its end."""
OUTCOMES: Final = (
    "outcomes of tasks: replay them without --spark, with --outcomes, into the log that they are for"
)
CUT: Final = "a damaged line in it is too long to be set aside whole"


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """How folders are replayed."""

    create_queues: bool = True
    aside: str | None = None
    remove: bool = False
    """Files of which everything is in, or set aside, are removed at the end."""
    retry_seconds: float = 60.0
    group_bytes: int = 8 << 20


def nothing(_: int) -> None:
    """Nobody looks on."""


class BulkReplay:
    """Folders on their way into a log."""

    def __init__(self, spark: SparkSession, tools: Tools, wishes: Wishes) -> None:
        self._spark = spark
        self._tools = tools
        self._wishes = wishes
        self.summary = Summary(written={}, left={})
        self.size = 0
        """Bytes to be read."""
        self._run = format_id(mint())
        self._tasks: list[Task] = []
        self._locks: list[Lock] = []
        self._gone: list[Source] = []
        self._is_stuck = False

    def prepare(self, folders: Sequence[str]) -> None:
        """Take the folders, finish what crashes left in them, and plan; `finish` lets go of them."""
        sources: list[Source] = []
        for folder in dict.fromkeys(str(Path(folder).resolve()) for folder in folders):
            disk = RealDisk(Path(folder))
            self._locks.append(disk.lock())
            recover(disk)
            sources += list(found_in(disk))
        messages = [source for source in sources if source.name.prefix != "settle"]
        for source in sources:
            if source.name.prefix == "settle":
                self.summary.left[source.shown] = OUTCOMES
        self.size = sum(source.size for source in messages)
        self._plan(in_order(messages))

    def _plan(self, sources: Sequence[Source]) -> None:
        opened = self._face()
        rules = deduping(opened(opened.log.queues()), self.size, QueueSettings())
        groups = grouped(sources, bytes_max=self._wishes.group_bytes)
        repeated = find_repeated(self._spark, groups, rules) if rules.is_needed and groups else {}
        replayed = _replayed(opened, sources)
        for number, group in enumerate(groups):
            self._tasks.append(
                Task(
                    number=number, run=self._run, sources=group, create_queues=self._wishes.create_queues,
                    replayed={each.key: replayed[each.key] for each in group if each.key in replayed},
                    repeated={each.shown: repeated[each.shown] for each in group if each.shown in repeated},
                    aside=self._wishes.aside, retry_seconds=self._wishes.retry_seconds,
                )
            )  # fmt: skip

    def run(self, progress: Callable[[int], None] = nothing) -> Summary:
        """Stage and publish everything; `progress` is told how many bytes of the files are through."""
        began = time.monotonic()
        try:
            with ThreadPoolExecutor(1, "forebay-publish") as publisher:
                self._waves(publisher, progress)
        finally:
            self.summary.seconds = time.monotonic() - began
        return self.summary

    def _waves(self, publisher: ThreadPoolExecutor, progress: Callable[[int], None]) -> None:
        """While what one wave has staged is published, the next one stages."""
        tools = self._tools
        step = WAVE_TASKS * self._spark.sparkContext.defaultParallelism
        pending: list[Future[None]] = []
        for at in range(0, len(self._tasks), step):
            tasks = self._tasks[at : at + step]
            staged = spread(self._spark, tasks, lambda task: stage_files(task, tools))
            while pending:
                pending.pop(0).result()
            for each in staged:
                if each.failure is not None:
                    raise error_of(each.failure)
            pending = [publisher.submit(self._publish_next, each, progress) for each in staged]
        while pending:
            pending.pop(0).result()

    def _publish_next(self, staged: Staged, progress: Callable[[int], None]) -> None:
        """Publish, unless something older could not be: what waits behind it is of the next run."""
        if self._is_stuck:
            return
        self._is_stuck = True
        self._publish(staged, progress)
        self._is_stuck = False

    def _publish(self, staged: Staged, progress: Callable[[int], None]) -> None:
        records = self._records(staged.files)
        files = staged.files
        for index, stage in enumerate(staged.stages):
            last = index == len(staged.stages) - 1
            try:
                receipt = self._patiently(lambda: self._publish_stage(stage, records if last else []))  # noqa: B023 - called at once
            except Conflict:
                files = self._carefully(self._tasks[staged.number])
                break
            self._count(stage, receipt)
        if not staged.stages and records:
            opened = self._face()
            self._patiently(lambda: opened(opened.log.commit(records=records)))
        for done in files:
            self._note(done)
            if not done.known:
                self.summary.repeated += len(self._tasks[staged.number].repeated.get(done.source.shown, ()))
        progress(sum(done.source.size for done in files))

    def _publish_stage(self, stage: Stage, records: Sequence[Record]) -> Receipt:
        opened = self._face()
        return opened(opened.log.publish(stage.name, stage.ids, records=records, replayed=True))

    def _carefully(self, task: Task) -> list[FileDone]:
        """Block by block, as plain replay does: the log knows one of them otherwise."""
        opened = self._face()
        log = CountingLog(opened.log, self.summary)
        sink = OneByOne(LogSink(log, create_queues=task.create_queues, creation=self._tools.creation))
        files = [self._patiently(lambda: Filing(source, task, opened, sink).run()) for source in task.sources]  # noqa: B023 - called at once
        if records := self._records(files):
            self._patiently(lambda: opened(opened.log.commit(records=records)))
        return files

    def _records(self, files: Sequence[FileDone]) -> list[Record]:
        """What is remembered: files that are in wholly. Others are read again, by the ids of their blocks."""
        return [self._record(done) for done in files if not done.known and done.is_whole]

    def _record(self, done: FileDone) -> Record:
        value = {"digest": done.digest, "bytes": done.source.size, "events": done.events, "run": self._run}
        return Record(SPACE, done.source.key, msgspec.json.encode(value), SystemClock().now() + REMEMBER_US)

    def _count(self, stage: Stage, receipt: Receipt) -> None:
        for queue, appended in zip(stage.queues, receipt.appended, strict=True):
            self.summary.add(queue, appended)

    def _note(self, done: FileDone) -> None:
        summary = self.summary
        summary.files += 1
        summary.files_known += done.known
        summary.events += done.events
        summary.damaged += done.faults
        summary.refused += done.refused
        is_safe = self._wishes.aside is not None or not (done.faults or done.refused)
        if done.settlements:
            summary.left[done.source.shown] = OUTCOMES
        elif done.cut:
            summary.left[done.source.shown] = CUT
        elif is_safe:
            self._gone.append(done.source)

    def finish(self, *, complete: bool) -> None:
        """Let go of the folders; before that, remove what is in, where that was asked for."""
        if complete and self._wishes.remove:
            for source in self._gone:
                disk = RealDisk(Path(source.folder))
                disk.remove(source.path)
                disk.sync_folder(FAILED if source.failed else "")
                self.summary.removed += 1
        while self._locks:
            self._locks.pop().close()

    def _face(self) -> Face:
        return self._tools.face()

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call a log; while it is away, again and again for so long."""
        deadline, pause = time.monotonic() + self._wishes.retry_seconds, 0.2
        while True:
            try:
                return call()
            except Unavailable:
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def found_in(disk: RealDisk) -> Iterator[Source]:
    """The finished files of a folder, and those of what was refused."""
    for failed in (False, True):
        for name in sort_names(disk.list(FAILED if failed else ""), "finished"):
            path = disk.folder / FAILED / str(name) if failed else disk.folder / str(name)
            yield Source(str(disk.folder), name, path.stat().st_size, failed)


def _replayed(opened: Face, sources: Sequence[Source]) -> dict[str, str]:
    """The digests of files that went in before."""
    keys = list(dict.fromkeys(source.key for source in sources))
    found: dict[str, str] = {}
    for at in range(0, len(keys), RECORDS_MAX):
        for kept in opened(opened.log.records(SPACE, keys[at : at + RECORDS_MAX])):
            found[kept.key] = str(msgspec.json.decode(kept.value)["digest"])
    return found


def error_of(failure: Failure) -> ForebayError:
    """The error that a task had."""
    kind = getattr(model, failure.kind, Rejected)
    assert issubclass(kind, ForebayError)
    return kind(failure.message, hint=failure.hint)


__all__ = ["BulkReplay", "Creation", "Summary", "Tools", "Wishes"]
