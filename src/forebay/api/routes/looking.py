"""Looking: peek, stats, the ledger, flows, running tasks, the spool, and the path of one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.context import Context
from forebay.api.routing import NoRoute, Route
from forebay.failover.books import with_answered, with_spooled
from forebay.failover.status import SpoolStatus
from forebay.log.values import RejectedRow, Stats
from forebay.model import Unavailable, UnknownQueue, parse_message_id, queue_of, redact
from forebay.observe.last_books import last_books
from forebay.store.store import LogStore
from forebay.store.values import FlowStats, Peeked, Running, StoreStats
from forebay.wire.forms import Form, PeekedPage, RunningPage, WhereForm, peeked_form, running_form, where_form


class PeekQuery(Form, kw_only=True):
    """How many, and of which group."""

    count: Annotated[int, Meta(ge=1, le=1_000)] = 10
    group: str = "workers"


class RejectedQuery(Form, kw_only=True):
    """Beyond which id to begin, and how many."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class RejectedPage(Form, kw_only=True):
    """Rows of the SQL inbox that no block can hold."""

    rejected: Sequence[RejectedRow]


class LimitQuery(Form, kw_only=True):
    """How many."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class BooksQuery(Form, kw_only=True):
    """Which queues: one by its name, or a page from the first number past `after` on."""

    queue: str | None = None
    after: Annotated[int, Meta(ge=0, lt=1 << 18)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


class LedgerQuery(BooksQuery, kw_only=True):
    """The same, and whether the last known books will do."""

    last_known: bool = False


async def peek(call: Call) -> Answer:
    """What would be handed out next."""
    query = call.query(PeekQuery)
    found = await call.context.store.peek(call.params["queue"], query.count, group=query.group)

    def form(found: Sequence[Peeked]) -> PeekedPage:
        return PeekedPage(messages=[peeked_form(peeked) for peeked in found])

    return Answer(found, form)


async def where(call: Call) -> Answer:
    """The whole path of one message."""
    id = parse_message_id(call.params["id"])
    names = await call.context.names(queue_of(id))
    call.allow(names.get(queue_of(id), ""))
    return Answer(await call.context.store.where(id), where_form)


async def stats(call: Call) -> Answer:
    """Where the tasks of queues are, by the page."""
    page = call.query(BooksQuery)
    return Answer(await call.context.store.get_stat(queue=page.queue, after=page.after, limit=page.limit))


async def ledger(call: Call) -> Answer:
    """The books of queues and groups, by the page, with what is in the spool.

    While the log is away whoever wants the last known ones gets those of the last snapshot, all at once.
    """
    page, context = call.query(LedgerQuery), call.context
    spooled = {} if context.failover is None else context.failover.status().queues
    if page.queue is not None:
        spooled = {name: count for name, count in spooled.items() if name == page.queue and count}
    try:
        books = await context.store.ledger(queue=page.queue, after=page.after, limit=page.limit)
    except UnknownQueue:
        if not spooled:
            raise
        books = Stats(context.clock.now(), [])  # it is made when it comes from the spool
    except Unavailable:
        document = None if context.snapshot is None else context.snapshot.document
        if document is None or not page.last_known:
            raise
        books = last_books(document, page.queue)
        return Answer(with_answered(with_spooled(books, spooled), _answered(context)))
    listed = {found.queue.name for found in books.queues}
    if books.next is not None or page.after:  # what isn't made yet comes last
        elsewhere = [name for name in spooled if name not in listed]
        unmade = () if books.next is not None else await _unmade(call, elsewhere)
        spooled = {name: count for name, count in spooled.items() if name in listed or name in unmade}
    return Answer(with_answered(with_spooled(books, spooled), _answered(context)))


def _answered(context: Context) -> Mapping[tuple[str, str], int]:
    """Tasks whose outcomes wait in the spool, by queue and group, as far as this process works on these."""
    answered = {} if context.failover is None else context.failover.answered
    if not answered or not isinstance(context.opened, LogStore):
        return {}
    names = context.opened.group_names()
    return {names[number]: count for number, count in answered.items() if number in names}


async def _unmade(call: Call, names: Sequence[str]) -> set[str]:
    """Those that are no queues yet."""
    found = set()
    for name in names:
        try:
            await call.context.store.queue(name)
        except UnknownQueue:
            found.add(name)
    return found


async def spool(call: Call) -> Answer:
    """What waits for the log, by queue, and since when."""
    if call.context.failover is None:
        raise NoRoute("this server has no spool", hint="it is switched on by spool.enabled")
    status = call.context.failover.status()
    if status.reason is not None:
        status = msgspec.structs.replace(status, reason=redact(status.reason))
    return Answer(status)


async def inbox_rejected(call: Call) -> Answer:
    """Rows of the SQL inbox that no block can hold."""
    query = call.query(RejectedQuery)
    found = await call.context.store.inbox_rejected(query.after, query.limit)

    def form(found: Sequence[RejectedRow]) -> RejectedPage:
        return RejectedPage(rejected=found)

    return Answer(found, form)


async def flows(call: Call) -> Answer:
    """What waits, by flow, by the page of queues."""
    page = call.query(BooksQuery)
    return Answer(await call.context.store.flow_stats(queue=page.queue, after=page.after, limit=page.limit))


async def running(call: Call) -> Answer:
    """Who works on what."""
    found = await call.context.store.running(call.query(LimitQuery).limit)

    def form(found: Sequence[Running]) -> RunningPage:
        return RunningPage(running=[running_form(piece) for piece in found])

    return Answer(found, form)


_TAG: Final = "Looking"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/queues/{queue}/peek",
        peek,
        "Look at what would be handed out next",
        {200: PeekedPage},
        scope="read",
        query=PeekQuery,
        problems=(404,),
        bulk=True,
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/messages/{id}",
        where,
        "The whole path of one message: block, tier, every attempt, outcome",
        {200: WhereForm},
        scope="read",
        checks_queues=True,
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/stats",
        stats,
        "Where the tasks of queues are, by the page",
        {200: StoreStats},
        scope="read",
        query=BooksQuery,
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/ledger",
        ledger,
        "The books of queues and groups, by the page",
        {200: Stats},
        scope="read",
        query=LedgerQuery,
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/spool",
        spool,
        "What waits on the server's disk for the log",
        {200: SpoolStatus},
        scope="read",
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/flows",
        flows,
        "What waits, warm and cold, by flow, by the page of queues",
        {200: FlowStats},
        scope="read",
        query=BooksQuery,
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/running",
        running,
        "Tasks that are out with workers, longest first",
        {200: RunningPage},
        scope="read",
        query=LimitQuery,
        tag=_TAG,
    ),
    Route(
        "GET",
        "/v1/inbox/rejected",
        inbox_rejected,
        "Rows of the SQL inbox that no block can hold, and why",
        {200: RejectedPage},
        scope="admin",
        query=RejectedQuery,
        tag=_TAG,
    ),
)
