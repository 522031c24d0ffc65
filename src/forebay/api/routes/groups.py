"""Groups: each has its own view of a queue."""

from __future__ import annotations

from typing import Final

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route
from forebay.log.values import Group, Position, Start
from forebay.store.values import Purged
from forebay.wire.forms import Deleted, GroupForm


async def list_groups(call: Call) -> Answer:
    """The groups of a queue."""
    return Answer(await call.context.store.groups(call.params["queue"]))


async def create(call: Call) -> Answer:
    """Create a group, or find the one of that name."""
    form: GroupForm = await call.form()
    store = call.context.store
    return Answer(await store.create_group(call.params["queue"], call.params["group"], _start(form)))


async def seek(call: Call) -> Answer:
    """Go on from another place."""
    form: GroupForm = await call.form()
    return Answer(await call.context.store.seek(call.params["queue"], call.params["group"], _start(form)))


async def delete(call: Call) -> Answer:
    """Remove a group."""
    deleted = await call.context.store.delete_group(call.params["queue"], call.params["group"])
    return Answer(Deleted(deleted=deleted))


def _start(form: GroupForm) -> Start:
    return form.start if form.sequence is None else Position(form.sequence)


_PATH: Final = "/v1/queues/{queue}/groups/{group}"
_TAG: Final = "Groups"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/queues/{queue}/groups",
        list_groups,
        "List the groups of a queue",
        {200: list[Group]},
        scope="read",
        problems=(404,),
        tag=_TAG,
    ),
    Route(
        "PUT",
        _PATH,
        create,
        "Create a group; one that exists stays as it is",
        {200: Group},
        scope="admin",
        body=GroupForm,
        body_is_optional=True,
        problems=(404, 413, 415),
        tag=_TAG,
    ),
    Route(
        "POST",
        f"{_PATH}/seek",
        seek,
        "Go on from another place; leases of the group are lost",
        {200: Purged},
        scope="admin",
        body=GroupForm,
        problems=(404, 413, 415),
        tag=_TAG,
    ),
    Route(
        "DELETE", _PATH, delete, "Delete a group", {200: Deleted}, scope="admin", problems=(404,), tag=_TAG
    ),
)
