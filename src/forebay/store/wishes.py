"""What a taker wishes of one window."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from forebay.store.values import Task
from forebay.warm.values import Lease


class Wish(msgspec.Struct, frozen=True):
    """Up to `count` tasks for a worker, for so many seconds; of an ordered queue, from where it says."""

    count: int
    worker: str
    seconds: float
    partition: str | None = None
    """The only partition."""
    partitions_max: int | None = None
    behind: Lease | None = None
    """What the taker has of the partition already: what comes after it is wished."""

    def beside(self, tasks: Iterable[Task]) -> Wish:
        """What is left of it when there are these."""
        found = list(tasks)
        most = self.partitions_max
        if most is not None:
            most -= len({task.partition for task in found})
        return msgspec.structs.replace(self, count=self.count - len(found), partitions_max=most)

    def going_on(self, task: Task) -> Wish:
        """The same of one partition, from a task on."""
        return msgspec.structs.replace(self, partition=task.partition, partitions_max=None, behind=task.lease)
