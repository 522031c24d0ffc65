"""The connections to one destination: kept, bounded, opened only to addresses that are allowed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from forebay.deliver.http.address import Address
from forebay.deliver.http.connection import Connection
from forebay.deliver.http.guard import AddressRule, refusal
from forebay.deliver.settings import DestinationSettings

__all__ = ["AddressRefusedError", "ConnectionPool"]

_CLOSE_SECONDS: Final = 1.0


class AddressRefusedError(ConnectionError):
    """The name of the destination resolves to addresses that may not be connected to."""


class ConnectionPool:
    """Connections that are open, and those of them that wait for the next request.

    The last one that came back is used first, so that those that aren't needed grow old. There are never more
    than `concurrency` of them, as its user sends no more requests at a time.
    """

    def __init__(self, settings: DestinationSettings, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._address: Address = settings.address
        self._rule: AddressRule = settings.address_rule
        self._tls = tls
        self._kept: list[Connection] = []
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take(self) -> Connection | None:
        """A connection that was kept, if there is one that still holds."""
        while self._kept:
            connection = self._kept.pop()
            if connection.is_reusable:
                return connection
            self._open.discard(connection)
        return None

    def give(self, connection: Connection) -> None:
        """Take a connection back after an exchange: to keep it, or to forget it."""
        if not connection.is_reusable or self._is_closed:
            connection.abort()
            self._open.discard(connection)
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._kept.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._settings.idle_seconds, self._close_idle)

    async def connect(self, deadline: float) -> Connection:
        """Open a connection. OSError when no address of the destination takes it."""
        loop = asyncio.get_running_loop()
        deadline = min(deadline, loop.time() + self._settings.connect_seconds)
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connect_any(await self._resolve())
        except TimeoutError:
            raise TimeoutError("connecting to the destination took too long") from None
        if self._is_closed:
            connection.abort()
            raise ConnectionAbortedError("the destination is closed")
        self._open.add(connection)
        return connection

    async def close(self) -> None:
        """End every connection, and wait for the system to let go of them."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        ending = list(self._open)
        self._open.clear()
        self._kept.clear()
        for connection in ending:
            connection.abort()
        if ending:
            await asyncio.wait(
                [asyncio.ensure_future(connection.wait_closed()) for connection in ending],
                timeout=_CLOSE_SECONDS,
            )

    async def _resolve(self) -> Sequence[str]:
        """The addresses of the destination that may be connected to."""
        host = self._address.host
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, self._address.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ConnectionError(f"the name {host!r} doesn't resolve: {error.strerror}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        refused = {address: refusal(address, self._rule) for address in addresses}
        allowed = [address for address in addresses if refused[address] is None]
        if not allowed:
            kinds = ", ".join(f"{address} ({kind})" for address, kind in refused.items())
            raise AddressRefusedError(f"{host} is at {kinds or 'no address'}, which isn't allowed")
        return allowed

    async def _connect_any(self, addresses: Sequence[str]) -> Connection:
        for address in addresses[:-1]:
            try:
                return await self._connect(address)
            except OSError:
                continue
        return await self._connect(addresses[-1])

    async def _connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        settings = self._settings
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(
                    head_bytes_max=settings.answer_head_bytes_max,
                    body_bytes_max=settings.answer_body_bytes_max,
                ),
                address,
                self._address.port,
                ssl=self._tls,
                server_hostname=self._address.host if self._tls is not None else None,
            )
        except ssl.SSLCertVerificationError as error:
            text = f"the certificate of {self._address.host} isn't valid: {error.verify_message}"
            raise ConnectionError(text) from None
        return connection

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        oldest = loop.time() - self._settings.idle_seconds
        for connection in self._kept:
            if connection.idle_since <= oldest or not connection.is_reusable:
                connection.abort()
                self._open.discard(connection)
        self._kept = [connection for connection in self._kept if connection.is_reusable]
        if self._kept:
            later = self._kept[0].idle_since + self._settings.idle_seconds
            self._sweep = loop.call_at(later, self._close_idle)
