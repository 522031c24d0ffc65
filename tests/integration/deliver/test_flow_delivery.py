"""Deliveries of flows, as a pipeline keeps them: until they are stopped, or until all is sent."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import forebay
from forebay.app.commands import flow_delivery
from forebay.app.commands.flow_delivery import FlowDeliveries
from forebay.deliver.destination_board import destination_board_of
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings
from forebay.model import Message, SystemClock, Unavailable
from forebay.spark.flows.pipeline import Pipeline, Unit
from forebay.spark.flows.running import Running
from forebay.spark.flows.values import DestinationSink, FlowSpec, PipelineSpec, TimedSource
from forebay.store.seam import Store
from tests.integration.work.steps import until
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer, answer, answers

LONG_SECONDS = 60.0
MINUTE = 60_000_000


def spec(server: DestinationServer, *, once: bool = False, **settings: Any) -> PipelineSpec:
    """A file with a flow that ends at a server."""
    to = DestinationSettings(url=server.url, allow_private=True)
    given = {"retry_seconds": 0.01, "breaker_seconds": 0.05, "ramp_seconds": 0.0, **settings}
    end = DestinationSink(queue="tell-out", group="workers", url=server.url, host="127.0.0.1")
    source = TimedSource(function="m:f")
    flow = FlowSpec(name="tell", type="TIMED_DATA_SOURCE", source=source, sink=end, once=once)
    delivery = QueueDeliverySettings(queue="tell-out", destination=to, **given)
    return PipelineSpec(file="flows.yaml", flows=(flow,), deliveries={"tell": delivery})


@pytest.fixture(params=["sqlite", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the address of a file, and of a server."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'forebay.db'}"
        return
    with ForebayServer() as server:
        yield server.url


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with forebay.open(url) as opened:
        await opened.create_queue("tell-out")
        yield opened


@contextmanager
def deliveries(url: str) -> Iterator[FlowDeliveries]:
    """Everything that runs in it has a thread and a store of its own, as in a process."""
    opened = FlowDeliveries(url)
    try:
        yield opened
    finally:
        opened.close()


async def started(unit: Unit) -> Running:
    """Start it as a pipeline does, which has no event loop: this one goes on with the destination."""
    return await asyncio.to_thread(unit.start)


async def ended(running: Running) -> BaseException | None:
    await until(lambda: not running.is_active(), "it ends", LONG_SECONDS)
    return running.error()


async def test_where_a_flow_runs_once_all_is_sent_and_it_ends(url: str, store: Store) -> None:
    await store.put_task("tell-out", *(b"%d" % number for number in range(100)))
    async with DestinationServer(answers(answer(503), answer(400), answer())) as server:
        with deliveries(url) as opened:
            (unit,) = opened.units(spec(server, once=True))
            assert (unit.name, unit.after) == ("tell → 127.0.0.1", ("tell",))
            assert await ended(await started(unit)) is None
            assert (unit.numbers.rows_in, unit.numbers.rows_out, unit.numbers.dead) == (100, 99, 1)
            assert opened.running == []
        assert set(map(int, server.bodies)) == set(range(100))
    (books,) = (await store.ledger(queue="tell-out")).queues[0].groups
    assert (books.done, books.dead, books.difference) == (99, 1, 0)


async def test_where_a_flow_runs_once_a_destination_that_is_away_is_an_error(url: str, store: Store) -> None:
    await store.put_task("tell-out", *(b"%d" % number for number in range(30)))
    async with DestinationServer() as server:
        await server.stop()
        with deliveries(url) as opened:
            (unit,) = opened.units(spec(server, once=True))
            error = await ended(await started(unit))
            assert isinstance(error, Unavailable)
            assert "30 messages wait in queue 'tell-out': 127.0.0.1" in error.message
            await server.start()
            assert await ended(await started(unit)) is None
        assert set(map(int, server.bodies)) == set(range(30))


async def test_where_a_flow_runs_once_a_pause_is_an_error(url: str, store: Store) -> None:
    board = destination_board_of(store)
    assert board is not None
    await store.put_task("tell-out", b"one")
    async with DestinationServer() as server:
        with deliveries(url) as opened:
            (unit,) = opened.units(spec(server, once=True))
            await board.pause_destination("tell", "moving house")
            assert "1 messages wait in queue 'tell-out': moving house" in str(
                await ended(await started(unit))
            )
            assert server.received == []
            await board.resume_destination("tell")
            assert await ended(await started(unit)) is None
        assert server.bodies == [b"one"]


async def test_where_a_flow_runs_once_messages_for_later_are_not_waited_for(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_delivery, "IDLE_SECONDS", 0.0)
    later = Message(b"later", start_time=SystemClock().now() + 60 * MINUTE)
    await store.put_task("tell-out", later, b"now")
    async with DestinationServer() as server:
        with deliveries(url) as opened:
            (unit,) = opened.units(spec(server, once=True))
            assert await ended(await started(unit)) is None
        assert server.bodies == [b"now"]


async def test_it_goes_on_until_it_is_stopped_and_says_what_is_wrong_meanwhile(url: str) -> None:
    async with DestinationServer(answers(answer(500, b"broken"))) as server:
        with deliveries(url) as opened:
            pipeline = Pipeline(opened.units(spec(server)))
            await asyncio.to_thread(pipeline.round)
            async with forebay.open(url) as store:
                await store.put_task("tell-out", b"one")
                await until(lambda: "broken" in (pipeline.statuses()[0].error or ""), "it is shown")
                assert pipeline.statuses()[0].state == "running"
                server.behaviour = answers(answer())
                await until(lambda: pipeline.statuses()[0].error is None, "it is over", LONG_SECONDS)
                assert len(opened.running) == 1
            assert await asyncio.to_thread(pipeline.stop)
            assert opened.running == []
            assert pipeline.trouble is None


async def test_of_two_processes_one_sends_each_message(url: str, store: Store) -> None:
    await store.put_task("tell-out", *(b"%d" % number for number in range(400)))
    async with DestinationServer() as server:
        with deliveries(url) as first, deliveries(url) as second:
            units = [*first.units(spec(server, once=True)), *second.units(spec(server, once=True))]
            running = [await started(unit) for unit in units]
            assert [await ended(each) for each in running] == [None, None]
        assert sorted(map(int, server.bodies)) == list(range(400))
