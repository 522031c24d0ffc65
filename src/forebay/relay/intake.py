"""Intake: a request into every queue, and its answer once all of them have it.

Room is reserved in all queues before anything is written to one, so where one is full none has the request,
and the client's next try makes no duplicates. A disk that fails after that may leave some with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from forebay.deliver.delivery import Delivery
from forebay.deliver.entry_data import encode_request
from forebay.deliver.send_queue import SendQueue
from forebay.deliver.values import Request
from forebay.model import ForebayError
from forebay.relay.answer import accepted, problem, problem_of
from forebay.relay.protocol import Reply

__all__ = ["Intake"]


class Intake:
    """Where whole requests go."""

    def __init__(self, deliveries: Sequence[Delivery], *, enabled: bool, always_queue: bool) -> None:
        self._deliveries = deliveries
        self._enabled = enabled
        self._queues: list[SendQueue] = [delivery.queue for delivery in deliveries]
        self._always_queue = always_queue
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, request: Request, reply: Reply) -> None:
        """Keep a request for all destinations, then answer."""
        if not self._enabled:
            self._spawn(self._pass_through(request, reply))
            return
        if not self._always_queue:
            self._spawn(self._try_first(request, reply))
            return
        data = encode_request(request)
        size = len(data)
        reserved: list[SendQueue] = []
        for queue in self._queues:
            if not queue.reserve_now(size):
                for other in reserved:
                    other.cancel(size)
                self._spawn(self._wait_for_room(self._queues, request, data, reply))
                return
            reserved.append(queue)
        self._write(self._queues, request, data, reply)

    async def finish(self) -> None:
        """Wait until no request waits for room."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _write(queues: Sequence[SendQueue], request: Request, data: bytes, reply: Reply) -> None:
        left = len(queues)
        failure: ForebayError | None = None

        def done(error: ForebayError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if not left:
                reply(problem_of(failure) if failure else accepted(request.target, request.headers))

        for queue in queues:
            queue.write(data, done)

    async def _wait_for_room(
        self, queues: Sequence[SendQueue], request: Request, data: bytes, reply: Reply
    ) -> None:
        size = len(data)
        reserved: list[SendQueue] = []
        try:
            for queue in queues:
                await queue.reserve(size)
                reserved.append(queue)
        except ForebayError as error:
            for queue in reserved:
                queue.cancel(size)
            reply(problem_of(error))
            return
        self._write(queues, request, data, reply)

    async def _try_first(self, request: Request, reply: Reply) -> None:
        """Send a request to each destination that has nothing queued; queue it for the others."""
        tries = [delivery.send_now(request) for delivery in self._deliveries]
        sent = await asyncio.gather(*tries)
        left = [queue for queue, is_sent in zip(self._queues, sent, strict=True) if not is_sent]
        if left:
            await self._wait_for_room(left, request, encode_request(request), reply)
        else:
            reply(accepted(request.target, request.headers))

    async def _pass_through(self, request: Request, reply: Reply) -> None:
        """Send a request without keeping it; the first destination that doesn't take it has its say."""
        tries = [delivery.send_once(request) for delivery in self._deliveries]
        for outcome in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(outcome, ForebayError):
                reply(problem_of(outcome))
                return
            if isinstance(outcome, BaseException):
                raise outcome
            if not outcome.is_delivered:
                reply(problem(outcome.status or 502, outcome.reason, "nothing was kept; try again"))
                return
        reply(accepted(request.target, request.headers))
