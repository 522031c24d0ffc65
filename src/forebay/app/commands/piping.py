"""`forebay pipeline run`: flows in one Spark application, until a signal or until all is done.

Invariants: a signal ends it within 15 seconds, whatever Spark is doing, and leaves no process behind; a
second one at once. Neither loses anything: flows go on from their records in the log.
"""

import argparse
import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client.registry import Collector
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.app.commands.flow_delivery import FlowDeliveries
from forebay.app.commands.numbers_page import NumbersPage
from forebay.app.commands.pipeline import log_url
from forebay.app.commands.readiness import say_ready
from forebay.app.commands.spark_signals import SparkSignals
from forebay.app.flow_file import read_flow_file
from forebay.app.logs import set_up_logs
from forebay.app.opening import DEFAULT_STORE, is_server, open_log, sqlite_path
from forebay.deliver.queue_metrics import QueueDeliveryMetrics
from forebay.model import Misconfigured, Unavailable
from forebay.spark.archive.numbers import ArchiveNumbers
from forebay.spark.flows.checking import check_flows
from forebay.spark.flows.functions import look_in
from forebay.spark.flows.numbers import PipelineNumbers
from forebay.spark.flows.pipeline import Pipeline, Status
from forebay.spark.flows.reports import Reports
from forebay.spark.flows.running import Surroundings
from forebay.spark.flows.spec import InvalidFlows
from forebay.spark.flows.starting import archiving, tend, units
from forebay.spark.flows.values import PipelineSpec
from forebay.spark.logs import close_all
from forebay.spark.session import end_java, session

__all__ = ["run_pipeline", "screen"]

logger: Final = logging.getLogger("forebay.app")

SAY_SECONDS: Final = 10.0
"""How often progress is logged where nobody looks at a screen."""
_AGAIN_SECONDS: Final = 1.0
ONCE_TRIES: Final = 3
"""With `--once`: so often a flow may fail in a row, since somebody waits for the end."""
SPARK_STOP_SECONDS: Final = 3.0
MASTER: Final = "local[*,2]"
"""A task is tried twice: what fails on its rows fails again, and a flow tries by itself."""
_QUIET: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


def run_pipeline(arguments: argparse.Namespace) -> int:
    """Run the flows of a file; 0 when it was told to end, or all is done, 1 when a flow was given up."""
    live = sys.stdout.isatty() and sys.stderr.isatty()
    set_up_logs(arguments.log_format, "error" if live else arguments.log_level)
    spec = _wanted(arguments)
    if faults := check_flows(spec, sql=False):
        raise InvalidFlows(faults)
    signals = SparkSignals()
    around = _surroundings(arguments, spec)
    numbers, archived = PipelineNumbers(), ArchiveNumbers()
    deliveries = FlowDeliveries(around.url, around.credentials.get("key"))
    page = _Page(arguments.metrics, (numbers, archived, QueueDeliveryMetrics(deliveries.running)))
    _open(around, patient=not (arguments.once or live))
    # Executors of a cluster don't have the environment of this process.
    settings = _QUIET | {"spark.executorEnv.PYTHONPATH": look_in(spec.folder)}
    spark = session("forebay-pipeline", master=arguments.master or MASTER, settings=settings)
    kept = [*units(spark, spec, around, numbers), *deliveries.units(spec)]
    if spec.archive is not None and not arguments.flow:
        kept.append(archiving(spark, spec.archive, around, numbers, archived, once=arguments.once))
    tries_max = ONCE_TRIES if arguments.once else None
    pipeline = Pipeline(
        kept, tries_max=tries_max, tend=partial(tend, around, spec), report=Reports(around, spec)
    )
    signals.running = True
    say_ready()
    try:
        with page.shows(pipeline), _shown(pipeline, live=live) as look:
            pipeline.run(signals.ending, look)
    finally:
        _stop(pipeline, spark, deliveries)
    return 1 if any(status.error for status in pipeline.statuses()) and not signals.ending.is_set() else 0


def _wanted(arguments: argparse.Namespace) -> PipelineSpec:
    """What the file says, as far as it is asked for."""
    spec = read_flow_file(arguments.file)
    known = {flow.name for flow in spec.flows}
    if missing := [name for name in arguments.flow if name not in known]:
        raise Misconfigured(
            f"{arguments.file} has no flow {missing[0]!r}", hint=f"it has {', '.join(sorted(known))}"
        )
    flows = [flow for flow in spec.flows if not arguments.flow or flow.name in arguments.flow]
    if arguments.once:
        flows = [msgspec.structs.replace(flow, once=True) for flow in flows]
    if not flows and spec.archive is None:
        raise Misconfigured(f"{arguments.file} has no flows", hint="list them under `flows:`")
    return msgspec.structs.replace(spec, flows=tuple(flows))


