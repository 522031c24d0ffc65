"""`forebay pipeline run`, `check` and `list`: flows on Spark."""

import argparse
import asyncio
import os
from typing import Any

from forebay.app.commands.arguments import address
from forebay.app.commands.opened import shown_url
from forebay.app.commands.output import print_json, print_table, warn
from forebay.app.flow_file import read_flow_file
from forebay.app.opening import DEFAULT_STORE, open_log, split_warm
from forebay.contract.errors import InvalidFile
from forebay.model import ForebayError, format_seconds
from forebay.spark.flows.spec import InvalidFlows
from forebay.spark.flows.values import (
    DestinationSink,
    FlowSpec,
    LetterSource,
    ParquetSink,
    PipelineSpec,
    QueueSource,
    Sink,
    Source,
)
from forebay.spark.session import require_spark

__all__ = ["check", "declare_check", "declare_list", "declare_run", "list_flows", "log_url", "run"]


def declare_check(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay pipeline check`."""
    _declare_file(parser)
    _declare_store(parser)
    _declare_json(parser)


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay pipeline list`."""
    _declare_file(parser)
    _declare_json(parser)


def declare_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay pipeline run`."""
    _declare_file(parser)
    _declare_store(parser)
    parser.add_argument(
        "--flow", metavar="NAME", action="append", default=[], help="run this flow only; may be repeated"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="do all that is there, and end; status 1 where a flow keeps failing",
    )
    parser.add_argument("--master", metavar="URL", help="the Spark master (default: this machine)")
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=address, help="serve /metrics and /healthz there"
    )
    parser.add_argument(
        "--log-format", choices=("auto", "json", "people"), default="auto", help="of the logs"
    )
    levels = ("debug", "info", "warning", "error")
    parser.add_argument(
        "--log-level", choices=levels, default="info", help="the least serious that is written"
    )


def _declare_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the flows, YAML")


def _declare_store(parser: argparse.ArgumentParser) -> None:
    default = f"the file's own, else $FOREBAY_STORE, else {DEFAULT_STORE}"
    parser.add_argument("--store", metavar="URL", help=f"the log, or a server (default: {default})")
    parser.add_argument("--key", metavar="KEY", help="the server's API key (default: $FOREBAY_KEY)")


def _declare_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def log_url(arguments: argparse.Namespace, spec: PipelineSpec) -> str:
    """The log that flows work on: the flag's, the file's, the environment's, or the default."""
    url = arguments.store or spec.store or os.environ.get("FOREBAY_STORE") or DEFAULT_STORE
    return split_warm(url)[0]


def run(arguments: argparse.Namespace) -> int:
    """Run flows until a signal, or until all is done."""
    require_spark("flows need Spark")
    from forebay.app.commands.piping import run_pipeline  # noqa: PLC0415 - Spark takes its time to load

    return run_pipeline(arguments)


def list_flows(arguments: argparse.Namespace) -> int:
    """Print the flows of a file."""
    spec = read_flow_file(arguments.file)
    if arguments.json:
        print_json({"flows": spec.flows, "archive": spec.archive})
        return 0
    rows = [
        (
            flow.name, flow.type, _source_text(flow.source),
            " → ".join(action.name for action in flow.actions), _sink_text(flow.sink),
            "once" if flow.once else format_seconds(flow.every),
        )
        for flow in spec.flows
    ]  # fmt: skip
    print_table(("flow", "type", "source", "actions", "sink", "every"), rows)
    return 0


def _source_text(source: Source) -> str:
    if isinstance(source, QueueSource):
        return f"{source.queue} as {source.group}"
    if isinstance(source, LetterSource):
        return f"dead letters of {source.dead}, group {source.group}"
    return source.function


def _sink_text(sink: Sink) -> str:
    if isinstance(sink, DestinationSink):
        return f"{sink.queue} → {sink.url}"
    return f"{sink.folder}/*.parquet" if isinstance(sink, ParquetSink) else sink.queue


def check(arguments: argparse.Namespace) -> int:
    """Say everything that is wrong with flows; status 3 if anything is."""
    from forebay.spark.flows.checking import check_flows  # noqa: PLC0415 - likewise

    try:
        spec = read_flow_file(arguments.file)
        if faults := check_flows(spec):
            raise InvalidFlows(faults)
    except InvalidFile as error:
        if not arguments.json:
            raise
        print_json({"faults": error.faults})
        return 3
    notes = asyncio.run(_notes(arguments, spec))
    if arguments.json:
        print_json({"faults": [], "flows": [flow.name for flow in spec.flows], "notes": notes})
        return 0
    for note in notes:
        warn(note)
    count = len(spec.flows)
    warn(f"{arguments.file}: the flows are right: {count} {'flow' if count == 1 else 'flows'}")
    return 0


async def _notes(arguments: argparse.Namespace, spec: PipelineSpec) -> list[str]:
    """What is no fault of the file: queues that aren't there yet, a log that can't be asked."""
    url = log_url(arguments, spec)
    try:
        options: dict[str, Any] = {"key": arguments.key} if arguments.key else {}
        async with open_log(url, **options) as log:
            known = {queue.name for queue in await log.queues()}
    except ForebayError as error:
        return [f"whether the queues exist can't be said: {shown_url(url)}: {error}"]
    return [note for flow in spec.flows for note in _missing(flow, known)]


def _missing(flow: FlowSpec, known: set[str]) -> list[str]:
    return [
        f"flow '{flow.name}': queue '{queue}' is made when it starts"
        for queue in flow.queues
        if queue not in known
    ]
