"""Queues in memory across a restart: the messages are gone, what the queue was told is not."""

from __future__ import annotations

from tests.integration.queen.calling import Caller
from tests.servers import ForebayServer


def test_a_restart_leaves_the_options_and_no_messages() -> None:
    with ForebayServer() as server:
        caller = Caller(server)
        caller.post("/api/v1/ephemeral/configure", {"queue": "q", "options": {"maxLength": 7}})
        caller.post("/api/v1/ephemeral/push", {"queue": "q", "messages": [{"payload": 1}]})
        (message,) = caller.get("/api/v1/ephemeral/pop?queue=q")["messages"]
        server.stop()
        server.start()
        found = caller.get("/api/v1/ephemeral/queues/q/depth")
        assert (found["length"], found["options"]["maxLength"]) == (0, 7)
        late = caller.post("/api/v1/ephemeral/ack", {"queue": "q", "acks": [{"id": message["id"]}]})
        assert late["results"][0]["outcome"] == "stale"
