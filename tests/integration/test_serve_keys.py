"""API keys over real sockets: every route asks for its scope and its queues; rates; changes of the file."""

import base64
from collections.abc import Iterator
from typing import Any, Final

import pytest

from forebay.api.keys import SCOPES
from forebay.api.routes import ROUTES
from forebay.api.routing import Route
from forebay.model import Block, Message, encode
from tests.integration.http_wire import Wire, ask, name_in_path
from tests.integration.key_steps import KeyForTest, add_key, revoke_key
from tests.servers import ForebayServer

ENDLESS: Final = "/v1/overview/events"
"""A stream, which test_page.py reads."""
GUARDED: Final = [route for route in ROUTES if route.scope is not None and route.path != ENDLESS]
WHOLE_SERVER: Final = [route for route in GUARDED if "{" not in route.path and not route.checks_queues]
OF_A_QUEUE: Final = [route for route in GUARDED if "{queue}" in route.path]
SETTLING: Final = ("done", "retry", "bury", "release", "extend", "settle")


class Guarded:
    """A server with a key for each scope, one for some queues only, and one that may do everything."""

    def __init__(self, server: ForebayServer) -> None:
        self.server = server
        self.keys = {scope: add_key(server.data, scope) for scope in SCOPES}
        self.some = add_key(server.data, *SCOPES, queues=("in/",))

    def ask(self, key: KeyForTest | None, method: str, path: str, body: Any = None) -> Any:
        """Ask as somebody, or as nobody."""
        return ask(self.server.port, method, path, body, {} if key is None else key.headers)

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """What the answer to a request of the administrator says."""
        answer = self.ask(self.keys["admin"], method, path, body)
        assert answer.status in (200, 201), answer.body
        return answer.json()

    def taken(self, queue: str) -> dict[str, str]:
        """A new message of a queue, taken by the administrator: what settles it."""
        self.admin("POST", f"/v1/queues/{name_in_path(queue)}/messages", [{"payload": 1}])
        (task,) = self.admin("POST", "/v1/take", {"queues": [queue], "wait_seconds": 10})["tasks"]
        return {"id": task["id"], "lease": task["lease"]}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """Give a server that has keys from its start."""
    server = ForebayServer()
    made = Guarded(server)
    with server:
        yield made


def path_of(route: Route, queue: str = "in/gone") -> str:
    """A path for a route, about things that aren't there."""
    path = route.path.replace("{queue}", name_in_path(queue)).replace("{group}", "audit")
    path = path.replace("{id}", "35184372088833").replace("{stage}", "in%2Fnightly")
    return path.replace("{file}", "page.css")


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_every_route_asks_for_a_key_with_its_scope(guarded: Guarded, route: Route) -> None:
    nobody = guarded.ask(None, route.method, path_of(route))
    assert nobody.refusal(401)
    assert nobody.headers["www-authenticate"].startswith("Bearer")
    for scope, key in guarded.keys.items():
        answer = guarded.ask(key, route.method, path_of(route))
        if scope in (route.scope, "admin"):
            assert answer.status not in (401, 403), answer.body
        else:
            assert f"lacks the scope {route.scope}" in answer.refusal(403)
            assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("route", [route for route in ROUTES if route.scope is None], ids=named)
def test_health_and_description_need_no_key(guarded: Guarded, route: Route) -> None:
    assert guarded.ask(None, route.method, path_of(route)).status == 200


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer fbk_nonsense", "Basic dXNlcjpwYXNz", "Bearer fbk_{id}_" + "0" * 43, "Bearer  {text}"],
)
def test_a_key_that_is_not_right_is_refused_in_the_same_words(guarded: Guarded, header: str) -> None:
    key = guarded.keys["admin"]
    shown = {"Authorization": header.format(id=key.id, text=key.text)}
    problem = ask(guarded.server.port, "GET", "/v1/queues", headers=shown).problem(401)
    assert problem["detail"] == guarded.ask(None, "GET", "/v1/queues").problem(401)["detail"]


@pytest.mark.parametrize("route", OF_A_QUEUE, ids=named)
def test_a_key_for_some_queues_is_refused_at_the_others(guarded: Guarded, route: Route) -> None:
    for queue in ("out/orders", "in", "IN/orders"):
        answer = guarded.ask(guarded.some, route.method, path_of(route, queue))
        assert "begin with 'in/'" in answer.refusal(403)
    assert guarded.ask(guarded.some, route.method, path_of(route)).status not in (401, 403)


@pytest.mark.parametrize("route", WHOLE_SERVER, ids=named)
def test_a_key_for_some_queues_is_refused_at_what_concerns_all(guarded: Guarded, route: Route) -> None:
    answer = guarded.ask(guarded.some, route.method, route.path)
    assert "what concerns all queues" in answer.refusal(403)


def test_a_take_of_several_queues_needs_a_key_for_each(guarded: Guarded) -> None:
    for queue in ("in/several", "out/several"):
        guarded.admin("POST", f"/v1/queues/{name_in_path(queue)}/messages", [{"payload": queue}])
    both = {"queues": ["in/several", "out/several"], "count": 2}
    assert "'out/several'" in guarded.ask(guarded.some, "POST", "/v1/take", both).problem(403)["detail"]
    waiting = {"queues": ["in/several"], "wait_seconds": 10}
    (task,) = guarded.ask(guarded.some, "POST", "/v1/take", waiting).json()["tasks"]
    assert task["payload"] == "in/several"


