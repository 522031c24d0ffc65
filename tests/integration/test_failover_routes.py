"""What a server says of failover: health, metrics, the spool, the ledger, and the receipts of pushes.

Failover itself is a stand-in that says what it is told, so that every state can be had.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import count
from typing import Any, Final, cast

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics_families
from prometheus_client.parser import text_string_to_metric_families as metric_families

from forebay.client import Client
from forebay.failover.failover import Failover
from forebay.failover.status import SpoolStatus
from forebay.log.values import Appended, Receipt, Where
from forebay.model import Block, LeaseLost, Message, Unavailable, encode
from forebay.store.store import LogStore
from forebay.wire.leases import lease_text
from tests.integration.client.serving import Server
from tests.integration.http_wire import Answer, ask

PASSWORD: Final = "hunter2"
WELL: Final = SpoolStatus(
    healthy=True, reason=None, since=5, pending=0, flushed=7, failed=0, settlements=0, files=0, bytes=0,
    queues={}, outages=1,
)  # fmt: skip
AWAY: Final = SpoolStatus(
    healthy=False, reason=f"no way to postgresql://me:{PASSWORD}@db/forebay", since=9, pending=5, flushed=7,
    failed=2, settlements=3, files=4, bytes=999, queues={"orders": 3, "new": 2}, outages=2,
)  # fmt: skip
MESSAGES: Final = "/v1/queues/orders/messages"


class Stand:
    """Failover that is as it is told."""

    def __init__(self) -> None:
        self.now = WELL
        self.answered: Mapping[int, int] = {}
        self.buffered: list[tuple[str, int]] = []
        self.spools: Callable[[], bool] = lambda: False
        """Whether the next push is spooled."""

    async def push(self, _queue: str, block: Block, write: Callable[[], Awaitable[Appended]]) -> Appended:
        return Appended(0, len(block), where="spool") if self.spools() else await write()

    def status(self) -> SpoolStatus:
        return self.now

    def buffer(self, queue: str, messages: Sequence[Message]) -> Appended:
        self.buffered.append((queue, len(messages)))
        return Appended(0, len(messages), where="buffered")


class Served:
    """A server whose failover is a stand-in, and how it is asked."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stand = Stand()
        self.context = server.context
        self.with_spool()

    def with_spool(self, *, away: bool = False) -> None:
        """There is a spool; `away` says that the log can't be reached."""
        self.stand.now = AWAY if away else WELL
        self.context.failover = cast("Failover", self.stand)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await asyncio.to_thread(ask, self.server.port, method, path, body, headers or {})

    async def get(self, path: str, accept: str = "*/*") -> Any:
        return (await self.ask("GET", path, headers={"Accept": accept})).json()

    async def samples(self, accept: str = "text/plain") -> dict[str, float]:
        """The metrics that have no labels, or one: their values."""
        answer = await self.ask("GET", "/metrics", headers={"Accept": accept})
        text, media = answer.body.decode(), answer.headers["content-type"].partition(";")[0]
        assert media == ("application/openmetrics-text" if "openmetrics" in accept else "text/plain")
        families = list((open_metrics_families if "openmetrics" in accept else metric_families)(text))
        found = [sample for family in families for sample in family.samples]
        return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in found}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Server() as server:
        await server.store.create_queue("orders")
        yield Served(server)


def hang(served: Served) -> list[str]:
    """Let the store never answer; what it was asked."""
    asked: list[str] = []

    async def queues(**_: Any) -> list[Any]:
        asked.append("queues")
        await asyncio.Event().wait()
        return []

    served.server.store.queues = queues  # type: ignore[method-assign]
    return asked


# Outcomes


async def test_the_answer_to_an_outcome_says_where_it_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.server.store
    await store.put_task("orders", *[b"x"] * 5)
    tasks = await store.get_task("orders", 5)
    forms = [{"id": str(task.id), "lease": lease_text(task.lease)} for task in tasks]
    final = await served.ask("POST", "/v1/done", {"tasks": forms[:1]})
    assert (final.status, final.json()) == (200, {"settled": 1, "durable": "log"})
    commit = store.log.commit

    async def spooled(*args: Any, **options: Any) -> Receipt:
        return msgspec.structs.replace(await commit(*args, **options), where="spool")

    monkeypatch.setattr(store.log, "commit", spooled)
    verbs: list[tuple[str, dict[str, str]]] = [("done", {}), ("retry", {}), ("bury", {"reason": "broken"})]
    for form, (verb, more) in zip(forms[1:4], verbs, strict=True):
        answer = await served.ask("POST", f"/v1/{verb}", {"tasks": [form], **more})
        assert (answer.status, answer.json()) == (200, {"settled": 1, "durable": "spool"})
    lost = await served.ask("POST", "/v1/settle", {"done": [forms[0], forms[4]]})
    assert (lost.status, lost.json()["lost"], lost.json()["durable"]) == (409, [forms[0]["id"]], "spool")


