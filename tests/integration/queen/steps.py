"""How a server is asked about queues in Queen's format."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from urllib.parse import quote

from tests.integration.http_wire import Answer, ask
from tests.servers import ForebayServer

NUMBERS: Final = count(1)
DEADLINE_SECONDS: Final = 20.0


class Asker:
    """Asks one server about a queue of its own."""

    def __init__(self, server: ForebayServer, headers: dict[str, str] | None = None) -> None:
        self.port = server.port
        self.headers = headers or {}
        self.queue = f"a b/{next(NUMBERS)}%"
        self.path = quote(self.queue, safe="")

    def answer(self, method: str, path: str, body: Any = None) -> Answer:
        return ask(self.port, method, path, body, self.headers)

    def get(self, path: str) -> Any:
        found = self.answer("GET", path)
        assert found.status == 200, found.body
        return found.json()

    def post(self, path: str, body: Any) -> Any:
        found = self.answer("POST", path, body)
        assert found.status in {200, 201}, found.body
        return found.json()

    def configure(self, **about: Any) -> Any:
        return self.post("/api/v1/configure", {"queue": self.queue, **about})

    def push(self, number: int, partition: str = "Default") -> None:
        item = {"queue": self.queue, "partition": partition, "payload": 1}
        self.post("/api/v1/push", {"items": [item] * number})

    def pop(self, query: str = "") -> list[Any]:
        messages: list[Any] = self.get(f"/api/v1/pop/queue/{self.path}?{query}")["messages"]
        return messages

    def ack(self, message: Any, status: str = "completed", **more: Any) -> None:
        item = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        (found,) = self.post("/api/v1/ack", {**item, "status": status, **more})
        assert found["success"], found

    def refresh(self) -> Any:
        return self.post("/api/v1/stats/refresh", {})

    def counts(self) -> tuple[int, ...]:
        """Pending, processing, completed and dead letters, read anew."""
        self.refresh()
        found = self.get(f"/api/v1/resources/queues/{self.path}")["totals"]
        return tuple(found[name] for name in ("pending", "processing", "completed", "deadLetter"))


def until(look: Callable[[], Any]) -> Any:
    """Look until there is something; each time the server is asked, which takes its time."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
    return found
