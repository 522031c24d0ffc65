"""Send queues for tests: in memory, with a backing that can be told to fail."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from forebay.deliver.dead_letters import DeadLetters
from forebay.deliver.entry_store import MemoryBacking
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.sizes import sizes
from forebay.model import ForebayError


class Clock:
    """Wall time that stands still, in microseconds."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


class FragileBacking(MemoryBacking):
    """Keeps entries in memory; raises `error` in place of keeping more, while there is one."""

    error: ForebayError | OSError | None = None
    before_push: Callable[[], None] = staticmethod(lambda: None)

    after_tick: Callable[[], object] = staticmethod(lambda: None)

    def tick(self) -> None:
        self.after_tick()

    def push(self, datas: Sequence[bytes]) -> range:
        self.before_push()
        if self.error is not None:
            raise self.error
        return super().push(datas)


class QueueRig:
    """A queue, what is under it, and its clock."""

    def __init__(self, settings: SendQueueSettings) -> None:
        self.clock = Clock()
        self.backing = FragileBacking(self.clock)
        self.dead_backing = FragileBacking(self.clock)
        self.dead = DeadLetters(self.dead_backing, settings.dead_size_max, settings.dead_bytes_max)
        found = sizes(settings, memory_limit=None, disk_bytes=None)
        self.queue = SendQueue(self.backing, self.dead, settings, found, clock=self.clock)


@asynccontextmanager
async def a_queue(**settings: Any) -> AsyncIterator[QueueRig]:
    rig = QueueRig(SendQueueSettings(**settings).resolve())
    try:
        yield rig
    finally:
        await rig.queue.close()
