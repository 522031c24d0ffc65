"""What both ways of replaying ask of a log, besides writing: queues, whose names are remembered."""

from __future__ import annotations

from typing import Any

from forebay.log.seam import Log
from forebay.log.values import Group, Queue


class NamedQueues:
    """The part of what `LogSink` asks of a log that writes nothing."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._names: dict[int, str] = {}

    async def queue(self, name: str) -> Queue:
        """The queue of that name."""
        found = await self._log.queue(name)
        self._names[found.number] = found.name
        return found

    async def create_queue(self, name: str, settings: dict[str, Any] | None = None) -> Queue:
        """Make a queue; of tasks that do so at once one makes it."""
        made = await self._log.create_queue(name, settings)
        self._names[made.number] = made.name
        return made

    async def create_group(self, queue: Queue, name: str) -> Group:
        """Make a group."""
        return await self._log.create_group(queue, name)

    def hang_up(self) -> None:
        """Drop connections that may be dead."""
        self._log.hang_up()
