"""`forebay queues`: list, show, create, set, pause, resume, purge, delete."""

import argparse
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import msgspec

from forebay.app.commands.arguments import count, declare_page, pair
from forebay.app.commands.asking import agreed, declare_asking
from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import print_fields, print_json, print_table, time_text, warn
from forebay.log.values import GroupStats, Queue, QueueSettings, QueueStats
from forebay.model import Rejected, UnknownQueue, parse_bytes, parse_seconds
from forebay.store.seam import Store
from forebay.store.values import Purged

__all__ = [
    "create", "declare_create", "declare_delete", "declare_list", "declare_purge",
    "declare_queue", "declare_set", "delete",
    "list_queues", "parse_settings", "pause", "places", "print_purged",
    "purge", "resume", "set_queue", "show",
]  # fmt: skip


def declare_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay queues list`."""
    declare_store(parser)
    declare_page(parser)


def declare_queue(parser: argparse.ArgumentParser) -> None:
    """The arguments of a verb on one queue."""
    declare_store(parser)
    parser.add_argument("queue", metavar="QUEUE", help="the name of the queue")


def declare_create(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay queues create`."""
    declare_queue(parser)
    _declare_settings(parser, "*")
    parser.add_argument("--number", metavar="N", type=count, help="its number (default: the next one)")


def declare_set(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay queues set`."""
    declare_queue(parser)
    _declare_settings(parser, "+")


def _declare_settings(parser: argparse.ArgumentParser, number: str) -> None:
    parser.add_argument(
        "setting", metavar="SETTING=VALUE", type=pair, nargs=number,
        help="as visibility_seconds=5m, retries_max=3, expire_seconds=none",
    )  # fmt: skip


