"""Every program that has metrics, at work. The numbers of programs on Spark are shown without it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import time
from typing import Any, Final, Self

from prometheus_client.registry import Collector

from forebay.app.commands.numbers_page import NumbersPage
from forebay.deliver.queue_metrics import QueueDeliveryMetrics
from forebay.observe.document import Document, encode_document, snapshot_family
from forebay.observe.file_snapshots import FileSnapshots
from forebay.observe.metric_table import SECTIONS
from forebay.observe.snapshot_store import meta_of
from forebay.spark.archive.job import QueueRan, Ran
from forebay.spark.archive.numbers import ArchiveNumbers
from forebay.spark.flows.numbers import PipelineNumbers
from forebay.spark.snapshot.numbers import FoldNumbers
from tests.integration.http_wire import ask
from tests.integration.pages import get
from tests.integration.work.victim import QUEUE
from tests.servers import ForebayServer
from tests.servers.forebay import environment
from tests.servers.process import ServerProcess, free_port

__all__ = ["NAMES", "PROGRAMS", "Fleet"]

PROGRAMS: Final = ("server", "worker", "manager", "deliver", "pipeline", "snapshot", "relay")
NAMES: Final = ("forebay", "convoy", "deltafi", "queen")
_START_SECONDS: Final = 60


class Fleet:
    """All programs on one server; use it with `with`."""

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.ports = {name: free_port() for name in PROGRAMS}
        """Where the metrics of each program are."""
        to_relay = {"url": f"http://127.0.0.1:{self.ports['relay']}/in", "allow_private": True}
        self.server = ForebayServer(
            sections={
                "metrics": {"names": list(names), "queue_snapshot": {"refresh_interval": "100ms"}},
                "deliver": {"hooks": {"queue": "hooks", "group": "hooks", "destination": to_relay}},
            }
        )
        self.ports["server"] = self.server.port

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.enter_context(self.server)
        self._work()
        nowhere = f"http://127.0.0.1:{free_port()}/away"
        relay = f"127.0.0.1:{self.ports['relay']}"
        to_relay = f"http://{relay}/in"
        self._program("relay", "--listen", relay, "--data", str(self._folder / "relay"), "--to", nowhere)
        self._program("worker", "tests.integration.work.victim:worker", *self._store_and_page("worker"))
        self._program("manager", *self._store_and_page("manager"))
        self._program("deliver", "mail", "--to", to_relay, *self._store_and_page("deliver"))
        self._stack.enter_context(_page(self.ports["pipeline"], _pipeline_numbers()))
        self._stack.enter_context(_page(self.ports["snapshot"], [_fold_numbers()]))
        asyncio.run(_publish_rich(self.server.data / "snapshot" / "rich"))
        for name, port in self.ports.items():
            assert get(f"http://127.0.0.1:{port}/metrics")[0] == 200, name

    def _work(self) -> None:
        port = self.server.port
        for queue in ("orders", "mail", "hooks", QUEUE):
            assert ask(port, "POST", f"/v1/queues/{queue}/messages", [{"payload": 1}] * 20).status == 201
        taken = ask(port, "POST", "/v1/queues/orders/take", {"count": 3}).json()["tasks"]
        ticket = {"id": taken[0]["id"], "lease": taken[0]["lease"]}
        answer = ask(port, "POST", "/v1/bury", {"tasks": [ticket], "reason": "bad"})
        assert answer.status == 200, answer.body
        ask(port, "GET", "/v1/queues/none")

    def _store_and_page(self, name: str) -> tuple[str, ...]:
        return "--store", self.server.url, "--metrics", f"127.0.0.1:{self.ports[name]}"

    def _program(self, name: str, *arguments: str) -> None:
        log = self._folder / f"{name}.log"
        process = ServerProcess.spawn(
            [sys.executable, "-m", "forebay.app.cli", name, *arguments],
            log=log,
            directory=self._folder,
            environment={**environment(), "VICTIM_NOTES": str(self._folder / "notes")},
        )
        self._stack.callback(process.end, signal.SIGKILL)
        url = f"http://127.0.0.1:{self.ports[name]}/metrics"
        process.wait_ready(lambda: get(url)[0] == 200, _START_SECONDS, log)


def _pipeline_numbers() -> list[Collector]:
    """What `forebay pipeline run` shows, of a flow and an archive that did something."""
    flows, archive = PipelineNumbers(), ArchiveNumbers()
    flows.of("clean", "TRANSFORM").batch(10, 9, 1, 0.3)
    counts: dict[str, Any] = dict.fromkeys(("messages", "outcomes", "files", "bytes", "lag"), 1)
    archive.add(Ran(version=1, queues=[QueueRan(queue="orders", **counts)]))
    return [flows, archive, QueueDeliveryMetrics()]


def _fold_numbers() -> Collector:
    """What `forebay snapshot run` shows, after a round."""
    numbers = FoldNumbers()
    numbers.slices = numbers.series = numbers.rounds = numbers.folded = 1
    numbers.seconds, numbers.taken_at = 0.2, time()
    numbers.refreshes.refreshes["ok"] = 1
    return numbers


async def _publish_rich(folder: Path) -> None:
    """Publish the part that Spark computes: one series of each of its families."""
    now = time()
    rich = next(section for section in SECTIONS if section.title == "Events and deliveries")
    families = [
        snapshot_family(row.name, [(["x"] * len(row.labels), now if row.kind == "age" else 1.0)])
        for row in rich.metrics
    ]
    data, store = encode_document(Document(taken_at=now, families=families)), FileSnapshots(folder)
    term = await store.begin_term("fleet", 60)
    assert term is not None
    meta = meta_of(term, data, source="spark", generated_at=now, seconds=1, rows=len(families))
    await store.publish(term, data, meta)


@contextmanager
def _page(port: int, numbers: list[Collector]) -> Iterator[None]:
    """The page of a program on Spark."""
    page = NumbersPage(numbers, lambda: None, f"127.0.0.1:{port}")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(page.__aenter__())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(page.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
