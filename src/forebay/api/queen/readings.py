"""What the server's own counters say at a moment, for `samples`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.api.queen.samples import Reading

if TYPE_CHECKING:
    from forebay.api.context import Context

_PUSHES: Final = frozenset({"/api/v1/push", "/v1/queues/{queue}/messages"})
_POPS: Final = frozenset(
    {
        "/api/v1/pop",
        "/api/v1/pop/queue/{queue}",
        "/api/v1/pop/queue/{queue}/partition/{partition}",
        "/v1/take",
        "/v1/queues/{queue}/take",
    }
)
_ACKS: Final = frozenset(
    {"/api/v1/ack", "/api/v1/ack/batch", "/v1/done", "/v1/retry", "/v1/bury", "/v1/release", "/v1/settle"}
)
_MESSAGES: Final = ("pushed", "taken", "done", "retried", "buried")


def look(context: Context) -> Reading:
    """All that has been counted since the start, and how much is under way."""
    counters = context.counters
    counts = {name: counters.messages[name] for name in _MESSAGES}
    requests = counters.requests()
    counts["push_requests"] = sum(requests[path] for path in _PUSHES)
    counts["pop_requests"] = sum(requests[path] for path in _POPS)
    counts["ack_requests"] = sum(requests[path] for path in _ACKS)
    counts["transactions"] = requests["/api/v1/transaction"]
    counts["requests"] = requests.total()
    counts["log_errors"] = counters.errors["unavailable"]
    gauges = {"waiting": len(context.waiting), "connections": counters.connections}
    return Reading(counts, gauges)