@pytest.mark.parametrize("verb", SETTLING)
def test_a_lease_of_another_queue_is_not_settled(guarded: Guarded, verb: str) -> None:
    foreign, own = guarded.taken("out/leased"), guarded.taken("in/leased")
    body: dict[str, Any] = {"tasks": [own, foreign]}
    if verb == "bury":
        body["reason"] = "no"
    if verb == "settle":
        body = {"done": [own], "release": [foreign]}
    guarded.ask(guarded.some, "POST", f"/v1/{verb}", body).problem(403)
    assert guarded.admin("POST", "/v1/done", {"tasks": [own, foreign]}) == {"settled": 2, "durable": "log"}


def test_a_worker_reports_on_queues_of_its_key_only(guarded: Guarded) -> None:
    queue = {"processed": 1, "errors": 0, "retried": 0, "seconds_per_task": None, "in_progress": 0}
    queue |= {"processors": 1, "processors_max": 1}

    def status(*queues: str) -> int:
        report = {"worker": "w", "processors": 1, "queues": dict.fromkeys(queues, queue)}
        return int(guarded.ask(guarded.some, "PUT", "/v1/workers/w/report", report).status)

    assert (status("in/mine"), status("in/mine", "out/others")) == (200, 403)


def test_lists_leave_out_the_queues_of_others(guarded: Guarded) -> None:
    for name in ("in/listed", "out/listed"):
        guarded.admin("PUT", f"/v1/queues/{name_in_path(name)}")
    names = {queue["name"] for queue in guarded.ask(guarded.some, "GET", "/v1/queues").json()["queues"]}
    assert "in/listed" in names
    assert all(name.startswith("in/") for name in names)


def test_the_path_of_a_message_is_shown_to_keys_for_its_queue(guarded: Guarded) -> None:
    foreign, own = guarded.taken("out/found"), guarded.taken("in/found")
    guarded.ask(guarded.some, "GET", f"/v1/messages/{foreign['id']}").problem(403)
    assert guarded.ask(guarded.some, "GET", f"/v1/messages/{own['id']}").json()["queue"] == "in/found"


def test_nobody_publishes_what_others_have_staged(guarded: Guarded) -> None:
    for name in ("in/staged", "out/staged"):
        guarded.admin("PUT", f"/v1/queues/{name_in_path(name)}")
    body = base64.b64encode(encode(Block.of([Message(b"1")], created_at=1))).decode()
    out = {"blocks": [{"queue": "out/staged", "body_base64": body}]}
    (id,) = guarded.admin("POST", "/v1/stages/out%2Fnightly", out)["ids"]
    for stage in ("in%2Fnightly", "out%2Fnightly"):
        guarded.ask(guarded.some, "POST", f"/v1/stages/{stage}", out).problem(403)
    guarded.ask(guarded.some, "POST", "/v1/stages/out%2Fnightly/publish", {"ids": [id]}).problem(403)
    own = {"blocks": [{"queue": "in/staged", "body_base64": body}]}
    (id,) = guarded.ask(guarded.some, "POST", "/v1/stages/in%2Fnightly", own).json()["ids"]
    published = guarded.ask(guarded.some, "POST", "/v1/stages/in%2Fnightly/publish", {"ids": [id]})
    assert published.json()["appended"][0]["count"] == 1


def test_a_key_over_its_rate_is_told_when_to_come_back_and_others_go_on() -> None:
    server = ForebayServer(sections={"keys": {"rate_per_second": 0.4, "burst": 2}})
    limited, other = add_key(server.data, "read"), add_key(server.data, "read", rate_per_second=1000.0)
    with server, Wire(server.port) as wire:
        statuses = [wire.ask("GET", "/v1/queues", headers=limited.headers).status for _ in range(2)]
        assert statuses == [200, 200]
        answer = wire.ask("GET", "/v1/queues", headers=limited.headers)
        problem = answer.problem(429)
        assert problem["type"] == "urn:forebay:problem:too-many"
        assert 0 < problem["retry_after_seconds"] <= int(answer.headers["retry-after"]) <= 3
        for _ in range(20):
            assert wire.ask("GET", "/v1/queues", headers=other.headers).status == 200
        assert wire.ask("GET", "/healthz", headers=limited.headers).status == 200


def test_keys_come_and_go_while_the_server_runs() -> None:
    with ForebayServer() as server, Wire(server.port) as wire:
        assert wire.ask("GET", "/v1/queues").status == 200
        key, other = add_key(server.data, "read"), add_key(server.data, "read")
        while wire.ask("GET", "/v1/queues").status != 401:
            pass
        assert wire.ask("GET", "/v1/queues", headers=key.headers).status == 200
        revoke_key(server.data, key.id)
        while wire.ask("GET", "/v1/queues", headers=key.headers).status != 401:
            pass
        assert wire.ask("GET", "/v1/queues", headers=other.headers).status == 200


def test_a_damaged_file_of_keys_lets_nobody_in_and_locks_nobody_out() -> None:
    server = ForebayServer()
    key, file = add_key(server.data, "read"), server.data / "keys.json"
    good = file.read_bytes()
    with server, Wire(server.port) as wire:
        for damage in (lambda: file.write_bytes(good[:50]), file.unlink):
            damage()
            while "keys" not in (readiness := wire.ask("GET", "/readyz")).json()["parts"]:
                pass
            assert readiness.status == 200
            assert "keys.json" in readiness.json()["parts"]["keys"]
            assert wire.ask("GET", "/v1/queues", headers=key.headers).status == 200
            wire.ask("GET", "/v1/queues").problem(401)
            file.write_bytes(good)
            while "keys" in wire.ask("GET", "/readyz").json()["parts"]:
                pass
