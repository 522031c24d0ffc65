"""Whether the server is there, and whether it can work; its numbers and its configuration."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.model import ForebayError
from forebay.wire.forms import Form
from forebay.wire.media import TEXT

_PATIENCE_SECONDS: Final = 5.0
"""Whoever asks whether we are ready wants to know it soon."""
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Health(Form, kw_only=True):
    """Alive."""

    alive: bool


class Readiness(Form, kw_only=True):
    """Whether requests can be worked on, and by which part not."""

    ready: bool
    parts: dict[str, str]


async def alive(_: Call) -> Answer:
    """Whether the process answers; asks nobody."""
    return Answer(Health(alive=True))


async def ready(call: Call) -> Answer:
    """Whether the server can work; says which part can't."""
    context = call.context
    parts = {"store": "ok", "server": "ok"}
    if context.draining.is_set():
        parts["server"] = "stopping"
    if context.opened is None:
        parts["store"] = context.reason
    else:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await context.opened.queues()
        except ForebayError as error:
            parts["store"] = str(error)
        except TimeoutError:
            parts["store"] = f"no answer within {_PATIENCE_SECONDS:g} seconds"
    if context.keys is not None:
        context.keys.ring.look()
        if (problem := context.keys.ring.problem) is not None:
            parts["keys"] = f"going on with those that were known: {problem}"
    ready = all(part == "ok" for name, part in parts.items() if name != "keys")
    return Answer(Readiness(ready=ready, parts=parts), status=200 if ready else 503)


async def metrics(call: Call) -> Answer:
    """What the server counts itself."""
    return Answer(call.context.counters.text(), media=_PROMETHEUS)


async def config(call: Call) -> Answer:
    """The configuration, without secrets."""
    return Answer(call.context.shown)


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/healthz", alive, "Whether the process answers", {200: Health}, tag="Server"),
    Route("GET", "/readyz", ready, "Whether it can work", {200: Readiness, 503: Readiness}, tag="Server"),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Numbers for Prometheus",
        {200: str},
        scope="read",
        answer_media=(TEXT,),
        tag="Server",
    ),
    Route(
        "GET", "/v1/config", config, "The configuration", {200: dict[str, Any]}, scope="admin", tag="Server"
    ),
)
