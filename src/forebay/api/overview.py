"""What the page shows, put together from the snapshot, the spool and the boards.

Invariants: it is put together once for all readers, at most every `KEEP_SECONDS`, and only while there are
some; a part that fails or takes long is named in `problems`, and the others are there; nothing asks a log
that is known to be away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from forebay.deliver.destination_board import DestinationStatus, destination_board_of
from forebay.failover.status import SpoolStatus
from forebay.log.values import QueueSettings
from forebay.model import Flow, ForebayError, Unavailable, redact
from forebay.observe.document import Document
from forebay.observe.flow_places import NO_FLOWS, FlowPlace, FlowPlaces, flow_places
from forebay.observe.follower import Follower
from forebay.observe.history import Plot
from forebay.observe.programs import Program
from forebay.observe.queue_views import (
    LedgerView,
    PartProblem,
    QueueView,
    View,
    folded_problems,
    leased_in,
    ledger_view,
    omitted_groups,
    queue_views,
)
from forebay.store.store import LogStore
from forebay.store.values import Running
from forebay.wire.forms import Micros, RunningForm, running_form
from forebay.work.board import Crew, board_of

if TYPE_CHECKING:
    from forebay.api.context import Context

__all__ = ["HEARTBEAT_SECONDS", "LISTENERS_MAX", "Overview", "OverviewSource", "Plots"]

T = TypeVar("T")
logger: Final = logging.getLogger("forebay.api")

KEEP_SECONDS: Final = 2.0
LISTENERS_MAX: Final = 100
QUEUES_MAX: Final = 1_000
"""Groups of queues in one overview, those first in which most waits."""
RUNNING_MAX: Final = 1_000
HEARTBEAT_SECONDS: Final = QueueSettings().visibility_seconds
_PATIENCE_SECONDS: Final = 5.0
_SECOND: Final = 1_000_000
_LOGGED: Final[set[tuple[str, str]]] = set()
"""Parts that failed unexpectedly, and how: each is logged once."""
_LOGGED_MAX: Final = 100
_encode: Final = msgspec.json.Encoder().encode


class Overview(View, frozen=True, kw_only=True):
    """Everything at one moment."""

    at: Micros
    """The time of this answer."""
    counted_at: Micros | None
    """To when the queues were counted."""
    stale: bool
    """Whether that is longer ago than it may be."""
    snapshot: int
    """The version of the snapshot; 0 where there is none."""
    server: str
    """Its version."""
    queues: Sequence[QueueView] | None
    """None in an event where they are those of the event before."""
    queues_omitted: int
    """Groups beyond the first 1,000, those included that the snapshot counts together."""
    ledger: LedgerView | None
    running: Sequence[RunningForm]
    """Longest first, up to 1,000."""
    spool: SpoolStatus | None
    """None where there is no spool."""
    destinations: Sequence[DestinationStatus]
    crew: Crew | None
    flows: Sequence[FlowPlace]
    """Flows on Spark, as their records say, up to 200."""
    programs: Sequence[Program]
    """The programs that `forebay up` runs beside this server."""
    log: str | None
    """Why the log can't be used, if so."""
    warm: str | None
    """Why the shared warm tier can't be reached, if so."""
    problems: Sequence[PartProblem]


class GroupPlot(View, frozen=True, kw_only=True):
    """The last minutes of one group of a queue."""

    queue: str
    group: str
    plot: Plot


class Plots(View, frozen=True, kw_only=True):
    """The last minutes of all groups."""

    plots: Sequence[GroupPlot]


