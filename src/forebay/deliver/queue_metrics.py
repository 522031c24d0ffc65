"""The metrics of queues that are delivered. Numbers are read when a scrape asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.registry import Collector

from forebay.deliver.breaker import BreakerState
from forebay.deliver.delivery_counts import LATENCY_BOUNDS
from forebay.deliver.queue_delivery import QueueDelivery
from forebay.observe.shown_metrics import ShownMetric, shown_histogram, shown_numbers

__all__ = ["QueueDeliveryMetrics"]


class QueueDeliveryMetrics(Collector):
    """Reads the deliveries of one process; the list may change."""

    def __init__(self, deliveries: Sequence[QueueDelivery] = ()) -> None:
        self._deliveries = deliveries

    def collect(self) -> Iterator[ShownMetric]:
        """Put names and labels to the numbers."""
        yield from self._counters()
        yield from self._gauges()
        yield shown_histogram(
            "forebay_delivery_latency_seconds",
            LATENCY_BOUNDS,
            [
                ((each.name,), each.counts.latency_buckets, each.counts.latency_sum)
                for each in self._deliveries
            ],
        )

    def _counters(self) -> Iterator[ShownMetric]:
        requests, dead = list[tuple[tuple[str, str], int]](), list[tuple[tuple[str, str], int]]()
        for delivery in self._deliveries:
            counts, name = delivery.counts, delivery.name
            requests.append(((name, "delivered"), counts.delivered))
            requests.extend(((name, kind), count) for kind, count in counts.failures.items())
            dead.extend(((name, kind or "unsendable"), count) for kind, count in counts.buried.items())
        opened = [((each.name,), each.admission.breaker.opened) for each in self._deliveries]
        yield shown_numbers("forebay_delivery_requests_total", requests)
        yield shown_numbers("forebay_delivery_dead_letters_total", dead)
        yield shown_numbers("forebay_delivery_breaker_opened_total", opened)

    def _gauges(self) -> Iterator[ShownMetric]:
        running = self._deliveries
        states = [
            ((each.name, state), int(each.admission.breaker.state is state))
            for each in running
            for state in BreakerState
        ]
        paused = [((each.name,), int(each.paused_because is not None)) for each in running]
        yield shown_numbers("forebay_delivery_in_hand", [((each.name,), each.in_hand) for each in running])
        yield shown_numbers("forebay_delivery_paused", paused)
        yield shown_numbers("forebay_delivery_breaker_state", states)
