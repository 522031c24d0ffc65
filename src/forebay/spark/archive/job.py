"""A run of the archive: what may be archived now is written, named by a manifest, and only then done with.

| step | what a crash after it leaves |
|---|---|
| tasks write Parquet files | garbage, which the next run removes before it begins |
| a manifest names them | the archive has them; the group still holds the blocks |
| the group advances | nothing to do: the next run would advance it first |

So nothing is lost, since retention waits for the group, and nothing is there twice, since `next` in the
manifest is where the next run begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from forebay.log.registry import nearest, unknown_queue
from forebay.log.values import Group, QueueStats
from forebay.model import Conflict, ForebayError, Rejected, SystemClock
from forebay.spark import spreading
from forebay.spark.archive.folder import ArchiveFolder
from forebay.spark.archive.manifest import Archived, Gap, Manifest, advanced, holes
from forebay.spark.archive.planning import SECOND, Ahead, ArchiveSettings, plan
from forebay.spark.archive.writing import DROPPED, RangeDone, RangeTask, write_range
from forebay.spark.logs import Face, Opener, face

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE_MAX: Final = 1
"""So few tasks are done by the driver itself: Spark would take longer to be asked."""

Start = Callable[[], "SparkSession"]
"""Gives the session, when it is needed."""
Task = TypeVar("Task")
Done = TypeVar("Done")


class QueueRan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did with a queue."""

    queue: str
    messages: int = 0
    outcomes: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    """Messages that were dropped, or could not be read, before they were archived: found by this run."""
    early: int = 0
    next: int = 0
    lag: int = 0
    """Messages in the log that are not archived yet."""
    error: str | None = None
    """Why nothing was done with it."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    version: int
    queues: list[QueueRan]
    swept: int = 0
    """Files that were garbage."""

    @property
    def messages(self) -> int:
        """How many were archived."""
        return sum(each.messages for each in self.queues)

    @property
    def lost(self) -> int:
        """How many could not be, any more."""
        return sum(each.lost for each in self.queues)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, and no queue failed."""
        return not self.lost and not any(each.error for each in self.queues)


