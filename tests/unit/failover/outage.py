"""A log that is away when it is told to be, in the ways in which databases are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, Self, cast

from forebay.log.memory import MemoryLog
from forebay.log.seam import Log
from forebay.log.values import Queue
from forebay.model import Unavailable, sequence_of

Mode = Literal["there", "away", "hung", "read-only", "deaf", "odd"]
"""`deaf`: it does what it is told, and the answer is lost."""
_READS = frozenset(
    {"queue", "queues", "groups", "owners", "stats", "read", "recall", "find", "flows", "outlook"}
)


class OutageLog:
    """A memory log behind a line that may be cut. What it holds survives everything."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.mode: Mode = "there"
        self.hang_ups = 0
        self.refusals = 0
        self.cuts: list[str] = []
        """Verbs that fail once each, as when a lone connection is cut before the answer."""
        self._known: set[bytes] = set()
        """Blocks that it has: it says so also when it can only be read."""
        self._cut = asyncio.Event()
        self.commits = 0
        self.held: asyncio.Event | None = None
        """Commits wait for it, if there is one, but for the first `free`."""
        self.free = 0
        self.seconds = 0.0
        """How long it takes before something is written."""

    @property
    def as_log(self) -> Log:
        """The same, as the log that it is."""
        return cast("Log", self)

    async def __aenter__(self) -> Self:
        self._refuse("open")
        return self

    async def __aexit__(self, *_: object) -> None:
        """It stays as it is."""

    def hang_up(self) -> None:
        self.hang_ups += 1
        self._cut.set()
        self._cut = asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self.log, verb)

        async def verb_of_it(*arguments: Any, **options: Any) -> Any:
            if self.mode == "hung":
                await self._cut.wait()
                raise Unavailable("the connection was cut")
            ids = [append.block.id for append in arguments[0]] if verb == "commit" and arguments else []
            does = "read" if ids and self._known.issuperset(ids) else verb
            self._refuse(does)
            if verb == "commit":
                self.commits += 1
                await asyncio.sleep(self.seconds)
                if self.held is not None and self.commits > self.free:
                    await self.held.wait()
                    self._refuse(does)
            result = await call(*arguments, **options)
            self._known.update(ids)
            if verb in self.cuts:
                self.cuts.remove(verb)
                raise Unavailable("the connection was cut")
            if self.mode == "deaf" and verb not in _READS:
                raise Unavailable("the answer was lost")
            return result

        return verb_of_it

    def _refuse(self, verb: str) -> None:
        if self.mode == "away" or (self.mode == "read-only" and verb not in _READS):
            self.refusals += 1
            raise Unavailable("connection refused")
        if self.mode == "odd" and verb not in _READS:
            raise RuntimeError("the database says something strange")


async def payloads_of(log: OutageLog, name: str) -> list[bytes]:
    """All that a queue holds, in order; each message must have the next number."""
    queue: Queue = await log.log.queue(name)
    found: list[bytes] = []
    first = 1
    while blocks := await log.log.read(queue, first):
        for block in blocks:
            assert sequence_of(block.first) == len(found) + 1
            found.extend(block.decode().payloads)
        first = len(found) + 1
    return found


def numbered(values: Sequence[int]) -> list[bytes]:
    """Payloads that say a number."""
    return [b"%d" % value for value in values]