async def test_a_client_is_told_where_an_outcome_is(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.server.store
    await store.put_task("orders", *[b"x"] * 3)
    async with Client(served.server.url) as client:
        tasks = await client.get_task("orders", 3)
        assert await client.done_task(tasks[:1]) == "log"
        commit = store.log.commit

        async def spooled(*args: Any, **options: Any) -> Receipt:
            return msgspec.structs.replace(await commit(*args, **options), where="spool")

        monkeypatch.setattr(store.log, "commit", spooled)
        assert await client.done_task(tasks[1:2]) == "spool"
        with pytest.raises(LeaseLost) as raised:
            await client.settle(done=tasks[1:])
        assert (list(raised.value.ids), raised.value.is_spooled) == ([tasks[1].id], True)


async def test_a_client_is_told_what_a_server_has_in_its_spool(served: Served) -> None:
    served.stand.now = msgspec.structs.replace(WELL, pending=5, rate=2.5, seconds_left=2.0)
    async with Client(served.server.url) as client:
        assert await client.server_spool() == served.stand.now


# Health


async def test_a_healthy_server_says_so(served: Served) -> None:
    answer = await served.ask("GET", "/health")
    assert (answer.status, answer.json()) == (
        200,
        {
            "status": "healthy",
            "database": "connected",
            "warm": None,
            "file_buffer": {"pending": 0, "flushed": 7, "failed": 0, "db_healthy": True},
            "since": 5,
            "reason": None,
            "outages": 1,
            "settlements": 0,
            "files": 0,
            "bytes": 0,
            "server": "Forebay",
            "version": version("forebay"),
            "worker_id": 0,
        },
    )


async def test_in_an_outage_the_server_is_degraded_and_ready_and_asks_nobody(served: Served) -> None:
    served.with_spool(away=True)
    asked = hang(served)
    health = await served.ask("GET", "/health")
    assert health.status == 200
    found = health.json()
    assert (found["status"], found["database"]) == ("degraded", "disconnected")
    assert found["file_buffer"] == {"pending": 5, "flushed": 7, "failed": 2, "db_healthy": False}
    assert (found["since"], found["outages"], found["settlements"]) == (9, 2, 3)
    assert (found["files"], found["bytes"]) == (4, 999)
    ready = await served.ask("GET", "/readyz")
    assert (ready.status, ready.json()["ready"]) == (200, True)
    assert ready.json()["parts"]["store"].startswith("away, and pushes go to the spool: ")
    assert asked == []


async def test_a_server_whose_spool_takes_no_more_in_an_outage_is_unhealthy(served: Served) -> None:
    served.with_spool(away=True)
    served.stand.now = msgspec.structs.replace(AWAY, refused="the spool has no room left")
    health = await served.ask("GET", "/health")
    assert (health.status, health.json()["status"]) == (503, "unhealthy")
    assert health.json()["reason"].endswith("; the spool has no room left")
    ready = await served.ask("GET", "/readyz")
    assert (ready.status, ready.json()["ready"]) == (503, False)
    assert ready.json()["parts"]["spool"] == "the spool has no room left"
    assert (await served.samples())["forebay_spool_refuses"] == 1
    served.stand.now = msgspec.structs.replace(WELL, refused="the spool has no room left")
    assert (await served.get("/health"))["status"] == "healthy"


async def test_a_full_spool_is_told_also_while_the_log_is_there(served: Served) -> None:
    served.with_spool()
    full = msgspec.structs.replace(WELL, refused="the spool has no room left", pending=3)
    served.stand.now = full  # pushes to a partition that waits there are refused
    found = await served.get("/health")
    assert (found["status"], found["database"], found["reason"]) == ("degraded", "connected", full.refused)
    ready = await served.ask("GET", "/readyz")
    assert (ready.status, ready.json()["parts"]["spool"]) == (200, full.refused)
    served.stand.now = msgspec.structs.replace(full, held="maintenance", pending=0)
    health = await served.ask("GET", "/health")
    found = health.json()
    assert (health.status, found["status"], found["reason"]) == (503, "unhealthy", full.refused)
    ready = await served.ask("GET", "/readyz")
    assert (ready.status, ready.json()["parts"]["spool"]) == (503, full.refused)
    served.stand.now = msgspec.structs.replace(WELL, held="maintenance")
    assert (await served.ask("GET", "/health")).status == 200


async def test_an_outage_that_nobody_has_noticed_yet_leaves_the_server_ready(served: Served) -> None:
    async def queues(**_: Any) -> list[Any]:
        raise Unavailable("the database is gone")

    served.server.store.queues = queues  # type: ignore[method-assign]
    ready = await served.ask("GET", "/readyz")
    assert (ready.status, ready.json()["parts"]["store"]) == (
        200,
        "away, and pushes go to the spool: the database is gone",
    )
    found = await served.get("/health")
    assert (found["status"], found["database"]) == ("degraded", "disconnected")
    assert found["file_buffer"]["db_healthy"] is False


async def test_without_a_spool_an_outage_is_one(served: Served) -> None:
    served.context.failover = None
    assert (await served.get("/health"))["status"] == "healthy"
    served.context.opened, served.context.reason = None, "no database"
    for path in ("/health", "/readyz"):
        assert (await served.ask("GET", path)).status == 503
    found = await served.get("/health")
    assert (found["status"], found["database"], found["reason"]) == (
        "unhealthy",
        "disconnected",
        "no database",
    )
    assert (found["since"], found["file_buffer"]["db_healthy"]) == (None, False)


async def test_a_server_that_could_not_open_its_store_is_ready_with_a_spool_and_not_before_it_tried(
    served: Served,
) -> None:
    served.context.opened = None
    assert (await served.ask("GET", "/readyz")).status == 200
    assert (await served.get("/health"))["status"] == "degraded"
    served.context.tried.clear()
    assert (await served.ask("GET", "/readyz")).status == 503
    assert (await served.ask("GET", "/health")).status == 503


async def test_a_server_that_stops_takes_no_pushes(served: Served) -> None:
    served.with_spool(away=True)
    served.context.draining.set()
    answer = await served.ask("GET", "/health")
    assert answer.status == 503
    assert (answer.json()["status"], answer.json()["reason"]) == ("unhealthy", "the server is stopping")
    assert (await served.ask("GET", "/readyz")).status == 503


@pytest.mark.parametrize("path", ["/health", "/readyz", "/v1/spool", "/metrics"])
async def test_why_the_log_is_away_is_said_without_secrets(served: Served, path: str) -> None:
    served.with_spool(away=True)
    assert PASSWORD.encode() not in (await served.ask("GET", path)).body


# Metrics


@pytest.mark.parametrize(
    "accept", ["application/json", "application/json, */*;q=0.1", "Application/JSON", "*/*", ""]
)
async def test_whoever_wants_json_gets_the_numbers_of_the_spool(served: Served, accept: str) -> None:
    served.with_spool(away=True)
    answer = await served.ask("GET", "/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["file_buffer"] == {"pending": 5, "flushed": 7, "failed": 2, "db_healthy": False}


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain, application/json",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "application/openmetrics-text;version=1.0.0,application/json;q=.1",
    ],
)
async def test_everybody_else_gets_what_prometheus_reads(served: Served, accept: str) -> None:
    found = await served.samples(accept)
    assert found["forebay_database_healthy"] == 1
    served.with_spool(away=True)
    found = await served.samples(accept)
    assert found["forebay_database_healthy"] == 0
    names = ("pending", "flushed_total", "failed", "settlements", "files", "bytes")
    assert [found[f"forebay_spool_{name}"] for name in names] == [5, 7, 2, 3, 4, 999]
    assert found["forebay_outages_total"] == 2


