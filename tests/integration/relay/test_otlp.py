"""Bodies that the OpenTelemetry SDK makes pass byte for byte, and its exporters are content."""

import asyncio
from collections.abc import Iterator

import pytest
from google.protobuf.json_format import MessageToJson, Parse  # type: ignore[import-untyped]
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from forebay.deliver.encoding import decode
from forebay.deliver.failure import of_status
from forebay.deliver.values import Outcome, Request, header
from tests.integration.relay.rigs import Recorder, a_relay, post


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


def some_logs(*scopes: str, count: int = 1) -> list[ReadableLogRecord]:
    memory = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(memory))
    for number in range(count):
        for scope in scopes:
            provider.get_logger(scope).emit(
                LogRecord(
                    timestamp=1_700_000_000_000_000_000 + number,
                    severity_number=SeverityNumber.WARN,
                    body={"text": f"{scope} {number}", "bytes": b"\x00\xff", "list": [1, 2.5, True]},
                    attributes={"number": number},
                )
            )
    return list(memory.get_finished_logs())


@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.value)
async def test_logs_pass_byte_for_byte(compression: Compression) -> None:
    logs = some_logs("trial", "other", count=3)
    async with a_relay() as rig:
        url = f"http://127.0.0.1:{rig.port}/v1/logs"
        exporter = OTLPLogExporter(endpoint=url, compression=compression)
        assert await asyncio.to_thread(exporter.export, logs) is LogRecordExportResult.SUCCESS
        (request,) = await rig.destination.until(1)
        assert (request.target, header(request.headers, b"content-type")) == (
            b"/v1/logs",
            b"application/x-protobuf",
        )
        assert body_of(request) == encode_logs(logs).SerializeToString()
        await asyncio.to_thread(exporter.shutdown)


def body_of(request: Request) -> bytes:
    encoding = (header(request.headers, b"content-encoding") or b"identity").decode()
    return decode(encoding, request.body, 1 << 30)


def read_logs(request: Request) -> ExportLogsServiceRequest:
    found = ExportLogsServiceRequest()
    if header(request.headers, b"content-type") == b"application/json":
        Parse(body_of(request).decode(), found)
    else:
        found.ParseFromString(body_of(request))
    return found


def records_of(export: ExportLogsServiceRequest) -> Iterator[tuple[str, str, str]]:
    """Each record with the resource and the scope that it is under."""
    for resource in export.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield str(resource.resource), str(scope.scope), str(record)


@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.value)
@pytest.mark.parametrize(
    "scopes", [pytest.param(["one", "two"], id="two-scopes"), pytest.param(["one"], id="one-scope")]
)
async def test_logs_that_are_too_large_arrive_in_parts_each_record_once(
    compression: Compression, scopes: list[str]
) -> None:
    logs = some_logs(*scopes, count=20)
    whole = encode_logs(logs)
    async with a_relay(workers=1) as rig:
        taken = refusing_more_than(rig.destination, records=3)
        exporter = OTLPLogExporter(endpoint=f"http://127.0.0.1:{rig.port}/v1/logs", compression=compression)
        assert await asyncio.to_thread(exporter.export, logs) is LogRecordExportResult.SUCCESS
        (delivery,) = rig.deliveries
        while delivery.queue.size:
            await delivery.queue._next_round()
        await asyncio.to_thread(exporter.shutdown)
    found = [record for request in taken for record in records_of(read_logs(request))]
    assert found == list(records_of(whole))
    assert delivery.queue.dead_count == 0
    assert delivery.counts.splits >= 6


async def test_logs_in_json_that_are_too_large_arrive_in_parts_each_record_once() -> None:
    whole = encode_logs(some_logs("one", count=20))
    body = MessageToJson(whole).encode()
    async with a_relay(workers=1) as rig, await rig.client() as client:
        taken = refusing_more_than(rig.destination, records=3)
        client.send(post(body, "/v1/logs", "Content-Type: application/json"))
        assert (await client.answer())[0] == 200
        (delivery,) = rig.deliveries
        while delivery.queue.size:
            await delivery.queue._next_round()
    found = [record for request in taken for record in records_of(read_logs(request))]
    assert found == list(records_of(whole))
    assert delivery.queue.dead_count == 0


async def test_one_log_record_that_is_too_large_is_a_dead_letter() -> None:
    async with a_relay() as rig:
        taken = refusing_more_than(rig.destination, records=0)
        exporter = OTLPLogExporter(endpoint=f"http://127.0.0.1:{rig.port}/v1/logs")
        await asyncio.to_thread(exporter.export, some_logs("one", count=2))
        (delivery,) = rig.deliveries
        while delivery.queue.size:
            await delivery.queue._next_round()
        await asyncio.to_thread(exporter.shutdown)
        assert (taken, delivery.queue.dead_count) == ([], 2)


def refusing_more_than(destination: Recorder, *, records: int) -> list[Request]:
    """Have a destination answer 413 to more records than that; returns the requests that it takes."""
    taken: list[Request] = []

    def answer(request: Request) -> Outcome:
        if len(list(records_of(read_logs(request)))) > records:
            return of_status(413)
        taken.append(request)
        return of_status(200)

    destination.answer = answer
    return taken
