"""Configure: make a queue, or change its options; and delete it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.desk import Desk
from forebay.api.queen.identity import partition_uuid, queue_uuid
from forebay.api.queen.names import queue_name
from forebay.api.queen.options import Facts, changed, settings_of
from forebay.api.queen.reading import Body, read
from forebay.api.queen.routes import queen_route
from forebay.log.values import Queue
from forebay.model import Conflict, Rejected, UnknownQueue

_TRIES: Final = 5


class ConfigureForm(Body):
    """A queue and its options."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    options: Any = None


async def configure(call: Call) -> Answer:
    """Make a queue, or change it; what isn't named keeps its value."""
    form = await read(call, ConfigureForm)
    if form.queue is None:
        raise Rejected("queue is required", hint='send {"queue": "q", "options": {}}')
    desk, name = call.desk, queue_name(form.queue)
    call.allow(name)
    async with call.context.configuring:
        queue, facts = await _configured(desk, form, name)
    await desk.directory.enter(queue, [""])
    return Answer(
        {
            "configured": True,
            "queueId": queue_uuid(queue.number),
            "partitionId": partition_uuid(queue.number, ""),
            "queue": form.queue,
            "namespace": facts.namespace,
            "task": facts.task,
            "options": msgspec.to_builtins(facts.options),
        }
    )


async def _configured(desk: Desk, form: ConfigureForm, name: str) -> tuple[Queue, Facts]:
    """The queue with its new options; again where another server makes or deletes it meanwhile."""
    shown = form.queue or ""
    for _ in range(_TRIES):
        found = await desk.queue(shown)
        before = Facts() if found is None else desk.facts(found)
        facts = Facts(
            before.namespace if form.namespace is None else form.namespace,
            before.task if form.task is None else form.task,
            changed(before.options, form.options),
        )
        if facts.options.encryption_enabled:
            desk.seal()
        if found is None:
            queue = await desk.create(shown, facts)
            if desk.facts(queue) == facts:
                return queue, facts
            continue
        with suppress(UnknownQueue):
            settings = settings_of(facts, found.settings.labels)
            return await desk.store.configure_queue(name, settings), facts
    raise Conflict(f"queue {shown!r} is made and deleted all the time", hint="configure it again")


async def delete(call: Call) -> Answer:
    """Remove a queue with all that is in it."""
    shown = call.params["queue"]
    call.allow(queue_name(shown))
    existed = await call.desk.delete(shown)
    return Answer({"deleted": True, "queue": shown, "existed": existed})


ROUTES: Final = (
    queen_route("POST", "/api/v1/configure", configure, "Make or change a queue", scope="push"),
    queen_route("DELETE", "/api/v1/resources/queues/{queue}", delete, "Delete a queue", scope="admin"),
)
