"""Single messages by hand: delete one, retry one, make one a dead letter; and clear a whole queue.

Invariants: what is deleted is handed out to nobody, counts as purged in every group that had not finished it,
and can be restored as a dead letter for a week; what is moved is a dead letter of every group that had not
finished it. A call that fails half way can be repeated.
"""

from __future__ import annotations

from typing import Any, Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.queen.hands import Place
from forebay.api.queen.lookup import Meant, NoMessage, meant
from forebay.api.queen.names import group_name, partition_name, queue_name
from forebay.api.queen.reading import Query
from forebay.api.queen.routes import queen_route
from forebay.api.queen.standing import OPEN
from forebay.model import Rejected, UnknownQueue
from forebay.store.values import GroupPlace

DELETED: Final = "deleted by hand"
MOVED: Final = "moved by hand"
_FINISHED: Final = "Message is finished: every group is done with it"


async def delete(call: Call) -> Answer:
    """Nobody gets the message any more who has not finished it."""
    try:
        which = await meant(call)
    except NoMessage:
        return Answer(_told(call, success=False, text="Message not found"), status=404)
    store, count = call.desk.store, 0
    for place in await _places(call, which):
        if place.state in OPEN:
            await _bury(call, which, place.group, DELETED)
        if place.state in OPEN or place.state == "dead":
            count += len(await store.purge(which.queue.name, [which.id], group=place.group))
    text = "Message deleted successfully" if count else _FINISHED
    return Answer(_told(call, success=bool(count), text=text))


async def move(call: Call) -> Answer:
    """The message becomes a dead letter of every group that has not finished it, or of the named one."""
    which, count = await meant(call), 0
    places = await _places(call, which)
    for place in places:
        if place.state in OPEN:
            count += await _bury(call, which, place.group, MOVED)
    text = "Message moved to the dead letters" if count else _FINISHED
    if not count and any(place.state == "dead" for place in places):
        text = "Message is a dead letter already"
    return Answer(_told(call, success=bool(count), text=text))


async def retry(call: Call) -> Answer:
    """A dead letter is handed out again; what is delayed comes at once; anything else says why not."""
    which, store, texts = await meant(call), call.desk.store, list[str]()
    retried = False
    for place in await _places(call, which):
        if place.state == "dead":
            done = bool(await store.redrive(which.queue.name, [which.id], group=place.group))
        elif place.state == "delayed":
            done = await store.hasten(which.id, group=place.group)
        else:
            texts.append(_why_not(place))
            continue
        retried = retried or done
    if retried:
        return Answer(_told(call, success=True, text="Message is handed out again"))
    text = max(texts, key=len, default="Message changed hands meanwhile")
    return Answer(_told(call, success=False, text=text))


def _why_not(place: GroupPlace) -> str:
    if place.state == "leased":
        return "Message is out with a consumer"
    return "Message waits to be handed out" if place.state in OPEN else _FINISHED


async def _places(call: Call, which: Meant) -> list[GroupPlace]:
    """Where the groups have the message; of one group, if the query names it."""
    named = Query(call).text("consumerGroup")
    places = (await call.desk.store.where(which.id)).groups
    return [place for place in places if named is None or place.group == group_name(named)]


async def _bury(call: Call, which: Meant, group: str, reason: str) -> bool:
    buried = await call.desk.store.bury_message(which.id, reason, group=group)
    place = Place(which.queue.number, group, which.partition, call.params["transaction"])
    call.desk.hands.settled([place])
    return buried


def _told(call: Call, *, success: bool, text: str) -> dict[str, Any]:
    return {
        "success": success,
        "partitionId": call.params["partition"],
        "transactionId": call.params["transaction"],
        "message": text,
        **({} if success else {"error": text}),
    }


async def clear(call: Call) -> Answer:
    """Skip all that waits in a queue, or in one of its partitions, for every group; dead letters stay."""
    shown, partition = call.params["queue"], Query(call).text("partition")
    call.allow(queue_name(shown))
    queue, store = await call.desk.queue(shown), call.desk.store
    if queue is None:
        raise UnknownQueue("Queue not found", hint="a queue is made by configure, or by the first push")
    groups = [group.name for group in await store.groups(queue.name)]
    if partition is None:
        skipped = dict((await store.purge_queue(queue.name)).skipped)
    elif not queue.settings.ordered:
        text = f"queue {shown!r} has no order of its own, so it isn't cleared by partition"
        raise Rejected(text, hint="clear the whole queue")
    else:
        name = partition_name(partition)
        skipped = {group: await store.skip_partition(queue.name, name, group=group) for group in groups}
    for group in groups:
        call.desk.hands.forget(queue.number, group, None if partition is None else partition_name(partition))
    return Answer(
        {
            "success": True,
            "cleared": True,
            "queue": shown,
            "partition": partition,
            "messagesCleared": max(skipped.values(), default=0),
        }
    )


_MESSAGE: Final = "/api/v1/messages/{partition}/{transaction}"
ROUTES: Final = (
    queen_route("DELETE", _MESSAGE, delete, "Delete a message", scope="take"),
    queen_route("POST", f"{_MESSAGE}/retry", retry, "Hand a message out again", scope="take"),
    queen_route("POST", f"{_MESSAGE}/dlq", move, "Make a message a dead letter", scope="take"),
    queen_route("DELETE", "/api/v1/queues/{queue}/clear", clear, "Clear a queue", scope="admin"),
)
