"""A client that sends bytes as they are, well-formed or not, and reads answers."""

import json
import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self, status: int) -> dict[str, Any]:
        """The problem that it is, with all that every problem has."""
        assert self.status == status, f"{self.status}, not {status}: {self.body[:500]!r}"
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json()
        assert problem["status"] == status
        assert problem["type"].startswith("urn:forebay:problem:")
        for name in ("title", "detail", "hint", "request_id"):
            assert problem[name], f"no {name} in {problem}"
        assert self.headers["x-request-id"] == problem["request_id"]
        assert b"Traceback" not in self.body
        assert b'File "' not in self.body
        return dict(problem)

    def refusal(self, status: int) -> str:
        """Why it is refused: as a problem, or in Queen's format."""
        if self.headers["content-type"] == "application/problem+json":
            return str(self.problem(status)["detail"])
        assert self.status == status, self
        return str(self.json()["error"])


def request(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> bytes:
    """A request as bytes; a body gets its Content-Length, unless the headers say otherwise."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    named = {name.lower() for name, _ in pairs}
    if body is not None and not named & {"content-length", "transfer-encoding"}:
        pairs.append(("Content-Length", str(len(body))))
    host = [] if "host" in named else ["Host: test"]
    lines = [f"{method} {path} HTTP/1.1", *host, *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


class Wire:
    """A connection to a server."""

    def __init__(self, port: int, *, timeout_seconds: float = 20.0, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout_seconds)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Answer:
        """Send a request, with bytes or a value as JSON, and read the answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.send(request(method, path, data, headers))
        return self.answer(head_only=method == "HEAD")

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read one answer."""
        while b"\r\n\r\n" not in self._rest:
            self.receive()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = 0 if head_only or status in (100, 304) else int(headers["content-length"])
        while len(self._rest) < size:
            self.receive()
        body, self._rest = self._rest[:size], self._rest[size:]
        return Answer(status, headers, body)

    def is_closed(self) -> bool:
        """Wait for the server to close; False when it sends something instead."""
        try:
            return not self._rest and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def receive(self, size: int = 1 << 16) -> None:
        """Read some of what has come, for `answer` to find."""
        data = self.socket.recv(size)
        if not data:
            raise ConnectionError(f"closed after {self._rest[:200]!r}")
        self._rest += data


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
) -> Answer:
    """One request on a connection of its own."""
    with Wire(port) as wire:
        return wire.ask(method, path, body, headers)


SCRAPER: Final = {"Accept": "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}
"""What a program that scrapes says; whoever says nothing gets JSON."""


def scrape(port: int, headers: Mapping[str, str] | None = None) -> str:
    """The metrics of a server as Prometheus reads them."""
    return ask(port, "GET", "/metrics", headers={**SCRAPER, **(headers or {})}).body.decode()


def name_in_path(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