def _surroundings(arguments: argparse.Namespace, spec: PipelineSpec) -> Surroundings:
    url = log_url(arguments, spec)
    if url.startswith("memory:"):
        raise Misconfigured("memory:// is within one process", hint="use sqlite:///file.db")
    if url == DEFAULT_STORE:
        sqlite_path(url).parent.mkdir(exist_ok=True)
    if url.startswith("sqlite:"):  # Spark's own processes may be in another folder
        url = f"sqlite:///{sqlite_path(url).absolute()}"
    key = arguments.key or os.environ.get("FOREBAY_KEY")
    return Surroundings(
        opener=open_log,
        url=url,
        credentials={"key": key} if key and is_server(url) else {},
        checkpoints=Path(spec.checkpoints).absolute(),
        folder=spec.folder,
    )


def _open(around: Surroundings, *, patient: bool) -> None:
    """Open the log before Spark is started; one that is away is waited for, unless somebody waits for us."""
    while True:
        try:
            around.face()
        except Unavailable as error:
            if not patient:
                raise
            logger.warning("the log can't be opened, which is tried again: %s", error)
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def _stop(pipeline: Pipeline, spark: Any, deliveries: FlowDeliveries) -> None:
    began = time.monotonic()
    if not pipeline.stop():
        logger.warning("some flows did not end in time; they go on where they were")
    ends = (spark.stop, deliveries.close)
    stopping = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
    until = time.monotonic() + SPARK_STOP_SECONDS
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join(max(0.0, until - time.monotonic()))
    with suppress(Exception):
        close_all()
    end_java()
    logger.info("stopped in %.1f s", time.monotonic() - began)


def _quietly(end: Callable[[], None]) -> None:
    with suppress(Exception):
        end()


# What is shown


class _Page:
    """Numbers at an address, if there is one; it is taken at once, since Spark takes its time to start."""

    def __init__(self, address: str | None, numbers: Sequence[Collector]) -> None:
        self._pipeline: Pipeline | None = None
        self._page = None if address is None else NumbersPage(numbers, self._trouble, address)

    def _trouble(self) -> str | None:
        return None if self._pipeline is None else self._pipeline.trouble

    @contextmanager
    def shows(self, pipeline: Pipeline) -> Iterator[None]:
        """Answer whoever asks, while a pipeline runs."""
        self._pipeline = pipeline
        if self._page is None:
            yield
            return
        loop = asyncio.new_event_loop()
        loop.run_until_complete(self._page.__aenter__())
        thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._page.__aexit__(), loop).result(2)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(2)


@contextmanager
def _shown(pipeline: Pipeline, *, live: bool) -> Iterator[Callable[[], None]]:
    if not live:
        yield _Sayer(pipeline)
        return
    with Live(console=Console(), auto_refresh=False) as screen_:
        yield lambda: screen_.update(screen(pipeline.statuses()), refresh=True)


class _Sayer:
    """Logs the progress of flows that made some."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._said: dict[str, int] = {}
        self._next = time.monotonic() + SAY_SECONDS

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAY_SECONDS
        for status in self._pipeline.statuses():
            if status.rows_in != self._said.get(status.name, 0):
                self._said[status.name] = status.rows_in
                logger.info("flow %s: %s", status.name, progress_text(status))


def progress_text(status: Status) -> str:
    """The progress of a flow in a line."""
    return (
        f"{status.rows_per_second:,.0f} rows/s, lag {status.lag:,}, {status.rows_in:,} in, "
        f"{status.rows_out:,} out, {status.dead:,} dead; "
        f"last batch {status.last_rows:,} rows in {status.last_seconds:.2f} s"
    )


_STYLES: Final = {"running": "green", "failed": "bold red", "done": "dim", "waiting": "yellow"}


def screen(statuses: list[Status]) -> RenderableType:
    """All flows, one a row, and below them what went wrong."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), expand=False)
    table.add_column("flow", no_wrap=True, overflow="ellipsis", max_width=30)
    table.add_column("state")
    for name in ("rows/s", "lag", "in", "out", "dead", "restarts", "last batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in statuses:
        last = f"{each.last_rows:,} in {each.last_seconds:.2f} s" if each.rows_in else ""
        table.add_row(
            each.name, Text(each.state, style=_STYLES.get(each.state, "")), f"{each.rows_per_second:,.0f}",
            f"{each.lag:,}", f"{each.rows_in:,}", f"{each.rows_out:,}",
            Text(f"{each.dead:,}", style="red" if each.dead else ""), f"{each.restarts:,}", last,
        )  # fmt: skip
    errors = [
        Text(f"{each.name}: {each.error}", style="red", no_wrap=True, overflow="ellipsis")
        for each in statuses
        if each.error
    ]
    return Group(table, *errors, Text("Ctrl+C ends it", style="dim"))
