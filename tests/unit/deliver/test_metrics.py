"""Metrics of deliveries, under our names and under those of metrics-governor."""

import asyncio

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from forebay.deliver.failure import of_status
from forebay.deliver.metrics import DeliveryMetrics
from forebay.deliver.queue_settings import BreakerSettings
from forebay.model import Full
from tests.unit.deliver.test_delivery import SPLIT, DeliveryRig, a_delivery

GAUGES = [
    "queue_size",
    "queue_bytes",
    "queue_max_size",
    "queue_max_bytes",
    "queue_utilization_ratio",
    "queue_disk_available_bytes",
    "fastqueue_inmemory_blocks",
    "fastqueue_disk_bytes",
    "queue_workers_active",
    "queue_workers_total",
    "queue_preparers_active",
    "queue_senders_active",
    "queue_sends_inflight",
    "queue_export_latency_ewma_seconds",
    "circuit_breaker_state",
    "queue_backoff_seconds",
]
COUNTERS = [
    "queue_push_total",
    "queue_dropped_total",
    "queue_retry_total",
    "queue_retry_success_total",
    "queue_retry_failure_total",
    "queue_disk_full_total",
    "fastqueue_meta_sync_total",
    "fastqueue_chunk_rotations",
    "fastqueue_inmemory_flushes",
    "circuit_breaker_open_total",
    "circuit_breaker_rejected_total",
]
UNTYPED = {"fastqueue_chunk_rotations", "fastqueue_inmemory_flushes", "queue_workers_total"}
LABELS = {
    "queue_dropped_total": "reason",
    "queue_retry_failure_total": "error_type",
    "circuit_breaker_state": "state",
}


def shown(rig: DeliveryRig, prefix: str) -> str:
    """The metrics of its delivery."""
    return generate_latest(DeliveryMetrics([rig.delivery], prefix)).decode()


def samples(rig: DeliveryRig, prefix: str = "forebay_relay") -> dict[tuple[str, str], float]:
    """Values by name and the value of the metric's own label."""
    found = {}
    for family in text_string_to_metric_families(shown(rig, prefix)):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("destination") == "scripted"
            found[sample.name, "".join(labels.values())] = sample.value
    return found


async def test_every_metric_of_the_original_is_there_under_its_name() -> None:
    async with a_delivery(start=False) as rig:
        text = shown(rig, "metrics_governor")
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name in names:
            shown_kind = "untyped" if name in UNTYPED else kind
            assert f"# TYPE metrics_governor_{name} {shown_kind}\n" in text
            label = f',{LABELS[name]}="' if name in LABELS else "} "
            assert f'\nmetrics_governor_{name}{{destination="scripted"{label}' in text
    assert "_created" not in text


async def test_our_own_names_end_as_their_types_do() -> None:
    async with a_delivery(start=False) as rig:
        text = shown(rig, "forebay_relay")
    assert "# TYPE forebay_relay_queue_workers gauge\n" in text
    assert "# TYPE forebay_relay_fastqueue_chunk_rotations_total counter\n" in text
    assert "untyped" not in text


async def test_numbers_follow_what_happens() -> None:
    async with a_delivery(retry_interval=0.001, workers=2, max_size=10) as rig:
        answers = [of_status(503), of_status(200), of_status(400)]
        rig.destination.answer = lambda _: answers.pop(0)
        await rig.push(b"a")
        await rig.empty()
        await rig.push(b"b")
        await rig.empty()
        found = samples(rig)
        assert found["forebay_relay_queue_push_total", ""] == 2
        assert found["forebay_relay_queue_retry_total", ""] == 1
        assert found["forebay_relay_queue_retry_success_total", ""] == 1
        assert found["forebay_relay_queue_retry_failure_total", "server_error"] == 0
        assert found["forebay_relay_queue_retry_failure_total", "timeout"] == 0
        assert found["forebay_relay_queue_failures_total", "server_error"] == 1
        assert found["forebay_relay_queue_failures_total", "client_error"] == 1
        assert found["forebay_relay_queue_delivered_total", ""] == 1
        assert found["forebay_relay_queue_dead_letters", ""] == 1
        assert found["forebay_relay_queue_given_up_total", "client_error"] == 1
        assert found["forebay_relay_queue_export_latency_seconds_count", ""] == 3
        assert found["forebay_relay_queue_export_latency_seconds_bucket", "+Inf"] == 3
        assert found["forebay_relay_queue_workers", ""] == 2
        assert found["forebay_relay_circuit_breaker_state", "closed"] == 1
        assert found["forebay_relay_circuit_breaker_state", "open"] == 0


async def test_retries_are_those_that_delivered_and_those_that_failed() -> None:
    async with a_delivery(retry_interval=0.001, workers=1) as rig:
        answers = [of_status(503), of_status(503), of_status(429), of_status(200), of_status(200)]
        rig.destination.answer = lambda _: answers.pop(0)
        await rig.push(b"a", b"b")
        await rig.empty()
        found = samples(rig)
        failed = sum(
            value for (name, _), value in found.items() if name == "forebay_relay_queue_retry_failure_total"
        )
        delivered = found["forebay_relay_queue_retry_success_total", ""]
        assert delivered > 0
        assert failed + delivered == found["forebay_relay_queue_retry_total", ""] == 3
        assert sum(value for (name, _), value in found.items() if name.endswith("queue_failures_total")) == 3


