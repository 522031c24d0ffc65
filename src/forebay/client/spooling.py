"""The client's end of failover: pushes that succeed while its server is away.

Invariants: the first push of an outage goes to the spool within `attempt_seconds`, and nobody goes on trying
behind its back; whoever looks for the server does so less and less often, and many clients don't all at once;
only what the server itself refuses is set aside: a key that is refused, or somebody else who answers at its
address, is no fault of the messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import random
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from forebay.client.calling import Ask, Caller, NotForebayError
from forebay.client.pausing import pause_seconds
from forebay.disk import RealDisk
from forebay.failover.failover import Failover
from forebay.failover.health import Health
from forebay.failover.settings import FailoverSettings
from forebay.failover.sinks import Addressed, Refused, StoreSink
from forebay.failover.status import SpoolStatus
from forebay.log.values import Appended, Queue
from forebay.model import Block, Clock, Forbidden, ForebayError, Limits, Rejected, TooMany, Unavailable

T = TypeVar("T")
logger: Final = logging.getLogger("forebay.failover")
ATTEMPTS: Final = 2
"""How often a block is sent before it is (still) spooled: of connections that are kept one may be cut."""


class Post(Protocol):
    """Sends a block past the spool."""

    def __call__(
        self,
        queue: str,
        block: Block,
        body: bytes | None,
        attempts_max: int,
        /,
        *,
        replayed: bool = False,
    ) -> Awaitable[Appended]:
        """Send it up to so often, with its body where that is known."""
        ...


class ForOthersError(Rejected):
    """The key is good for something, and not for this queue."""


class Server:
    """The server behind a client, for the spool: who answers in its place refuses nothing.

    A key that nothing was taken from counts as not good at all, and everything waits for a better one. Where
    something was, only what is for queues that the key isn't for is set aside: it would hold up all others.
    """

    def __init__(self, post: Post, queue: Callable[[str], Awaitable[Queue]]) -> None:
        self._post = post
        self._queue = queue
        self._is_welcome = False

    async def send(
        self, queue: str, block: Block, body: bytes | None = None, *, replayed: bool = False
    ) -> Appended:
        """Write a block, or say soon why not."""
        appended = await _answered(self._post(queue, block, body, ATTEMPTS, replayed=replayed))
        self._is_welcome = True
        return appended

    async def append(self, queue: str, block: Block, *, replayed: bool = True) -> Appended:
        """Write a block that was spooled. Who is told to ask less often asks less often.

        He must not give up: what was written before in the same file would be sent again, and that would be
        too often, too.
        """
        while True:
            try:
                return await self.send(queue, block, replayed=replayed)
            except TooMany as error:
                asked = error.retry_after_seconds or 0.0
                await asyncio.sleep(pause_seconds(0, random(), asked))  # noqa: S311 - it only spreads
            except Forbidden as error:
                if not self._is_welcome:
                    raise
                raise ForOthersError(error.message, hint=error.hint) from error

    async def queue(self, name: str) -> Queue:
        """What is known of a queue."""
        return await _answered(self._queue(name))

    async def create_queue(self, name: str, settings: dict[str, Any] | None = None) -> Queue:  # noqa: ARG002 - a Target's
        """Leave it to the server: it has made the queue already, if it makes any."""
        return await self.queue(name)


async def _answered(asking: Awaitable[T]) -> T:
    try:
        return await asking
    except NotForebayError as error:
        raise Unavailable(error.message, hint=error.hint) from error


class Way:
    """How spooled blocks come to the server; see `forebay.failover.way.Way`."""

    def __init__(self, server: Server, caller: Caller, health: Health, *, seconds: float) -> None:
        self._store = StoreSink(server, create_queues=False)
        self._caller = caller
        self._health = health
        self._seconds = seconds
        self._looks = 0

    @property
    def sink(self) -> Way:
        """Where blocks go."""
        return self

    @property
    def is_proven(self) -> bool:
        """A server that answers a push, also one that it knows, can take others."""
        return True

    async def ping(self) -> None:
        """Return when anybody answers; who asks again and again waits longer each time."""
        if self._looks:
            await asyncio.sleep(pause_seconds(self._looks, random()))  # noqa: S311 - it only spreads
        self._looks += 1
        async with asyncio.timeout(self._seconds):
            error = (await self._caller.ask(Ask("GET", "/healthz", attempts_max=1))).error
        if error is not None and not isinstance(error, Rejected):
            raise error

    async def write(self, blocks: Sequence[Addressed]) -> list[Refused]:
        """Write blocks; say once why that can't be, if the server is there and it is something else."""
        try:
            return await self._store.write(blocks)
        except ForebayError as error:
            if not self._health.is_healthy and self._health.reason != error.message:
                self._health.reason = error.message
                logger.warning("what is spooled can't be delivered: %s", error)
            raise

    async def catch_up(self) -> None:
        """Something was written: it is back."""
        self._looks = 0
        self._health.recover()


class Outbox:
    """The spool of a client. Entered with `async with`; what is in it then stays for the next one."""

    def __init__(self, failover: Failover, server: Server) -> None:
        self._failover = failover
        self._server = server

    @classmethod
    async def open(
        cls,
        folder: Path,
        settings: FailoverSettings,
        server: Server,
        caller: Caller,
        *,
        limits: Limits,
        clock: Clock,
    ) -> Outbox:
        """Take a folder; Misconfigured where another process has it, or it can't be used."""
        failover = await Failover.open(RealDisk(folder), settings, limits=limits, clock=clock, what="server")
        failover.follow(Way(server, caller, failover.health, seconds=settings.attempt_seconds))
        failover.health.recover()  # there is nothing to open: the first push finds out
        return cls(failover, server)

    async def __aenter__(self) -> Self:
        await self._failover.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._failover.__aexit__(kind, error, trace)

    async def push(self, queue: str, block: Block, body: bytes | None) -> Appended:
        """Send a block to the server, or else keep it for later."""
        send = partial(self._server.send, queue, block, body)
        return await self._failover.push(queue, block, partial(self._failover.health.call, send))

    def status(self) -> SpoolStatus:
        """What there is to see."""
        return self._failover.status()

    async def counted(self) -> SpoolStatus:
        """The same, once what was there at the start is counted."""
        return await self._failover.counted()

    async def drain(self, seconds: float) -> bool:
        """Wait until all is delivered, for so long at most; whether it is."""
        try:
            async with asyncio.timeout(seconds):
                while not await self._failover.is_empty():  # noqa: ASYNC110 - the disk has no events
                    await asyncio.sleep(self._failover.settings.flush_seconds)
        except TimeoutError:
            return False
        return True
