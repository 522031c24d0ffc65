"""What users see of an outage, on real servers: the database goes away, and comes back."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.app.cli import main
from forebay.client import Client
from tests.awake import Awake
from tests.integration.http_wire import Answer, Wire, ask, scrape
from tests.servers import ForebayServer, PostgresServer, ServerUnavailableError, absent, environment

MESSAGES = "/v1/queues/orders/messages"
SOON_SECONDS = 2.5
"""How long the first push of an outage may take."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    """Give a PostgreSQL to stop and start."""
    try:
        server = PostgresServer()
        server.start()
    except ServerUnavailableError as error:
        absent(str(error))
    yield server
    server.close()


@pytest.fixture
def database(cluster: PostgresServer) -> str:
    """Give an empty database of a cluster that runs."""
    cluster.start()
    return cluster.create_database()


def get(server: ForebayServer, path: str) -> Any:
    return ask(server.port, "GET", path).json()


def until(server: ForebayServer, path: str, right: Callable[[Any], bool]) -> Any:
    """Ask until the answer is right."""
    end = time.monotonic() + 30
    with Wire(server.port) as wire:
        while not right(found := wire.ask("GET", path).json()):
            assert time.monotonic() < end, f"{found}\n{server.tail()}"
    return found


def push(server: ForebayServer, count: int, query: str = "") -> Answer:
    return ask(server.port, "POST", MESSAGES + query, [{"payload": n} for n in range(count)])


def run(server: ForebayServer, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command on the server; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "forebay.app.cli", *arguments],
        env={**environment(), "FOREBAY_STORE": server.url},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


async def put(server: ForebayServer) -> list[int]:
    async with Client(server.url) as client:
        return await client.put_task("orders", b"1", b"2")


def books(server: ForebayServer, queue: str = "orders") -> dict[str, Any]:
    """A row of the ledger, as the command prints it."""
    rows = json.loads(run(server, "ledger", "--json").stdout)
    (row,) = [row for row in rows if row["queue"] == queue]
    return dict(row)


def test_an_outage_is_seen_everywhere_and_so_is_its_end(
    cluster: PostgresServer, database: str, awake: Awake
) -> None:
    with ForebayServer(database) as server:
        assert push(server, 3).json()["durable"] == "log"
        cluster.stop_immediate()
        began = awake()
        first = push(server, 2)
        assert awake() - began < SOON_SECONDS
        assert first.status == 201
        receipt = first.json()
        assert (receipt["durable"], receipt["results"]) == ("spool", [{"id": None, "status": "spooled"}] * 2)
        began = awake()
        health, ready = ask(server.port, "GET", "/health"), ask(server.port, "GET", "/readyz")
        assert awake() - began < 1, "nobody waits for a log that is known to be away"
        assert (health.status, ready.status) == (200, 200)
        assert (health.json()["status"], health.json()["database"]) == ("degraded", "disconnected")
        assert "pushes go to the spool" in ready.json()["parts"]["store"]
        assert asyncio.run(put(server)) == []
        assert "4 of them in the server's spool" in run(server, "push", "orders", given="1\n2\n3\n4\n").stderr
        buffered = push(server, 5, "?qos=0")
        assert (buffered.status, buffered.json()["durable"]) == (202, "buffered")
        status = until(server, "/v1/spool", lambda found: found["queues"].get("orders") == 13)
        assert (status["healthy"], status["pending"], status["outages"]) == (False, 13, 1)
        json_only = {"Accept": "application/json"}
        numbers = ask(server.port, "GET", "/metrics", headers=json_only).json()
        assert numbers["file_buffer"] == {"pending": 13, "flushed": 0, "failed": 0, "db_healthy": False}
        text = scrape(server.port)
        assert "forebay_spool_pending 13.0" in text
        assert 'forebay_spool_queue_pending{queue="orders"} 13.0' in text
        assert "forebay_database_healthy 0.0" in text
        assert 'forebay_messages_total{what="spooled"} 8.0' in text
        assert 'forebay_messages_total{what="buffered"} 5.0' in text
        ask(server.port, "GET", "/v1/ledger").problem(503)

        cluster.start()
        found = until(server, "/health", lambda found: not found["file_buffer"]["pending"])
        assert (found["status"], found["file_buffer"]["flushed"], found["outages"]) == ("healthy", 13, 1)
        row = books(server)
        assert (row["accepted"], row["spooled"], row["difference"]) == (16, 0, 0)
        assert push(server, 1).json()["durable"] == "log"


def test_what_is_pushed_again_during_an_outage_is_handed_out_once_and_in_order(
    cluster: PostgresServer, database: str
) -> None:
    def push_named(*names: str) -> str:
        items = [{"payload": name, "partition": "p", "transaction_id": name} for name in names]
        pushed = ask(server.port, "POST", "/v1/queues/lanes/messages", items)
        assert pushed.status == 201, pushed.body
        return str(pushed.json()["durable"])

    with ForebayServer(database) as server:
        made = ask(server.port, "PUT", "/v1/queues/lanes", {"settings": {"ordered": True}})
        assert made.status in {200, 201}, made.body
        assert push_named("tx-1") == "log"
        cluster.stop_immediate()
        assert push_named("tx-1", "tx-10") == "spool"
        assert push_named("tx-20") == "spool"
        cluster.start()
        until(server, "/v1/spool", lambda found: found["healthy"] and not found["pending"])
        taken = ask(server.port, "POST", "/v1/queues/lanes/take", {"count": 10}).json()
        assert [task["payload"] for task in taken["tasks"]] == ["tx-1", "tx-10", "tx-20"]


def test_a_server_that_starts_in_an_outage_is_ready_and_brings_what_the_original_left(
    cluster: PostgresServer, database: str, tmp_path: Path
) -> None:
    event = {"queue": "old", "partition": "Default", "payload": {"id": 1}, "transaction_id": "t1"}
    left = tmp_path / "failover_019a0c11-7fe8.buf"
    left.write_text(json.dumps({**event, "trace_id": "", "namespace": "", "task": ""}) + "\n")
    cluster.stop()
    server = ForebayServer(database, variables={"FILE_BUFFER_DIR": str(tmp_path)})
    try:
        server.start()
        assert get(server, "/health")["status"] == "degraded"
        assert push(server, 2).json()["durable"] == "spool"
        assert until(server, "/v1/spool", lambda found: found["pending"] == 3)["healthy"] is False
        (config,) = [row for row in get(server, "/v1/config").items() if row[0] == "spool.folder"]
        assert config[1] == str(tmp_path)
        cluster.start()
        until(server, "/health", lambda found: found["status"] == "healthy")
        until(server, "/v1/spool", lambda found: not found["pending"])
        assert books(server, "old")["accepted"] == 1
        assert books(server)["accepted"] == 2
        assert not left.exists()
        assert server.stop() == 0
    finally:
        server.close()


def test_without_a_spool_nothing_is_taken_in_an_outage(cluster: PostgresServer, database: str) -> None:
    with ForebayServer(database, sections={"spool": {"enabled": False}}) as server:
        assert push(server, 1).status == 201
        cluster.stop_immediate()
        push(server, 1).problem(503)
        found = ask(server.port, "GET", "/health")
        assert (found.status, found.json()["status"]) == (503, "unhealthy")
        assert ask(server.port, "GET", "/readyz").status == 503
        assert not (server.data / "spool").exists()


def test_doctor_sees_that_a_server_has_the_spool(forebay_server: ForebayServer) -> None:
    done = run(
        forebay_server,
        "doctor",
        "--json",
        "--config",
        str(forebay_server.config),
        "--data",
        str(forebay_server.data),
    )
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["spool"]["text"] == str(forebay_server.data / "spool")
    assert found["spool lock"]["level"] == "ok"
    assert f"process {forebay_server.pid} (" in found["spool lock"]["text"]
    assert found["spool files"]["text"] == "none waits to be replayed"


async def test_what_a_killed_server_had_out_is_handed_out_at_once_if_its_spool_has_no_outcomes() -> None:
    """Whoever starts doesn't know whether the log was away; it looks into the spool of the dead server."""
    with ForebayServer() as server:
        push(server, 3)
        taken = ask(server.port, "POST", "/v1/queues/orders/take", {"count": 3})
        assert len(taken.json()["tasks"]) == 3
        server.kill()
        async with forebay.open(server.store_url) as store:
            again = await store.get_task("orders", 3)
            assert [task.attempts for task in again] == [1, 1, 1]


