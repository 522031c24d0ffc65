"""Queue metrics by the names that DeltaFi's users know.

Invariants: what waits is read from the snapshot, which costs the log nothing; a part that can't be had is
named in `problems`, and the rest is there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import time
from typing import Annotated, Final

from msgspec import Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.overview import HEARTBEAT_SECONDS, RUNNING_MAX, Parts, oldest_ids, running_now
from forebay.api.routing import Route
from forebay.observe.queue_views import (
    DetailedQueues,
    RunningTasks,
    action_plugins,
    detailed_queues,
    running_tasks,
)
from forebay.wire.forms import Form


class TasksQuery(Form, kw_only=True):
    """How many tasks."""

    limit: Annotated[int, Meta(ge=1, le=RUNNING_MAX)] = 100


async def detailed(call: Call) -> Answer:
    """What waits, warm and cold, by queue, flow and action."""
    snapshot, parts = call.context.snapshot, Parts()
    document = None if snapshot is None else snapshot.document
    oldest = await oldest_ids(call.context, parts)
    if document is None:
        parts.missing("queues", "nothing has been counted yet")
    stale = snapshot is None or snapshot.is_stale
    view = partial(detailed_queues, document, now=time(), stale=stale, oldest=oldest, problems=parts.problems)
    return Answer(await asyncio.to_thread(view))


async def plugins(call: Call) -> Answer:
    """The plugin of each action class."""
    snapshot = call.context.snapshot
    return Answer(action_plugins(None if snapshot is None else snapshot.document, call.context.plugins))


async def running(call: Call) -> Answer:
    """Who works on what."""
    parts = Parts()
    found = await running_now(call.context, parts, call.query(TasksQuery).limit)
    return Answer(
        running_tasks(found, now=time(), heartbeat_seconds=HEARTBEAT_SECONDS, problems=parts.problems)
    )


_TAG: Final = "Queue metrics"
_PREFIX: Final = "/api/v2/metrics/queues"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        f"{_PREFIX}/detailed",
        detailed,
        "What waits, warm and cold, by queue, flow and action",
        {200: DetailedQueues},
        scope="read",
        bulk=True,
        tag=_TAG,
    ),
    Route(
        "GET",
        f"{_PREFIX}/action-plugins",
        plugins,
        "The plugin of each action class, as the configuration and contracts say",
        {200: dict[str, str]},
        scope="read",
        tag=_TAG,
    ),
    Route(
        "GET",
        f"{_PREFIX}/running",
        running,
        "Tasks that are out with workers, longest first",
        {200: RunningTasks},
        scope="read",
        query=TasksQuery,
        tag=_TAG,
    ),
)
