"""Survey: which slices there are to fold, each with its image. It reads no block and no outcome."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import msgspec

from forebay.log.seam import Log
from forebay.log.values import Progress, Queue
from forebay.model import BLOCK_MESSAGES_CEILING, UnknownGroup, UnknownQueue
from forebay.observe.labels import LabelSettings
from forebay.spark.snapshot.image import SLICE, Image, SliceTask, group_image, slices

__all__ = ["Survey", "matching", "survey"]


class Survey(msgspec.Struct, frozen=True):
    """All slices at one moment, more or less: groups are looked at one after the other."""

    at: int
    """The log's time, in µs, of the first look."""
    tasks: list[SliceTask]
    purged: dict[int, int]
    """By group what it purged or skipped."""


async def survey(log: Log, pattern: str, labels: LabelSettings) -> Survey:
    """Look at the queues whose whole names match."""
    rules = msgspec.json.encode(labels).decode()
    at, tasks, purged = None, list[SliceTask](), dict[int, int]()
    for queue in await log.queues():
        if not matching(pattern, queue.name):
            continue
        try:
            found = await _queue(log, queue)
        except UnknownQueue:  # it was deleted meanwhile
            continue
        progress, floor, upcoming, then = found
        at = then if at is None else min(at, then)
        purged |= {each.group.number: each.purged for each in progress}
        for place in slices(floor, upcoming, progress):
            low, end = place * SLICE, (place + 1) * SLICE
            groups = [group_image(each, low, end + BLOCK_MESSAGES_CEILING) for each in progress]
            image = Image(queue.name, max(low, floor), min(upcoming, end), groups, rules)
            tasks.append(SliceTask(queue, place, image))
    if at is None:
        at = (await log.stats(limit=1)).at
    return Survey(at, tasks, purged)


def matching(pattern: str, queue: str) -> bool:
    """Whether a queue's whole name matches."""
    return re.fullmatch(pattern, queue) is not None


async def _queue(log: Log, queue: Queue) -> tuple[Sequence[Progress], int, int, int]:
    """How far the groups of a queue have come, its floor, its next number, and when that was."""
    groups = await log.groups(queue)
    found = await asyncio.gather(*(log.progress(group) for group in groups), return_exceptions=True)
    progress = []
    for each in found:
        if isinstance(each, Progress):
            progress.append(each)
        elif not isinstance(each, UnknownGroup):  # a group that was deleted meanwhile is left out
            raise each
    if progress:
        # What came since the first look is looked at next time: a group may not know of it yet.
        return progress, progress[-1].floor, min(each.next for each in progress), progress[0].at
    stats = await log.stats(numbers=[queue.number])
    if not stats.queues:
        raise UnknownQueue(f"queue {queue.name!r} is gone")
    return [], stats.queues[0].floor, stats.queues[0].next, stats.at
