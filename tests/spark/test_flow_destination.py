"""Flows that end at a destination: it fails, hangs and returns, batches are repeated, the runner dies."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import forebay
from forebay.app.commands.flow_delivery import FlowDeliveries
from forebay.app.flow_file import read_delivery
from forebay.deliver.destination_board import destination_board_of
from forebay.model import Message
from forebay.spark.flows.spec import parse_flows
from forebay.store.seam import Store
from tests.integration.work.steps import until
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer, Received, answer, answers
from tests.servers.process import free_port
from tests.spark.shops import FUNCTIONS, Shop, killed_after_publishing, orders
from tests.spark.test_flows_program import FOREBAY, environment, family
from tests.spark.test_flows_program import forebay as forebay_command

ROWS = 600
LONG_SECONDS = 200.0
FLOWS = """
flows:
  - name: tell
    type: DATA_SINK
    source: {queue: orders, rows_max: 50}
    actions: [{name: parse, rows: "%s:parse"}]
    sink:
      retry_seconds: 100ms
      retry_seconds_max: 200ms
      breaker_seconds: 100ms
      destination: {url: "%s", allow_private: true, timeout_seconds: 1s, content_type: application/json}
    every: 50ms
    max_attempts: 1
"""


class Moody:
    """A receiver that fails in every way it can, request by request, until it is told to be well."""

    def __init__(self) -> None:
        self.is_well = False
        self.taken: dict[int, set[str]] = defaultdict(set)
        """By order: the ids under which it was taken."""
        self._turn = 0

    async def __call__(self, received: Received, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        way = "well" if self.is_well else ("fails", "hangs up", "hangs", "well")[self._turn % 4]
        if way == "hangs up":
            writer.transport.abort()
            return
        if way == "hangs":
            return  # no answer comes
        if way == "well":
            self.taken[json.loads(received.body)["order"]].add(received.headers["webhook-id"])
        writer.write(answer(200 if way == "well" else 503))
        await writer.drain()


@contextmanager
def up(folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """`forebay up` with flows. Java inherits its output, and outlives a pipeline that is killed: a file."""
    command = [*FOREBAY, "up", "--flows", "flows.yaml", *more]
    with (folder / "printed").open("wb") as printed:
        variables = {**environment(), "FOREBAY_UP_SNAPSHOT": "false"}
        running = subprocess.Popen(command, cwd=folder, env=variables, stdout=printed)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def test_every_row_arrives_under_one_id_whatever_the_destination_and_the_runner_do(
    tmp_path: Path,
) -> None:
    moody = Moody()
    async with DestinationServer(moody) as server:
        (tmp_path / "flows.yaml").write_text(FLOWS % (FUNCTIONS, server.url))
        listen, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        with up(tmp_path, "--listen", listen, "--flows-metrics", metrics) as running:
            await until(lambda: bool((tmp_path / "printed").read_text()), "it listens", LONG_SECONDS)
            async with forebay.open(f"http://{listen}") as store:
                await store.put_task("orders", *orders(ROWS))
                await until(lambda: len(moody.taken) > ROWS // 20, "some arrive", LONG_SECONDS)
                board = destination_board_of(store)
                assert board is not None
                (status,) = (await board.destinations()).destinations
                assert (status.name, status.reports[0].queue) == ("tell", "tell-out")
                await server.stop()
                await asyncio.to_thread(_kill_pipeline, running.pid)
                assert len(moody.taken) < ROWS, "it was killed while it worked"
                moody.is_well = True
                await server.start()
                await until(lambda: len(moody.taken) == ROWS, "all arrive", LONG_SECONDS)
                await _settled(store)
            running.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(running.wait, 60) == 0
    assert {len(ids) for ids in moody.taken.values()} == {1}
    assert len(set().union(*moody.taken.values())) == ROWS


def _kill_pipeline(process: int) -> None:
    for each in family(process):
        line = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        if b"pipeline" in line:
            os.kill(each, signal.SIGKILL)
            return
    pytest.fail("there is no pipeline")


async def _settled(store: Store) -> None:
    """Wait until the books say that every row is done."""
    async with asyncio.timeout(LONG_SECONDS):
        while True:
            (books,) = (await store.ledger(queue="tell-out")).queues[0].groups
            if books.done == ROWS:
                assert (books.accepted, books.dead, books.difference) == (ROWS, 0, 0)
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("any_shop", ["sqlite", "postgres", "server"], indirect=True)
async def test_a_batch_that_is_repeated_is_sent_once_under_the_same_ids(any_shop: Shop) -> None:
    """The runner dies between publishing and telling the group; then the checkpoint is gone."""
    shop = any_shop
    shop.push("orders", [*orders(5), Message(b"bad")])
    async with DestinationServer(answers(answer(503), answer())) as server:
        text = FLOWS % (FUNCTIONS, server.url) + "    once: true\n"
        spec = parse_flows(text, "flows.yaml", read_delivery)
        (flow,) = spec.flows
        with killed_after_publishing():
            assert await asyncio.to_thread(shop.run, flow) is not None
        deliveries = FlowDeliveries(shop.url)
        (unit,) = deliveries.units(spec)
        try:
            for _ in range(2):
                sending = await asyncio.to_thread(unit.start)
                await until(lambda: not sending.is_active(), "all is sent", LONG_SECONDS)  # noqa: B023 - at once
                assert sending.error() is None
                shutil.rmtree(shop.folder / "checkpoints", ignore_errors=True)
                assert await asyncio.to_thread(shop.run, flow) is None
        finally:
            await asyncio.to_thread(deliveries.close)
        sent = [(json.loads(got.body)["order"], got.headers["webhook-id"]) for got in server.received]
    assert len(sent) == 6, "one was tried again"
    assert len(set(sent)) == 5
    assert {order for order, _ in sent} == {1, 2, 3, 4, 5}
    assert [letter.message().payload for letter in shop.dead("orders", "tell")] == [b"bad"]


async def test_a_pipeline_reaches_its_queues_and_destination_by_way_of_a_server(tmp_path: Path) -> None:
    """A machine for Spark has no way to the database: `--store http://…` and a key are all that it knows."""
    moody = Moody()
    async with DestinationServer(moody) as destination:
        (tmp_path / "flows.yaml").write_text(FLOWS % (FUNCTIONS, destination.url))
        given = ["--name", "spark", "--scope", "admin", "--keys", "keys.json", "--json"]
        made = await asyncio.to_thread(forebay_command, tmp_path, "keys", "create", *given)
        key = json.loads(made.stdout)["key"]
        with ForebayServer(flags=["--keys", str(tmp_path / "keys.json")]) as server:
            async with forebay.open(server.url, key=key) as store:
                await store.create_queue("orders")
                await store.put_task("orders", *orders(ROWS))
                command = [*FOREBAY, "pipeline", "run", "flows.yaml", "--store", server.url]
                running = await asyncio.create_subprocess_exec(
                    *command,
                    cwd=tmp_path,
                    env={**environment(), "FOREBAY_KEY": key},
                    start_new_session=True,  # Java is in it, too
                )
                try:
                    await until(lambda: len(moody.taken) > ROWS // 20, "some arrive", LONG_SECONDS)
                    moody.is_well = True
                    await _settled(store)
                    running.terminate()
                    assert await asyncio.wait_for(running.wait(), 60) == 0
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(running.pid, signal.SIGKILL)
    assert {len(ids) for ids in moody.taken.values()} == {1}
    assert len(moody.taken) == ROWS