async def test_gauges_show_what_waits_and_what_is_under_way() -> None:
    async with a_delivery(workers=1, max_size=10) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"x" for _ in range(5)))
        await rig.destination.until(1)
        rig.clock.now += 60_000_000
        found = samples(rig, "metrics_governor")
        assert found["metrics_governor_queue_size", ""] == 5
        assert found["metrics_governor_queue_utilization_ratio", ""] == 0.5
        assert found["metrics_governor_queue_sends_inflight", ""] == 1
        assert found["metrics_governor_queue_workers_active", ""] == 1
        assert found["metrics_governor_queue_oldest_age_seconds", ""] == 60


async def test_what_is_dropped_is_told_by_its_reason_and_loss_apart() -> None:
    async with a_delivery(start=False, max_size=3, max_bytes=10_000) as rig:
        await rig.push(*(b"%d" % number for number in range(5)))
        found = samples(rig)
        assert found["forebay_relay_queue_dropped_total", "oldest"] == 2
        assert found["forebay_relay_export_data_loss_total", ""] == 2
        assert (found["forebay_relay_queue_max_size", ""], found["forebay_relay_queue_max_bytes", ""]) == (
            3,
            10_000,
        )
        assert found["forebay_relay_queue_bytes", ""] == rig.queue.room.bytes_held > 0
    async with a_delivery(start=False, max_size=3, full_behavior="drop_newest") as rig:
        await rig.push(b"0", b"1", b"2")
        with pytest.raises(Full):
            await rig.push(b"3")
        found = samples(rig)
        assert found["forebay_relay_queue_dropped_total", "newest"] == 1
        assert found["forebay_relay_export_data_loss_total", ""] == 0


async def test_dead_letters_that_make_room_for_newer_ones_are_loss(caplog: pytest.LogCaptureFixture) -> None:
    async with a_delivery(dead_size_max=2) as rig:
        rig.destination.answer = lambda _: of_status(400)
        await rig.push(*(b"%d" % number for number in range(5)))
        await rig.empty()
        found = samples(rig)
        assert found["forebay_relay_queue_dead_letters", ""] == 2
        assert found["forebay_relay_queue_dropped_total", "dead_letter"] == 3
        assert found["forebay_relay_export_data_loss_total", ""] == 3
    assert len([line for line in caplog.messages if "dead letters" in line]) == 1


async def test_pushes_that_the_disk_has_no_room_for_are_counted_and_wait_in_memory() -> None:
    async with a_delivery(start=False, durability="interval") as rig:
        rig.backing.error = Full("no space left")
        await rig.push(b"a", b"b", b"c")
        found = samples(rig)
        assert found["forebay_relay_queue_disk_full_total", ""] == 3
        assert found["forebay_relay_queue_failover_size", ""] == 3
        assert found["forebay_relay_queue_push_total", ""] == 0
        rig.backing.error = None
        await rig.push(b"d")
        while rig.queue.volatile:
            await rig.queue._next_round()
        found = samples(rig)
        assert found["forebay_relay_queue_failover_size", ""] == 0
        assert found["forebay_relay_queue_disk_full_total", ""] == 3
        assert found["forebay_relay_queue_push_total", ""] == 4


async def test_latency_on_average_follows_the_latest_attempts() -> None:
    async with a_delivery(start=False) as rig:
        assert samples(rig)["forebay_relay_queue_export_latency_ewma_seconds", ""] == 0
        for seconds in (0.5, 1.0):
            rig.delivery.counts.attempt(of_status(200), seconds, attempts_before=0)
        assert samples(rig)["forebay_relay_queue_export_latency_ewma_seconds", ""] == pytest.approx(0.6)


async def test_splits_and_what_they_deliver_are_counted() -> None:
    lines = [b'{"n":%d}\n' % number for number in range(4)]
    async with a_delivery(workers=1) as rig:
        rig.destination.answer = lambda request: of_status(413 if request.body.count(b"\n") > 1 else 200)
        await rig.push(b"".join(lines), headers=((b"Content-Type", b"application/x-ndjson"),))
        await rig.empty()
        found = samples(rig)
        assert found["forebay_relay_queue_split_total", ""] == 3
        assert found["forebay_relay_queue_delivered_total", ""] == 4


async def test_an_open_breaker_is_counted_with_what_it_holds_up() -> None:
    breaker = BreakerSettings(threshold=2, reset_timeout=3_600.0)
    async with a_delivery(circuit_breaker=breaker, retry_interval=0.5, workers=1) as rig:
        rig.destination.answer = lambda _: of_status(503)
        await rig.push(b"a", b"b", b"c")
        while not rig.delivery.admission.refused:
            await rig.queue._next_round()
        found = samples(rig)
        assert found["forebay_relay_circuit_breaker_state", "open"] == 1
        assert found["forebay_relay_circuit_breaker_open_total", ""] == 1
        assert found["forebay_relay_circuit_breaker_rejected_total", ""] >= 1
        assert found["forebay_relay_queue_backoff_seconds", ""] == 0.5


async def test_the_pipeline_shows_its_senders() -> None:
    async with a_delivery(pipeline_split=SPLIT, max_concurrent_sends=1) as rig:
        rig.destination.hold = asyncio.Event()
        await rig.push(*(b"x" for _ in range(9)))
        await rig.destination.until(3)
        found = samples(rig)
        assert found["forebay_relay_queue_senders_active", ""] == 3
        assert found["forebay_relay_queue_workers", ""] == rig.delivery.workers
        assert found["forebay_relay_queue_preparers_active", ""] == rig.delivery.preparers.busy
        rig.destination.hold.set()
