"""`forebay groups`: list, create, seek, delete."""

import argparse

from forebay.app.commands.arguments import place
from forebay.app.commands.asking import agreed, declare_asking
from forebay.app.commands.opened import on_store
from forebay.app.commands.output import print_json, print_table, warn
from forebay.app.commands.queues import declare_queue, places, print_purged
from forebay.log.values import Group
from forebay.model import UnknownGroup
from forebay.store.seam import Store

__all__ = [
    "create", "declare_create", "declare_delete", "declare_seek", "delete", "list_groups", "seek",
]  # fmt: skip


def _declare_name(parser: argparse.ArgumentParser) -> None:
    declare_queue(parser)
    parser.add_argument("group", metavar="GROUP", help="the name of the group")


def declare_create(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay groups create`."""
    _declare_name(parser)
    parser.add_argument(
        "--start", metavar="PLACE", type=place, default="earliest",
        help="earliest, latest, a time, or how long ago as 10m (default: %(default)s)",
    )  # fmt: skip


def declare_seek(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay groups seek`."""
    _declare_name(parser)
    parser.add_argument(
        "--to", metavar="PLACE", type=place, required=True,
        help="earliest, latest, a time as 2026-01-31T12:00:00Z, or how long ago as 10m",
    )  # fmt: skip
    declare_asking(parser, dry_run=False)


def declare_delete(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay groups delete`."""
    _declare_name(parser)
    declare_asking(parser)


@on_store
async def list_groups(store: Store, arguments: argparse.Namespace) -> int:
    """Print the groups of a queue and where each has its messages."""
    known = {group.number: group for group in await store.groups(arguments.queue)}
    rows = [
        {"group": found.group.name, "start": found.group.start, **places([found]), "done": found.done}
        for books in (await store.ledger(queue=arguments.queue)).queues
        for found in books.groups
        if found.group.number in known
    ]
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        warn(f"queue {arguments.queue} has no group")
    return 0


@on_store
async def create(store: Store, arguments: argparse.Namespace) -> int:
    """Make a group; one that is there is left as it is."""
    known = {group.name for group in await store.groups(arguments.queue)}
    group = await store.create_group(arguments.queue, arguments.group, arguments.start)
    if group.name in known:
        warn(f"group {group.name} was there already, and is where it was")
    fields = {"queue": arguments.queue, "group": group.name, "start": group.start}
    if arguments.json:
        print_json(fields)
    else:
        print_table(list(fields), [list(fields.values())])
    return 0


@on_store
async def seek(store: Store, arguments: argparse.Namespace) -> int:
    """Go on from another place in the queue."""
    await _group(store, arguments)
    what = f"move group {arguments.group} of queue {arguments.queue}, and end its leases"
    if not agreed(arguments, what):
        return 1
    print_purged(await store.seek(arguments.queue, arguments.group, arguments.to), as_json=arguments.json)
    return 0


@on_store
async def delete(store: Store, arguments: argparse.Namespace) -> int:
    """Remove a group, with its dead letters."""
    await _group(store, arguments)
    what = f"delete group {arguments.group} of queue {arguments.queue}, with its place and its dead letters"
    if not arguments.dry_run:
        if not agreed(arguments, what):
            return 1
        await store.delete_group(arguments.queue, arguments.group)
    if arguments.json:
        print_json({"queue": arguments.queue, "group": arguments.group, "dry_run": arguments.dry_run})
    else:
        warn(f"this would {what}" if arguments.dry_run else f"group {arguments.group} is deleted")
    return 0


async def _group(store: Store, arguments: argparse.Namespace) -> Group:
    found = await store.groups(arguments.queue)
    for group in found:
        if group.name == arguments.group:
            return group
    names = ", ".join(group.name for group in found[:20])
    text = f"queue {arguments.queue!r} has no group {arguments.group!r}"
    raise UnknownGroup(text, hint=f"it has {names}" if names else "make it with `forebay groups create`")
