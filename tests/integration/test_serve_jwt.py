"""JWTs over real sockets: roles, queues, rates, rotation of keys, and what is shown of secrets."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from forebay import Client
from forebay.api.routes import ROUTES
from forebay.api.routing import Route
from tests.integration.http_wire import Wire, ask, name_in_path, scrape
from tests.integration.key_steps import add_key
from tests.servers import ForebayServer
from tests.tokens import SECRET, ed25519, rsa, sharing, write_key_set

ROLES: Final = {
    "read-only": {"read"},
    "read-write": {"read", "push", "take"},
    "admin": {"read", "push", "take", "admin"},
}
GUARDED: Final = [
    route for route in ROUTES if route.scope is not None and "text/event-stream" not in route.answer_media
]
KEY: Final = "0123456789abcdef" * 4


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "role": "admin", "exp": time.time() + 86_400, **more}


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server that takes tokens, and has no file of keys at first."""
    variables = {"FOREBAY_JWT_SECRET": SECRET, "QUEEN_ENCRYPTION_KEY": KEY}
    sections = {"jwt": {"algorithm": "HS256", "issuer": "us"}}
    with ForebayServer(sections=sections, variables=variables) as made:
        yield made


def path_of(route: Route) -> str:
    path = route.path.replace("{queue}", name_in_path("in/gone")).replace("{group}", "audit")
    return path.replace("{id}", "35184372088833").replace("{stage}", "in%2Fnightly")


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_lets_the_roles_in_that_may(server: ForebayServer, route: Route) -> None:
    assert ask(server.port, route.method, path_of(route)).refusal(401)
    for role, scopes in ROLES.items():
        headers = sharing().headers(claims(role=role, iss="us"))
        answer = ask(server.port, route.method, path_of(route), headers=headers)
        if route.scope in scopes:
            assert answer.status not in (401, 403), answer.body
        else:
            assert "the JWT of 'alice' lacks the scope" in answer.refusal(403)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (sharing().headers(claims(iss="us", exp=5)), "the JWT has expired"),
        (sharing().headers(claims(iss="us", nbf=2e9 * 2)), "the JWT isn't valid yet"),
        (sharing().headers(claims(iss="them")), "the JWT is of another issuer"),
        (sharing().headers(claims(iss="us"), alg="none"), "the JWT isn't signed with HS256"),
        (rsa().headers(claims(iss="us")), "the JWT isn't signed with HS256"),
        (sharing("x" * 32).headers(claims(iss="us")), "the signature of the JWT is wrong"),
        ({"Authorization": "Bearer a.b.c"}, "the JWT can't be read"),
        ({"Authorization": "Bearer fbk_nonsense"}, "no valid API key came with the request"),
    ],
)
def test_a_refusal_says_what_is_wrong(server: ForebayServer, headers: dict[str, str], said: str) -> None:
    answer = ask(server.port, "GET", "/v1/queues", headers=headers)
    assert answer.problem(401)["detail"] == said
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_tokens_for_some_queues_are_refused_at_others(server: ForebayServer) -> None:
    headers = sharing().headers(claims(iss="us", role="read-write", queues=["in/"]))
    body = [{"payload": 1}]
    path = "/v1/queues/{}%2Fa/messages"
    assert ask(server.port, "POST", path.format("in"), body, headers).status == 201
    assert (
        "begin with 'in/'"
        in ask(server.port, "POST", path.format("out"), body, headers).problem(403)["detail"]
    )


def test_the_configuration_shows_no_secret(server: ForebayServer) -> None:
    answer = ask(server.port, "GET", "/v1/config", headers=sharing().headers(claims(iss="us")))
    shown = answer.json()
    assert SECRET not in answer.body.decode()
    assert KEY not in answer.body.decode()
    assert '"***"' in answer.body.decode()
    assert "HS256" in str(shown)
    assert SECRET not in server.log.read_text()
    assert KEY not in server.log.read_text()


def test_refusals_are_counted_by_reason(server: ForebayServer) -> None:
    headers = sharing().headers(claims(iss="us"))
    ask(server.port, "GET", "/v1/queues", headers=sharing().headers(claims(iss="us", exp=5)))
    text = scrape(server.port, headers)
    (line,) = [line for line in text.splitlines() if 'unauthorized_total{reason="jwt expired"}' in line]
    assert float(line.split()[-1]) >= 1


async def test_our_client_shows_a_token_as_it_shows_a_key(server: ForebayServer) -> None:
    async with Client(server.url, key=sharing().token(claims(iss="us"))) as store:
        await store.put_task("tokens", b"1")
        (task,) = await store.get_task("tokens", wait_seconds=10)
        await store.done_task([task])


def test_a_key_set_is_changed_while_the_server_runs(tmp_path: Path) -> None:
    old, new = ed25519("old"), ed25519("new")
    file = write_key_set(tmp_path / "set.json", old)
    server = ForebayServer(sections={"jwt": {"algorithm": "EdDSA", "key_set_file": str(file)}})
    key = add_key(server.data, "read")
    with server, Wire(server.port) as wire:

        def status(headers: dict[str, str]) -> int:
            return wire.ask("GET", "/v1/queues", headers=headers).status

        before, after = old.headers(claims()), new.headers(claims())
        assert (status(before), status(after), status(key.headers), status({})) == (200, 401, 200, 401)
        write_key_set(file, old, new)
        while status(after) != 200:
            pass
        assert status(before) == 200
        write_key_set(file, new)
        while status(before) != 401:
            pass
        file.write_text("{")
        while "jwt" not in (readiness := wire.ask("GET", "/readyz")).json()["parts"]:
            pass
        assert readiness.status == 200
        assert (status(before), status(after), status(key.headers), status({})) == (401, 200, 200, 401)


def test_subjects_have_rates(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    sections = {
        "jwt": {"algorithm": "HS256", "secret_file": str(tmp_path / "secret")},
        "keys": {"rate_per_second": 0.01, "burst": 2},
    }
    with ForebayServer(sections=sections) as server, Wire(server.port) as wire:
        assert wire.ask("GET", "/v1/queues").status == 401
        statuses = [
            wire.ask("GET", "/v1/queues", headers=sharing().headers(claims(jti=number))).status
            for number in range(3)
        ]
        assert statuses == [200, 200, 429]
        assert wire.ask("GET", "/v1/queues", headers=sharing().headers(claims(sub="bob"))).status == 200