def declare_purge(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay queues purge`."""
    declare_queue(parser)
    parser.add_argument("--group", metavar="NAME", help="only of this group (default: all groups)")
    declare_asking(parser)


def declare_delete(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay queues delete`."""
    declare_queue(parser)
    declare_asking(parser)


@on_store
async def list_queues(store: Store, arguments: argparse.Namespace) -> int:
    """Print all queues and where their messages are."""
    stats = await store.ledger(after=arguments.after, limit=arguments.limit)
    rows = [_row(found) for found in stats.queues]
    if stats.next is not None:
        warn(f"there are more queues; go on with --after {stats.next}")
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        warn("there is no queue; make one with `forebay queues create NAME`")
    return 0


def _row(books: QueueStats) -> dict[str, Any]:
    queue = books.queue
    return {
        "queue": queue.name,
        "number": queue.number,
        "messages": books.next - 1 + books.spooled,
        "spooled": books.spooled,
        **places(books.groups),
        "groups": len(books.groups),
        "ordered": queue.settings.ordered,
        "paused": queue.settings.paused,
    }


@on_store
async def show(store: Store, arguments: argparse.Namespace) -> int:
    """Print all about one queue."""
    books = await _books(store, arguments.queue)
    queue = books.queue
    fields = {"queue": queue.name, "number": queue.number}
    extent = {
        "messages": books.next - 1 + books.spooled,
        "spooled": books.spooled,
        "oldest_kept": books.floor,
    }
    settings: dict[str, Any] = msgspec.to_builtins(queue.settings)
    if arguments.json:
        groups = [{"group": group.group.name, **places([group])} for group in books.groups]
        print_json(
            {**fields, "created_at": queue.created_at, **extent, "settings": settings, "groups": groups}
        )
        return 0
    print_fields({**fields, "created": time_text(queue.created_at), **extent})
    print_table(["setting", "value"], [(name, _shown(value)) for name, value in settings.items()])
    names = list(places([]))
    print_table(["group", *names], [(g.group.name, *places([g]).values()) for g in books.groups])
    return 0


@on_store
async def create(store: Store, arguments: argparse.Namespace) -> int:
    """Make a queue; one that is there is left as it is."""
    settings = parse_settings(arguments.setting)
    is_known = True
    try:
        await store.queue(arguments.queue)
    except UnknownQueue:
        is_known = False
    queue = await store.create_queue(arguments.queue, settings or None, number=arguments.number)
    if is_known:
        warn(f"queue {queue.name} was there already, and is as it was")
    _print_queue(queue, as_json=arguments.json)
    return 0


@on_store
async def set_queue(store: Store, arguments: argparse.Namespace) -> int:
    """Change settings of a queue; the others keep their values."""
    settings = parse_settings(arguments.setting)
    _print_queue(await store.configure_queue(arguments.queue, settings), as_json=arguments.json)
    return 0


@on_store
async def pause(store: Store, arguments: argparse.Namespace) -> int:
    """Hand out nothing more until it is resumed."""
    _print_queue(await store.pause(arguments.queue), as_json=arguments.json)
    return 0


@on_store
async def resume(store: Store, arguments: argparse.Namespace) -> int:
    """Hand out again."""
    _print_queue(await store.resume(arguments.queue), as_json=arguments.json)
    return 0


@on_store
async def purge(store: Store, arguments: argparse.Namespace) -> int:
    """Skip all that waits."""
    name, group = arguments.queue, arguments.group
    found = await store.purge_queue(name, group=group, dry_run=True)
    if not arguments.dry_run:
        total = sum(found.skipped.values())
        if not agreed(arguments, f"skip {total:,} messages of queue {name}, for good"):
            return 1
        found = await store.purge_queue(name, group=group)
    print_purged(found, as_json=arguments.json)
    return 0


@on_store
async def delete(store: Store, arguments: argparse.Namespace) -> int:
    """Remove a queue with all that is in it."""
    books = await _books(store, arguments.queue)
    left = sum(sum(places([group]).values()) for group in books.groups)
    kept = books.next - books.floor
    what = f"delete queue {arguments.queue} with {kept:,} messages, {left:,} of them unfinished"
    if not arguments.dry_run:
        if not agreed(arguments, what):
            return 1
        await store.delete_queue(arguments.queue)
    if arguments.json:
        fields = {"queue": arguments.queue, "messages": kept, "unfinished": left}
        print_json({**fields, "dry_run": arguments.dry_run})
    else:
        warn(f"this would {what}" if arguments.dry_run else f"queue {arguments.queue} is deleted")
    return 0


async def _books(store: Store, name: str) -> QueueStats:
    try:
        (books,) = (await store.ledger(queue=name)).queues
    except UnknownQueue as error:
        if error.hint is not None and "did you mean" in error.hint:
            raise
        raise UnknownQueue(error.message, hint="see `forebay queues list`") from None
    return books


def places(groups: Iterable[GroupStats]) -> dict[str, int]:
    """Where the unfinished messages of groups are."""
    listed = list(groups)
    return {
        "ready": sum(group.ready + group.held - group.handed + group.due for group in listed),
        "leased": sum(group.handed for group in listed),
        "delayed": sum(group.deferred - group.due + group.delayed for group in listed),
        "dead": sum(group.dead for group in listed),
    }


def print_purged(found: Purged, *, as_json: bool) -> None:
    """Print what skipping did, or would do, to each group."""
    if as_json:
        print_json(found)
        return
    names = sorted({*found.skipped, *found.again})
    rows = [(name, found.skipped.get(name, 0), found.again.get(name, 0)) for name in names]
    print_table(["group", "skipped", "again"], rows)
    if found.dry_run:
        warn("nothing was changed: this was a dry run")


def _print_queue(queue: Queue, *, as_json: bool) -> None:
    settings: dict[str, Any] = msgspec.to_builtins(queue.settings)
    if as_json:
        print_json({"queue": queue.name, "number": queue.number, "settings": settings})
    else:
        fields = {name: _shown(value) for name, value in settings.items()}
        print_fields({"queue": queue.name, "number": queue.number, **fields})


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "none" if value is None else value if isinstance(value, bool) else str(value)


def parse_settings(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Settings of a queue as they are written on the command line; unknown ones are refused by name."""
    names = QueueSettings.__struct_fields__
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise Rejected(f"a queue has no setting {name!r}", hint=hint)
        found[name] = _value(name, text)
    return found


def _labels(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        hint = """give an object of JSON, as labels={"team": "blue"}"""
        raise Rejected(f"setting labels is not JSON: {error}", hint=hint) from error


def _value(name: str, text: str) -> object:
    if name == "labels":
        return _labels(text)
    lowered = text.lower()
    if lowered in ("none", "null", ""):
        return None
    if lowered in ("true", "yes", "on", "false", "no", "off"):
        return lowered in ("true", "yes", "on")
    if name.endswith("_seconds"):
        return parse_seconds(text)
    if name.endswith("_bytes"):
        return parse_bytes(text)
    if text.isascii() and text.isdigit() and len(text) < 19:  # noqa: PLR2004 - what an int64 holds
        return int(text)
    raise Rejected(f"setting {name} is {text[:64]!r}", hint="give a number, true, false or none")
