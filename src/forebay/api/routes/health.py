"""Whether the server is there, and whether it can work; its numbers and its configuration.

Invariants: while pushes are taken, be it into the spool, the server is ready: in an outage of the log a load
balancer must not take all servers away. Nobody waits for a log that is known to be away.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import Any, Final, Literal

from forebay.api.answers import Answer, encode_json
from forebay.api.calls import Call
from forebay.api.context import Context
from forebay.api.queen.readings import look
from forebay.api.queen.vitals import vitals
from forebay.api.routing import Route
from forebay.failover.status import SpoolStatus
from forebay.model import ForebayError, redact
from forebay.observe.exposition import GzipStart
from forebay.observe.metrics_page import CLASSIC, END, OPEN_METRICS, prefers_open_metrics, takes_gzip
from forebay.wire.forms import Form, Micros
from forebay.wire.media import JSON, TEXT

_PATIENCE_SECONDS: Final = 5.0
"""Whoever asks whether we are ready wants to know it soon."""
_ANYTHING: Final = ("", "*/*")
"""What people with `curl` and Queen's clients say that they read. Programs that scrape say what they read."""
_OTHER_THAN_JSON: Final = ("text/", "openmetrics")
_SECOND: Final = 1_000_000
_VARY: Final = ((b"vary", b"accept, accept-encoding"),)
_AS_GZIP: Final = (*_VARY, (b"content-encoding", b"gzip"))

_NO_SPOOL: Final = SpoolStatus(
    healthy=True, reason=None, since=0, pending=0, flushed=0, failed=0, settlements=0, files=0, bytes=0,
    queues={}, outages=0,
)  # fmt: skip
"""Without a spool nothing waits, and nobody knows of outages."""


class Alive(Form, kw_only=True):
    """Alive."""

    alive: bool


class Readiness(Form, kw_only=True):
    """Whether requests can be worked on, and by which part not."""

    ready: bool
    parts: dict[str, str]


class FileBuffer(Form, kw_only=True):
    """The spool in four numbers."""

    pending: int
    """Messages that were accepted and are not in the log yet."""
    flushed: int
    """Messages that came from the spool to the log, since the start."""
    failed: int
    """Messages and settlements that were set aside."""
    db_healthy: bool
    """Whether pushes go to the log."""


class FileBufferMetrics(Form, kw_only=True):
    """The metrics as JSON; what went through since the server was started."""

    file_buffer: FileBuffer
    uptime: float
    """Seconds."""
    requests: dict[str, float]
    """All of them, and how many there were in a second, of late."""
    messages: dict[str, float]
    """Likewise, of those that were pushed."""
    memory: dict[str, int]
    """Bytes."""
    cpu: dict[str, int]
    """Microseconds."""


class Health(Form, kw_only=True):
    """How the server is."""

    status: Literal["healthy", "degraded", "unhealthy"]
    """Degraded: the log is away, and pushes go to the spool, or the spool is full and pushes to partitions
    that wait in it are refused, or the shared warm tier is away. Unhealthy: pushes are refused."""
    database: Literal["connected", "disconnected"]
    warm: Literal["connected", "disconnected"] | None
    """The warm tier that servers share; none where each has its own."""
    file_buffer: FileBuffer
    since: Micros | None
    """Since when it is so, where that is known."""
    reason: str | None
    """Why it isn't healthy."""
    outages: int
    """How often the log was lost, since the start."""
    settlements: int
    """Outcomes that wait for the log."""
    files: int
    bytes: int
    """What the spool's files take on disk."""
    server: str
    version: str
    worker_id: int
    """A server is one process."""


async def alive(_: Call) -> Answer:
    """Whether the process answers; asks nobody."""
    return Answer(Alive(alive=True))


async def ready(call: Call) -> Answer:
    """Whether the server can work; says which part can't."""
    context = call.context
    away, is_spooling = await _why_away(context), _is_spooling(context)
    parts = {"store": "ok", "server": "stopping" if context.draining.is_set() else "ok"}
    if context.warm_problem is not None:
        parts["warm"] = _warm_text(context) or "ok"
    if away is not None:
        parts["store"] = f"away, and pushes go to the spool: {away}" if is_spooling else away
    full = _full(_status(context), away)
    if full is not None:
        parts["spool"] = full
    if context.keys is not None:
        parts |= context.keys.problems()
    ready = parts["server"] == "ok" and _takes(context, away)
    return Answer(Readiness(ready=ready, parts=parts), status=200 if ready else 503)


