"""A relay in this process whose queues are on disk, in front of real destinations."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forebay.app.relay_parts import open_relay
from forebay.app.settings import ExporterSettings, RelayConfig
from forebay.deliver.queue_settings import SendQueueSettings
from forebay.relay.relay import Relay
from forebay.relay.settings import RelayLimits, RelaySettings
from forebay.wire.port import listen
from tests.chaos.relay_parts import make_body
from tests.integration.relay.rigs import RawClient, post


class OnDisk:
    """A relay in this process whose queues are on disk."""

    def __init__(self, relay: Relay, port: int) -> None:
        self.relay = relay
        self.port = port

    async def push(self, *names: str, **headers: str) -> list[int]:
        """Push bodies, and return the statuses."""
        lines = [f"{name}: {value}" for name, value in headers.items()]
        async with RawClient(*await asyncio.open_connection("127.0.0.1", self.port)) as client:
            client.send(*(post(make_body(name, 100), "/in", *lines) for name in names))
            return [(await client.answer())[0] for _ in names]


@asynccontextmanager
async def on_disk(
    folder: Path,
    *urls: str,
    send_seconds: float = 60.0,
    shutdown_seconds: float = 60.0,
    retry_auth: bool = True,
    destinations: Any = None,
    **settings: Any,
) -> AsyncIterator[OnDisk]:
    queue = SendQueueSettings(path=str(folder), retry_interval=0.001, max_retry_delay=0.05, **settings)
    limits = RelayLimits(shutdown_seconds=shutdown_seconds)
    relay_settings = RelaySettings(
        to=" ".join(urls),
        send_seconds=send_seconds,
        limits=limits,
        retry_auth=retry_auth,
        destinations=destinations or {},
    )
    relay = await open_relay(RelayConfig(relay=relay_settings, exporter=ExporterSettings(queue=queue)))
    sock = listen("127.0.0.1:0")
    await relay.start(sock)
    try:
        yield OnDisk(relay, sock.getsockname()[1])
    finally:
        await relay.stop()
