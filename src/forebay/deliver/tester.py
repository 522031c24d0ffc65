"""A test request to a destination: what a process that knows its settings sends when it is asked to.

Invariant: a test is no message of a queue, so it passes breaker and pause, and changes neither.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

import msgspec

from forebay.deliver.http.destination import HttpDestination
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings
from forebay.deliver.values import Request
from forebay.model import Rejected

__all__ = ["ConfiguredTester", "DestinationTest", "DestinationTester", "send_test"]

_SECONDS_MAX: Final = 10.0
"""How long a test may take: somebody waits for it."""


class DestinationTest(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a test request."""

    name: str
    is_delivered: bool
    status: int | None = None
    """The status of the answer; None when there was none."""
    error_class: str | None = None
    reason: str = ""
    """Why it failed, for people."""
    answer: str = ""
    """The start of the answer's body."""


@runtime_checkable
class DestinationTester(Protocol):
    """Knows the settings of destinations."""

    async def test_destination(self, name: str) -> DestinationTest:
        """Have the server send a destination of its own a test request, and hear what came of it."""
        ...


class ConfiguredTester:
    """Tests the destinations of a configuration."""

    def __init__(self, deliveries: Mapping[str, QueueDeliverySettings]) -> None:
        self._deliveries = deliveries

    async def test_destination(self, name: str) -> DestinationTest:
        """Send a destination a test request; Rejected where the configuration has no such destination."""
        found = self._deliveries.get(name)
        if found is None:
            known = ", ".join(self._deliveries) or "there are none"
            raise Rejected(
                f"the configuration has no destination {name[:100]!r}", hint=f"known in `deliver`: {known}"
            )
        return await send_test(name, found.destination)


async def send_test(name: str, settings: DestinationSettings) -> DestinationTest:
    """Send a test request, signed and authenticated like others."""
    seconds = min(settings.timeout_seconds, _SECONDS_MAX)
    destination = HttpDestination(msgspec.structs.replace(settings, timeout_seconds=seconds), sends_id=True)
    message = msgspec.json.encode({"type": "forebay.test", "data": {"text": "a test from Forebay"}})
    body = {"message": message, "json": b"[" + message + b"]", "ndjson": message + b"\n"}[settings.body]
    kind = b"application/x-ndjson" if settings.body == "ndjson" else b"application/json"
    request = Request(settings.method.encode(), settings.address.target, ((b"content-type", kind),), body)
    try:
        outcome = await destination.send(destination.prepare(request, id=f"test_{secrets.token_hex(8)}"))
    finally:
        await destination.close()
    return DestinationTest(
        name=name,
        is_delivered=outcome.is_delivered,
        status=outcome.status,
        error_class=None if outcome.error_class is None else outcome.error_class.value,
        reason=outcome.reason,
        answer=outcome.answer.decode("utf-8", "replace"),
    )