async def test_without_a_spool_there_are_no_numbers_of_it(served: Served) -> None:
    served.context.failover = None
    found = await served.samples()
    assert found["forebay_database_healthy"] == 1
    assert not [name for name in found if name.startswith("forebay_spool")]
    found = await served.get("/metrics", "application/json")
    assert found["file_buffer"] == {"pending": 0, "flushed": 0, "failed": 0, "db_healthy": True}


# The spool and the ledger


async def test_the_spool_is_shown_whole(served: Served) -> None:
    served.with_spool(away=True)
    found = await served.get("/v1/spool")
    assert found["queues"] == {"orders": 3, "new": 2}
    assert set(found) == set(SpoolStatus.__struct_fields__)
    packed = await served.ask("GET", "/v1/spool", headers={"Accept": "application/msgpack"})
    assert msgspec.msgpack.decode(packed.body, type=SpoolStatus).pending == 5
    served.context.failover = None
    (await served.ask("GET", "/v1/spool")).problem(404)


async def test_the_ledger_has_what_is_spooled_and_balances(served: Served) -> None:
    await served.server.store.put_task("orders", b"1", b"2")
    served.with_spool(away=True)
    async with Client(served.server.url) as client:
        orders, new = (await client.ledger()).queues
    (group,) = orders.groups
    assert (group.accepted, group.spooled, group.ready + group.held, group.difference) == (5, 3, 2, 0)
    assert (new.queue.name, new.spooled, new.groups[0].difference) == ("new", 2, 0)


