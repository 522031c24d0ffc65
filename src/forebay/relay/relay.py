"""The relay itself: its port, its connections, and a queue with a delivery for each destination.

It stops in order: no new connections, answers to what was asked, deliveries that are under way, then the
queues. What isn't delivered by then is on disk, for the next start.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.registry import Collector

from forebay.deliver.control import QueueControl
from forebay.deliver.delivery import Delivery
from forebay.deliver.metrics import PREFIX, DeliveryMetrics
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.deliver.values import Request
from forebay.observe.metrics_page import MetricsPage
from forebay.observe.shown_metrics import ShownMetric, shown_numbers
from forebay.relay.answer import page, problem
from forebay.relay.destinations import DestinationSecrets
from forebay.relay.intake import Intake
from forebay.relay.protocol import Connection, Reply
from forebay.relay.settings import RelaySettings
from forebay.relay.status import status_of
from forebay.relay.tls import Certificate
from forebay.relay.tokens import Tokens

__all__ = ["Relay"]

logger: Final = logging.getLogger("forebay.relay")
_RELAYED: Final = frozenset((b"POST", b"PUT", b"PATCH", b"DELETE"))
_LOOK_SECONDS: Final = 1.0
_HANDSHAKE_SECONDS: Final = 10.0
_TEXT: Final = "text/plain; charset=utf-8"
_ALLOW: Final = "allow: POST, PUT, PATCH, DELETE, GET\r\n"


class Relay(Collector):
    """A relay on a socket. Used by one event loop."""

    def __init__(
        self,
        settings: RelaySettings,
        queue: SendQueueSettings,
        deliveries: Sequence[Delivery],
        controls: Sequence[QueueControl] = (),
        *,
        certificate: Certificate | None = None,
        tokens: Tokens | None = None,
        secrets: Sequence[DestinationSecrets] = (),
    ) -> None:
        self.limits = settings.limits
        self.certificate = certificate
        self.tokens = tokens
        self._secrets = secrets
        self.pending_bytes = 0
        self.deliveries = deliveries
        self.requests: Counter[int] = Counter()
        """Requests that never became one, by the status of their answer."""
        self._settings = settings
        self._numbers = DeliveryMetrics(deliveries, settings.metrics_prefix)
        self._metrics = MetricsPage(self)
        self._queue = queue
        self._controls = controls
        self._intake = Intake(deliveries, enabled=queue.enabled, always_queue=queue.always_queue)
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._is_stopping = False
        self._server: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def start(self, sock: socket.socket) -> None:
        """Begin to deliver what is queued, and to take requests."""
        for delivery in self.deliveries:
            delivery.start()
        for control in self._controls:
            await control.start()
        loop = asyncio.get_running_loop()
        tls = None if self.certificate is None else self.certificate.context
        handshake = None if tls is None else _HANDSHAKE_SECONDS
        self._server = await loop.create_server(
            lambda: Connection(self), sock=sock, ssl=tls, ssl_handshake_timeout=handshake
        )
        self._looking = loop.call_later(_LOOK_SECONDS, self._look)

    async def stop(self) -> None:
        """End in order, within `shutdown_seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.shutdown_seconds
        self._is_stopping = True
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        await self._end_connections(deadline)
        for control in self._controls:
            await control.stop()
        await asyncio.gather(*(delivery.stop(deadline) for delivery in self.deliveries))
        for delivery in self.deliveries:
            await delivery.queue.close()
            logger.info(
                "%s: %d entries are left", delivery.destination.name, delivery.queue.size,
                extra={"destination": delivery.destination.name, "left": delivery.queue.size},
            )  # fmt: skip

    async def _end_connections(self, deadline: float) -> None:
        for connection in list(self._connections):
            connection.stop()
        try:
            async with asyncio.timeout_at(deadline):
                await self._intake.finish()
                while self._connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    # For connections

    def opened(self, connection: Connection) -> bool:
        """Take in a connection, unless there are too many."""
        if self._is_stopping or len(self._connections) >= self.limits.connections_max:
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    def refused(self, status: int) -> None:
        """Count a request that never became one."""
        self.requests[status] += 1

    def accept(self, request: Request, reply: Reply) -> None:
        """Relay a request, or show a page of our own."""
        if request.method in _RELAYED:
            self._intake.take(request, reply)
        elif request.method in (b"GET", b"HEAD"):
            answer = self._page(request)
            reply(answer if request.method == b"GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        else:
            self.refused(405)
            name = request.method.decode("ascii", "replace")
            reply(problem(405, f"{name} isn't relayed", "send POST, PUT, PATCH or DELETE", extra=_ALLOW))

    # Pages

    def _page(self, request: Request) -> bytes:
        path = request.target.partition(b"?")[0]
        if path == b"/healthz":
            return page(200, _TEXT, b"ok\n")
        if path == b"/readyz":
            problems = self.problems()
            text = "".join(f"{line}\n" for line in problems) or "ok\n"
            return page(503 if problems else 200, _TEXT, text.encode())
        if path == b"/metrics":
            text, media = self._metrics.answer(_accept(request))
            return page(200, media, text.encode())
        if path == b"/status":
            found = [status_of(delivery) for delivery in self.deliveries]
            return page(200, "application/json", msgspec.json.encode(found))
        shown = path[:64].decode("ascii", "replace")
        return problem(404, f"there is no page {shown}", "see /healthz, /readyz, /metrics and /status")

    def problems(self) -> list[str]:
        """Why requests can't be taken now; empty when they can."""
        found = ["the relay stops"] if self._is_stopping else []
        for delivery in self.deliveries:
            queue, name = delivery.queue, delivery.destination.name
            found += [f"{name}: {fault}" for fault in queue.problems]
            if self._queue.full_behavior != "drop_oldest" and not queue.room.fits(1):
                found.append(f"{name}: the queue is full")
        return found

    def collect(self) -> Iterator[ShownMetric]:
        """Read all numbers."""
        yield from self._numbers.collect()
        own: dict[str, list[tuple[tuple[str, ...], float]]] = {
            "connections": [((), len(self._connections))],
            "refused_total": [((str(status),), count) for status, count in sorted(self.requests.items())],
        }
        for name, rows in own.items():
            yield shown_numbers(f"{PREFIX}_{name}", rows, shown_as=self._numbers.shown_as(name))

    def _look(self) -> None:
        """Cut off clients that take too long; read files again that have changed."""
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(_LOOK_SECONDS, self._look)
        now = loop.time()
        if self.tokens is not None:
            self.tokens.look()
        if self.certificate is not None:
            self.certificate.look()
        for secret in self._secrets:
            secret.look()
        for connection in list(self._connections):
            connection.look(now)


def _accept(request: Request) -> str:
    return ",".join(value.decode("latin-1") for name, value in request.headers if name.lower() == b"accept")
