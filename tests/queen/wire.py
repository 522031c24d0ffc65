"""Queen's format as bytes on the wire, for what its Python clients don't show."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from tests.integration.http_wire import Answer, ask
from tests.servers import ForebayServer


class Client:
    """A client that shows what it was answered."""

    def __init__(self, server: ForebayServer, token: str | None = None) -> None:
        self._port = server.port
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """One request."""
        return ask(self._port, method, path, body, headers=self._headers)

    def configure(self, queue: str, **options: Any) -> Any:
        """Make or change a queue."""
        return self._good("POST", "/api/v1/configure", {"queue": queue, "options": options})

    def push(self, queue: str, *payloads: Any, partition: str | None = None, ids: Any = ()) -> Any:
        """Push payloads."""
        items = [{"queue": queue, "payload": payload} for payload in payloads]
        for item, id in zip(items, ids, strict=False):
            item["transactionId"] = id
        if partition is not None:
            items = [{**item, "partition": partition} for item in items]
        return self._good("POST", "/api/v1/push", {"items": items})

    def pop(self, queue: str, partition: str | None = None, **query: Any) -> Any:
        """Pop messages."""
        path = f"/api/v1/pop/queue/{quote(queue, safe='')}"
        if partition is not None:
            path += f"/partition/{quote(partition, safe='')}"
        return self._good("GET", f"{path}?{urlencode(query)}")

    def ack(self, *messages: Any, status: str = "completed", group: str | None = None, **more: Any) -> Any:
        """Acknowledge messages."""
        items = [
            {k: m[k] for k in ("transactionId", "partitionId", "leaseId")} | {"status": status} | more
            for m in messages
        ]
        return self._good("POST", "/api/v1/ack/batch", {"acknowledgments": items, "consumerGroup": group})

    def _good(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(method, path, body)
        assert answer.status in (200, 201), answer
        return answer.json()


def datas(popped: Any) -> list[Any]:
    """What was pushed, of an answer to a pop."""
    return [message["data"] for message in popped["messages"]]
