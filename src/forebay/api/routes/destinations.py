"""Destinations over HTTP: how they are; pausing, resuming and testing them."""

from __future__ import annotations

from typing import Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.deliver.destination_board import (
    DestinationBoard,
    DestinationReport,
    Destinations,
    DestinationStatus,
    PauseForm,
    destination_board_of,
)
from forebay.deliver.tester import ConfiguredTester, DestinationTest
from forebay.model import Rejected, Unavailable


async def list_destinations(call: Call) -> Answer:
    """All destinations."""
    return Answer(await _board(call).destinations())


async def report(call: Call) -> Answer:
    """Say how a destination is, and hear whether it is paused."""
    form: DestinationReport = await call.form()
    if form.name != call.params["destination"]:
        text = f"the report is of {form.name!r}, the path of {call.params['destination']!r}"
        raise Rejected(text[:500], hint="name the same destination in both")
    call.key.check("take", form.queue)
    return Answer(await _board(call).report_destination(form))


async def pause(call: Call) -> Answer:
    """Pause a destination."""
    form: PauseForm = await call.form()
    return Answer(await _board(call).pause_destination(call.params["destination"], form.reason))


async def resume(call: Call) -> Answer:
    """Resume a destination."""
    return Answer(await _board(call).resume_destination(call.params["destination"]))


async def test(call: Call) -> Answer:
    """Send a destination of this server a test request."""
    tester = call.context.tester or ConfiguredTester({})
    return Answer(await tester.test_destination(call.params["destination"]))


def _board(call: Call) -> DestinationBoard:
    board = destination_board_of(call.context.store)
    if board is None:
        text = "the store behind this server has no place for reports"
        raise Unavailable(text, hint="serve a log: sqlite:///, postgresql:// or memory://")
    return board


_TAG: Final = "Destinations"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/destinations",
        list_destinations,
        "Destinations that are paused or delivered to, and how they are",
        {200: Destinations},
        scope="read",
        tag=_TAG,
    ),
    Route(
        "PUT",
        "/v1/destinations/{destination}/report",
        report,
        "Say how a process fares with a destination, and hear whether it is paused",
        {200: DestinationStatus},
        scope="take",
        checks_queues=True,
        body=DestinationReport,
        problems=(413, 415),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/destinations/{destination}/pause",
        pause,
        "Send a destination nothing more until it is resumed",
        {200: DestinationStatus},
        scope="admin",
        body=PauseForm,
        problems=(413, 415),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/destinations/{destination}/resume",
        resume,
        "Send a destination messages again",
        {200: DestinationStatus},
        scope="admin",
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/destinations/{destination}/test",
        test,
        "Send a destination of this server a test request, and say what came of it",
        {200: DestinationTest},
        scope="admin",
        tag=_TAG,
    ),
)
