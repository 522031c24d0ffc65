"""The metrics of a relay's deliveries: where each number of the table is.

Numbers are read when a scrape asks for them; nothing is counted for their sake. With the prefix
`metrics_governor` the names are exactly those of metrics-governor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from prometheus_client.registry import Collector

from forebay.deliver.breaker import BreakerState
from forebay.deliver.delivery import Delivery
from forebay.deliver.delivery_counts import LATENCY_BOUNDS
from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_numbers

__all__ = ["PREFIX", "DeliveryMetrics"]

PREFIX: Final = "forebay_relay"
"""What our own names begin with, in the table."""
_ORIGINAL_PREFIX: Final = "metrics_governor"
_ORIGINAL_NAMES: Final = {
    "queue_workers": "queue_workers_total",
    "fastqueue_chunk_rotations_total": "fastqueue_chunk_rotations",
    "fastqueue_inmemory_flushes_total": "fastqueue_inmemory_flushes",
}
"""Names of metrics-governor that break Prometheus' conventions."""

Sample: TypeAlias = tuple[str | None, float]
"""The value of the metric's own label, if it has one, and the number."""
_Reader: TypeAlias = Callable[[Delivery], Iterable[Sample]]


def _one(read: Callable[[Delivery], float]) -> _Reader:
    return lambda delivery: ((None, read(delivery)),)


def _by_label(read: Callable[[Delivery], dict[str, int]], known: Sequence[str]) -> _Reader:
    """Every known value of the label, also where nothing was counted yet, so that rates begin at zero."""

    def samples(delivery: Delivery) -> Iterable[Sample]:
        counts = read(delivery)
        return [(value, counts.get(value, 0)) for value in dict.fromkeys([*known, *counts])]

    return samples


def _states(delivery: Delivery) -> Iterable[Sample]:
    state = delivery.admission.breaker.state
    return [(known.value, float(known is state)) for known in BreakerState]


_REASONS: Final = (
    "oldest", "newest", "timeout", "disk_full", "disk_failed", "shutdown", "corrupt", "dead_letter",
)  # fmt: skip
_ERRORS: Final = ("timeout", "network", "rate_limit", "server_error", "client_error", "auth", "too_large")

_READERS: Final[Mapping[str, _Reader]] = {
    "queue_size": _one(lambda d: d.queue.size),
    "queue_bytes": _one(lambda d: d.queue.room.bytes_held),
    "queue_max_size": _one(lambda d: d.queue.room.size_max),
    "queue_max_bytes": _one(lambda d: d.queue.room.bytes_max),
    "queue_utilization_ratio": _one(lambda d: d.queue.room.utilization),
    "queue_disk_available_bytes": _one(lambda d: d.queue.disk_available()),
    "queue_oldest_age_seconds": _one(lambda d: d.queue.oldest_seconds()),
    "queue_push_total": _one(lambda d: d.queue.pushed),
    "queue_dropped_total": _by_label(lambda d: d.queue.dropped, _REASONS),
    "queue_retry_total": _one(lambda d: d.counts.retries),
    "queue_retry_success_total": _one(lambda d: d.counts.retries_delivered),
    "queue_retry_failure_total": _by_label(lambda d: d.counts.retries_failed, _ERRORS),
    "queue_failures_total": _by_label(lambda d: d.counts.failures, _ERRORS),
    "queue_disk_full_total": _one(lambda d: d.queue.disk_full),
    "queue_delivered_total": _one(lambda d: d.counts.delivered),
    "queue_split_total": _one(lambda d: d.counts.splits),
    "queue_dead_letters": _one(lambda d: d.queue.dead_count),
    "queue_given_up_total": _by_label(lambda d: d.counts.buried, _ERRORS),
    "queue_failover_size": _one(lambda d: d.queue.volatile),
    "export_data_loss_total": _one(lambda d: d.queue.lost),
    "fastqueue_inmemory_blocks": _one(lambda d: d.queue.backing_counts().memory_blocks),
    "fastqueue_disk_bytes": _one(lambda d: d.queue.backing_counts().disk_bytes),
    "fastqueue_meta_sync_total": _one(lambda d: d.queue.backing_counts().meta_syncs),
    "fastqueue_chunk_rotations_total": _one(lambda d: d.queue.backing_counts().chunk_rotations),
    "fastqueue_inmemory_flushes_total": _one(lambda d: d.queue.backing_counts().memory_flushes),
    "fastqueue_corruption_total": _one(lambda d: d.queue.backing_counts().corruptions),
    "queue_workers_active": _one(lambda d: d.busy_workers),
    "queue_workers": _one(lambda d: d.workers),
    "queue_preparers_active": _one(lambda d: d.preparers.busy),
    "queue_senders_active": _one(lambda d: d.busy_workers if d.settings.pipeline_split.enabled else 0),
    "queue_sends_inflight": _one(lambda d: d.in_flight),
    "queue_export_latency_ewma_seconds": _one(lambda d: d.counts.latency_ewma or 0.0),
    "circuit_breaker_state": _states,
    "circuit_breaker_open_total": _one(lambda d: d.admission.breaker.opened),
    "circuit_breaker_rejected_total": _one(lambda d: d.admission.refused),
    "queue_backoff_seconds": _one(lambda d: d.counts.backoff_seconds),
}


class DeliveryMetrics(Collector):
    """Reads the deliveries of a relay, under names that begin with `prefix`."""

    def __init__(self, deliveries: Sequence[Delivery], prefix: str = PREFIX) -> None:
        self._deliveries = deliveries
        self._prefix = prefix

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        for name, read in _READERS.items():
            rows = [
                ((delivery.destination.name, *(() if value is None else (value,))), number)
                for delivery in self._deliveries
                for value, number in read(delivery)
            ]
            yield shown_numbers(f"{PREFIX}_{name}", rows, shown_as=self.shown_as(name))
        name = "queue_export_latency_seconds"
        latency = [
            ((each.destination.name,), each.counts.latency_buckets, each.counts.latency_sum)
            for each in self._deliveries
        ]
        yield shown_histogram(f"{PREFIX}_{name}", LATENCY_BOUNDS, latency, shown_as=self.shown_as(name))

    def shown_as(self, name: str) -> str:
        """A name with its prefix."""
        own = _ORIGINAL_NAMES.get(name, name) if self._prefix == _ORIGINAL_PREFIX else name
        return f"{self._prefix}_{own}"
