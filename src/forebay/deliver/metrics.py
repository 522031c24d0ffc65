"""The metrics of deliveries: one table of names, types and labels, and where each number is.

With the prefix `metrics_governor` the names are exactly those of metrics-governor. Two of its counters lack
the suffix `_total`, which prometheus-client would add; so the text is written here. Numbers are read when a
scrape asks for them; nothing is counted for their sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal, TypeAlias

import msgspec

from forebay.deliver.breaker import BreakerState
from forebay.deliver.delivery import Delivery
from forebay.deliver.delivery_counts import LATENCY_BOUNDS

__all__ = ["CONTENT_TYPE", "METRICS", "Metric", "exposition"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample: TypeAlias = tuple[str, float]
"""The value of the metric's own label, and the number."""
Kind: TypeAlias = Literal["gauge", "counter", "histogram"]


class Metric(msgspec.Struct, frozen=True):
    """One metric. Every sample has the label `destination`, and `label` where there is one."""

    name: str
    kind: Kind
    text: str
    read: Callable[[Delivery], Iterable[Sample]]
    label: str | None = None


def _one(read: Callable[[Delivery], float]) -> Callable[[Delivery], Iterable[Sample]]:
    return lambda delivery: (("", read(delivery)),)


def _by_label(
    read: Callable[[Delivery], dict[str, int]], known: Sequence[str]
) -> Callable[[Delivery], Iterable[Sample]]:
    """Every known value of the label, also where nothing was counted yet, so that rates begin at zero."""

    def samples(delivery: Delivery) -> Iterable[Sample]:
        counts = read(delivery)
        return [(value, counts.get(value, 0)) for value in dict.fromkeys([*known, *counts])]

    return samples


def _states(delivery: Delivery) -> Iterable[Sample]:
    state = delivery.admission.breaker.state
    return [(known.value, float(known is state)) for known in BreakerState]


_REASONS: Final = ("oldest", "newest", "timeout", "disk_full", "disk_failed", "shutdown", "corrupt")
_ERRORS: Final = ("timeout", "network", "rate_limit", "server_error", "client_error", "auth", "too_large")

