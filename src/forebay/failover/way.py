"""The other end of the failover: what may be away, how it is found again, and where blocks go then."""

from __future__ import annotations

from typing import Protocol

from forebay.failover.log import FailoverLog
from forebay.failover.sinks import LogSink, Sink


class Way(Protocol):
    """How to reach what is away."""

    @property
    def sink(self) -> Sink:
        """Where blocks go."""
        ...

    @property
    def is_proven(self) -> bool:
        """Whether what was written to it since the last ping shows that it can be written to."""
        ...

    async def ping(self) -> object:
        """Return when it answers."""
        ...

    async def catch_up(self) -> None:
        """Bring what must come first; it counts as back then."""
        ...


class LogWay:
    """The way to a log."""

    def __init__(self, log: FailoverLog, sink: LogSink) -> None:
        self.sink = sink
        self._log = log
        self.catch_up = log.catch_up

    @property
    def is_proven(self) -> bool:
        """Whether it took something that it didn't have."""
        return self.sink.has_taken

    async def ping(self) -> None:
        """Ask the log for its queues."""
        self.sink.has_taken = False
        await self._log.ping()
