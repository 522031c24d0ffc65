"""Requests in Queen's format, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tests.integration.http_wire import Answer, ask, scrape
from tests.servers import ForebayServer

DEADLINE_SECONDS: Final = 30.0


class Caller:
    """Asks one server."""

    def __init__(self, server: ForebayServer) -> None:
        self._server = server

    def ask_any(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer, whatever it is."""
        return ask(self._server.port, method, path, body)

    def ask(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        """The answer; it has this status, or is a success."""
        answer = self.ask_any(method, path, body)
        good = answer.status < 300 if status is None else answer.status == status
        assert good, f"{answer.status}: {answer.body[:500]!r}"
        return answer.json() if answer.body else None

    def get(self, path: str, *, status: int | None = None) -> Any:
        return self.ask("GET", path, status=status)

    def post(self, path: str, body: Any, *, status: int | None = None) -> Any:
        return self.ask("POST", path, body, status=status)

    def push(self, queue: str, *payloads: Any, partition: str | None = None, **more: Any) -> list[Any]:
        """Push payloads to a partition."""
        items = [{"queue": queue, "partition": partition, "payload": payload, **more} for payload in payloads]
        answer: list[Any] = self.post("/api/v1/push", {"items": items})
        return answer

    def pop(self, queue: str, query: str = "batch=1000&partitions=1000") -> dict[str, Any]:
        """Pop from a queue."""
        answer: dict[str, Any] = self.get(f"/api/v1/pop/queue/{queue}?{query}")
        return answer

    def waiting(self) -> int:
        """How many takes wait for a task."""
        text = scrape(self._server.port)
        (line,) = [line for line in text.splitlines() if line.startswith("forebay_http_waiting ")]
        return int(float(line.split()[1]))

    def drain(self, queue: str, count: int) -> list[Any]:
        """What comes until so many messages have come, and nothing more."""
        found: list[Any] = []
        while len(found) < count:
            query = "batch=1000&partitions=1000&wait=true&timeout=20000&autoAck=true"
            messages = self.pop(queue, query)["messages"]
            assert messages, f"only {len(found)} of {count} messages came"
            found += messages
        assert self.pop(queue)["messages"] == []
        return found


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that must come; to look takes the server a moment."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