def test_queens_clients_are_told_that_an_ack_is_spooled(cluster: PostgresServer, database: str) -> None:
    def ack(messages: list[Any]) -> list[Any]:
        items = [
            {
                "transactionId": each["transactionId"],
                "partitionId": each["partitionId"],
                "leaseId": each["leaseId"],
                "status": "completed",
            }
            for each in messages
        ]
        answer = ask(server.port, "POST", "/api/v1/ack/batch", {"acknowledgments": items})
        assert answer.status == 200, answer.body
        return list(answer.json())

    with ForebayServer(database) as server:
        items = [{"queue": "jobs", "payload": n} for n in range(3)]
        assert ask(server.port, "POST", "/api/v1/push", {"items": items}).status == 201
        popped = ask(server.port, "GET", "/api/v1/pop/queue/jobs?batch=3").json()["messages"]
        assert [(each["success"], each.get("durable")) for each in ack(popped[:1])] == [(True, None)]
        cluster.stop_immediate()
        push(server, 1)  # finds out
        assert [(each["success"], each.get("durable")) for each in ack(popped[1:])] == [(True, "spool")] * 2
        cluster.start()
        until(server, "/v1/spool", lambda found: not found["settlements"])
        assert books(server, "jobs")["done"] == 3


def test_the_ledger_is_known_in_an_outage_and_balances(
    cluster: PostgresServer, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def settle(verb: str, tasks: list[Any]) -> None:
        answer = ask(server.port, "POST", f"/v1/{verb}", {"tasks": tasks})
        assert (answer.status, answer.json()["durable"]) == (200, "spool")

    quick = {"metrics": {"queue_snapshot": {"refresh_interval": "100ms"}}}
    with ForebayServer(database, sections=quick) as server:
        push(server, 8)
        taken = ask(server.port, "POST", "/v1/queues/orders/take", {"count": 5}).json()["tasks"]
        tasks = [{"id": task["id"], "lease": task["lease"]} for task in taken]
        until(server, "/v1/overview", lambda found: [queue["leased"] for queue in found["queues"]] == [5])
        cluster.stop_immediate()
        push(server, 4)  # finds out
        settle("done", tasks[:2])
        settle("retry", tasks[2:3])
        assert ask(server.port, "GET", "/v1/ledger").status == 503
        found = get(server, "/v1/ledger?last_known=true")
        assert found["is_last_known"]
        ((group,),) = [queue["groups"] for queue in found["queues"]]
        assert (group["accepted"], group["ready"], group["spooled"], group["done"]) == (12, 3, 4, 0)
        assert (group["held"], group["answered"]) == (2, 3)
        assert main(["ledger", "--store", server.url]) == 0
        said = capsys.readouterr()
        assert "answered" in said.out
        assert "these are the last books" in said.err
        assert get(server, "/v1/spool")["settlements"] == 3
        cluster.start()
        until(server, "/v1/spool", lambda found: found["healthy"] and not found["settlements"])
        found = get(server, "/v1/ledger?last_known=true")
        ((group,),) = [queue["groups"] for queue in found["queues"]]
        assert (found["is_last_known"], group["answered"], group["done"]) == (False, 0, 2)
