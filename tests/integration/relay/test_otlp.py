"""Bodies that the OpenTelemetry SDK makes pass byte for byte, and its exporters are content."""

import asyncio

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from forebay.deliver.values import header
from tests.integration.relay.rigs import a_relay


def some_spans() -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    with provider.get_tracer("trial").start_as_current_span("outer", attributes={"key": "value"}):
        provider.get_tracer("trial").start_span("inner").end()
    return list(memory.get_finished_spans())


async def test_spans_pass_byte_for_byte() -> None:
    spans = some_spans()
    async with a_relay() as rig:
        exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{rig.port}/v1/traces")
        result = await asyncio.to_thread(exporter.export, spans)
        assert result is SpanExportResult.SUCCESS
        (request,) = await rig.destination.until(1)
        assert request.target == b"/v1/traces"
        assert request.body == encode_spans(spans).SerializeToString()
        await asyncio.to_thread(exporter.shutdown)


@pytest.mark.parametrize("name", ["requests", "errors"])
async def test_metrics_are_accepted(name: str) -> None:
    reader = InMemoryMetricReader()
    MeterProvider([reader]).get_meter("trial").create_counter(name).add(3)
    data = reader.get_metrics_data()
    assert data is not None
    async with a_relay() as rig:
        exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{rig.port}/v1/metrics")
        assert await asyncio.to_thread(exporter.export, data) is MetricExportResult.SUCCESS
        (request,) = await rig.destination.until(1)
        assert name.encode() in request.body
        assert header(request.headers, b"content-type") == b"application/x-protobuf"
        await asyncio.to_thread(exporter.shutdown)
