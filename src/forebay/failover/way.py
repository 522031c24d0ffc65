"""The other end of the failover: what may be away, how it is found again, and where blocks go then."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from forebay.failover.log import FailoverLog
from forebay.failover.sinks import LogSink, Sink
from forebay.model import cancel

PINGS: Final = 5
"""So many pings of one log may be on their way together."""


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
        """Ask the log whether it is there, up to five times; TimeoutError if it stays silent.

        A log far away takes longer to open a connection than an attempt may last, so each ping goes on while
        the next one is sent. The next one is needed: the first may have gone into the void for good.
        """
        self.sink.has_taken = False
        pings, seconds = list[asyncio.Task[None]](), self._log.seconds
        try:
            for _ in range(PINGS):
                pings.append(asyncio.create_task(self._log.ping(PINGS * seconds)))
                ended, _ = await asyncio.wait(pings, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if ended:
                    return ended.pop().result()
            raise TimeoutError
        finally:
            await cancel(*pings)
            await asyncio.gather(*pings, return_exceptions=True)  # nobody else asks how the others ended
