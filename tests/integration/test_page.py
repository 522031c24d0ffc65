"""The page's files and its stream, and that pages of others get nowhere."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest

from forebay.api.overview import LISTENERS_MAX
from tests.awake import Awake
from tests.integration.http_wire import Wire, ask, request
from tests.integration.key_steps import add_key
from tests.servers import ForebayServer

DEADLINE_SECONDS: Final = 60
QUICK: Final = {"metrics": {"queue_snapshot": {"refresh_interval": "100ms"}}}
EVIL: Final = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def server() -> Iterator[ForebayServer]:
    """Give a server that counts all the time."""
    with ForebayServer(sections=QUICK) as server:
        yield server


def listen(server: ForebayServer, **headers: str) -> Any:
    """The stream of events, open."""
    return urllib.request.urlopen(
        urllib.request.Request(f"{server.url}/v1/overview/events", headers=headers), timeout=DEADLINE_SECONDS
    )


def event(stream: Any) -> Any:
    """The next event."""
    lines = [stream.readline().decode().rstrip("\n") for _ in range(3)]
    assert (lines[0], lines[2]) == ("event: overview", "")
    return json.loads(lines[1].removeprefix("data: "))


def test_everything_that_the_page_names_is_served_under_its_policy(server: ForebayServer) -> None:
    pages = [ask(server.port, "GET", path) for path in ("/", "/queue-metrics", "/metrics/queues")]
    assert len({page.body for page in pages}) == 1
    page = pages[0]
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(rb"<script>|<style|style=|\son\w+=|https?://(?!www\.w3\.org)", page.body)
    left, seen = set(re.findall(r'"(/page/[\w.]+)"', page.body.decode())), set[str]()
    while left:
        path = left.pop()
        seen.add(path)
        answer = ask(server.port, "GET", path)
        assert answer.status == 200, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        if path.endswith(".js"):
            assert answer.headers["content-type"].startswith("text/javascript")
            assert b"innerHTML" not in answer.body
            left |= {
                f"/page/{name}" for name in re.findall(r'from "\./([\w.]+)"', answer.body.decode())
            } - seen
    assert len(seen) > 10
    for path in ("/page/__init__.py", "/page/..%2Fdocs.html", "/page/nothing.js", "/page/"):
        assert ask(server.port, "GET", path).status == 404


def test_events_follow_the_snapshot_and_end_with_the_server(server: ForebayServer, awake: Awake) -> None:
    with listen(server) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        first = event(stream)
        assert first["queues"] is not None
        ask(server.port, "POST", "/v1/queues/orders/messages", [{"payload": 1}])
        deadline = awake() + DEADLINE_SECONDS
        while not any(queue["ready"] == 1 for queue in event(stream)["queues"] or ()):
            assert awake() < deadline
        assert server.stop() == 0
        assert b"event" not in stream.read()[-10:]


def test_listeners_are_bounded_and_those_that_leave_make_room(server: ForebayServer, awake: Awake) -> None:
    wires = [Wire(server.port) for _ in range(LISTENERS_MAX)]
    for wire in wires:
        wire.send(request("GET", "/v1/overview/events"))
    for wire in wires:
        wire.receive()
    refused = ask(server.port, "GET", "/v1/overview/events").problem(503)
    assert "listen already" in refused["detail"]
    for wire in wires:
        wire.socket.close()
    deadline = awake() + DEADLINE_SECONDS
    while not server.answers("/v1/overview/events"):
        assert awake() < deadline


def test_a_head_of_the_stream_ends(server: ForebayServer) -> None:
    with Wire(server.port) as wire:
        assert wire.ask("HEAD", "/v1/overview/events").headers["content-type"] == "text/event-stream"
        assert wire.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/queues/orders/messages", [{"payload": 1}]),
        ("POST", "/v1/queues/orders/take", {}),
        ("POST", "/v1/queues/orders/purge", {}),
        ("DELETE", "/v1/queues/orders", None),
        ("POST", "/v1/queues/orders/dead/purge", {}),
        ("POST", "/api/v1/push", {"items": [{"queue": "orders", "payload": 1}]}),
        ("GET", "/api/v1/pop/queue/orders", None),
        ("GET", "/api/v1/messages?queue=orders", None),
    ],
)
def test_a_page_of_another_origin_changes_nothing_and_reads_nothing(
    server: ForebayServer, method: str, path: str, body: Any
) -> None:
    ask(server.port, "POST", "/v1/queues/orders/messages", [{"payload": 1}])
    here = {"Host": f"127.0.0.1:{server.port}"}
    for headers in (EVIL, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
        answer = ask(server.port, method, path, body, headers={**here, **headers})
        assert "another origin" in answer.refusal(403)
    rebound = ask(
        server.port, method, path, body, headers={"Origin": "http://test", "User-Agent": "Mozilla/5"}
    )
    assert "know this server" in rebound.refusal(403)
    stats = ask(server.port, "GET", "/v1/ledger?queue=orders").json()["queues"][0]["groups"][0]
    assert (stats["accepted"], stats["ready"] + stats["held"] - stats["handed"]) == (1, 1)


def test_with_a_key_any_page_may() -> None:
    server = ForebayServer()
    server.data.mkdir()
    key = add_key(server.data, "admin")
    with server:
        answer = ask(
            server.port, "POST", "/v1/queues/orders/messages", [{"payload": 1}], {**EVIL, **key.headers}
        )
        assert answer.status == 201
        assert ask(server.port, "GET", "/v1/overview/events").status == 401
        with listen(server, **key.headers) as stream:
            assert event(stream)["at"]
