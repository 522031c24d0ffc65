"""`forebay where`: the whole path of one message."""

import argparse
from typing import Any

import msgspec

from forebay.app.commands.arguments import id_range
from forebay.app.commands.opened import declare_store, on_store
from forebay.app.commands.output import (
    message_fields,
    message_line,
    print_fields,
    print_json,
    print_table,
    time_text,
)
from forebay.store.seam import Store
from forebay.store.values import BlockPlace, GroupPlace, Whereabouts

__all__ = ["declare_where", "where", "where_fields"]


def declare_where(parser: argparse.ArgumentParser) -> None:
    """The arguments of `forebay where`."""
    declare_store(parser)
    parser.add_argument("id", metavar="ID", type=_one_id, help="the id that came with the message")


def _one_id(text: str) -> int:
    found = id_range(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than one id")
    return found[0]


@on_store
async def where(store: Store, arguments: argparse.Namespace) -> int:
    """Print where a message is, and how it came there."""
    found = await store.where(arguments.id)
    if arguments.json:
        print_json(where_fields(found))
    else:
        _print_path(found)
    return 0


def where_fields(found: Whereabouts) -> dict[str, Any]:
    """The path for programs."""
    return {
        "id": str(found.id),
        "queue": found.queue,
        "sequence": found.sequence,
        "block": None if found.block is None else _block_fields(found.block),
        "message": None if found.message is None else message_fields(found.message),
        "groups": msgspec.to_builtins(found.groups),
    }


def _block_fields(block: BlockPlace) -> dict[str, Any]:
    return {**msgspec.structs.asdict(block), "first": str(block.first)}


def _print_path(found: Whereabouts) -> None:
    fields: dict[str, object] = {"message": str(found.id), "queue": found.queue, "sequence": found.sequence}
    if found.block is None:
        fields["block"] = "dropped by retention"
    else:
        fields["block"] = f"{found.block.id}, {found.block.count:,} messages from {found.block.first}"
        fields["created"] = time_text(found.block.created_at)
        fields["appended"] = time_text(found.block.appended_at)
    if found.message is not None:
        fields["payload"] = message_line(found.id, 0, found.message).split(" ", 2)[2]
    print_fields(fields)
    groups = [(g.group, g.state, g.attempts, g.worker, _when(g)) for g in found.groups]
    print_table(["group", "state", "attempts", "worker", "when"], groups)
    history = [
        (
            group.group,
            time_text(entry.at),
            entry.outcome,
            entry.attempts,
            entry.worker,
            entry.code or None,
            entry.reason,
        )
        for group in found.groups
        for entry in group.history
    ]
    if history:
        print_table(["group", "at", "outcome", "attempts", "worker", "code", "reason"], history)


def _when(place: GroupPlace) -> str:
    words = {"since": place.since, "until": place.deadline, "due": place.due_at}
    return ", ".join(f"{word} {time_text(at)}" for word, at in words.items() if at is not None)
