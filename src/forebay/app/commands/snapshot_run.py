"""`forebay snapshot run`: folds the rich series on Spark and publishes them, until a signal.

Invariants: one process of all publishes at a time, under a fenced term; another one waits, and starts no
query before it is its turn; a signal ends it within 15 seconds, a second one at once. Neither loses anything:
what was folded is in the checkpoint, and what wasn't is in the log.
"""

import argparse
import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from forebay.app.commands.deliver import process_title
from forebay.app.commands.fold_setup import fold_folder, fold_job, fold_url
from forebay.app.commands.numbers_page import NumbersPage
from forebay.app.commands.readiness import say_ready
from forebay.app.commands.spark_signals import SparkSignals
from forebay.app.configuring import file_faults, load_from, misconfigured
from forebay.app.logs import set_up_logs
from forebay.app.opening import open_log
from forebay.app.settings import Settings
from forebay.app.snapshots import RICH, open_snapshots
from forebay.model import Misconfigured, Unavailable, cancel
from forebay.observe.document import Document
from forebay.observe.refresher import Refresher
from forebay.spark.logs import close_all
from forebay.spark.session import end_java, session
from forebay.spark.snapshot.numbers import FoldNumbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.snapshot.job import FoldJob, Round

__all__ = ["SPARK", "run_fold"]

logger: Final = logging.getLogger("forebay.app")

SPARK: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
MASTER: Final = "local[2,2]"
"""Two slices at once: the rest of the machine is for the queues themselves."""
SAY_SECONDS: Final = 10.0
FIRST_SECONDS: Final = 86_400.0
"""How long the first round may take, which reads all that the log keeps."""
_AGAIN_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0


def run_fold(arguments: argparse.Namespace) -> int:
    """Fold and publish until a signal."""
    loaded = load_from(arguments)
    if faults := file_faults(loaded):
        raise misconfigured(faults)
    settings = loaded.settings
    check_pattern(arguments.queues)
    set_up_logs(settings.logging.format, settings.logging.level)
    signals = SparkSignals()
    asyncio.run(_opened(settings))
    with fold_folder(settings, "run") as folder:
        spark = session("forebay-snapshot", master=arguments.master or MASTER, settings=SPARK)
        interval = settings.metrics.queue_snapshot.rich_interval
        job = fold_job(spark, settings, folder, pattern=arguments.queues, interval=interval)
        signals.running = True
        say_ready()
        try:
            asyncio.run(_publish(settings, job, signals.ending, arguments.metrics))
        finally:
            stop_spark(job, spark)
    return 0


def check_pattern(pattern: str) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise Misconfigured(f"--queues {pattern!r}: {error}", hint="for example orders|invoices") from None


async def _opened(settings: Settings) -> None:
    """Wait until the log can be opened: Spark needn't be started before."""
    said = ""
    while True:
        try:
            async with open_log(fold_url(settings)):
                return
        except Unavailable as error:
            if said != str(error):
                logger.warning("the log can't be opened, which is tried again: %s", error)
            said = str(error)
        await asyncio.sleep(_AGAIN_SECONDS)


async def _publish(settings: Settings, job: "FoldJob", ending: threading.Event, page: str | None) -> None:
    section = settings.metrics.queue_snapshot
    numbers = FoldNumbers()
    sayer = _Sayer(numbers)

    async def fold() -> Document:
        return (await asyncio.to_thread(_next_round, job, sayer, ending, section.rich_staleness)).document

    async with AsyncExitStack() as stack:
        snapshots = await stack.enter_async_context(open_snapshots(settings, RICH))
        refresher = Refresher(
            snapshots,
            fold,
            owner=process_title(),
            source="spark",
            interval_seconds=section.rich_interval,
            term_seconds=section.lock_ttl,
            numbers=numbers.refreshes,
        )
        if page is not None:
            trouble = lambda: numbers.refreshes.error or None  # noqa: E731 - a line of its own says more
            await stack.enter_async_context(NumbersPage([numbers], trouble, page))
        logger.info("rich series are folded every %g s", section.rich_interval)
        task = asyncio.create_task(refresher.run(), name="forebay-fold-refresher")
        stack.push_async_callback(cancel, task)
        await asyncio.to_thread(ending.wait)


def _next_round(job: "FoldJob", sayer: "_Sayer", ending: threading.Event, seconds: float) -> "Round":
    """The next round; Unavailable where it takes longer than `seconds`, and isn't the first.

    One that is late goes on, and is there for whoever asks next.
    """
    job.start()
    found = job.after(sayer.number, FIRST_SECONDS if sayer.number < 0 else seconds, ending.is_set)
    sayer(found)
    return found


class _Sayer:
    """Counts rounds, and logs those that found something new."""

    def __init__(self, numbers: FoldNumbers) -> None:
        self._numbers = numbers
        self._next = 0.0
        self.number = -1

    def __call__(self, found: "Round") -> None:
        numbers, self.number = self._numbers, found.number
        numbers.slices, numbers.series = found.slices, found.document.series
        numbers.seconds, numbers.taken_at = found.seconds, found.document.taken_at
        numbers.rounds += 1
        numbers.folded += found.folded
        if time.monotonic() >= self._next and (found.folded or numbers.rounds == 1):
            self._next = time.monotonic() + SAY_SECONDS
            logger.info(
                "rich series: %d, of %d slices, %d of them looked at in %.2f s",
                found.document.series, found.slices, found.folded, found.seconds,
            )  # fmt: skip


def stop_spark(job: "FoldJob", spark: "SparkSession") -> None:
    """End the query, the session and Java, in order if that goes quickly."""
    began = time.monotonic()
    for end in (job.stop, spark.stop):
        thread = threading.Thread(target=_quietly, args=(end,), daemon=True)
        thread.start()
        thread.join(max(0.0, began + _STOP_SECONDS - time.monotonic()))
    with contextlib.suppress(Exception):
        close_all()
    end_java()
    logger.info("stopped in %.1f s", time.monotonic() - began)


def _quietly(end: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        end()
