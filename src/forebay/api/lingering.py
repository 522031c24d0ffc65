"""Closing so that the last answer arrives.

A socket that is closed while something it was sent is still unread resets the connection, and takes with it
the answer that says why: the client of a body that is too large would see a broken pipe in place of the 413.
So what is closed first says that it has no more to write, and then throws away what comes, for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

LINGER_SECONDS: Final = 2.0
LINGER_BYTES_MAX: Final = 64 << 20
"""What is thrown away of one connection at most."""


class _Drain(asyncio.Protocol):
    """Throws away what comes, until the other side is done or it is enough."""

    def __init__(self, inner: Any, protocol: Any) -> None:
        self._inner = inner
        self._protocol = protocol
        self._left = LINGER_BYTES_MAX
        self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, inner.abort)

    def data_received(self, data: bytes) -> None:
        """Throw it away."""
        self._left -= len(data)
        if self._left < 0:
            self._inner.abort()

    def eof_received(self) -> None:
        """The other side is done: the transport closes itself."""

    def pause_writing(self) -> None:
        """As the connection would have it."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """As the connection would have it."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Over."""
        self._timer.cancel()
        self._protocol.connection_lost(exc)


class LingeringTransport:
    """A transport whose `close` waits for the other side to be done, for `LINGER_SECONDS`, where it must."""

    def __init__(self, inner: Any, expects_more: Callable[[], bool]) -> None:
        self._inner = inner
        self._expects_more = expects_more
        self._closing = False
        self.write = inner.write
        self.abort = inner.abort
        self.pause_reading = inner.pause_reading
        self.get_extra_info = inner.get_extra_info
        self.get_write_buffer_size = inner.get_write_buffer_size
        self.resume_reading = inner.resume_reading

    def is_closing(self) -> bool:
        """Whether it was closed, or lost."""
        return self._closing or self._inner.is_closing()

    def close(self) -> None:
        """Say that nothing more is written; the rest happens by itself."""
        if self._closing or self._inner.is_closing():
            return
        self._closing = True
        can_linger = self._inner.can_write_eof() and not self._inner.get_write_buffer_size()
        if not can_linger or not self._expects_more():
            self._inner.close()
            if not self._inner.get_write_buffer_size() and not self._inner.can_write_eof():
                # TLS would wait for half a minute for the other side to say goodbye.
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._inner.abort)
            return
        self._inner.set_protocol(_Drain(self._inner, self._inner.get_protocol()))
        self._inner.write_eof()
        self._inner.resume_reading()
