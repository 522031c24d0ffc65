"""The page `/status`: each destination and its queue, for commands."""

import msgspec

from forebay.deliver.delivery import Delivery

__all__ = ["DestinationStatus", "status_of"]


class DestinationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One destination."""

    destination: str
    size: int
    bytes_held: int
    oldest_seconds: float
    pushed: int
    delivered: int
    failed: int
    """Attempts that failed."""
    dropped: int
    dead: int
    breaker: str
    problem: str | None
    """Why the disk doesn't take entries, or doesn't give them back."""


def status_of(delivery: Delivery) -> DestinationStatus:
    """How it stands."""
    queue, counts = delivery.queue, delivery.counts
    return DestinationStatus(
        destination=delivery.destination.name,
        size=queue.size,
        bytes_held=queue.room.bytes_held,
        oldest_seconds=queue.oldest_seconds(),
        pushed=queue.pushed,
        delivered=counts.delivered,
        failed=sum(counts.failures.values()),
        dropped=sum(queue.dropped.values()),
        dead=queue.dead_count,
        breaker=delivery.admission.breaker.state.value,
        problem="; ".join(queue.problems) or None,
    )
