"""Queue metrics over REST: the names of the original, plugins, and what is said when something is missing."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.awake import Awake
from tests.integration.http_wire import ask
from tests.servers import ForebayServer, PostgresServer

QUEUE: Final = "org.example.MyTransform"
HEADERS: Final = {"flow": "my-flow", "flow_type": "TRANSFORM", "action": "transform-step"}
QUICK: Final = {"refresh_interval": "100ms"}
DEADLINE_SECONDS: Final = 60
PREFIX: Final = "/api/v2/metrics/queues"


def get(server: ForebayServer, path: str) -> Any:
    """What a route says."""
    answer = ask(server.port, "GET", path)
    assert answer.status == 200, answer.body
    return answer.json()


def until_counted(server: ForebayServer, awake: Awake) -> Any:
    """Wait until something waits by the numbers; those."""
    deadline = awake() + DEADLINE_SECONDS
    while not (found := get(server, f"{PREFIX}/detailed"))["warmQueues"]:
        assert awake() < deadline, found
    return found


def push(server: ForebayServer, count: int) -> None:
    """Push to the queue that is looked at."""
    messages = [{"payload": n, "headers": HEADERS} for n in range(count)]
    assert ask(server.port, "POST", f"/v1/queues/{QUEUE}/messages", messages).status == 201


def test_queues_plugins_and_tasks_are_shown(awake: Awake, tmp_path: Any) -> None:
    contract = tmp_path / "shop.yaml"
    queue = {"id": 7, "name": "emails", "fields": [{"name": "to", "type": "string"}]}
    contract.write_text(json.dumps({"version": "1.2", "queues": [queue]}))
    metrics = {
        "queue_snapshot": QUICK,
        "plugins": {QUEUE: "my-plugin:1.0.0"},
        "contracts": [str(contract)],
    }
    with ForebayServer(sections={"metrics": metrics}) as server:
        push(server, 5)
        taken = ask(
            server.port, "POST", f"/v1/queues/{QUEUE}/take", {"count": 2, "worker": "worker-1"}
        ).json()
        found = until_counted(server, awake)
        (row,) = found["warmQueues"]
        assert (row["actionClass"], row["flowName"], row["flowType"]) == (QUEUE, "my-flow", "TRANSFORM")
        assert row["oldestDid"] == str(int(taken["tasks"][1]["id"]) + 1)
        assert found["problems"] == []
        assert found["stale"] is False
        (task,) = get(server, f"{PREFIX}/running")["tasks"]
        assert (task["did"], task["count"], task["appName"]) == (taken["tasks"][0]["id"], 2, "worker-1")
        plugins = get(server, f"{PREFIX}/action-plugins")
        assert plugins == {QUEUE: "my-plugin:1.0.0", "emails": "shop:1.2"}


def test_what_is_missing_is_named_and_the_rest_is_there(awake: Awake) -> None:
    snapshot = {**QUICK, "max_staleness": "1s"}
    with (
        PostgresServer() as cluster,
        ForebayServer(
            cluster.create_database(), sections={"metrics": {"queue_snapshot": snapshot}}
        ) as server,
    ):
        push(server, 3)
        ask(server.port, "POST", f"/v1/queues/{QUEUE}/take", {"count": 1})
        before = until_counted(server, awake)
        cluster.stop()
        push(server, 1)
        deadline = awake() + DEADLINE_SECONDS
        while not (tasks := get(server, f"{PREFIX}/running"))["problems"]:
            assert awake() < deadline
        assert tasks["tasks"] == []
        while not (found := get(server, f"{PREFIX}/detailed"))["stale"]:
            assert awake() < deadline
        assert found["warmQueues"][0]["actionClass"] == before["warmQueues"][0]["actionClass"]
        assert found["dataTimestamp"] < found["timestamp"]
        overview = get(server, "/v1/overview")
        assert overview["stale"] is True
        assert overview["log"]
        assert overview["spool"]["pending"] > 0
        assert [queue["queue"] for queue in overview["queues"]] == [QUEUE]