# Receipts


@pytest.mark.parametrize("where", ["spool", "log"])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}], ids=["merged", "alone"])
async def test_a_receipt_says_where_messages_are(
    served: Served, where: Where, headers: dict[str, str]
) -> None:
    served.stand.spools = lambda: where == "spool"
    answer = await served.ask("POST", MESSAGES, [{"payload": 1}] * 2, headers)
    assert answer.status == 201
    receipt = answer.json()
    assert receipt["durable"] == where
    if where == "spool":
        assert receipt["results"] == [{"id": None, "status": "spooled"}] * 2
        assert receipt["block"]
    counts = served.context.counters.messages
    assert (counts["pushed"], counts["spooled"]) == (2, 2 if where == "spool" else 0)


async def test_a_stream_is_as_safe_as_its_worst_block(served: Served) -> None:
    numbers = count(1)
    served.stand.spools = lambda: next(numbers) == 2
    lines = b"\n".join([json.dumps({"payload": n}).encode() for n in range(2_500)])
    answer = await served.ask("POST", MESSAGES, lines, {"Content-Type": "application/x-ndjson"})
    assert answer.status == 201
    receipt = answer.json()
    assert (receipt["durable"], receipt["accepted"]) == ("spool", 2_500)
    assert [(block["first"] is None, block["count"]) for block in receipt["blocks"]] == [
        (False, 1_000),
        (True, 1_000),
        (False, 500),
    ]


async def test_the_client_reads_that_tasks_are_spooled(served: Served) -> None:
    served.stand.spools = lambda: True
    async with Client(served.server.url) as client:
        assert await client.put_task("orders", b"1", b"2") == []
        assert await client.put_task("orders", b"1", delay=5) == []
        appended = await client.append("orders", Block.of([Message(b"1")] * 3))
    assert (appended.where, appended.count, appended.ids()) == ("spool", 3, [])


# QoS 0


async def test_a_push_that_asks_for_no_more_is_buffered(served: Served) -> None:
    answer = await served.ask("POST", f"{MESSAGES}?qos=0", [{"payload": 1}] * 3)
    assert (answer.status, answer.json()) == (
        202,
        {"block": None, "durable": "buffered", "results": [{"id": None, "status": "buffered"}] * 3},
    )
    packed = msgspec.msgpack.encode([Message(b"1")])
    media = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    assert (await served.ask("POST", f"{MESSAGES}?qos=0&delay_seconds=3", packed, media)).status == 202
    assert served.stand.buffered == [("orders", 3), ("orders", 1)]
    counts = served.context.counters.messages
    assert (counts["pushed"], counts["buffered"]) == (4, 4)
    assert (await served.ask("POST", f"{MESSAGES}?qos=1", [{"payload": 1}])).status == 201


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({"Idempotency-Key": "one"}, [{"payload": 1}], "Idempotency-Key"),
        ({"Content-Type": "application/x-ndjson"}, b'{"payload":1}\n', "application/x-ndjson"),
        (
            {"Content-Type": "application/vnd.forebay.block"},
            encode(Block.of([Message(b"1")])),
            "forebay.block",
        ),
    ],
    ids=["with a key", "lines", "a block"],
)
async def test_what_can_not_be_buffered_is_refused(
    served: Served, headers: dict[str, str], body: Any, said: str
) -> None:
    problem = (await served.ask("POST", f"{MESSAGES}?qos=0", body, headers)).problem(400)
    assert said in problem["detail"]
    assert served.stand.buffered == []


async def test_without_a_spool_nothing_is_buffered(served: Served) -> None:
    served.context.failover = None
    problem = (await served.ask("POST", f"{MESSAGES}?qos=0", [{"payload": 1}])).problem(400)
    assert "this server has none" in problem["detail"]
    (await served.ask("POST", f"{MESSAGES}?qos=2", [{"payload": 1}])).problem(400)
    assert isinstance(served.context.opened, LogStore)
    assert (await served.server.store.ledger()).queues[0].next == 1