class ArchiveJob:
    """The archive of a log. `run_once` is what a schedule calls; one at a time."""

    def __init__(self, settings: ArchiveSettings, opener: Opener, url: str, **credentials: str) -> None:
        self.settings = settings
        self.folder = ArchiveFolder(settings.path)
        self._opener = opener
        self._url = url
        self._credentials = credentials
        self._clock = SystemClock()

    def face(self) -> Face:
        """The log, open in this process."""
        return face(self._opener, self._url, **self._credentials)

    def run_once(self, spark: Start | SparkSession | None = None) -> Ran:
        """Archive what may be archived now. Without Spark, this process does it all.

        Raises Conflict while another process writes the same archive.
        """
        with self.folder.locked():
            manifest = self._tidied(self.folder.newest())
            swept = self.folder.sweep(manifest)
            planned, failed = self._plan(manifest)
            tasks = [task for ahead in planned for task in self._tasks(ahead)]
            done = spread(spark, tasks, write_range)
            manifest, ran = self._named(manifest, planned, done)
            for ahead in planned:
                self._advance(ahead.stats, ahead.group, manifest)
        return Ran(version=manifest.version, queues=sorted([*ran, *failed], key=_by_queue), swept=swept)

    def _tidied(self, manifest: Manifest) -> Manifest:
        """Without files whose time is over; they are garbage from then on, also if a crash comes now."""
        before = self._clock.now() - int(self.settings.retire_after * SECOND)
        kept = tuple(each for each in manifest.retired if each.at > before)
        if len(kept) == len(manifest.retired):
            return manifest
        return self.folder.publish(msgspec.structs.replace(manifest, retired=kept), self._clock.now())

    def _plan(self, manifest: Manifest) -> tuple[list[Ahead], list[QueueRan]]:
        opened = self.face()
        by_name = {stats.queue.name: stats for stats in opened(opened.log.stats()).queues}
        planned: list[Ahead] = []
        failed = [
            QueueRan(queue=name, error=_told(unknown_queue(name, nearest(name, by_name))))
            for name in self.settings.missing(by_name)
        ]
        for each in by_name.values():
            if not self.settings.takes(each.queue.name):
                continue
            try:
                planned.append(self._ahead(opened, each, manifest))
            except (Conflict, Rejected) as error:  # the other queues go on
                failed.append(QueueRan(queue=each.queue.name, error=_told(error)))
        return planned, failed

    def _ahead(self, opened: Face, stats: QueueStats, manifest: Manifest) -> Ahead:
        archived = manifest.queues.get(stats.queue.name)
        if archived is not None and archived.number != stats.queue.number:
            text = f"the archive is of another log: its queue {stats.queue.name!r} isn't this one"
            raise Conflict(text, hint="archive each log in a folder of its own")
        group = opened(opened.log.create_group(stats.queue, self.settings.group))
        self._advance(stats, group, manifest)
        return plan(opened, stats, group, archived, self.settings)

    def _advance(self, stats: QueueStats, group: Group, manifest: Manifest) -> None:
        """Let retention have what the manifest has."""
        archived = manifest.queues.get(stats.queue.name)
        if archived is not None:
            opened = self.face()
            opened(opened.log.advance(group, archived.next))

    def _tasks(self, ahead: Ahead) -> list[RangeTask]:
        groups = [each.group for each in ahead.stats.groups if each.group.number != ahead.group.number]
        return [
            RangeTask(
                opener=self._opener, url=self._url, credentials=self._credentials, root=str(self.folder.path),
                queue=ahead.stats.queue, groups=groups, first=part.first, end=part.end,
                file_bytes_max=self.settings.file_bytes_max,
            )
            for part in ahead.parts(self.settings.task_messages_max)
        ]  # fmt: skip

    def _named(
        self, manifest: Manifest, planned: Sequence[Ahead], done: Sequence[RangeDone]
    ) -> tuple[Manifest, list[QueueRan]]:
        """Name what was written, and what is missing; a run that has nothing new writes nothing."""
        now, before, ran = self._clock.now(), manifest, []
        for ahead in planned:
            parts = [each for each in done if each.queue == ahead.stats.queue.name]
            gaps = gaps_of(ahead, parts, now)
            files = [file for part in parts for file in part.files]
            if files or gaps:
                queue = ahead.stats.queue
                step = Archived(number=queue.number, start=ahead.first, next=ahead.end, early=ahead.early)
                manifest = advanced(manifest, queue.name, step, files, gaps)
            messages = [file for file in files if file.table == "messages"]
            ran.append(
                QueueRan(
                    queue=ahead.stats.queue.name, messages=sum(file.rows for file in messages),
                    outcomes=sum(file.rows for file in files) - sum(file.rows for file in messages),
                    files=len(files), bytes=sum(file.bytes for file in files), lost=sum(map(len, gaps)),
                    early=ahead.early, next=ahead.end, lag=ahead.stats.next - ahead.end,
                )
            )  # fmt: skip
        return (manifest if manifest is before else self.folder.publish(manifest, now)), ran


def gaps_of(ahead: Ahead, parts: Sequence[RangeDone], now: int) -> list[Gap]:
    """What is neither in a file nor ever will be, each with its reason."""
    queue = ahead.stats.queue.name
    found = [] if ahead.lost is None else [(*ahead.lost, DROPPED)]
    said = [(hole.first, hole.last, hole.reason) for part in parts for hole in part.holes]
    written = [(f.first, f.last) for part in parts for f in part.files if f.table == "messages"]
    covered = [*written, *((first, last) for first, last, _ in said)]
    found += [*said, *((first, last, DROPPED) for first, last in holes(ahead.first, ahead.end, covered))]
    return [
        Gap(queue=queue, first=first, last=last, reason=reason, found_at=now) for first, last, reason in found
    ]


def spread(
    spark: Start | SparkSession | None, tasks: Sequence[Task], work: Callable[[Task], Done]
) -> list[Done]:
    """Do tasks on Spark, one each; here, where there are few or there is none."""
    if spark is None or len(tasks) <= ALONE_MAX:
        return [work(task) for task in tasks]
    return spreading.spread(spark() if callable(spark) else spark, tasks, work)


def _told(error: ForebayError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _by_queue(ran: QueueRan) -> str:
    return ran.queue
