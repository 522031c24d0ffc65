"""Who may do what in Queen's format: roles of tokens, keys for some queues, and whose a message is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import time

import pytest

from tests.queen.packages import package
from tests.queen.wire import Client, datas
from tests.servers import ForebayServer
from tests.tokens import SECRET, sharing

Name = Callable[[str], str]


def token(**claims: str) -> str:
    """A token that holds for a while."""
    return sharing().token({"exp": round(time()) + 600, **claims})


@pytest.fixture(scope="module")
def server() -> Iterator[ForebayServer]:
    """Give a server that takes tokens."""
    with ForebayServer(sections={"jwt": {"algorithm": "HS256", "secret": SECRET}}) as server:
        yield server


@pytest.fixture
def client(server: ForebayServer) -> Callable[..., Client]:
    """Make clients with a token of these claims."""
    return lambda **claims: Client(server, token(**claims))


def test_a_role_may_do_what_it_is_for_and_no_more(client: Callable[..., Client], name: Name) -> None:
    reader, worker, admin = client(role="read-only"), client(role="read-write"), client(role="admin")
    body = {"items": [{"queue": name("q"), "payload": 1}]}
    refused = reader.ask("POST", "/api/v1/push", body)
    assert refused.status == 403
    assert refused.json()["error"]
    assert worker.ask("POST", "/api/v1/push", body).status == 201
    assert reader.ask("GET", "/api/v1/resources/queues").status == 200
    assert reader.ask("GET", f"/api/v1/pop/queue/{name('q')}").status == 403
    assert datas(worker.pop(name("q"))) == [1]
    deletion = ("DELETE", f"/api/v1/resources/queues/{name('q')}")
    assert worker.ask(*deletion).status == 403
    assert admin.ask(*deletion).status == 200


def test_without_a_token_nothing_is_answered_but_health(server: ForebayServer) -> None:
    nobody = Client(server)
    assert nobody.ask("GET", "/api/v1/resources/queues").status == 401
    assert nobody.ask("POST", "/api/v1/push", {"items": []}).status == 401
    assert nobody.ask("GET", "/health").status == 200


def test_whose_a_message_is_comes_from_the_token_and_never_from_the_body(
    client: Callable[..., Client], name: Name
) -> None:
    ann = client(role="read-write", sub="ann")
    items = [{"queue": name("q"), "payload": 1, "producerSub": "eve"}]
    assert ann.ask("POST", "/api/v1/push", {"items": items}).status == 201
    operations = [{"type": "push", "items": items}]
    assert ann.ask("POST", "/api/v1/transaction", {"operations": operations}).json()["success"] is True
    messages = ann.pop(name("q"), batch=5)["messages"]
    assert [message["producerSub"] for message in messages] == ["ann", "ann"]


async def test_a_client_brings_its_token(server: ForebayServer, version: str, name: Name) -> None:
    bearer = token(role="read-write", sub="bob")
    async with package(version).Queen(url=server.url, bearer_token=bearer) as queen:
        await queen.queue(name("q")).push([{"data": 1}])
        (message,) = await queen.queue(name("q")).batch(1).wait(False).pop()
        assert message["producerSub"] == "bob"
        assert (await queen.ack(message, True))["success"] is True
