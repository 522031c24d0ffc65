"""A server's log over HTTP: keys, lost answers, large stages, servers that are away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from forebay import open_log
from forebay.api.settings import ServerLimits
from forebay.client import log as log_module
from forebay.client.log import http_log
from forebay.log.seam import Log, VersionConflict
from forebay.log.values import Record
from forebay.model import Forbidden, Misconfigured, SystemClock, TooLarge, Unauthorized, Unavailable
from tests.conformance.steps import append_of, counts, push, stored
from tests.integration.client.serving import Server
from tests.integration.key_steps import add_key
from tests.servers import FaultProxy, ForebayServer


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=ServerLimits(body_bytes_max=64 << 10)) as started:
        yield started


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.port) as started:
        yield started


@pytest.fixture
async def log(proxy: FaultProxy) -> AsyncIterator[Log]:
    async with http_log(f"http://127.0.0.1:{proxy.port}") as opened:
        yield opened


async def test_only_a_key_for_everything_may_use_it() -> None:
    server = ForebayServer()
    admin, few = add_key(server.data, "admin"), add_key(server.data, "read", "push", "take")
    some = add_key(server.data, "admin", queues=["orders"])
    with server:
        url = f"http://127.0.0.1:{server.port}"
        async with open_log(url, key=admin.text) as log:
            queue = await log.create_queue("orders")
            await push(log, queue, "a")
            assert await stored(log, queue) == ["a"]
        for key in (few, some):
            with pytest.raises(Forbidden):
                await open_log(url, key=key.text).__aenter__()
        with pytest.raises(Unauthorized):
            await open_log(url).__aenter__()


async def test_a_commit_whose_answer_is_lost_is_one_write(proxy: FaultProxy, log: Log) -> None:
    queue = await log.create_queue("orders")
    lost = proxy.cut_after_client_bytes(b"POST /v1/log/commit")
    await log.commit([append_of(queue, "a")], records=[Record("s", "k", b"1", version=0)])
    assert lost.is_set()
    assert await stored(log, queue) == ["a"]
    assert [kept.version for kept in await log.records("s", ["k"])] == [1]


async def test_a_claim_whose_answer_is_lost_is_not_asked_for_again(proxy: FaultProxy, log: Log) -> None:
    queue = await log.create_queue("orders")
    group = await log.create_group(queue, "g")
    await push(log, queue, "a")
    lost = proxy.cut_after_client_bytes(b"POST /v1/log/claim")
    with pytest.raises(Unavailable, match="nobody knows"):
        await log.claim(group, "me")
    assert lost.is_set()
    (claim,) = (await log.reclaim(group, "me", of=["me"])).claims
    await log.commit(settlements=[claim.settle_all()])
    assert (await counts(log, group)).done == 1


async def test_a_publish_with_records_whose_answer_is_lost_can_be_looked_up(
    proxy: FaultProxy, log: Log
) -> None:
    queue = await log.create_queue("orders")
    append = append_of(queue, "a")
    await log.stage("s", [append])
    record = Record("sink", "app", b"1", version=0)
    lost = proxy.cut_after_client_bytes(b"POST /v1/log/publish")
    with pytest.raises(Unavailable, match="nobody knows"):
        await log.publish("s", [append.block.id], records=[record])
    assert lost.is_set()
    with pytest.raises(VersionConflict) as caught:
        await log.publish("s", [append.block.id], records=[record])
    assert (caught.value.space, caught.value.key, caught.value.found) == ("sink", "app", 1)
    assert await stored(log, queue) == ["a"]


async def test_many_blocks_are_staged_in_as_many_requests_as_they_need(
    server: Server, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "STAGED_BYTES_MAX", 32 << 10)
    queue = await log.create_queue("orders")
    appends = [append_of(queue, *(token_hex(50) for _ in range(100))) for _ in range(20)]
    assert sum(len(append.body) for append in appends) > 64 << 10
    await log.stage("s", appends)
    assert server.requests("/v1/log/{verb}") > 3
    await log.publish("s", [append.block.id for append in appends])
    assert len(await stored(log, queue)) == 2_000
    with pytest.raises(TooLarge):
        await log.commit(appends)


async def test_a_server_that_is_away_is_unavailable(server: Server) -> None:
    url = server.url
    log = http_log(url)
    await server.stop()
    with pytest.raises(Unavailable):
        await log_module.HttpLog(url, timeout_seconds=0.2).__aenter__()
    with pytest.raises(Unavailable, match="closed"):
        await log.queues()
    await server.start()
    async with log:
        assert await log.queues() == []


def test_a_server_has_its_own_clock() -> None:
    with pytest.raises(Misconfigured):
        open_log("http://127.0.0.1:1", clock=SystemClock())