METRICS: Final = (
    Metric("queue_size", "gauge", "Entries in the queue.", _one(lambda d: d.queue.size)),
    Metric("queue_bytes", "gauge", "Bytes in the queue.", _one(lambda d: d.queue.room.bytes_held)),
    Metric("queue_max_size", "gauge", "Entries that it may hold.", _one(lambda d: d.queue.room.size_max)),
    Metric("queue_max_bytes", "gauge", "Bytes that it may hold.", _one(lambda d: d.queue.room.bytes_max)),
    Metric("queue_utilization_ratio", "gauge", "The fuller of entries and bytes, from 0 to 1.",
           _one(lambda d: d.queue.room.utilization)),
    Metric("queue_disk_available_bytes", "gauge", "Bytes that the disk has left.",
           _one(lambda d: d.queue.disk_available())),
    Metric("queue_oldest_age_seconds", "gauge", "How long the oldest entry has been waiting.",
           _one(lambda d: d.queue.oldest_seconds())),
    Metric("queue_push_total", "counter", "Entries that were pushed.", _one(lambda d: d.queue.pushed)),
    Metric("queue_dropped_total", "counter", "Entries that were dropped or refused.",
           _by_label(lambda d: d.queue.dropped, _REASONS), "reason"),
    Metric("queue_retry_total", "counter", "Attempts after the first one.", _one(lambda d: d.counts.retries)),
    Metric("queue_retry_success_total", "counter", "Entries that were delivered after a failure.",
           _one(lambda d: d.counts.retries_delivered)),
    Metric("queue_retry_failure_total", "counter", "Attempts that failed, the first ones included.",
           _by_label(lambda d: d.counts.failures, _ERRORS), "error_type"),
    Metric("queue_disk_full_total", "counter", "Pushes that the disk had no room for.",
           _one(lambda d: d.queue.disk_full)),
    Metric("queue_delivered_total", "counter", "Requests that the destination accepted.",
           _one(lambda d: d.counts.delivered)),
    Metric("queue_split_total", "counter", "Requests that were split since they were too large.",
           _one(lambda d: d.counts.splits)),
    Metric("queue_dead_letters", "gauge", "Dead letters that are kept.", _one(lambda d: d.queue.dead_count)),
    Metric("queue_dead_letters_total", "counter", "Requests that were given up.",
           _by_label(lambda d: d.counts.buried, _ERRORS), "error_type"),
    Metric("queue_failover_size", "gauge", "Entries that are only in memory: the disk doesn't take them.",
           _one(lambda d: d.queue.volatile)),
    Metric("export_data_loss_total", "counter", "Entries that were acknowledged, then dropped or damaged.",
           _one(lambda d: d.queue.lost)),
    Metric("fastqueue_inmemory_blocks", "gauge", "Entries in memory.",
           _one(lambda d: d.queue.backing_counts().memory_blocks)),
    Metric("fastqueue_disk_bytes", "gauge", "Bytes of the queue's files.",
           _one(lambda d: d.queue.backing_counts().disk_bytes)),
    Metric("fastqueue_meta_sync_total", "counter", "How often positions were written.",
           _one(lambda d: d.queue.backing_counts().meta_syncs)),
    Metric("fastqueue_chunk_rotations", "counter", "Files that were begun.",
           _one(lambda d: d.queue.backing_counts().chunk_rotations)),
    Metric("fastqueue_inmemory_flushes", "counter", "How often memory was written to disk.",
           _one(lambda d: d.queue.backing_counts().memory_flushes)),
    Metric("fastqueue_corruption_total", "counter", "Pieces of damage that were found.",
           _one(lambda d: d.queue.backing_counts().corruptions)),
    Metric("queue_workers_active", "gauge", "Workers that have a request under way.",
           _one(lambda d: d.busy_workers)),
    Metric("queue_workers_total", "gauge", "Workers.", _one(lambda d: d.workers)),
    Metric("queue_preparers_active", "gauge", "Preparers of the pipeline that have a request in hand.",
           _one(lambda d: d.preparers.busy)),
    Metric("queue_senders_active", "gauge", "Senders of the pipeline that have a request under way.",
           _one(lambda d: d.busy_workers if d.settings.pipeline_split.enabled else 0)),
    Metric("queue_sends_inflight", "gauge", "Requests under way.", _one(lambda d: d.in_flight)),
    Metric("queue_export_latency_ewma_seconds", "gauge", "How long a request takes, on a moving average.",
           _one(lambda d: d.counts.latency_ewma or 0.0)),
    Metric("queue_export_latency_seconds", "histogram", "How long a request takes.", lambda _: ()),
    Metric("circuit_breaker_state", "gauge", "1 for the state that the breaker is in.", _states, "state"),
    Metric("circuit_breaker_open_total", "counter", "How often the breaker opened.",
           _one(lambda d: d.admission.breaker.opened)),
    Metric("circuit_breaker_rejected_total", "counter", "How often the breaker held up a request.",
           _one(lambda d: d.admission.refused)),
    Metric("queue_backoff_seconds", "gauge", "The last pause before a retry; 0 after a delivery.",
           _one(lambda d: d.counts.backoff_seconds)),
)  # fmt: skip


def exposition(deliveries: Sequence[Delivery], prefix: str) -> str:
    """All metrics in Prometheus' text format."""
    return "".join(line + "\n" for metric in METRICS for line in _lines(metric, deliveries, prefix))


def _lines(metric: Metric, deliveries: Sequence[Delivery], prefix: str) -> Iterator[str]:
    name = f"{prefix}_{metric.name}"
    yield f"# HELP {name} {metric.text}"
    yield f"# TYPE {name} {metric.kind}"
    for delivery in deliveries:
        own = f'destination="{_escaped(delivery.destination.name)}"'
        if metric.kind == "histogram":
            yield from _histogram(name, own, delivery)
            continue
        for value, number in metric.read(delivery):
            labels = own if metric.label is None else f'{own},{metric.label}="{_escaped(value)}"'
            yield f"{name}{{{labels}}} {_number(number)}"


def _histogram(name: str, own: str, delivery: Delivery) -> Iterator[str]:
    counts = delivery.counts
    bounds = [*map(str, LATENCY_BOUNDS), "+Inf"]
    total = 0
    for bound, total in zip(bounds, accumulate(counts.latency_buckets), strict=True):
        yield f'{name}_bucket{{{own},le="{bound}"}} {total}'
    yield f"{name}_sum{{{own}}} {_number(counts.latency_sum)}"
    yield f"{name}_count{{{own}}} {total}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
