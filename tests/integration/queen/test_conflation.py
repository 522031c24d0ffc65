"""Conflation across a kill: the newest message is never lost, and the older ones don't come back."""

from __future__ import annotations

from tests.integration.queen.calling import Caller
from tests.servers import ForebayServer

_POP = "consumerGroup=g&conflation=true&batch=10&partitions=10&wait=true&timeout=20000"


def test_the_newest_comes_again_after_a_kill_and_the_policy_is_remembered() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        caller.post("/api/v1/configure", {"queue": "q", "options": {"leaseTime": 2}})
        caller.push("q", 1, 2, 3, partition="a")
        assert [message["data"] for message in caller.pop("q", _POP)["messages"]] == [3]
        server.kill()
        server.start()
        (again,) = caller.pop("q", "consumerGroup=g&batch=10&wait=true&timeout=20000")["messages"]
        assert (again["data"], again["retryCount"]) == (3, 1)
        done = {key: again[key] for key in ("transactionId", "partitionId", "leaseId", "consumerGroup")}
        assert caller.post("/api/v1/ack", {**done, "status": "completed"})[0]["success"] is True
        caller.push("q", 4, 5, partition="a")
        assert [message["data"] for message in caller.pop("q", _POP)["messages"]] == [5]
