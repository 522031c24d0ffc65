"""Destinations are seen, paused and resumed from elsewhere, and one that disables itself stays so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import forebay
from forebay.deliver.deliveries import Deliveries
from forebay.deliver.destination_board import (
    DestinationBoard,
    DestinationReport,
    DestinationStatus,
    destination_board_of,
)
from forebay.deliver.settings import DestinationSettings, QueueDeliverySettings, TlsSettings
from forebay.model import Misconfigured, Rejected
from forebay.store.seam import Store
from tests.integration.work.steps import until
from tests.servers import ForebayServer
from tests.servers.destination import DestinationServer, answer, answers

REPORT_SECONDS = 0.01


def settings(server: DestinationServer, **to: Any) -> dict[str, QueueDeliverySettings]:
    destination = DestinationSettings(url=server.url, allow_private=True, **to)
    return {
        "hooks": QueueDeliverySettings(
            queue="jobs", destination=destination, retry_seconds=0.01, breaker_seconds=0.05
        )
    }


def deliveries(store: Store, found: dict[str, QueueDeliverySettings]) -> Deliveries:
    return Deliveries(store, found, process="p1", report_seconds=REPORT_SECONDS)


@pytest.fixture(params=["memory", "server"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Give a store in this process, and one behind a server."""
    async with _opened(request) as opened:
        await opened.create_queue("jobs")
        yield opened


@asynccontextmanager
async def _opened(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        async with forebay.open("memory://") as opened:
            yield opened
        return
    with ForebayServer("memory://") as server:
        async with forebay.open(server.url) as opened:
            yield opened


def board_of(store: Store) -> DestinationBoard:
    board = destination_board_of(store)
    assert board is not None
    return board


async def test_a_request_has_the_id_of_its_message_in_all_attempts_also_unsigned(store: Store) -> None:
    async with DestinationServer(answers(answer(503), answer())) as server:
        (id,) = await store.put_task("jobs", b"one")
        async with deliveries(store, settings(server)) as running:
            await until(lambda: running.running[0].counts.messages == 1, "it is delivered")
        assert [got.headers["webhook-id"] for got in server.received] == [f"msg_{id}"] * 2
        assert "webhook-signature" not in server.received[0].headers


async def test_a_delivery_that_ends_by_itself_says_why(store: Store) -> None:
    async with DestinationServer() as server, deliveries(store, settings(server)) as running:

        async def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        running.running[0]._take = fail  # type: ignore[method-assign, assignment]  # a fault of our own
        running.running[0].resume()
        await store.put_task("jobs", b"one")
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(running.ended(), 60)


async def test_a_destination_is_paused_and_resumed_from_elsewhere(store: Store) -> None:
    board = board_of(store)
    async with DestinationServer() as server, deliveries(store, settings(server)) as running:
        (delivery,) = running.running
        await board.pause_destination("hooks", "moving house")
        await until(lambda: delivery.paused_because == "moving house", "it is paused")
        await store.put_task("jobs", b"x")
        (status,) = (await board.destinations()).destinations
        assert status.pause is not None
        assert (status.name, status.pause.reason, status.pause.by_itself) == ("hooks", "moving house", False)
        assert [(one.process, one.queue, one.url) for one in status.reports] == [("p1", "jobs", server.url)]
        assert server.received == []
        await board.resume_destination("hooks")
        await asyncio.wait_for(server.arrived.wait(), 60)
        await until(lambda: delivery.in_hand == 0, "it is settled")
        assert delivery.paused_because is None


async def test_one_that_disables_itself_stays_so_over_a_restart_until_it_is_resumed(store: Store) -> None:
    board = board_of(store)
    async with DestinationServer(answers(answer(500, b"broken"))) as server:
        await store.put_task("jobs", b"x")
        found = settings(server, disable_after_seconds=1.0)
        async with deliveries(store, found) as running:
            (delivery,) = running.running
            await until(lambda: delivery.paused_because is not None, "it is disabled")
            while not (await board.destinations()).destinations[0].pause:
                assert delivery.paused_because is not None
                await asyncio.sleep(0)
        tried = len(server.received)
        server.behaviour = answers(answer())
        async with deliveries(store, found) as running:
            (delivery,) = running.running
            await until(lambda: delivery.paused_because is not None, "the pause is known")
            (status,) = (await board.destinations()).destinations
            assert status.pause is not None
            assert status.pause.by_itself
            assert "failed for" in status.pause.reason
            assert len(server.received) == tried
            await board.resume_destination("hooks")
            await until(lambda: len(server.received) > tried, "it goes on")
            await until(lambda: delivery.in_hand == 0, "it is settled")


async def test_a_pause_keeps_its_first_reason_and_a_second_resume_does_nothing(store: Store) -> None:
    board = board_of(store)
    first = await board.pause_destination("hooks", "one")
    assert (await board.pause_destination("hooks", "two")).pause == first.pause
    assert (await board.resume_destination("hooks")).pause is None
    assert (await board.resume_destination("hooks")).pause is None
    assert (await board.destinations()).destinations == []


@pytest.mark.parametrize("name", ["", "a" * 101])
async def test_a_name_that_cannot_be_is_refused(store: Store, name: str) -> None:
    with pytest.raises(Rejected):
        await board_of(store).pause_destination(name)


async def test_a_report_of_another_process_stands_beside_ours(store: Store) -> None:
    board = board_of(store)
    for process in ("p2", "p1"):
        await board.report_destination(
            DestinationReport(
                name="hooks", process=process, url="http://x", queue="jobs", group="workers", breaker="open"
            )
        )
    (status,) = (await board.destinations()).destinations
    assert [one.process for one in status.reports] == ["p1", "p2"]


async def test_a_group_of_its_own_is_made_and_begins_with_the_oldest_message() -> None:
    async with forebay.open("memory://") as store, DestinationServer() as server:
        await store.create_queue("jobs")
        await store.put_task("jobs", b"early")
        found = settings(server)["hooks"]
        two = {
            "hooks": found,
            "audit": QueueDeliverySettings(queue="jobs", group="audit", destination=found.destination),
        }
        async with deliveries(store, two):
            await until(lambda: len(server.received) == 2, "both groups are delivered")
        assert server.bodies == [b"early", b"early"]


async def test_a_bad_certificate_file_starts_nothing() -> None:
    async with forebay.open("memory://") as store, DestinationServer() as server:
        to = DestinationSettings(url="https://a.example/", tls=TlsSettings(ca_file="/no/such/file"))
        found = settings(server) | {"bad": QueueDeliverySettings(queue="jobs", destination=to)}
        with pytest.raises(Misconfigured, match="/no/such/file"):
            async with deliveries(store, found):
                pass
        assert server.connections == 0


async def test_one_that_disables_itself_while_it_reports_is_not_taken_for_resumed() -> None:
    async with forebay.open("memory://") as store, DestinationServer() as server:
        await store.create_queue("jobs")
        running = Deliveries(store, settings(server), process="p1", report_seconds=3_600.0)
        async with running:
            (delivery,) = running.running

            class LateBoard:
                async def report_destination(self, report: DestinationReport) -> DestinationStatus:
                    assert report.disabled_because == ""
                    delivery.pause("it failed")
                    return DestinationStatus(name=report.name)

            running._board = LateBoard()  # type: ignore[assignment]
            assert await running._report(delivery, None) is None
            assert delivery.paused_because == "it failed"
