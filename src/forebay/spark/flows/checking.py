"""Faults of flows besides their file: functions, contracts, destinations, SQL. Starts no Spark session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from forebay.contract import InvalidContract, read_contract
from forebay.contract.errors import Fault
from forebay.deliver.http.guard import refusal
from forebay.deliver.http.tls import client_context
from forebay.model import Misconfigured
from forebay.spark.flows.functions import function, look_in
from forebay.spark.flows.values import Action, FlowSpec, PipelineSpec, QueueSource, TimedSource
from forebay.spark.session import java_gateway

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_INPUT: Final = re.compile(r"\binput\b", re.IGNORECASE)


def check_flows(spec: PipelineSpec, *, sql: bool = True) -> list[Fault]:
    """What would fail when the flows start, in the order of the file; SQL is looked at by a Java."""
    look_in(spec.folder)
    faults = [
        fault
        for flow in spec.flows
        for check in (_functions, _contract, _destination)
        for fault in check(spec, flow)
    ]
    return sorted([*faults, *(_sql(spec) if sql else ())], key=lambda fault: (fault.line, fault.column))


def _functions(spec: PipelineSpec, flow: FlowSpec) -> Iterator[Fault]:
    places: list[tuple[str, FlowSpec | Action]] = [
        (action.text, action) for action in flow.actions if action.kind != "sql"
    ]
    if isinstance(flow.source, TimedSource):
        places.append((flow.source.function, flow))
    for place, where in places:
        try:
            function(place)
        except Misconfigured as error:
            yield _fault(spec, where, f"flow '{flow.name}': {place}: {error.message}", error.hint)


def _contract(spec: PipelineSpec, flow: FlowSpec) -> Iterator[Fault]:
    if flow.contract is None or not isinstance(flow.source, QueueSource):
        return
    try:
        contract = read_contract(spec.folder / flow.contract)
    except InvalidContract as error:
        yield from error.faults
        return
    if flow.source.queue not in {queue.name for queue in contract.queues}:
        text = f"flow '{flow.name}': the contract {flow.contract} has no queue '{flow.source.queue}'"
        yield _fault(spec, flow, text, "add it to the contract, or leave the contract out")


def _destination(spec: PipelineSpec, flow: FlowSpec) -> Iterator[Fault]:
    """Certificates that can't be read, and an address that no request would be sent to."""
    if flow.name not in spec.deliveries:
        return
    settings = spec.deliveries[flow.name].destination
    label, host = f"flow '{flow.name}': sink: destination", settings.address.host
    try:
        client_context(settings.tls)
    except Misconfigured as error:
        yield _fault(spec, flow, f"{label}.tls.{error.key}: {error.message}", error.hint)
    address = "127.0.0.1" if host.lower() == "localhost" else host
    if _is_ip(address) and (kind := refusal(address, settings.address_rule)):
        text = f"{label}: {host} is a {kind} address, which is refused"
        yield _fault(spec, flow, text, "allow_private: true, or allowed_networks, below destination allow it")


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _sql(spec: PipelineSpec) -> Iterator[Fault]:
    """What Spark's own parser says of SQL and of schemas: a Java, but no session, is started for it."""
    actions = [(flow, action) for flow in spec.flows for action in flow.actions]
    if not any(action.kind == "sql" or action.schema for _, action in actions):
        return
    gateway = java_gateway()
    for flow, action in actions:
        label = f"flow '{flow.name}': action '{action.name}'"
        if action.schema and (said := _refusal(gateway, action.schema, schema=True)):
            yield _fault(spec, action, f"{label}: the schema is wrong: {said}", "write name TYPE, name TYPE")
        if action.kind == "sql":
            if said := _refusal(gateway, action.text, schema=False):
                yield _fault(spec, action, f"{label}: the SQL is wrong: {said}", "correct it")
            elif not _INPUT.search(action.text):
                text = f"{label}: the SQL doesn't read its input"
                yield _fault(spec, action, text, "write SELECT ... FROM input")


def _refusal(gateway: JavaGateway, text: str, *, schema: bool) -> str:
    """What the parser has against a text, in one line."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only with the spark extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - likewise

    sql: Any = gateway.jvm.org.apache.spark.sql
    try:
        if schema:
            sql.types.StructType.fromDDL(text)
        else:
            sql.execution.SparkSqlParser().parsePlan(text)
    except PySparkException as error:
        return _one_line(str(error))
    except Py4JJavaError as error:
        return _one_line(str(error.java_exception.getMessage() or error.java_exception))
    return ""


def _one_line(said: str) -> str:
    return " ".join(said.partition("== SQL")[0].partition("JVM stacktrace")[0].split())


def _fault(spec: PipelineSpec, where: FlowSpec | Action, message: str, hint: str | None) -> Fault:
    return Fault(file=spec.file, line=where.line, column=where.column, message=message, hint=hint)