async def health(call: Call) -> Answer:
    """How the server is: whether pushes are taken, and where they go."""
    context = call.context
    away, stopping = await _why_away(context), context.draining.is_set()
    status, warm = _status(context), _warm_text(context)
    takes, full = not stopping and _takes(context, away), _full(status, away)
    whole = away is None and warm is None and full is None
    found = Health(
        status="unhealthy" if not takes else "healthy" if whole else "degraded",
        database="connected" if away is None else "disconnected",
        warm=None if context.warm_problem is None else "connected" if warm is None else "disconnected",
        file_buffer=_file_buffer(status, is_there=away is None),
        since=status.since if context.failover is not None else None,
        reason="the server is stopping" if stopping else "; ".join(filter(None, (away, full))) or warm,
        outages=status.outages,
        settlements=status.settlements,
        files=status.files,
        bytes=status.bytes,
        server="Forebay",
        version=version("forebay"),
        worker_id=0,
    )
    return Answer(found, status=200 if takes else 503)


async def metrics(call: Call) -> Answer:
    """What the server counts itself, and the snapshot of queues; asks neither the log nor the warm tier."""
    accept, context = (call.header(b"accept") or "").strip().lower(), call.context
    if _wants_json(accept):
        return Answer(encode_json(_numbers(context)), media=JSON)
    open_metrics = prefers_open_metrics(accept)
    follower, media = context.snapshot, OPEN_METRICS if open_metrics else CLASSIC
    shown = None if follower is None else follower.exposition(open_metrics=open_metrics)
    own = context.metrics.shared_text(open_metrics=open_metrics)
    if follower is not None:
        own += follower.health(open_metrics=open_metrics)
    if open_metrics:
        own += END.encode()
    now = time.time()
    if not takes_gzip(call.header(b"accept-encoding") or ""):
        body = own if shown is None else shown.data(now) + own
        return Answer(body, media=media, headers=_VARY)
    start = GzipStart(b"") if shown is None else shown.gzip(now)
    return Answer(start.end(own), media=media, headers=_AS_GZIP)


async def config(call: Call) -> Answer:
    """The configuration, without secrets."""
    return Answer(call.context.shown)


async def _why_away(context: Context) -> str | None:
    """Why the store can't be used, or nothing; it isn't asked when it is known to be away."""
    if context.opened is None:
        return redact(context.reason)
    status = _status(context)
    if not status.healthy:
        return redact(status.reason or "the log can't be reached")
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await context.opened.queues(limit=1)
    except ForebayError as error:
        return redact(str(error))
    except TimeoutError:
        return f"no answer within {_PATIENCE_SECONDS:g} seconds"
    return None


def _warm_text(context: Context) -> str | None:
    """What the loss of the shared warm tier means, or nothing."""
    problem = None if context.warm_problem is None else context.warm_problem()
    if problem is None:
        return None
    return redact(f"away, and this server works from its own memory until it is back: {problem}")


def _is_spooling(context: Context) -> bool:
    """Whether pushes would be taken if the store were away; not before it was tried to open it."""
    return context.failover is not None and context.tried.is_set() and _status(context).refused is None


def _takes(context: Context, away: str | None) -> bool:
    """Whether pushes are taken, by the log or the spool: all of them, but for those that line up."""
    return _is_spooling(context) if away is not None or _status(context).held is not None else True


def _full(status: SpoolStatus, away: str | None) -> str | None:
    """Why the spool takes nothing, where pushes need it: all of them, or those that line up behind it."""
    return status.refused if away is not None or status.held is not None or status.pending else None


def _status(context: Context) -> SpoolStatus:
    return _NO_SPOOL if context.failover is None else context.failover.status()


def _file_buffer(status: SpoolStatus, *, is_there: bool) -> FileBuffer:
    return FileBuffer(
        pending=status.pending, flushed=status.flushed, failed=status.failed, db_healthy=is_there
    )


def _numbers(context: Context) -> FileBufferMetrics:
    counts, recent, vital = look(context).counts, context.desk.samples.series.recent(), vitals()
    return FileBufferMetrics(
        file_buffer=_file_buffer(_status(context), is_there=context.is_healthy),
        uptime=max(0, context.clock.now() - context.desk.samples.began_at) / _SECOND,
        requests={"total": counts["requests"], "rate": recent.rate(recent.counts["requests"])},
        messages={"total": counts["pushed"], "rate": recent.rate(recent.counts["pushed"])},
        memory={"rss": vital.rss, "virtual": vital.virtual},
        cpu={"user": vital.user_us, "system": vital.system_us},
    )


def _wants_json(accept: str) -> bool:
    if accept in _ANYTHING:
        return True
    return JSON in accept and not any(name in accept for name in _OTHER_THAN_JSON)


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/healthz", alive, "Whether the process answers", {200: Alive}, tag="Server"),
    Route("GET", "/readyz", ready, "Whether it can work", {200: Readiness, 503: Readiness}, tag="Server"),
    Route(
        "GET",
        "/health",
        health,
        "Whether pushes are taken, and where they go",
        {200: Health, 503: Health},
        tag="Server",
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Numbers for Prometheus; some of them as JSON for those who don't say what they accept",
        {200: FileBufferMetrics},
        scope="read",
        answer_media=(TEXT, JSON),
        tag="Server",
    ),
    Route(
        "GET", "/v1/config", config, "The configuration", {200: dict[str, Any]}, scope="admin", tag="Server"
    ),
)