class OverviewSource:
    """Puts overviews together, for whoever asks and for whoever listens."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._made: Overview | None = None
        self._made_at = 0.0
        self._viewed: Document | None = None
        self._views: Sequence[QueueView] = ()
        self._ledger: LedgerView | None = None
        self._running_lock = asyncio.Lock()
        self._running: Sequence[Running] | None = None
        self._running_at = 0.0
        self._has_neighbours = False
        self.listeners = 0
        """Streams that are open."""

    async def overview(self) -> Overview:
        """What there is to see, as it was `KEEP_SECONDS` ago at most."""
        async with self._lock:
            if self._made is None or monotonic() - self._made_at >= KEEP_SECONDS:
                self._made = await self._make()
                self._made_at = monotonic()
            return self._made

    async def running(self) -> Sequence[Running]:
        """What was out with workers `KEEP_SECONDS` ago at most: with a shared tier, asking costs the log."""
        async with self._running_lock:
            if self._running is None or monotonic() - self._running_at >= KEEP_SECONDS:
                store = self._context.store
                self._running = await store.running(RUNNING_MAX)
                self._has_neighbours = isinstance(store, LogStore) and await store.has_neighbours()
                self._running_at = monotonic()
            return self._running

    def unlisted(self, listed: Sequence[Running]) -> str | None:
        """A note on tasks of other servers' workers, which can't be listed here, if there are any."""
        document = None if self._context.snapshot is None else self._context.snapshot.document
        if not self._has_neighbours or document is None or len(listed) == RUNNING_MAX:
            return None
        known, leased = sum(piece.count for piece in listed), leased_in(document)
        if leased <= known:
            return None
        text = "servers share no warm tier, so each lists the tasks of its own workers: here"
        return f"{text} {known:,} of the {leased:,} that were last counted"

    def plots(self) -> Plots:
        """The last minutes of all groups."""
        snapshot = self._context.snapshot
        found = {} if snapshot is None else snapshot.history.plots()
        return Plots(plots=[GroupPlot(queue=key[0], group=key[1], plot=plot) for key, plot in found.items()])

    async def events(self, is_gone: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """An overview now and every few seconds, as server-sent events, until the server stops."""
        if self.listeners >= LISTENERS_MAX:  # others came since there was room
            return
        sent, self.listeners = -1, self.listeners + 1
        try:
            while not (self._context.draining.is_set() or is_gone()):
                overview = await self.overview()
                if overview.snapshot == sent:
                    overview = msgspec.structs.replace(overview, queues=None)
                sent = overview.snapshot
                yield b"event: overview\ndata: %b\n\n" % _encode(overview)
                try:
                    async with asyncio.timeout(KEEP_SECONDS):
                        await self._context.draining.wait()
                except TimeoutError:
                    continue
        finally:
            self.listeners -= 1

    def check_room(self) -> None:
        """Raise Unavailable where too many listen already."""
        if self.listeners >= LISTENERS_MAX:
            self._context.counters.refused["too many listeners"] += 1
            text = f"{LISTENERS_MAX} listen already"
            raise Unavailable(text, hint="ask /v1/overview now and then", retry_after_seconds=30.0)

    async def _make(self) -> Overview:
        context, parts, omitted = self._context, Parts(), 0
        snapshot, store = context.snapshot, context.opened
        # Read before the document: whoever has this version may only have an older one, and gets it again.
        counted = 0 if snapshot is None else snapshot.version
        document = None if snapshot is None else snapshot.document
        if snapshot is None or document is None:
            parts.missing("queues", "nothing has been counted yet")
        else:
            await parts.part("queues", self._view(snapshot, document), None)
            omitted = omitted_groups(document)
            parts.problems += folded_problems(document)
            if snapshot.problem is not None:
                parts.missing("queues", f"no newer snapshot can be read: {snapshot.problem}")
        why_away = why_log_away(context)
        running: Sequence[Running] = ()
        destinations: Sequence[DestinationStatus] = ()
        crew: Crew | None = None
        flows = NO_FLOWS
        if store is not None and why_away is None:
            running, destinations, crew, flows = await asyncio.gather(
                parts.part("running", self.running(), ()),
                parts.part("deliveries", _destinations(store), ()),
                parts.part("workers", _crew(store), None),
                parts.part("flows", _flows(store), NO_FLOWS),
            )
            if flows.is_cut:
                parts.missing("other flows on Spark", f"the first {len(flows.flows)} by name are listed")
            if unlisted := self.unlisted(running):
                parts.missing("other servers' tasks", unlisted)
        spool = _spool(context)
        return Overview(
            at=round(time() * _SECOND),
            counted_at=None if document is None else round(document.taken_at * _SECOND),
            stale=snapshot is None or snapshot.is_stale,
            snapshot=counted,
            server=version("forebay"),
            queues=self._views[:QUEUES_MAX],
            queues_omitted=max(0, len(self._views) - QUEUES_MAX) + omitted,
            ledger=_ledger_with(self._ledger, spool),
            running=[running_form(piece) for piece in running],
            spool=spool,
            destinations=destinations,
            crew=crew,
            flows=flows.flows,
            programs=await asyncio.to_thread(context.programs),
            log=why_away,
            warm=_warm(context),
            problems=parts.problems,
        )

    async def _view(self, snapshot: Follower, document: Document) -> None:
        """Look at a snapshot once, beside the loop: there may be thousands of queues."""
        if document is not self._viewed:
            plugins, history = self._context.plugins, snapshot.history
            self._views = await asyncio.to_thread(queue_views, document, plugins, history)
            self._ledger = await asyncio.to_thread(ledger_view, document)
            self._viewed = document


class Parts:
    """Parts that are put together, and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[PartProblem] = []

    def missing(self, part: str, reason: str) -> None:
        """A part isn't there, or is old."""
        self.problems.append(PartProblem(part=part, reason=redact(reason)))

    async def part(self, name: str, made: Awaitable[T], otherwise: T) -> T:
        """A part, or what is there instead."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await made
        except ForebayError as error:
            self.missing(name, str(error))
        except TimeoutError:
            self.missing(name, f"no answer within {_PATIENCE_SECONDS:g} seconds")
        except Exception as error:  # noqa: BLE001 - one part is not there, the others are shown
            self.broken(name, error)
        return otherwise

    def broken(self, name: str, error: Exception) -> None:
        """A part failed in a way that nobody expected: the others are shown, and it is logged once."""
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        if (name, said) not in _LOGGED:
            if len(_LOGGED) >= _LOGGED_MAX:
                _LOGGED.clear()
            _LOGGED.add((name, said))
            logger.error("%s can't be shown, which nobody expected", name, exc_info=error)
        self.missing(name, said)


def why_log_away(context: Context) -> str | None:
    """Why the log can't be used, as far as it is known; it isn't asked."""
    if context.opened is None:
        return redact(context.reason)
    if context.is_healthy or context.failover is None:
        return None
    return redact(context.failover.status().reason or "the log can't be reached")


async def oldest_ids(context: Context, parts: Parts) -> Mapping[tuple[str, str, Flow], int]:
    """The oldest messages in the warm tier, where this server has them."""
    store = context.opened
    if not isinstance(store, LogStore):
        parts.missing("oldestDid", redact(context.reason))
        return {}
    return await parts.part("oldestDid", store.oldest_warm(), {})


async def running_now(context: Context, parts: Parts, limit: int) -> Sequence[Running]:
    """What is out with workers."""
    reason = why_log_away(context)
    if context.opened is None or reason is not None:
        parts.missing("tasks", reason or context.reason)
        return ()
    found = await parts.part("tasks", context.overview.running(), ())
    if unlisted := context.overview.unlisted(found):
        parts.missing("tasks", unlisted)
    return found[:limit]


async def _destinations(store: Any) -> Sequence[DestinationStatus]:
    board = destination_board_of(store)
    return () if board is None else (await board.destinations()).destinations


async def _crew(store: Any) -> Crew | None:
    board = board_of(store)
    return None if board is None else await board.crew()


async def _flows(store: Any) -> FlowPlaces:
    return await flow_places(store.log) if isinstance(store, LogStore) else NO_FLOWS


def _ledger_with(ledger: LedgerView | None, spool: SpoolStatus | None) -> LedgerView | None:
    """The books of all with what is in the spool of this server."""
    if ledger is None or spool is None or not spool.pending:
        return ledger
    accepted = ledger.accepted + spool.pending
    return msgspec.structs.replace(ledger, accepted=accepted, spooled=spool.pending)


def _spool(context: Context) -> SpoolStatus | None:
    if context.failover is None:
        return None
    status = context.failover.status()
    reason = None if status.reason is None else redact(status.reason)
    return msgspec.structs.replace(status, reason=reason)


def _warm(context: Context) -> str | None:
    problem = None if context.warm_problem is None else context.warm_problem()
    return None if problem is None else redact(problem)
