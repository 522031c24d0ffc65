"""FastQueues on simulated disks, for tests."""

from typing import Any

from forebay.fastqueue.queue import FastQueue
from forebay.fastqueue.record import Damage, Record
from forebay.fastqueue.settings import FastQueueSettings
from forebay.model import ManualClock
from tests.disks import SimulatedDisk

ALL = 1 << 40
NOW = 1_700_000_000_000_000


def opened(
    disk: SimulatedDisk, reports: list[Damage] | None = None, clock: ManualClock | None = None, **changes: Any
) -> FastQueue:
    """A queue with small chunks; `changes` are settings."""
    settings = FastQueueSettings(**{"chunk_size": 400, **changes})
    report = None if reports is None else reports.append
    return FastQueue.open(disk, settings, clock=(clock or ManualClock(NOW)).now, report=report)


def datas(records: list[Record]) -> list[bytes]:
    """The blocks alone."""
    return [record.data for record in records]


def drain(queue: FastQueue, count: int = ALL) -> list[bytes]:
    """Read and acknowledge everything."""
    result: list[bytes] = []
    while records := queue.read(count, ALL):
        queue.ack([record.sequence for record in records])
        result += datas(records)
    return result
