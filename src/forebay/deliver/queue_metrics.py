"""The metrics of queues that are delivered. Numbers are read when a scrape asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from forebay.deliver.breaker import BreakerState
from forebay.deliver.delivery_counts import LATENCY_BOUNDS
from forebay.deliver.queue_delivery import QueueDelivery

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["QueueDeliveryMetrics"]


class QueueDeliveryMetrics(Collector):
    """Reads the deliveries of one process; the list may change."""

    def __init__(self, deliveries: Sequence[QueueDelivery] = ()) -> None:
        self._deliveries = deliveries

    def collect(self) -> Iterator[Metric]:
        """Put names and labels to the numbers."""
        yield from self._counters()
        yield from self._gauges()
        yield self._latency()

    def _counters(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "forebay_delivery_requests",
            "Requests by how they ended: `delivered`, or the class of the error.",
            labels=["destination", "outcome"],
        )
        dead = CounterMetricFamily(
            "forebay_delivery_dead_letters",
            "Messages that were given up, by the class of the error.",
            labels=["destination", "error_type"],
        )
        opened = CounterMetricFamily(
            "forebay_delivery_breaker_opened", "How often the breaker opened.", labels=["destination"]
        )
        for delivery in self._deliveries:
            counts, name = delivery.counts, delivery.name
            requests.add_metric([name, "delivered"], counts.delivered)
            for kind, count in counts.failures.items():
                requests.add_metric([name, kind], count)
            for kind, count in counts.buried.items():
                dead.add_metric([name, kind or "unsendable"], count)
            opened.add_metric([name], delivery.admission.breaker.opened)
        yield from (requests, dead, opened)

    def _gauges(self) -> Iterator[Metric]:
        in_hand = GaugeMetricFamily(
            "forebay_delivery_in_hand", "Messages that are taken and not settled.", labels=["destination"]
        )
        paused = GaugeMetricFamily(
            "forebay_delivery_paused",
            "1 while the destination is paused or disabled.",
            labels=["destination"],
        )
        breaker = GaugeMetricFamily(
            "forebay_delivery_breaker_state",
            "1 for the state that the breaker is in.",
            labels=["destination", "state"],
        )
        for delivery in self._deliveries:
            in_hand.add_metric([delivery.name], delivery.in_hand)
            paused.add_metric([delivery.name], delivery.paused_because is not None)
            for state in BreakerState:
                breaker.add_metric([delivery.name, state], delivery.admission.breaker.state is state)
        yield from (in_hand, paused, breaker)

    def _latency(self) -> Metric:
        latency = HistogramMetricFamily(
            "forebay_delivery_latency_seconds", "How long a request takes.", labels=["destination"]
        )
        bounds = [*map(str, LATENCY_BOUNDS), "+Inf"]
        for delivery in self._deliveries:
            totals = accumulate(delivery.counts.latency_buckets)
            latency.add_metric(
                [delivery.name], list(zip(bounds, totals, strict=True)), delivery.counts.latency_sum
            )
        return latency
