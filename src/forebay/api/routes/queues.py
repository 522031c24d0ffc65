"""Queues: create, look at, configure, pause, purge, delete.

Invariants: configuring merges; with If-Match it happens only to the configuration that the caller has seen.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.log.values import Queue
from forebay.model import Conflict, UnknownQueue
from forebay.store.values import Purged
from forebay.wire.forms import Deleted, Form, PurgeForm, QueueForm, Queues


class Changed(Conflict):
    """The configuration is no longer the one that the caller has seen."""

    status = 412


class PageQuery(Form, kw_only=True):
    """Which queues: from the first number past `after` on."""

    after: Annotated[int, Meta(ge=0, lt=1 << 18)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


async def list_queues(call: Call) -> Answer:
    """All queues, by the page."""
    page = call.query(PageQuery)
    found, after, more = list[Queue](), page.after, True
    while more and len(found) <= page.limit:  # a key may be for few of many
        some = await call.context.store.queues(after=after, limit=_STEP)
        found += [queue for queue in some if call.key.covers(queue.name)]
        more, after = len(some) == _STEP, some[-1].number if some else after
    listed, more = found[: page.limit], len(found) > page.limit
    return Answer(Queues(queues=listed, next=listed[-1].number if more else None))


async def show(call: Call) -> Answer:
    """One queue."""
    queue = await call.context.store.queue(call.params["queue"])
    if _names(call.header(b"if-none-match"), _etag(queue)):
        return Answer(b"", status=304, headers=_headers(queue), media="")
    return _answer(queue)


async def create(call: Call) -> Answer:
    """Create a queue, or find the one of that name as it is."""
    form: QueueForm = await call.form()
    store, name = call.context.store, call.params["queue"]
    async with call.context.configuring:
        try:
            await store.queue(name)
        except UnknownQueue:
            status = 201
        else:
            status = 200
        return _answer(await store.create_queue(name, form.settings or None, number=form.number), status)


async def configure(call: Call) -> Answer:
    """Change some settings; the others stay."""
    changes: dict[str, Any] = await call.form()
    store, name = call.context.store, call.params["queue"]
    wanted = call.header(b"if-match")
    async with call.context.configuring:
        if wanted is not None and not _names(wanted, _etag(await store.queue(name)), weak=False):
            text = f"the settings of {name!r} have changed since you read them"
            raise Changed(text, hint="read the queue again, and repeat with its ETag")
        return _answer(await store.configure_queue(name, changes))


async def pause(call: Call) -> Answer:
    """Hand out nothing more until it is resumed."""
    return _answer(await call.context.store.pause(call.params["queue"]))


async def resume(call: Call) -> Answer:
    """Hand out again."""
    return _answer(await call.context.store.resume(call.params["queue"]))


async def purge(call: Call) -> Answer:
    """Skip all that waits."""
    form: PurgeForm = await call.form()
    return Answer(
        await call.context.store.purge_queue(call.params["queue"], group=form.group, dry_run=form.dry_run)
    )


async def delete(call: Call) -> Answer:
    """Remove a queue with all that is in it."""
    return Answer(Deleted(deleted=await call.context.store.delete_queue(call.params["queue"])))


def _answer(queue: Queue, status: int = 200) -> Answer:
    return Answer(queue, status=status, headers=_headers(queue))


def _headers(queue: Queue) -> list[tuple[bytes, bytes]]:
    return [(b"etag", _etag(queue).encode())]


def _etag(queue: Queue) -> str:
    # In one order: a log may give labels back in another order than they came in.
    seen = msgspec.json.encode(msgspec.structs.astuple(queue), order="deterministic")
    return f'"{sha256(seen).hexdigest()[:16]}"'


def _names(header: str | None, etag: str, *, weak: bool = True) -> bool:
    """Whether a header names this ETag: `*`, or one of a list; a weak one only where that is enough."""
    if header is None:
        return False
    named = [name.strip() for name in header.split(",")]
    return named == ["*"] or etag in named or (weak and f"W/{etag}" in named)


_STEP: Final = 1_000
"""Queues that are read at a time."""
_PATH: Final = "/v1/queues/{queue}"
_TAG: Final = "Queues"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/queues",
        list_queues,
        "List queues",
        {200: Queues},
        scope="read",
        checks_queues=True,
        query=PageQuery,
        tag=_TAG,
    ),
    Route(
        "GET",
        _PATH,
        show,
        "Show a queue",
        {200: Queue, 304: None},
        scope="read",
        problems=(404,),
        headers={"If-None-Match": "An ETag: 304 when the queue is still the same"},
        tag=_TAG,
    ),
    Route(
        "PUT",
        _PATH,
        create,
        "Create a queue; one that exists stays as it is",
        {200: Queue, 201: Queue},
        scope="admin",
        body=QueueForm,
        body_is_optional=True,
        problems=(409, 413, 415),
        tag=_TAG,
    ),
    Route(
        "PATCH",
        _PATH,
        configure,
        "Change settings of a queue; what isn't named keeps its value",
        {200: Queue},
        scope="admin",
        body=dict[str, Any],
        problems=(404, 409, 412, 413, 415),
        headers={"If-Match": "The ETag of the configuration that is to be changed"},
        tag=_TAG,
    ),
    Route(
        "DELETE",
        _PATH,
        delete,
        "Delete a queue with all that is in it",
        {200: Deleted},
        scope="admin",
        tag=_TAG,
    ),
    Route(
        "POST",
        f"{_PATH}/pause",
        pause,
        "Hand out nothing more",
        {200: Queue},
        scope="admin",
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "POST",
        f"{_PATH}/resume",
        resume,
        "Hand out again",
        {200: Queue},
        scope="admin",
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "POST",
        f"{_PATH}/purge",
        purge,
        "Skip all that waits, is delayed or is out with workers",
        {200: Purged},
        scope="admin",
        body=PurgeForm,
        body_is_optional=True,
        problems=(404, 413, 415),
        tag=_TAG,
    ),
)
