"""Numbers of flows: what Prometheus is told, and rates for people."""

from prometheus_client import CollectorRegistry, generate_latest

from forebay.spark.flows.numbers import FlowNumbers, PipelineNumbers

LABELS = 'flow="clean",type="TRANSFORM"'


def test_every_number_of_a_flow_is_shown_with_its_flow_and_type() -> None:
    numbers = PipelineNumbers()
    clean = numbers.of("clean", "TRANSFORM")
    assert numbers.of("clean", "TRANSFORM") is clean
    numbers.of("other", "DATA_SINK").batch(1, 1, 0, 0.2)
    clean.batch(10, 7, 2, 0.3)
    clean.batch(5, 5, 0, 400.0)
    clean.lost, clean.restarts, clean.lag, clean.running = 3, 1, 12, 1
    registry = CollectorRegistry()
    registry.register(numbers)
    shown = generate_latest(registry).decode()
    for line in (
        f"forebay_flow_rows_in_total{{{LABELS}}} 15.0",
        f"forebay_flow_rows_out_total{{{LABELS}}} 12.0",
        f"forebay_flow_rows_dead_total{{{LABELS}}} 2.0",
        f"forebay_flow_rows_lost_total{{{LABELS}}} 3.0",
        f"forebay_flow_restarts_total{{{LABELS}}} 1.0",
        f"forebay_flow_lag{{{LABELS}}} 12.0",
        f"forebay_flow_running{{{LABELS}}} 1.0",
        'forebay_flow_batch_seconds_bucket{flow="clean",le="0.25",type="TRANSFORM"} 0.0',
        'forebay_flow_batch_seconds_bucket{flow="clean",le="0.5",type="TRANSFORM"} 1.0',
        'forebay_flow_batch_seconds_bucket{flow="clean",le="300.0",type="TRANSFORM"} 1.0',
        'forebay_flow_batch_seconds_bucket{flow="clean",le="+Inf",type="TRANSFORM"} 2.0',
        f"forebay_flow_batch_seconds_sum{{{LABELS}}} 400.3",
        'forebay_flow_rows_in_total{flow="other",type="DATA_SINK"} 1.0',
    ):
        assert line in shown.splitlines()


def test_a_rate_is_that_of_the_last_seconds() -> None:
    now = [100.0]
    numbers = FlowNumbers(clock=lambda: now[0])
    numbers.batch(50, 50, 0, 0.1)
    assert numbers.rows_per_second == 50, "within the first second"
    now[0] += 5
    assert numbers.rows_per_second == 10
    now[0] += 6
    assert numbers.rows_per_second == 0
