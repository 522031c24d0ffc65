"""Workers and Managers that reach the board over HTTP: reports, instructions, who leads.

Invariant: a key that is for some queues only may report on these, and see and direct nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.model import Rejected, Unavailable
from forebay.work.board import Board, Crew, Lead, Orders, Told, board_of
from forebay.work.values import WorkerReport


async def report(call: Call) -> Answer:
    """Say how a worker is, and hear what it is to do."""
    form: WorkerReport = await call.form()
    if form.worker != call.params["worker"]:
        text = f"the report is of {form.worker!r}, the path of {call.params['worker']!r}"
        raise Rejected(text[:500], hint="name the same worker in both")
    for queue in form.queues:
        call.key.check("take", queue)
    told = await _board(call).report_work(form)
    if told is not None:  # only of queues that the key may know
        known = {queue: count for queue, count in told.processors.items() if queue in form.queues}
        told = msgspec.structs.replace(told, processors=known)
    return Answer(Told(instructions=told))


async def crew(call: Call) -> Answer:
    """All workers, what they were told, and who leads."""
    return Answer(await _board(call).crew())


async def direct(call: Call) -> Answer:
    """Lead, and tell workers what to do."""
    form: Orders = await call.form()
    return Answer(await _board(call).direct_work(form))


def _board(call: Call) -> Board:
    board = board_of(call.context.store)
    if board is None:
        text = "the store behind this server has no place for reports"
        raise Unavailable(text, hint="serve a log: sqlite:///, postgresql:// or memory://")
    return board


_TAG: Final = "Workers"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/workers",
        crew,
        "Workers that are there, what they were told, and which Manager leads",
        {200: Crew},
        scope="read",
        tag=_TAG,
    ),
    Route(
        "PUT",
        "/v1/workers/{worker}/report",
        report,
        "Say how a worker is, and hear what a Manager wants of it",
        {200: Told},
        scope="take",
        checks_queues=True,
        body=WorkerReport,
        problems=(413, 415),
        tag=_TAG,
    ),
    Route(
        "POST",
        "/v1/workers/instructions",
        direct,
        "Lead as a Manager, and tell workers what to do",
        {200: Lead},
        scope="admin",
        body=Orders,
        problems=(409, 413, 415),
        tag=_TAG,
    ),
)
