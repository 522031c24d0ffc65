"""Destinations of tests, and requests to send to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.settings import DestinationSettings
from forebay.deliver.values import Outcome, Request

HANG_SECONDS = 0.3
"""How long a test waits for an answer that never comes."""


@asynccontextmanager
async def destination(url: str, **settings: Any) -> AsyncIterator[HttpDestination]:
    """Open a destination that may be on loopback."""
    given = {"allow_private": True, "timeout_seconds": 60.0} | settings
    opened = HttpDestination(DestinationSettings(url=url, **given))
    try:
        yield opened
    finally:
        await opened.close()


def request(body: bytes = b"hello", **headers: str) -> Request:
    """A POST; names of headers with _ for -."""
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Request(b"POST", b"/hook", pairs, body)


async def deliver(to: HttpDestination, body: bytes = b"hello", **headers: str) -> Outcome:
    """Send a body once."""
    return await to.send(to.prepare(request(body, **headers), id="msg_1"))
